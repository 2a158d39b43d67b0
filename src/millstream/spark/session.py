"""The Spark context that jobs run on: an embedded one made here, or the one the program already has."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkConf, SparkContext

from millstream.common.configuration import Configuration
from millstream.spark.control import DIRECTORY_VARIABLE, make_directory
from millstream.spark.gateway import is_dead, start_gateway
from millstream.spark.java import Java, find_java
from millstream.spark.master import DEFAULT_MASTER, LOG_LEVEL

DAEMON_MODULE = "millstream.spark.daemon"
# A job whose slots stay holds one core of an embedded Spark. There cores are nothing but permits, so there are so many
# more of them than were asked for: jobs do not wait for each other, and Spark's own jobs find as many free as ever.
SPARE_CORES = 16

_LOCAL = re.compile(r"local(?:\[([*\d]+)(?:,\s*(\d+))?\])?")

# What a stream wants of Spark, on any master. A user's own spark.* settings win.
_STREAM = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": DAEMON_MODULE,
    # An epoch fails as a whole and the restart strategy decides; Spark does not retry parts of it.
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.speculation": "false",
    "spark.scheduler.mode": "FAIR",
    # One job an epoch, for ever: what Spark remembers of past ones must stay small.
    "spark.ui.retainedJobs": "16",
    "spark.ui.retainedStages": "32",
    "spark.ui.retainedTasks": "256",
    "spark.ui.dagGraph.retainedRootRDDs": "16",
    "spark.cleaner.periodicGC.interval": "5min",
    "spark.locality.wait": "0",
}

# An embedded Spark moves its blocks over this machine's page cache: compressing them only costs time.
_EMBEDDED = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.broadcast.compress": "false",
    "spark.dynamicAllocation.enabled": "false",
}

_lock = threading.Lock()
_settings: dict[str, str] = {}


def get_context(config: Configuration) -> SparkContext:
    """Return the program's Spark context, starting Spark when there is none."""
    with _lock:
        if is_dead():
            _forget_dead()
        active = SparkContext._active_spark_context
        if active is not None:
            _warn_about(active, config)
            return active
        return _start(config)


def _forget_dead() -> None:
    """Let PySpark forget a JVM that was killed, so that another can be started."""
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    _settings.clear()


def _start(config: Configuration) -> SparkContext:
    wanted = {k: v for k, v in config.to_dict().items() if k.startswith("spark.")}
    master: str = wanted.get("spark.master") or os.environ.get("MASTER") or DEFAULT_MASTER
    settings = {
        **_STREAM,
        **(_EMBEDDED if master.startswith("local") else {}),
        **wanted,
        "spark.master": master,
    }
    settings.setdefault("spark.app.name", "millstream")
    # A program that logs its own doings to its output does not mean those of the bridge to Java.
    bridge = logging.getLogger("py4j")
    if bridge.level == logging.NOTSET:
        bridge.setLevel(logging.WARNING)
    log_level = LOG_LEVEL.read(config).name.lower()
    started, cores = "", local_cores(master)
    if master.startswith("local") and SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        started = f", Java {_start_jvm(settings, log_level).version}"
        if cores is not None:
            settings["spark.master"] = _with_spare_cores(master, cores)
            settings.setdefault("spark.default.parallelism", str(cores))
    conf = SparkConf(loadDefaults=False) if master.startswith("local") else SparkConf()
    for key, value in settings.items():
        conf.set(key, value)
    # Workers must run the very interpreter that pickled the job.
    with _environment({"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}):
        context = SparkContext(conf=conf)
    # Before the JVM goes, which the gateway sees to.
    atexit.register(stop_context)
    if not master.startswith("local"):
        context.setLogLevel(log_level.upper())
    _settings.update(wanted, **{"spark.master": master})
    if not config.get_boolean("millstream.quiet", False):
        cores = context.defaultParallelism
        print(
            f"millstream: running on Spark {context.version} ({master}, {cores} cores{started})",
            file=sys.stderr,
        )
    return context


def local_cores(master: str) -> int | None:
    """Return how many cores a master on this machine has; None if it is elsewhere."""
    found = _LOCAL.fullmatch(master)
    if found is None:
        return None
    cores = found.group(1) or "1"
    return len(os.sched_getaffinity(0)) if cores == "*" else int(cores)


def _with_spare_cores(master: str, cores: int) -> str:
    found = _LOCAL.fullmatch(master)
    failures = found.group(2) if found else None
    return f"local[{cores + SPARE_CORES}{f',{failures}' if failures else ''}]"


def _start_jvm(settings: dict[str, str], log_level: str) -> Java:
    java = find_java()
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP", "127.0.0.1"),
        DIRECTORY_VARIABLE: make_directory(),
    }
    if settings["spark.master"].startswith("local-cluster"):
        # What Spark's scripts tell the launcher of executors, and where these may write.
        environment.setdefault("SPARK_SCALA_VERSION", "2.13")
        environment.setdefault("SPARK_WORKER_DIR", _temporary_directory())
    options = settings.get("spark.driver.extraJavaOptions", "").split()
    reached_by = start_gateway(java, settings.get("spark.driver.memory", "1g"), options, log_level, environment)
    with _environment(reached_by):
        SparkContext._ensure_initialized()
    return java


def _temporary_directory() -> str:
    directory = tempfile.mkdtemp(prefix="millstream-executors-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables for a moment: PySpark looks for them there, but other programs this one starts must not."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _warn_about(context: SparkContext, config: Configuration) -> None:
    """Say what cannot be had any more because Spark is already running."""
    ours = context.getConf().get("spark.python.daemon.module") == DAEMON_MODULE
    if not ours:
        warnings.warn(
            "The SparkContext of this program was not started by millstream: slots have no processes of their own, so "
            "state is read again whenever Spark moves a slot. Start it with "
            f"spark.python.daemon.module={DAEMON_MODULE} and spark.python.unix.domain.socket.enabled=true.",
            stacklevel=2,
        )
    for key, value in config.to_dict().items():
        if key.startswith("spark.") and _settings.get(key) != value and context.getConf().get(key) != value:
            warnings.warn(f"Spark is already running: the setting {key}={value} has no effect.", stacklevel=2)


def stop_context() -> None:
    """Stop Spark, if it runs."""
    with _lock:
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
        _settings.clear()
