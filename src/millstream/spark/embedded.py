"""The JVM of an embedded Spark: whether a program needs one, and starting it early.

This module does not import PySpark: the JVM starts meanwhile.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import site
import sys
import tempfile
import threading

from millstream.common.configuration import Configuration
from millstream.common.memory_on_spark import spark_settings
from millstream.operating_system import system
from millstream.spark.control import DIRECTORY_VARIABLE, make_directory
from millstream.spark.gateway import Gateway, JvmSettings, spark_home
from millstream.spark.java import find_java
from millstream.spark.master import LOG_LEVEL, check_settings, hadoop_directories, master_of
from millstream.spark.pyspark_internals import has_gateway
from millstream.spark.session_attachment import attachment

# Options: no status output; Spark's class archive.
QUIET = "millstream.quiet"
ARCHIVE = "millstream.spark.class-archive"

# Masters whose driver is this process, with a JVM that needs only Spark's jars and, for YARN, Hadoop's settings.
_OWN_JVM = ("local", "spark://", "yarn", "k8s://")
_LOCAL = re.compile(r"local(?:\[([*\d]+)(?:,\s*(\d+))?\])?")

_lock = threading.Lock()
# The most recently started JVM.
_started: list[Gateway] = []


def local_cores(master: str) -> int | None:
    """Return the number of cores of a local master; None for a cluster."""
    match = _LOCAL.fullmatch(master)
    if match is None:
        return None
    cores = match.group(1) or "1"
    return system.cores() if cores == "*" else int(cores)


def with_cores(master: str, cores: int) -> str:
    """Return a local master with another number of cores."""
    match = _LOCAL.fullmatch(master)
    failures = match.group(2) if match else None
    return f"local[{cores}{f',{failures}' if failures else ''}]"


def local_parallelism(config: Configuration) -> int | None:
    """Return the default parallelism of a local master: its cores; None for a cluster."""
    check_settings(config)
    return local_cores(master_of(config))


def needs_jvm(config: Configuration) -> bool:
    """Return whether Spark needs a new JVM of this process."""
    if attachment() is not None or not master_of(config).startswith(_OWN_JVM) or "PYSPARK_GATEWAY_PORT" in os.environ:
        return False
    return not has_gateway() or is_dead()


def start_ahead(config: Configuration) -> None:
    """Start the JVM that a job will need, without waiting for it.

    Only the first one: PySpark must drop a dead JVM before another starts, or its end would not be noticed.
    """
    check_settings(config)
    with _lock:
        if not _started and needs_jvm(config):
            _start(config)


def gateway(config: Configuration) -> Gateway:
    """Return a JVM for PySpark: the one started early, or a new one."""
    with _lock:
        ahead = _started[-1] if _started else None
        if ahead is not None and not ahead.is_awaited:
            if ahead.settings == _settings(config):
                return ahead
            # It was started with other settings.
            ahead.stop()
        return _start(config)


def is_dead() -> bool:
    """Return whether the most recent JVM has ended."""
    return bool(_started) and _started[-1].is_dead


def _start(config: Configuration) -> Gateway:
    for dead in _started:
        # Reap it, and remove its pipe and directory.
        dead.stop()
    started = Gateway(find_java(), _settings(config), _environment(config))
    _started[:] = [started]
    return started


def _settings(config: Configuration) -> JvmSettings:
    directories = hadoop_directories() if master_of(config) == "yarn" else ()
    return JvmSettings(
        memory=config.get_string("spark.driver.memory", spark_settings(config).get("spark.driver.memory", "1g")),
        options=tuple(config.get_string("spark.driver.extraJavaOptions", "").split()),
        log_level=LOG_LEVEL.read(config).name.lower(),
        # A class archive covers only jars.
        archive=config.get_boolean(ARCHIVE, True) and not directories,
        quiet=config.get_boolean(QUIET, False),
        directories=directories,
    )


def _environment(config: Configuration) -> dict[str, str]:
    variables = {**os.environ, "SPARK_HOME": spark_home()}
    if not master_of(config).startswith("local"):
        # Executors are on other machines: they must reach this one, and have no access to its files.
        return variables
    variables.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    variables[DIRECTORY_VARIABLE] = make_directory()
    if master_of(config).startswith("local-cluster"):
        # Variables that Spark's scripts set for the launcher of executors, and their work directory.
        variables.setdefault("SPARK_SCALA_VERSION", "2.13")
        variables.setdefault("SPARK_WORKER_DIR", _temporary_directory())
    elif _finds_pyspark(config):
        # With SPARK_HOME, Spark prepends packed copies of PySpark to the workers' path, and each daemon would compile
        # them again, for half a second.
        del variables["SPARK_HOME"]
    return variables


def _finds_pyspark(config: Configuration) -> bool:
    """Return whether workers find this process's PySpark among their installed packages."""
    if config.contains_key("python.executable") or os.environ.get("PYSPARK_PYTHON", sys.executable) != sys.executable:
        return False
    directories = [*site.getsitepackages(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    if site.ENABLE_USER_SITE:
        directories.append(site.getusersitepackages())
    return os.path.dirname(spark_home()) in directories


def _temporary_directory() -> str:
    directory = tempfile.mkdtemp(prefix="millstream-executors-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory
