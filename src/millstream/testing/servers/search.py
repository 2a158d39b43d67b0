"""Real Elasticsearch and OpenSearch for tests: one node on loopback, started in some seconds, deleted at the end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import zipfile
from http.client import HTTPConnection, HTTPException

from millstream.common.aliases import Json
from millstream.common.errors import MillstreamError
from millstream.spark.jars import fetch_archive
from millstream.spark.java import find_java
from millstream.testing.servers.databases import LocalServer

__all__ = ["ElasticsearchServer", "OpenSearchServer"]

# Later Java versions lack the security manager that these servers need.
_NEWEST_JAVA = 23
_LOGGING = """
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1.} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class _SearchServer(LocalServer):
    """A server in Java, from the archive that its makers publish for tests of others: without users and passwords."""

    organisation = ""
    module = ""
    version = ""
    main = ""
    # How the names of its settings for Java begin.
    settings = ""
    # A graceful stop takes seconds, and the data is deleted anyway.
    stop_signal = signal.SIGKILL

    @property
    def host(self) -> str:
        """The address, `127.0.0.1:port`."""
        return f"127.0.0.1:{self.port}"

    def documents(self, index: str) -> dict[str, dict[str, Json]]:
        """Return the documents of an index by id, read by an independent client; at most 10,000."""
        self._ask("POST", f"/{index}/_refresh")
        response = self._ask("GET", f"/{index}/_search?size=10000")
        return {hit["_id"]: hit["_source"] for hit in response["hits"]["hits"]}

    def put(self, path: str, body: dict[str, Json]) -> None:
        """Put settings, such as those of an index."""
        self._ask("PUT", path, json.dumps(body))

    def _ask(self, method: str, path: str, body: str | None = None) -> dict[str, Json]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if response.status >= 400:
            raise MillstreamError(f"{self.name} refuses {method} {path}: {text[:500]}")
        return dict(json.loads(text))

    @property
    def _home(self) -> str:
        return os.path.join(self.directory, f"{self.module}-{self.version}")

    def _make(self) -> None:
        if find_java().version > _NEWEST_JAVA:
            raise MillstreamError(f"There is no Java for {self.name} on this machine: it needs 17 to {_NEWEST_JAVA}.")
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        try:
            path = fetch_archive(
                self.organisation, self.module, self.version, os.path.join(cache, "millstream", "jars")
            )
        except (MillstreamError, OSError, subprocess.TimeoutExpired) as e:
            raise MillstreamError(f"There is no {self.name} on this machine, and it cannot be fetched: {e}") from e
        with zipfile.ZipFile(path) as archive:
            archive.extractall(self.directory)
        settings = {
            "http.port": self.port,
            # Not the default ports: a server there would try to join the cluster.
            "transport.port": 0,
            "discovery.type": "single-node",
            "network.host": "127.0.0.1",
            "cluster.routing.allocation.disk.threshold_enabled": "false",
        }
        self._write(f"{self.module}.yml", "".join(f"{name}: {value}\n" for name, value in settings.items()))
        self._write("log4j2.properties", _LOGGING)
        if self._owner:
            for folder, _, names in os.walk(self.directory):
                for entry in (folder, *(os.path.join(folder, name) for name in names)):
                    shutil.chown(entry, self._owner["user"], self._owner["group"])

    def _write(self, name: str, text: str) -> None:
        with open(os.path.join(self._home, "config", name), "w") as file:
            file.write(text)

    def _command(self) -> list[str]:
        paths = {"path.home": self._home, "path.conf": os.path.join(self._home, "config"), "distribution.type": "zip"}
        return [
            find_java().path,
            "-Xms256m",
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Djava.security.manager=allow",
            f"-Djava.io.tmpdir={self.directory}",
            "-Dlog4j2.disable.jmx=true",
            *(f"-D{self.settings}.{name}={value}" for name, value in paths.items()),
            "-cp",
            os.path.join(self._home, "lib", "*"),
            self.main,
        ]

    def _answers(self) -> bool:
        try:
            self._ask("GET", "/_cluster/health?wait_for_status=yellow&timeout=1s")
        except (OSError, HTTPException, MillstreamError):
            return False
        return True


class ElasticsearchServer(_SearchServer):
    """Elasticsearch 7.

    Example:
        with ElasticsearchServer() as server:
            sink = Elasticsearch7SinkBuilder().set_hosts(server.host)...
    """

    name = "Elasticsearch"
    organisation = "org.elasticsearch.distribution.integ-test-zip"
    module = "elasticsearch"
    version = "7.17.28"
    main = "org.elasticsearch.bootstrap.Elasticsearch"
    settings = "es"

    def _environment(self) -> dict[str, str]:
        return {"LIBFFI_TMPDIR": self.directory}


class OpenSearchServer(_SearchServer):
    """OpenSearch 2."""

    name = "OpenSearch"
    organisation = "org.opensearch.distribution.integ-test-zip"
    module = "opensearch"
    version = "2.19.1"
    main = "org.opensearch.bootstrap.OpenSearch"
    settings = "opensearch"
