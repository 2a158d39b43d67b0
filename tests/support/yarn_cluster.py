"""A real YARN for tests: Hadoop's resource manager and node managers on loopback, deleted at the end."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from xml.sax.saxutils import escape

from millstream.common.errors import MillstreamError
from millstream.common.private_files import cache_directory
from millstream.spark.gateway import spark_home
from millstream.spark.jars import fetch_jars
from millstream.spark.java import find_java
from millstream.testing.servers.databases import free_ports

_HADOOP = ("org.apache.hadoop", "hadoop-client-minicluster", "3.5.0")
# Hadoop's uber jar lacks this jar, without which the resource manager does not start.
_SIGNATURES = ("org.bouncycastle", "bcpkix-jdk18on", "1.78.1")
_SERVER = "org.apache.hadoop.yarn.server."
_START_SECONDS = 120.0
_POLL_SECONDS = 0.2
_LOGGING = """
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
"""


class YarnCluster:
    """A resource manager and node managers, each in its own process.

    Example:
        with YarnCluster(nodes=2) as cluster:
            subprocess.run(["millstream", "run", "-m", "yarn", "job.py"], env={**os.environ, **cluster.variables})
    """

    def __init__(self, nodes: int = 2, cores: int = 4, memory_mb: int = 4096) -> None:
        """Create a cluster of a number of nodes with the given resources; `start` starts it."""
        self._nodes, self._cores, self._memory_mb = nodes, cores, memory_mb
        self._directory = tempfile.mkdtemp(prefix="millstream-yarn-")
        self._processes: list[subprocess.Popen[bytes]] = []
        self._manager = self._managers_addresses()
        self.variables = {name: self._file("manager") for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR")}

    def __enter__(self) -> YarnCluster:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start all processes, and wait until every node has registered."""
        with open(self._file("log4j2.properties"), "w") as file:
            file.write(_LOGGING)
        self._launch("manager", "resourcemanager.ResourceManager", self._manager)
        for n in range(self._nodes):
            self._launch(f"node{n}", "nodemanager.NodeManager", {**self._manager, **self._node(f"node{n}")})
        deadline = time.monotonic() + _START_SECONDS
        while self._registered() < self._nodes:
            if any(p.poll() is not None for p in self._processes) or time.monotonic() > deadline:
                raise MillstreamError(f"YARN did not start:\n{self._server_logs()}")
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """End all processes and running containers, and delete their files."""
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        shutil.rmtree(self._directory, ignore_errors=True)

    def applications(self) -> list[tuple[str, str]]:
        """Return the id and final status of each application."""
        apps = self._get("apps").get("apps") or {}
        return [(app["id"], app["finalStatus"]) for app in apps.get("app", [])]

    def logs(self, application: str) -> str:
        """Return the logs of an application's containers."""
        texts = []
        for path in sorted(glob.glob(self._file("node*", "logs", application, "*", "std*"))):
            with open(path, errors="replace") as file:
                texts.append(f"{os.path.relpath(path, self._directory)}:\n{file.read()}")
        return "\n".join(texts)

    def _registered(self) -> int:
        try:
            return len((self._get("nodes").get("nodes") or {}).get("node", []))
        except OSError:
            # The server does not listen yet.
            return 0

    def _get(self, resource: str) -> dict[str, dict[str, list[dict[str, str]]]]:
        address = self._manager["yarn.resourcemanager.webapp.address"]
        with urllib.request.urlopen(f"http://{address}/ws/v1/cluster/{resource}", timeout=10) as answer:
            response: dict[str, dict[str, list[dict[str, str]]]] = json.load(answer)
        return response

    def _launch(self, name: str, main: str, settings: dict[str, str]) -> None:
        directory = self._file(name)
        os.makedirs(directory)
        _write(os.path.join(directory, "yarn-site.xml"), settings)
        tmp = os.path.join(directory, "tmp")
        _write(os.path.join(directory, "core-site.xml"), {"fs.defaultFS": "file:///", "hadoop.tmp.dir": tmp})
        jars = cache_directory("jars")
        spark = os.path.join(spark_home(), "jars")
        logging = [j for name in ("slf4j-api", "log4j-") for j in glob.glob(os.path.join(spark, f"{name}*.jar"))]
        path = [directory, *logging, *fetch_jars(*_HADOOP, jars), *fetch_jars(*_SIGNATURES, jars)]
        command = [find_java().path, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", os.pathsep.join(path)]
        command += [f"-Dlog4j2.configurationFile={self._file('log4j2.properties')}", _SERVER + main]
        with open(self._file(f"{name}.log"), "wb") as log:
            self._processes.append(
                subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=directory, start_new_session=True)
            )

    def _managers_addresses(self) -> dict[str, str]:
        names = ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address")
        ports = zip(names, free_ports(len(names)), strict=True)
        addresses = {f"yarn.resourcemanager.{name}": f"127.0.0.1:{port}" for name, port in ports}
        package = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo"
        return {
            **addresses,
            "yarn.resourcemanager.hostname": "127.0.0.1",
            "yarn.resourcemanager.bind-host": "127.0.0.1",
            "yarn.resourcemanager.scheduler.class": f"{package}.FifoScheduler",
            "yarn.scheduler.minimum-allocation-mb": "128",
        }

    def _node(self, name: str) -> dict[str, str]:
        address, localizer, page = (f"127.0.0.1:{port}" for port in free_ports(3))
        checker = "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage"
        return {
            "yarn.nodemanager.address": address,
            "yarn.nodemanager.localizer.address": localizer,
            "yarn.nodemanager.webapp.address": page,
            "yarn.nodemanager.resource.memory-mb": str(self._memory_mb),
            "yarn.nodemanager.resource.cpu-vcores": str(self._cores),
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.local-dirs": self._file(name, "local"),
            "yarn.nodemanager.log-dirs": self._file(name, "logs"),
            "yarn.nodemanager.delete.debug-delay-sec": "3600",
            checker: "99.9",
        }

    def _server_logs(self) -> str:
        texts = []
        for path in sorted(glob.glob(self._file("*.log"))):
            with open(path, errors="replace") as file:
                texts.append(f"{os.path.basename(path)}: {file.read()[-2000:]}")
        return "\n".join(texts)

    def _file(self, *names: str) -> str:
        return os.path.join(self._directory, *names)


def _write(path: str, settings: dict[str, str]) -> None:
    lines = [f"<property><name>{escape(k)}</name><value>{escape(v)}</value></property>" for k, v in settings.items()]
    with open(path, "w") as file:
        file.write("\n".join(["<configuration>", *lines, "</configuration>"]))
