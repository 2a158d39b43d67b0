"""The Spark context that jobs run on: an embedded one made here, or the one the program already has."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyspark import SparkConf, SparkContext

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.memory_on_spark import spark_settings
from millstream.common.private_files import socket_directory
from millstream.common.setting import in_words
from millstream.spark import control, module_archive
from millstream.spark.cores import free_cores
from millstream.spark.embedded import QUIET, gateway, is_dead, local_cores, needs_jvm, with_cores
from millstream.spark.exchange_settings import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT
from millstream.spark.java import Java
from millstream.spark.master import LOG_LEVEL, as_spark_wants, master_of
from millstream.spark.session_attachment import Attachment, attachment

DAEMON_MODULE = "millstream.spark.daemon"
# A job whose slots stay holds one core of a Spark on this machine. There cores are nothing but permits, so there are
# so many more of them than were asked for: jobs do not wait for each other, and Spark's own find as many free as ever.
SPARE_CORES = 16

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
    # Other users of this machine can connect to 127.0.0.1, and would stop the executor. Spark makes the secret.
    "spark.authenticate": "true",
}

_YARN = {
    # YARN brings PySpark to executors whose driver is said to be Python's.
    "spark.yarn.isPython": "true",
    # A container's own directory for temporary files is too deep for the names of sockets.
    "spark.python.unix.domain.socket.dir": "/tmp",
}

# Where the one executor is in the same process as whoever misses it, to say every ten seconds that it is alive only
# costs time, even while a job waits for input. Who sets one of the two has Spark's other: one must be below the other.
_RARE_HEARTBEATS = {"spark.executor.heartbeatInterval": "60s", "spark.network.timeout": "600s"}

# On a cluster, Flink's settings say how often machines must say that they are there, and how long one may be silent.

# Where Spark puts Unix sockets, and how long their names are.
_SOCKETS = "spark.python.unix.domain.socket.dir"
_SOCKET_NAME = len("/.01234567-0123-0123-0123-0123456789ab.sock")

_lock = threading.Lock()
_settings: dict[str, str] = {}
# The context that was started here, with what a stream wants.
_own: list[SparkContext] = []


def get_context(config: Configuration) -> SparkContext:
    """Return the program's Spark context, starting Spark when there is none."""
    with _lock:
        if is_dead():
            _forget_dead()
        active = SparkContext._active_spark_context
        if active is not None:
            _warn_about(active, config)
            return active
        cluster = attachment()
        return _start(config, SPARE_CORES) if cluster is None else _join(cluster)


def start_for_cluster(config: Configuration, slots: int | None) -> tuple[Attachment, str, int]:
    """Start Spark for many jobs, of other processes.

    Args:
        config: the settings.
        slots: how many slots there are, each of which may be a job of its own that holds a core; None for as many as
            there are cores.

    Returns:
        How those reach it, its application's id, and how many slots there are.
    """
    with _lock:
        context = SparkContext._active_spark_context or _start(config, max(SPARE_CORES, slots or 0))
    gateway: Any = SparkContext._gateway
    way = gateway.gateway_parameters
    attachment = Attachment(way.port, way.auth_token, control.directory(), _settings["spark.master"])
    # Executors that are registering are waited for.
    return attachment, str(context.applicationId), slots or max(1, free_cores(context, sys.maxsize))


def _join(cluster: Attachment) -> SparkContext:
    """Use the Spark of the cluster that this process belongs to."""
    worker = {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
    way = {"PYSPARK_GATEWAY_PORT": str(cluster.port), "PYSPARK_GATEWAY_SECRET": cluster.secret}
    with _environment({**way, **worker}), _interrupts_as_before():
        SparkContext._ensure_initialized()
        jvm: Any = SparkContext._jvm
        running = jvm.org.apache.spark.SparkContext.getOrCreate()
        context = SparkContext(
            gateway=SparkContext._gateway, jsc=jvm.JavaSparkContext(running), conf=SparkConf(_jconf=running.conf())
        )
    _expect_the_end(context)
    # It is everybody's: a program that stops it only stops using it.
    vars(context)["stop"] = lambda: None
    if cluster.control is not None:
        control.use_directory(cluster.control)
    _settings["spark.master"] = cluster.master
    _own[:] = [context]
    return context


def _regular(config: Configuration, master: str, cores: int | None, wanted: dict[str, str]) -> dict[str, str]:
    """Return how often executors say that they are there, unless the user has told Spark."""
    if _RARE_HEARTBEATS.keys() & wanted.keys():
        return {}
    if cores is not None:
        return _RARE_HEARTBEATS
    return {} if master.startswith("local") else _heartbeats(config)


def _heartbeats(config: Configuration) -> dict[str, str]:
    """Return Spark's settings after which a machine of the cluster that is silent counts as lost."""
    interval, timeout = HEARTBEAT_INTERVAL.read(config), HEARTBEAT_TIMEOUT.read(config)
    if interval >= timeout:
        raise InvalidProgramError(
            f"heartbeat.interval is {in_words(interval)} and heartbeat.timeout is {in_words(timeout)}: the timeout "
            "must be longer than the interval."
        )
    return {
        "spark.executor.heartbeatInterval": f"{interval}ms",
        "spark.network.timeout": f"{timeout}ms",
        "spark.storage.blockManagerHeartbeatTimeoutMs": f"{timeout}ms",
        # How often Spark looks.
        "spark.network.timeoutInterval": f"{interval}ms",
    }


def _forget_dead() -> None:
    """Let PySpark forget a JVM that was killed, so that another can be started."""
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    _settings.clear()


def _start(config: Configuration, spare_cores: int) -> SparkContext:
    wanted = {k: v for k, v in config.to_dict().items() if k.startswith("spark.")}
    master = master_of(config)
    cores = local_cores(master)
    settings = {
        **_STREAM,
        **(_embedded(master, wanted) if master.startswith("local") else {}),
        **_regular(config, master, cores, wanted),
        **({} if master.startswith("local") else spark_settings(config)),
        **(_YARN if master == "yarn" else {}),
        **wanted,
        **({} if master.startswith("local") else module_archive.settings(wanted)),
        "spark.master": as_spark_wants(master),
    }
    settings.setdefault("spark.app.name", "millstream")
    # A program that logs its own doings to its output does not mean those of the bridge to Java.
    bridge = logging.getLogger("py4j")
    if bridge.level == logging.NOTSET:
        bridge.setLevel(logging.WARNING)
    started = ""
    if needs_jvm(config):
        started = f", Java {_connect_jvm(config).version}"
    # Also in a JVM that has run Spark before.
    if cores is not None:
        settings["spark.master"] = with_cores(master, cores + spare_cores)
        settings.setdefault("spark.default.parallelism", str(cores))
    conf = SparkConf(loadDefaults=False) if master.startswith("local") else SparkConf()
    for key, value in settings.items():
        conf.set(key, value)
    # Workers must run the very interpreter that pickled the job, unless the user knows better.
    python = os.environ.get("PYSPARK_PYTHON") or settings.get("spark.pyspark.python") or sys.executable
    with _environment({"PYSPARK_PYTHON": python}), _interrupts_as_before():
        context = SparkContext(conf=conf)
    _expect_the_end(context)
    if not master.startswith("local"):
        # Where Spark is embedded, its JVM does this when it ends.
        atexit.register(stop_context)
        context.setLogLevel(LOG_LEVEL.read(config).name)
    _settings.update(wanted, **{"spark.master": master})
    if settings["spark.python.daemon.module"] == DAEMON_MODULE:
        _own[:] = [context]
    if not config.get_boolean(QUIET, False):
        print(
            f"millstream: running on Spark {context.version} ({master}, {context.defaultParallelism} cores{started})",
            file=sys.stderr,
        )
    return context


def _embedded(master: str, wanted: dict[str, str]) -> dict[str, str]:
    """Return the settings of a Spark on this machine, which others must not get into."""
    settings = dict(_EMBEDDED)
    if _SOCKETS not in wanted:
        # Who connects to one of these has pickles read, without a secret.
        settings[_SOCKETS] = socket_directory("millstream-spark-", _SOCKET_NAME)
        atexit.register(shutil.rmtree, settings[_SOCKETS], ignore_errors=True)
    if master.startswith("local-cluster"):
        # Executors are processes of their own; Spark hands it to them.
        settings["spark.authenticate.secret"] = secrets.token_hex(32)
    return settings


def _close_to_others(context: SparkContext) -> None:
    """Let only this user connect to PySpark's server of accumulators, and have its socket go with this process."""
    address: Any = context._accumulatorServer.server_address
    if isinstance(address, str):
        os.chmod(address, 0o600)
        atexit.register(_remove, address)


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.remove(path)


def _expect_the_end(context: SparkContext) -> None:
    """Let PySpark's server of accumulators say nothing when the JVM has ended before it."""
    _close_to_others(context)
    server: Any = context._accumulatorServer
    complain = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exc_info()[1], EOFError):
            complain(request, address)

    server.handle_error = handle_error


def _connect_jvm(config: Configuration) -> Java:
    jvm = gateway(config)
    with _environment(jvm.connect()):
        SparkContext._ensure_initialized()
    return jvm.java


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


@contextmanager
def _interrupts_as_before() -> Iterator[None]:
    """Undo that PySpark takes interrupts for itself.

    Its handler cancels all Spark jobs before it raises KeyboardInterrupt. That takes the slots of every job that runs,
    also of those that the interrupt is not for; and the job it is for would fail before anybody can cancel it.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        # None: it is not Python that handles them.
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def is_ours(context: SparkContext) -> bool:
    """Return whether a context has the settings that streams want."""
    # Asking Spark takes some hundred calls to the JVM, 10 ms of every job.
    return context in _own or context.getConf().get("spark.python.daemon.module") == DAEMON_MODULE


def _warn_about(context: SparkContext, config: Configuration) -> None:
    """Say what cannot be had any more because Spark is already running."""
    if not is_ours(context):
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


def preload_converters() -> None:
    """Import what PySpark imports with its first call of Java, so that forked processes share it.

    PySpark's converter of numpy values asks this module whether numpy is installed; pandas, unittest and protobuf come
    along.
    """
    import pyspark.testing.utils  # noqa: F401
