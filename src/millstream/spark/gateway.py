"""Starts and stops the JVM of an embedded Spark.

PySpark would start it through a shell script and a launcher JVM. Starting it here saves a second, keeps its warnings
off the user's terminal, and works with a Java without the modules that the launcher needs. This module does not import
PySpark, so that the JVM starts meanwhile.
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial

from millstream.common.errors import NO_SPARK, MillstreamError, SparkNotFoundError
from millstream.spark.java import Java
from millstream.spark.jvm_class_archive import ClassArchive, find_archive
from millstream.spark.processes import leave_to_parent

log = logging.getLogger("millstream")

# The packages that Spark accesses; the same list as its own launcher's.
_OPENED = [
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
]

_LOGGING = """\
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n
"""


# Timeouts of the JVM's start and end; longer if it writes a class archive.
_START_SECONDS, _END_SECONDS, _WRITING_SECONDS = 60.0, 5.0, 60.0


@dataclass(frozen=True)
class JvmSettings:
    """The settings of a JVM.

    Attributes:
        options: the user's options.
        archive: whether to use a class archive.
        quiet: whether to suppress status output.
        directories: Hadoop's configuration directories, for YARN.
    """

    memory: str
    options: tuple[str, ...]
    log_level: str
    archive: bool
    quiet: bool
    directories: tuple[str, ...] = ()


class Gateway:
    """A JVM and its Py4J gateway."""

    def __init__(self, java: Java, settings: JvmSettings, environment: dict[str, str]) -> None:
        """Start the JVM; `connect` waits for it."""
        self.java = java
        self.settings = settings
        self._environment = environment
        self._directory = tempfile.mkdtemp(prefix="millstream-")
        # The JVM writes its port and secret here.
        self._info = os.path.join(self._directory, "gateway")
        self._archive = self._find_archive() if settings.archive else None
        self._process = self._start()
        self._is_awaited = self._is_used = False
        atexit.register(self.stop)

    @property
    def is_dead(self) -> bool:
        return self._process.poll() is not None

    @property
    def is_awaited(self) -> bool:
        """Whether `connect` was called."""
        return self._is_awaited

    def connect(self) -> dict[str, str]:
        """Wait for the gateway; return PySpark's environment variables for it."""
        self._is_awaited = True
        try:
            port, secret = self._wait()
        except MillstreamError:
            if self._archive is None:
                raise
            # The archive may be at fault: start without it.
            self._kill()
            self._archive.give_up()
            self._archive = None
            self._process = self._start()
            port, secret = self._wait()
        self._is_used = True
        shutil.rmtree(self._directory, ignore_errors=True)
        return {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}

    def stop(self) -> None:
        """Stop the JVM; if it was used, wait for Spark to stop and to write a class archive if there is none."""
        atexit.unregister(self.stop)
        was_used = self._is_used and not self.is_dead
        has_ended = False
        try:
            has_ended = was_used and self._close()
        finally:
            # It was not used, or does not end.
            self._kill()
            shutil.rmtree(self._directory, ignore_errors=True)
            self._finish_archive(was_used, has_ended)

    def _close(self) -> bool:
        """Let the JVM end by itself; return whether it has."""
        writes = self._archive is not None and self._archive.is_being_written
        if self._archive is not None and writes and not self.settings.quiet:
            directory = os.path.dirname(self._archive.path)
            print(f"millstream: writing Spark's classes to {directory}, once, for faster starts", file=sys.stderr)
        self._close_input()
        seconds = _WRITING_SECONDS if writes else _END_SECONDS
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            log.debug("the JVM did not exit within %g s", seconds)
            return False
        return True

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._close_input()

    def _finish_archive(self, was_used: bool, has_ended: bool) -> None:
        if self._archive is None or not self._archive.is_being_written:
            return
        if has_ended:
            self._archive.keep()
        elif was_used:
            self._archive.give_up()
        else:
            self._archive.drop()

    def _find_archive(self) -> ClassArchive | None:
        # Options of a single JVM are not part of the archive's key.
        return find_archive(self.java, _jars(), self._options(), list(self.settings.options))

    def _start(self) -> subprocess.Popen[bytes]:
        logging_file = os.path.join(self._directory, "log4j2.properties")
        with open(logging_file, "w") as f:
            f.write(_LOGGING.format(level=self.settings.log_level))
        command = [
            self.java.path,
            *([] if self._archive is None else self._archive.options),
            *self._options(),
            f"-Dlog4j2.configurationFile={logging_file}",
            *self.settings.options,
            "-cp",
            os.pathsep.join([os.path.join(_jars(), "*"), *self.settings.directories]),
            "org.apache.spark.deploy.SparkSubmit",
            "pyspark-shell",
        ]
        return subprocess.Popen(
            command,
            # The JVM ends when this pipe closes, so it cannot outlive this process.
            stdin=subprocess.PIPE,
            env={
                **self._environment,
                "_PYSPARK_DRIVER_CONN_INFO_PATH": self._info,
                "SPARK_CONNECT_MODE": "0",
            },
            # Ctrl-C, SIGTERM and SIGHUP to the process group are for the Python program, which stops the JVM.
            preexec_fn=partial(leave_to_parent, _signals_of_program(self._environment)),
        )

    def _options(self) -> list[str]:
        return [
            f"-Xmx{self.settings.memory}",
            "-XX:+IgnoreUnrecognizedVMOptions",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseParallelGC",
            # Disable jstat counters, which are sampled twenty times a second even on idle jobs.
            "-XX:-UsePerfData",
            *jvm_options(self.java),
        ]

    def _wait(self) -> tuple[int, str]:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if self.is_dead:
                raise MillstreamError(
                    f"The Java process that runs Spark ended with code {self._process.returncode} while starting."
                )
            # The JVM moves the complete file into place.
            if os.path.isfile(self._info):
                with open(self._info, "rb") as f:
                    data = f.read()
                port, length = struct.unpack_from(">ii", data)
                return port, data[8 : 8 + length].decode()
            time.sleep(0.005)
        self._kill()
        raise MillstreamError(f"The Java process that runs Spark did not start within {_START_SECONDS:g} seconds.")


def jvm_options(java: Java) -> list[str]:
    """Return the JVM options that Spark requires."""
    options = [f"--add-opens={o}=ALL-UNNAMED" for o in _OPENED]
    if java.version >= 24:
        options += ["--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED"]
    return [*options, "-Dio.netty.tryReflectionSetAccessible=true"]


def spark_home() -> str:
    """Return PySpark's directory without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SparkNotFoundError(NO_SPARK)
    return os.path.dirname(spec.origin)


def _signals_of_program(environment: dict[str, str]) -> list[int]:
    # Executors of a local cluster inherit ignored signals, and Spark ends them with SIGTERM.
    has_executors = "SPARK_WORKER_DIR" in environment
    return [signal.SIGINT, signal.SIGHUP] if has_executors else [signal.SIGINT, signal.SIGHUP, signal.SIGTERM]


def _jars() -> str:
    return os.path.join(spark_home(), "jars")
