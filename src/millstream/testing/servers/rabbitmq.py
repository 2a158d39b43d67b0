"""A real RabbitMQ server for tests: empty, on loopback, started in some seconds, deleted at the end."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

from millstream.testing.servers.databases import LocalServer, free_ports

if TYPE_CHECKING:
    from pika import BlockingConnection

__all__ = ["RabbitMqServer"]


class RabbitMqServer(LocalServer):
    """RabbitMQ, with the user `guest`.

    Example:
        with RabbitMqServer() as server:
            config = RMQConnectionConfig.Builder().set_uri(server.uri).build()
    """

    name = "RabbitMQ"
    users = ("rabbitmq", "nobody")

    def __init__(self) -> None:
        super().__init__()
        self._distribution, self._epmd_port = free_ports(2)

    @property
    def uri(self) -> str:
        """The URL with host, credentials and virtual host."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2f"

    def connect(self) -> BlockingConnection:
        """Return a connection of pika."""
        import pika

        return pika.BlockingConnection(pika.URLParameters(self.uri))

    def _make(self) -> None:
        self._script()
        with open(os.path.join(self.directory, "plugins"), "w") as file:
            file.write("[].\n")
        with open(os.path.join(self.directory, "rabbitmq.conf"), "w") as file:
            file.write(f"listeners.tcp.1 = 127.0.0.1:{self.port}\n")

    def _script(self) -> str:
        # Debian's wrapper on PATH starts the server as another user and waits for it.
        inner = "/usr/lib/rabbitmq/bin/rabbitmq-server"
        return inner if os.path.exists(inner) else self._program("rabbitmq-server")

    def _environment(self) -> dict[str, str]:
        return {
            "HOME": self.directory,
            "RABBITMQ_NODENAME": f"millstream-{self.port}@localhost",
            # In this process, not in a child of the script.
            "RABBITMQ_ALLOW_INPUT": "1",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noinput",
            "RABBITMQ_MNESIA_BASE": os.path.join(self.directory, "data"),
            "RABBITMQ_LOG_BASE": os.path.join(self.directory, "logs"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": os.path.join(self.directory, "pid"),
            "RABBITMQ_CONFIG_FILE": os.path.join(self.directory, "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": os.path.join(self.directory, "plugins"),
            "RABBITMQ_CONF_ENV_FILE": os.path.join(self.directory, "nothing"),
            "RABBITMQ_DIST_PORT": str(self._distribution),
            # Its own port mapper, which ends with it.
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    def _command(self) -> list[str]:
        return [self._script()]

    def _answers(self) -> bool:
        import pika

        try:
            self.connect().close()
        except (pika.exceptions.AMQPError, OSError):
            return False
        return True

    def close(self) -> None:
        super().close()
        for _ in range(50):
            stopped = subprocess.run(["epmd", "-port", str(self._epmd_port), "-kill"], capture_output=True, text=True)
            if "living nodes" not in stopped.stdout + stopped.stderr:
                break
            # The client has not noticed yet that the server stopped.
            time.sleep(0.1)
