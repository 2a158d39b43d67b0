"""Starts the JVM of an embedded Spark.

PySpark would start it through a shell script and a launcher JVM; starting it here saves a second, keeps its warnings
off the user's terminal, and works with a Java that lacks the modules the launcher insists on.
"""

from __future__ import annotations

import atexit
import os
import signal
import struct
import subprocess
import tempfile
import time
from functools import partial

import pyspark

from millstream.common.errors import MillstreamError
from millstream.spark.java import Java
from millstream.spark.processes import leave_to_parent

# The packages Spark reaches into; the same list its own launcher passes.
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


def start_gateway(
    java: Java, memory: str, options: list[str], log_level: str, environment: dict[str, str]
) -> dict[str, str]:
    """Start the JVM; return the variables in which PySpark looks for how to reach it."""
    home = os.path.dirname(pyspark.__file__)
    with tempfile.TemporaryDirectory(prefix="millstream-") as directory:
        info = os.path.join(directory, "gateway")
        logging = os.path.join(directory, "log4j2.properties")
        with open(logging, "w") as f:
            f.write(_LOGGING.format(level=log_level))
        process = subprocess.Popen(
            _command(java, home, memory, logging, options),
            # The JVM ends when this pipe closes, so it can never outlive this process.
            stdin=subprocess.PIPE,
            env={
                **environment,
                "SPARK_HOME": home,
                "_PYSPARK_DRIVER_CONN_INFO_PATH": info,
                "SPARK_CONNECT_MODE": "0",
            },
            # Ctrl-C, and SIGTERM to everybody, are for the Python program, which will end the JVM in good order.
            preexec_fn=partial(leave_to_parent, _left_to_us(environment)),
        )
        port, secret = _wait_for(info, process)
    atexit.register(_stop, process)
    _processes.append(process)
    return {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}


def _left_to_us(environment: dict[str, str]) -> list[int]:
    # The executors of a cluster on this machine are ended by SIGTERM, and would ignore it too.
    has_executors = "SPARK_WORKER_DIR" in environment
    return [signal.SIGINT] if has_executors else [signal.SIGINT, signal.SIGTERM]


_processes: list[subprocess.Popen[bytes]] = []


def is_dead() -> bool:
    """Tell whether the JVM that was started last has ended."""
    return bool(_processes) and _processes[-1].poll() is not None


def _command(java: Java, home: str, memory: str, logging: str, options: list[str]) -> list[str]:
    command = [
        java.path,
        f"-Xmx{memory}",
        "-XX:+IgnoreUnrecognizedVMOptions",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseParallelGC",
    ]
    command += [f"--add-opens={o}=ALL-UNNAMED" for o in _OPENED]
    if java.version >= 24:
        command += ["--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED"]
    command += ["-Dio.netty.tryReflectionSetAccessible=true", f"-Dlog4j2.configurationFile={logging}"]
    return [
        *command,
        *options,
        "-cp",
        os.path.join(home, "jars", "*"),
        "org.apache.spark.deploy.SparkSubmit",
        "pyspark-shell",
    ]


def _wait_for(info: str, process: subprocess.Popen[bytes]) -> tuple[int, str]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise MillstreamError(
                f"The Java process that runs Spark ended with code {process.returncode} while starting."
            )
        # The JVM moves the finished file into place.
        if os.path.isfile(info):
            with open(info, "rb") as f:
                data = f.read()
            port, length = struct.unpack_from(">ii", data)
            return port, data[8 : 8 + length].decode()
        time.sleep(0.02)
    process.kill()
    raise MillstreamError("The Java process that runs Spark did not start within 60 seconds.")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
