"""Real database servers for tests: empty, on loopback, started in a second or two, deleted at the end."""

from __future__ import annotations

import errno
import glob
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any, Self, TypedDict

from millstream.common.errors import MillstreamError
from millstream.spark.processes import ends_with_this_process

if TYPE_CHECKING:
    from pymysql.connections import Connection
    from pymysql.cursors import Cursor

__all__ = ["MariaDbServer", "PostgresServer", "RedisServer"]

_START_SECONDS = 60.0
# Below the ports of outgoing connections.
_PORTS = (10_000, 32_768)
# Debian installs some servers outside of PATH.
_FOLDERS = ("/usr/sbin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")


class _Owner(TypedDict, total=False):
    """Arguments of Popen that set the user of a process."""

    user: int
    group: int
    extra_groups: list[int]


class LocalServer(ABC):
    """A server in its own process and directory."""

    name = ""
    # The users to run it as if the test runs as root, which servers refuse; the first that exists is used.
    users: tuple[str, ...] = ("nobody",)
    # Java ignores SIGINT if the shell that started the tests in the background ignores it.
    stop_signal = signal.SIGTERM

    def __init__(self) -> None:
        # The path of a socket must be short.
        self.directory = tempfile.mkdtemp(prefix=f"millstream-{self.name.lower()[:5]}-")
        [self.port] = free_ports(1)
        self._owner = _owner(self.users)
        if self._owner:
            os.chown(self.directory, self._owner["user"], self._owner["group"])
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = count()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _make(self) -> None:
        """Prepare the server's directory before its first start."""

    @abstractmethod
    def _command(self) -> list[str]:
        """Return the command that starts the server."""

    @abstractmethod
    def _answers(self) -> bool:
        """Return whether the server accepts clients."""

    def _environment(self) -> dict[str, str]:
        """Return additional environment variables of the server."""
        return {}

    def start(self) -> None:
        """Start the server, or start it again with the data it has, and wait until it answers."""
        if not os.path.exists(os.path.join(self.directory, "log")):
            self._make()
        with open(os.path.join(self.directory, "log"), "ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={**os.environ, **self._environment()},
                preexec_fn=ends_with_this_process(),
                **self._owner,
            )
        end = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                raise MillstreamError(f"{self.name} did not start: {self._log()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill the server as a power failure does."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """End the server and delete its data."""
        self._end(self.stop_signal)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self, signal_number: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal_number)
            try:
                process.wait(_START_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _log(self) -> str:
        path = os.path.join(self.directory, "log")
        if not os.path.exists(path):
            return "its log is empty"
        with open(path, errors="replace") as file:
            return file.read()[-1000:]

    def _run(self, command: list[str]) -> None:
        result = subprocess.run(command, capture_output=True, text=True, cwd=self.directory, **self._owner)
        if result.returncode:
            raise MillstreamError(f"{self.name} cannot be set up: {(result.stderr or result.stdout)[-500:]}")

    def _program(self, name: str, *folders: str) -> str:
        """Return the path of a program."""
        candidates = [os.path.dirname(shutil.which(name) or ""), *folders, *_FOLDERS]
        folder = next((f for f in candidates if f and os.path.exists(os.path.join(f, name))), None)
        if folder is None:
            raise MillstreamError(f"There is no {self.name} server on this machine ({name} is not found).")
        return os.path.join(folder, name)


class PostgresServer(LocalServer):
    """PostgreSQL, with logical replication.

    Its socket accepts everyone; TCP accepts the user `postgres` with the password `secret`.

    Example:
        with PostgresServer() as server:
            connection = psycopg.connect(server.new_database())
    """

    name = "PostgreSQL"
    users = ("postgres", "nobody")
    # Ends without waiting for clients.
    stop_signal = signal.SIGINT
    password = "secret"

    def __init__(self, **settings: object) -> None:
        """Set server settings."""
        super().__init__()
        self._settings = {
            "unix_socket_directories": self.directory,
            "listen_addresses": "127.0.0.1",
            "fsync": "off",
            # Workers that a test has killed hold theirs until Python collects them.
            "max_connections": 400,
            "wal_level": "logical",
            "max_replication_slots": 20,
            "max_wal_senders": 20,
            **settings,
        }

    def change(self, **settings: object) -> None:
        """Change settings; they apply from the next start on."""
        self._settings |= settings

    def conninfo(self, database: str = "postgres") -> str:
        """Return the arguments of psycopg.connect."""
        return f"host={self.directory} port={self.port} user=postgres dbname={database}"

    def new_database(self) -> str:
        """Create an empty database; return the arguments of psycopg.connect."""
        import psycopg

        name = f"test{next(self._databases)}"
        with psycopg.connect(self.conninfo(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.conninfo(name)

    @property
    def _data(self) -> str:
        return os.path.join(self.directory, "data")

    def _binary(self, name: str) -> str:
        return self._program(name, *sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True))

    def _make(self) -> None:
        secret = os.path.join(self.directory, "secret")
        with open(secret, "w") as file:
            file.write(self.password)
        if self._owner:
            os.chown(secret, self._owner["user"], self._owner["group"])
        credentials = ["-U", "postgres", "--pwfile", secret, "--auth-local=trust", "--auth-host=scram-sha-256"]
        self._run([self._binary("initdb"), "-D", self._data, *credentials, "-E", "UTF8", "--no-sync"])

    def _command(self) -> list[str]:
        settings = {"port": self.port, **self._settings}
        command = [self._binary("postgres"), "-D", self._data]
        return command + [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.conninfo()).close()
        except psycopg.OperationalError:
            return False
        return True


class MariaDbServer(LocalServer):
    """MariaDB, with its binlog in row format.

    The user `root` has no password on its socket; TCP accepts `app` with the password `secret`.
    """

    name = "MariaDB"
    users = ("mysql", "nobody")
    user, password = "app", "secret"

    def __init__(self, **settings: object) -> None:
        """Set server settings, with `_` or `-` in their names."""
        super().__init__()
        self._settings = settings

    @property
    def socket(self) -> str:
        """The path of its socket."""
        return os.path.join(self.directory, "socket")

    def connect(self, database: str | None = None, **options: Any) -> Connection[Cursor]:
        """Return a connection of pymysql, as root."""
        import pymysql

        return pymysql.connect(unix_socket=self.socket, user="root", database=database, autocommit=True, **options)

    def new_database(self) -> str:
        """Create an empty database; return its name."""
        name = f"test{next(self._databases)}"
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        return name

    @property
    def _data(self) -> str:
        return os.path.join(self.directory, "data")

    def _make(self) -> None:
        install = [self._program("mariadb-install-db"), "--no-defaults", f"--datadir={self._data}", "--skip-test-db"]
        # A starting server deletes files in /tmp that look like its own, even another server's.
        self._run([*install, "--auth-root-authentication-method=normal", f"--tmpdir={self.directory}"])

    def _command(self) -> list[str]:
        settings = {
            "datadir": self._data,
            "tmpdir": self.directory,
            "socket": self.socket,
            "port": self.port,
            "bind-address": "127.0.0.1",
            "pid-file": os.path.join(self.directory, "pid"),
            "server-id": 1,
            "log-bin": "binlog",
            "binlog-format": "ROW",
            "binlog-row-image": "FULL",
            "binlog-row-metadata": "FULL",
            "innodb-flush-log-at-trx-commit": 0,
            "innodb-buffer-pool-size": "32M",
            "innodb-log-file-size": "16M",
            "skip-name-resolve": 1,
            **self._settings,
        }
        command = [self._program("mariadbd"), "--no-defaults"]
        return command + [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]

    def _answers(self) -> bool:
        import pymysql

        if not os.path.exists(self.socket):
            return False
        try:
            with self.connect() as connection, connection.cursor() as cursor:
                cursor.execute(f"CREATE USER IF NOT EXISTS {self.user}@'127.0.0.1' IDENTIFIED BY '{self.password}'")
                cursor.execute(f"GRANT ALL ON *.* TO {self.user}@'127.0.0.1'")
        except pymysql.Error:
            return False
        return True


class RedisServer(LocalServer):
    """Redis."""

    name = "Redis"
    users = ("redis", "nobody")

    @property
    def url(self) -> str:
        """The server's address."""
        return f"redis://127.0.0.1:{self.port}/0"

    def _make(self) -> None:
        self._program("redis-server")

    def _command(self) -> list[str]:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.directory, "--save", ""]
        return [self._program("redis-server"), *options, "--appendonly", "yes"]

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(7) == b"+PONG\r\n"
        except OSError:
            return False


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return free ports that the system does not give to outgoing connections meanwhile."""
    with ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < count:
            port = random.randrange(*_PORTS)
            try:
                stack.enter_context(socket.socket()).bind((host, port))
            except OSError as e:
                if e.errno != errno.EADDRINUSE:
                    raise
            else:
                ports.append(port)
        return ports


def _owner(users: tuple[str, ...]) -> _Owner:
    """Return the arguments of Popen that drop root privileges; none if the test does not run as root."""
    if os.geteuid() != 0:
        return {}
    known = {user.pw_name for user in pwd.getpwall()}
    user = pwd.getpwnam(next(name for name in users if name in known))
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
