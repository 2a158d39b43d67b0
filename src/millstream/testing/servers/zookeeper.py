"""A real ZooKeeper for tests: empty, on loopback, deleted at the end. It is the one that Spark ships."""

from __future__ import annotations

import glob
import os
import socket

from millstream.spark.gateway import spark_home
from millstream.spark.java import find_java
from millstream.testing.servers.databases import LocalServer

__all__ = ["ZooKeeperServer"]


class ZooKeeperServer(LocalServer):
    """ZooKeeper, one server.

    Example:
        >>> from millstream.testing.servers.zookeeper import ZooKeeperServer
        >>> with ZooKeeperServer() as server:  # doctest: +SKIP
        ...     server.quorum
        '127.0.0.1:34567'
    """

    name = "ZooKeeper"

    @property
    def quorum(self) -> str:
        """The value for `high-availability.zookeeper.quorum`."""
        return f"127.0.0.1:{self.port}"

    def _make(self) -> None:
        """Write its settings."""
        with open(os.path.join(self.directory, "zoo.cfg"), "w") as file:
            file.write(
                f"tickTime=200\nminSessionTimeout=400\ndataDir={self.directory}/data\nclientPort={self.port}\n"
                "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
            )

    def _command(self) -> list[str]:
        jars = os.path.join(spark_home(), "jars")
        names = ("zookeeper-*", "slf4j-api-*", "netty-*", "metrics-core-*", "snappy-java-*", "commons-io-*")
        path = os.pathsep.join(jar for name in names for jar in glob.glob(os.path.join(jars, f"{name}.jar")))
        java = [find_java().path, "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", path]
        return [*java, "org.apache.zookeeper.server.ZooKeeperServerMain", os.path.join(self.directory, "zoo.cfg")]

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"srvr")
                return b"Zookeeper version" in connection.recv(1000)
        except OSError:
            return False
