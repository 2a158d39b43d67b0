"""The Spark context of jobs: an embedded one, or the program's own."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark import SparkConf, SparkContext

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.memory_on_spark import spark_settings
from millstream.common.private_files import socket_directory
from millstream.common.setting import in_words
from millstream.spark import control, module_archive, pyspark_internals
from millstream.spark.cores import free_cores
from millstream.spark.embedded import QUIET, gateway, is_dead, local_cores, needs_jvm, with_cores
from millstream.spark.exchange_settings import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT
from millstream.spark.java import Java
from millstream.spark.master import LOG_LEVEL, master_of, spark_notation
from millstream.spark.pyspark_internals import accumulator_server, active_context, connect_gateway, jvm
from millstream.spark.session_attachment import Attachment, attachment

DAEMON_MODULE = "millstream.spark.daemon"
# A job with resident slots holds one core of a local Spark. Cores are only permits there, so this many are added: jobs
# do not wait for each other, and Spark's own jobs find as many free cores as requested.
SPARE_CORES = 16

# Settings for streaming on any master. The user's spark.* settings take precedence.
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
    # One job per epoch, without end: Spark's history must stay small.
    "spark.ui.retainedJobs": "16",
    "spark.ui.retainedStages": "32",
    "spark.ui.retainedTasks": "256",
    "spark.ui.dagGraph.retainedRootRDDs": "16",
    "spark.cleaner.periodicGC.interval": "5min",
    "spark.locality.wait": "0",
}

# An embedded Spark moves blocks through this machine's page cache: compression only costs time.
_EMBEDDED = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.broadcast.compress": "false",
    "spark.dynamicAllocation.enabled": "false",
    # Other users of this machine can connect to 127.0.0.1. Spark generates the secret.
    "spark.authenticate": "true",
}

_YARN = {
    # YARN ships PySpark only for Python drivers.
    "spark.yarn.isPython": "true",
    # A container's temporary directory is too long for paths of sockets.
    "spark.python.unix.domain.socket.dir": "/tmp",
}

# The only executor runs in the driver's process: frequent heartbeats only cost time. If the user sets one of the two,
# Spark's default holds for the other: the interval must be below the timeout.
_RARE_HEARTBEATS = {"spark.executor.heartbeatInterval": "60s", "spark.network.timeout": "600s"}

# On a cluster, Flink's heartbeat options apply.

# The directory of Spark's Unix sockets, and the length of their names.
_SOCKETS = "spark.python.unix.domain.socket.dir"
_SOCKET_NAME = len("/.01234567-0123-0123-0123-0123456789ab.sock")

_lock = threading.Lock()
_settings: dict[str, str] = {}
# The context that was started here, with the settings above.
_own: list[SparkContext] = []


def get_context(config: Configuration) -> SparkContext:
    """Return the program's Spark context, starting Spark if necessary."""
    with _lock:
        if is_dead():
            pyspark_internals.reset_gateway()
            _settings.clear()
        active = active_context()
        if active is not None:
            _warn_about(active, config)
            return active
        cluster = attachment()
        return _start(config, SPARE_CORES) if cluster is None else _join(cluster)


def cluster_parallelism(config: Configuration) -> int:
    """Return the default parallelism of a cluster: its cores."""
    return get_context(config).defaultParallelism


def start_for_cluster(config: Configuration, slots: int | None) -> tuple[Attachment, str, int]:
    """Start Spark for jobs of many processes.

    Args:
        config: the configuration.
        slots: the number of slots, each of which may be a job that holds a core; None for the number of cores.

    Returns:
        How processes attach to it, its application id, and the number of slots.
    """
    with _lock:
        context = active_context() or _start(config, max(SPARE_CORES, slots or 0))
    parameters = pyspark_internals.gateway().gateway_parameters
    attachment = Attachment(parameters.port, parameters.auth_token, control.directory(), _settings["spark.master"])
    # Waits for executors that are registering.
    return attachment, str(context.applicationId), slots or max(1, free_cores(context, sys.maxsize))


def _join(cluster: Attachment) -> SparkContext:
    """Attach to the Spark of the session cluster of this process."""
    worker = {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
    variables = {"PYSPARK_GATEWAY_PORT": str(cluster.port), "PYSPARK_GATEWAY_SECRET": cluster.secret}
    with _environment({**variables, **worker}), _interrupts_as_before():
        connect_gateway()
        running = jvm().org.apache.spark.SparkContext.getOrCreate()
        context = SparkContext(
            gateway=pyspark_internals.gateway(),
            jsc=jvm().JavaSparkContext(running),
            conf=SparkConf(_jconf=running.conf()),
        )
    _silence_accumulator_server(context)
    # Shared: a program that stops the context only detaches.
    vars(context)["stop"] = lambda: None
    if cluster.control is not None:
        control.use_directory(cluster.control)
    _settings["spark.master"] = cluster.master
    _own[:] = [context]
    return context


def _heartbeat_settings(
    config: Configuration, master: str, cores: int | None, user_settings: dict[str, str]
) -> dict[str, str]:
    """Return the heartbeat settings of executors, unless the user has set them."""
    if _RARE_HEARTBEATS.keys() & user_settings.keys():
        return {}
    if cores is not None:
        return _RARE_HEARTBEATS
    return {} if master.startswith("local") else _heartbeats(config)


def _heartbeats(config: Configuration) -> dict[str, str]:
    """Return Spark's settings for Flink's heartbeat options."""
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
        # The check interval.
        "spark.network.timeoutInterval": f"{interval}ms",
    }


def _start(config: Configuration, spare_cores: int) -> SparkContext:
    user_settings = {k: v for k, v in config.to_dict().items() if k.startswith("spark.")}
    master = master_of(config)
    cores = local_cores(master)
    settings = {
        **_STREAM,
        **(_embedded(master, user_settings) if master.startswith("local") else {}),
        **_heartbeat_settings(config, master, cores, user_settings),
        **({} if master.startswith("local") else spark_settings(config)),
        **(_YARN if master == "yarn" else {}),
        **user_settings,
        **({} if master.startswith("local") else module_archive.settings(user_settings)),
        "spark.master": spark_notation(master),
    }
    settings.setdefault("spark.app.name", "millstream")
    # Programs that log to their output should not show Py4J's records.
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
    # Workers must run the interpreter that pickled the job, unless the user sets another.
    python = os.environ.get("PYSPARK_PYTHON") or settings.get("spark.pyspark.python") or sys.executable
    with _environment({"PYSPARK_PYTHON": python}), _interrupts_as_before():
        context = SparkContext(conf=conf)
    _silence_accumulator_server(context)
    if not master.startswith("local"):
        # The JVM of an embedded Spark does this when it ends.
        atexit.register(stop_context)
        context.setLogLevel(LOG_LEVEL.read(config).name)
    _settings.update(user_settings, **{"spark.master": master})
    if settings["spark.python.daemon.module"] == DAEMON_MODULE:
        _own[:] = [context]
    if not config.get_boolean(QUIET, False):
        print(
            f"millstream: running on Spark {context.version} ({master}, {context.defaultParallelism} cores{started})",
            file=sys.stderr,
        )
    return context


def _embedded(master: str, user_settings: dict[str, str]) -> dict[str, str]:
    """Return the settings of a local Spark, closed to other users."""
    settings = dict(_EMBEDDED)
    if _SOCKETS not in user_settings:
        # These sockets accept pickles without a secret.
        settings[_SOCKETS] = socket_directory("millstream-spark-", _SOCKET_NAME)
        atexit.register(shutil.rmtree, settings[_SOCKETS], ignore_errors=True)
    if master.startswith("local-cluster"):
        # Executors are separate processes; Spark passes the secret to them.
        settings["spark.authenticate.secret"] = secrets.token_hex(32)
    return settings


def _close_to_others(context: SparkContext) -> None:
    """Restrict PySpark's accumulator server to this user, and remove its socket at exit."""
    address = accumulator_server(context).server_address
    if isinstance(address, str):
        os.chmod(address, 0o600)
        atexit.register(_remove, address)


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.remove(path)


def _silence_accumulator_server(context: SparkContext) -> None:
    """Silence PySpark's accumulator server when the JVM ends first."""
    _close_to_others(context)
    server = accumulator_server(context)
    default_handler = server.handle_error

    def handle_error(request: socket.socket, address: object) -> None:
        if not isinstance(sys.exc_info()[1], EOFError):
            default_handler(request, address)

    vars(server)["handle_error"] = handle_error


def _connect_jvm(config: Configuration) -> Java:
    jvm = gateway(config)
    with _environment(jvm.connect()):
        connect_gateway()
    return jvm.java


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables for PySpark, and restore them: child processes must not inherit them."""
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
    """Restore the SIGINT handler that PySpark replaces.

    PySpark's handler cancels all Spark jobs before it raises KeyboardInterrupt. That would end the slots of all running
    jobs, and fail the interrupted one before it can be cancelled.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        # None: the handler is not Python's.
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def is_ours(context: SparkContext) -> bool:
    """Return whether a context has millstream's settings."""
    # Spark's answer takes some hundred calls to the JVM, 10 ms of every job.
    return context in _own or context.getConf().get("spark.python.daemon.module") == DAEMON_MODULE


def _warn_about(context: SparkContext, config: Configuration) -> None:
    """Warn of settings that a running Spark cannot apply."""
    if not is_ours(context):
        warnings.warn(
            "The SparkContext of this program was not started by millstream: slots have no processes of their own, so "
            "they read state again whenever Spark moves a slot. Start it with "
            f"spark.python.daemon.module={DAEMON_MODULE} and spark.python.unix.domain.socket.enabled=true.",
            stacklevel=2,
        )
    for key, value in config.to_dict().items():
        if key.startswith("spark.") and _settings.get(key) != value and context.getConf().get(key) != value:
            warnings.warn(f"Spark is already running: the setting {key}={value} has no effect.", stacklevel=2)


def stop_context() -> None:
    """Stop Spark, if it is running."""
    with _lock:
        if (context := active_context()) is not None:
            context.stop()
        _settings.clear()


def preload_converters() -> None:
    """Import the modules of PySpark's first call of Java, so that forked processes share them.

    PySpark's converter of numpy values imports this module to check for numpy, and with it pandas, unittest and
    protobuf.
    """
    import pyspark.testing.utils  # noqa: F401
