"""Connections to MariaDB and MySQL, and their errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError, MillstreamError, UnrecoverableError

__all__ = ["Database", "MySqlFailure", "MySqlLogLost", "error_text", "library", "run"]


if TYPE_CHECKING:
    from pymysql.connections import Connection as PyMySqlConnection
    from pymysql.cursors import Cursor

    Connection: TypeAlias = PyMySqlConnection[Cursor]


class MySqlFailure(MillstreamError):
    """A request that MySQL or MariaDB refused or could not answer."""


class MySqlLogLost(MySqlFailure, UnrecoverableError):
    """Data to read no longer exists; restarting the job does not help."""


def library() -> ModuleType:
    """Return the client library; it and the binlog library are optional packages."""
    try:
        import pymysql
        import pymysqlreplication  # noqa: F401
    except ImportError:
        raise InvalidProgramError(
            "The MySQL connector needs the packages pymysql and mysql-replication: run  pip install mysql-replication  "
            "(or install millstream[mysql])."
        ) from None
    return pymysql


def error_text(error: Exception) -> str:
    """Return a database's error message in one line."""
    message = error.args[1] if len(error.args) > 1 else error
    return str(message).strip().partition("\n")[0].rstrip(".") or type(error).__name__


@dataclass(frozen=True)
class Database:
    """A server's address and credentials."""

    host: str
    port: int
    user: str
    password: str = ""
    timeout: int = 10

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def settings(self) -> dict[str, str | int]:
        is_socket = self.host.startswith("/")
        return {
            **({"unix_socket": self.host} if is_socket else {"host": self.host, "port": self.port}),
            "user": self.user,
            "password": self.password,
            "charset": "utf8mb4",
            "connect_timeout": self.timeout,
        }

    def connect(self) -> Connection:
        """Return a connection, or fail within the timeout."""
        pymysql = library()
        try:
            connection: Connection = pymysql.connect(autocommit=True, **self.settings())
        except pymysql.Error as e:
            if e.args and e.args[0] in (1045, 1698, 1044):
                raise MySqlFailure(
                    f"MySQL at {self.address} refuses user {self.user!r}: {error_text(e)}. Check username and password."
                ) from e
            raise MySqlFailure(
                f"MySQL at {self.address} does not answer: {error_text(e)}. Check hostname, port and the network."
            ) from e
        run(connection, "SET time_zone = '+00:00'")
        run(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        return connection


def run(connection: Connection, query: str, values: Sequence[Value] = ()) -> list[tuple[Value, ...]]:
    """Run a statement, in which % is doubled, and return its rows."""
    with connection.cursor() as cursor:
        cursor.execute(query, tuple(values))
        return list(cursor.fetchall())
