"""A database behind a DB-API connection: its way of writing parameters, and transactions that are tried again."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.connectors.jdbc.errors import is_lost_connection, is_lost_race

# DB-API has no types of its own: any driver's connection and cursor.
Connection = Any
Cursor = Any
T = TypeVar("T")

_MYSQL_MODULES = ("pymysql", "MySQLdb", "mysql.connector")
_PLACEHOLDERS = {"qmark": "?", "format": "%s", "pyformat": "%s"}
# How long a transaction is tried again while others are in its way, and how long SQLite waits by itself for each try.
PATIENCE_SECONDS = 60.0
_SQLITE_SECONDS = 10
_LONGEST_PAUSE = 0.5


class OvertakenError(MillstreamError):
    """Another transaction did the same thing at the same time."""


@dataclass(frozen=True)
class Driver:
    """What differs between DB-API modules.

    Attributes:
        placeholder: how a parameter is written.
        error: the base of all errors of the module.
        is_sqlite: whether it is SQLite, which locks the whole database and must be told when.
        copies: whether its cursors have PostgreSQL's COPY, as those of psycopg do; it is much faster than INSERT.
        is_mysql: whether it is MySQL or MariaDB, whose SQL for upserts is another.
    """

    placeholder: str
    error: type[Exception]
    is_sqlite: bool = False
    copies: bool = False
    is_mysql: bool = False

    @staticmethod
    def of(connection: Connection) -> Driver:
        """Find the DB-API module a connection comes from; it may be of a class that extends the module's own."""
        for cls in type(connection).__mro__:
            name = cls.__module__
            while name:
                module = sys.modules.get(name)
                style = getattr(module, "paramstyle", None)
                if style in _PLACEHOLDERS:
                    error = getattr(module, "Error", Exception)
                    return Driver(
                        _PLACEHOLDERS[style], error, name == "sqlite3", name == "psycopg", name in _MYSQL_MODULES
                    )
                name = name.rpartition(".")[0]
        raise InvalidProgramError(
            f"SqlSink: connect() returned {connection!r}, which is not the connection of a DB-API module "
            f"with one of the parameter styles {', '.join(_PLACEHOLDERS)}."
        )


class Database:
    """Runs transactions, over one connection at a time that is made when it is first needed."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._connection: Connection = None
        self._driver: Driver | None = None

    @property
    def driver(self) -> Driver:
        self._open()
        assert self._driver is not None
        return self._driver

    def run(self, work: Callable[[Cursor], T]) -> T:
        """Run a transaction, again and again while others are in its way; `work` may be called more than once."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        pause = 0.005
        while True:
            try:
                return self._run_once(work)
            except Exception as e:
                if not self._may_try_again(e) or time.monotonic() > deadline:
                    raise
            # Those who met must not meet again.
            time.sleep(pause * (0.5 + random.random()))
            pause = min(pause * 2, _LONGEST_PAUSE)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()

    def _open(self) -> Connection:
        if self._connection is None:
            try:
                connection = self._connect()
            except Exception as e:
                raise MillstreamError(f"SqlSink: connect() failed: {e!r}") from e
            self._driver = Driver.of(connection)
            if self._driver.is_sqlite:
                _prepare_sqlite(connection)
            elif self._driver.is_mysql:
                connection.autocommit(False)
            elif getattr(connection, "autocommit", False) is True:
                connection.autocommit = False
            self._connection = connection
        return self._connection

    def _run_once(self, work: Callable[[Cursor], T]) -> T:
        connection = self._open()
        cursor = connection.cursor()
        try:
            if self.driver.is_sqlite:
                # The lock at once: one that read first could not wait for it.
                cursor.execute("BEGIN IMMEDIATE")
            result = work(cursor)
            connection.commit()
            return result
        except BaseException:
            with suppress(Exception):
                connection.rollback()
            raise
        finally:
            with suppress(Exception):
                cursor.close()

    def _may_try_again(self, error: Exception) -> bool:
        if isinstance(error, OvertakenError):
            return True
        if self._driver is None or not isinstance(error, self._driver.error):
            return False
        if getattr(self._connection, "closed", False) is True or is_lost_connection(error):
            # The server has gone away; it may be back.
            self.close()
            return True
        return is_lost_race(error)


def _prepare_sqlite(connection: Connection) -> None:
    if hasattr(connection, "autocommit"):
        # Python 3.12 has ways to open and end transactions by itself.
        connection.autocommit = getattr(sys.modules["sqlite3"], "LEGACY_TRANSACTION_CONTROL", -1)
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {_SQLITE_SECONDS * 1000}")
