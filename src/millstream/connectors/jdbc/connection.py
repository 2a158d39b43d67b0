"""Connections to databases: JDBC options and URLs, drivers, error classes and retries."""

from __future__ import annotations

import os
import random
import re
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any, ClassVar, TypeVar
from urllib.parse import parse_qsl, urlsplit

from millstream.common.errors import InvalidProgramError, MillstreamError

# DB-API's names for what no second try cures.
_MISTAKES = {"ProgrammingError", "IntegrityError", "DataError", "NotSupportedError"}
# A transaction lost against another and may win the next time: serialization failure, deadlock, lock not available.
_LOST_STATES = {"40001", "40P01", "55P03"}
# MySQL: lock wait timeout, deadlock, record has changed.
_LOST_CODES = {1205, 1213, 1020}
# MySQL: too many connections, shutdown, killed, network; its client: cannot connect, gone away, lost during query.
_GONE_CODES = {1040, 1053, 1158, 1159, 1160, 1161, 1927, 2002, 2003, 2006, 2013, 2055, 4031}
# MySQL: this user, this password, this database, this host.
_REFUSED_CODES = {1044, 1045, 1049, 1130, 1698}
# PostgreSQL gives no state to who is not let in, only words.
_REFUSED_WORDS = (
    "authentication failed",
    "does not exist",
    "no password supplied",
    "no pg_hba.conf entry",
    "permitted",
)
_SQLITE_MISTAKES = ("no such", "syntax error", "has no column", "near ", "incomplete input", "values for")


def _code(error: Exception) -> int | None:
    """Return MySQL's number of an error."""
    first = error.args[0] if error.args else None
    return first if isinstance(first, int) else None


def _state(error: Exception) -> str:
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""


def is_lost_race(error: Exception) -> bool:
    """Tell whether another transaction was in the way."""
    is_sqlite = type(error).__module__ == "sqlite3"
    return (
        _state(error) in _LOST_STATES
        or _code(error) in _LOST_CODES
        or (is_sqlite and ("is locked" in str(error) or "busy" in str(error)))
    )


def is_lost_connection(error: Exception) -> bool:
    """Tell whether the server has gone away; it may be back."""
    state = _state(error)
    return state[:2] == "08" or state[:4] == "57P0" or _code(error) in _GONE_CODES


def is_refusal(error: Exception) -> bool:
    """Tell whether a server does not let this user in, or not into this database."""
    fatal = "FATAL:" in str(error) and any(words in str(error) for words in _REFUSED_WORDS)
    return _code(error) in _REFUSED_CODES or fatal


def is_mistake(error: Exception) -> bool:
    """Tell whether a second try would end in the same way: a wrong statement, password, or row that is refused."""
    if is_refusal(error):
        return True
    if is_lost_race(error) or is_lost_connection(error):
        return False
    if any(cls.__name__ in _MISTAKES for cls in type(error).__mro__):
        return True
    if type(error).__module__ == "sqlite3":
        return any(words in str(error) for words in _SQLITE_MISTAKES)
    code = _code(error)
    # MySQL calls some wrong statements operational: no such column, no default, access denied.
    return code is not None and 1000 < code < 2000 and code not in (1040, 1053)


@dataclass(frozen=True)
class JdbcConnectionOptions:
    """Where a database is and who asks.

    Example:
        >>> builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
        >>> builder.with_url("jdbc:sqlite:/tmp/words.db").build().get_db_url()
        'jdbc:sqlite:/tmp/words.db'
    """

    url: str
    driver_name: str | None = None
    user_name: str | None = None
    password: str | None = None

    # PyFlink has the builders inside the classes they build.
    JdbcConnectionOptionsBuilder: ClassVar[type[ConnectionOptionsBuilder]]

    def get_db_url(self) -> str:
        """Return where the database is."""
        return self.url

    def get_driver_name(self) -> str | None:
        """Return what was set; it has no effect."""
        return self.driver_name

    def get_user_name(self) -> str | None:
        """Return who asks."""
        return self.user_name

    def get_password(self) -> str | None:
        """Return the password."""
        return self.password

    def __repr__(self) -> str:
        # A password has no place in a log.
        return f"JdbcConnectionOptions({self.url!r}, user_name={self.user_name!r})"


class ConnectionOptionsBuilder:
    """Builds JdbcConnectionOptions."""

    def __init__(self) -> None:
        self._options = JdbcConnectionOptions("")

    def with_url(self, url: str) -> ConnectionOptionsBuilder:
        """Say where: jdbc:postgresql://host:port/database or jdbc:sqlite:/path."""
        self._options = replace(self._options, url=url)
        return self

    def with_driver_name(self, driver_name: str) -> ConnectionOptionsBuilder:
        """Accepted, without effect: the URL says which Python module connects."""
        self._options = replace(self._options, driver_name=driver_name)
        return self

    def with_user_name(self, user_name: str) -> ConnectionOptionsBuilder:
        """Say who asks."""
        self._options = replace(self._options, user_name=user_name)
        return self

    def with_password(self, password: str) -> ConnectionOptionsBuilder:
        """Give the password."""
        self._options = replace(self._options, password=password)
        return self

    def build(self) -> JdbcConnectionOptions:
        """Return the options."""
        if not self._options.url:
            raise InvalidProgramError("JdbcConnectionOptions: say with_url() where the database is.")
        return self._options


@dataclass(frozen=True)
class JdbcExecutionOptions:
    """How records are put into batches.

    Attributes:
        batch_interval_ms: a batch waits no longer than so many milliseconds for the next record; 0: as long as it may.
        batch_size: how many records make a batch; the end of an epoch makes one of those that are left.
        max_retries: how often a batch that failed is tried again.

    Example:
        >>> JdbcExecutionOptions.builder().with_batch_size(100).build()
        JdbcExecutionOptions(batch_interval_ms=0, batch_size=100, max_retries=3)
    """

    batch_interval_ms: int = 0
    batch_size: int = 5000
    max_retries: int = 3

    Builder: ClassVar[type[ExecutionOptionsBuilder]]

    def get_batch_interval_ms(self) -> int:
        """Return after how many milliseconds a batch is written; 0 for no limit."""
        return self.batch_interval_ms

    def get_batch_size(self) -> int:
        """Return at how many records a batch is written."""
        return self.batch_size

    def get_max_retries(self) -> int:
        """Return how often a batch that failed is written again."""
        return self.max_retries

    @staticmethod
    def defaults() -> JdbcExecutionOptions:
        """Return batches of 5000 records, three retries."""
        return JdbcExecutionOptions()

    @staticmethod
    def builder() -> ExecutionOptionsBuilder:
        """Begin with the defaults."""
        return ExecutionOptionsBuilder()


class ExecutionOptionsBuilder:
    """Builds JdbcExecutionOptions."""

    def __init__(self) -> None:
        self._options = JdbcExecutionOptions()

    def with_batch_size(self, size: int) -> ExecutionOptionsBuilder:
        """Write a batch at so many records."""
        _at_least("with_batch_size", size, 1)
        self._options = replace(self._options, batch_size=size)
        return self

    def with_batch_interval_ms(self, interval_ms: int) -> ExecutionOptionsBuilder:
        """Write a batch after so many milliseconds at the latest."""
        _at_least("with_batch_interval_ms", interval_ms, 0)
        self._options = replace(self._options, batch_interval_ms=interval_ms)
        return self

    def with_max_retries(self, max_retries: int) -> ExecutionOptionsBuilder:
        """Write a batch that failed so many times again."""
        _at_least("with_max_retries", max_retries, 0)
        self._options = replace(self._options, max_retries=max_retries)
        return self

    def build(self) -> JdbcExecutionOptions:
        """Return the options."""
        return self._options


def _at_least(what: str, value: int, least: int) -> None:
    if value < least:
        raise InvalidProgramError(f"JdbcExecutionOptions: {what} takes a number of at least {least}, not {value}.")


JdbcConnectionOptions.JdbcConnectionOptionsBuilder = ConnectionOptionsBuilder
JdbcExecutionOptions.Builder = ExecutionOptionsBuilder


# What is to be left as it is: quoted text, quoted names, comments; and what is to be replaced.
_TOKENS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|\?|%""", re.DOTALL)
_SQLITE_SECONDS = 10
# How long a server may take to let somebody in, unless the URL says connectTimeout.
_CONNECT_SECONDS = 10
# What JDBC's driver calls otherwise than libpq; other words of a URL go to libpq as they are.
_POSTGRESQL_WORDS = {"ApplicationName": "application_name", "connectTimeout": "connect_timeout"}


def translated(sql: str, placeholder: str) -> str:
    """Write a statement the way a driver wants its parameters; a `?` in quotes or a comment is none."""
    if placeholder == "?":
        return sql

    def token(found: re.Match[str]) -> str:
        text = found.group()
        # With %s for a parameter, every other % is written twice, in quotes too.
        return placeholder if text == "?" else text.replace("%", "%%")

    return _TOKENS.sub(token, sql)


def count_places(sql: str) -> int:
    """Return how many parameters a statement has."""
    return sum(token == "?" for token in _TOKENS.findall(sql))


def connector(options: JdbcConnectionOptions) -> Callable[[], Connection]:
    """Return what connects to a database, in the driver's process and in the workers'."""
    if options.url.startswith("jdbc:sqlite:"):
        path = options.url.removeprefix("jdbc:sqlite:")
        if not path or path.startswith(":"):
            raise InvalidProgramError(f"JdbcSink: {options.url!r} must name a file, as in jdbc:sqlite:/path.")
        return partial(sqlite3.connect, os.path.abspath(path), timeout=_SQLITE_SECONDS)
    if options.url.startswith("jdbc:postgresql:"):
        if find_spec("psycopg") is None:
            raise InvalidProgramError(
                "JdbcSink: a jdbc:postgresql: URL needs psycopg on the driver and on all workers; "
                "install it with pip install 'psycopg[binary]'."
            )
        return partial(_connect_postgresql, _postgresql_settings(options))
    if options.url.startswith(("jdbc:mysql:", "jdbc:mariadb:")):
        if find_spec("pymysql") is None:
            raise InvalidProgramError(
                "JDBC: a jdbc:mysql: URL needs pymysql on the driver and on all workers; "
                "install it with pip install pymysql, or millstream[mysql]."
            )
        return partial(_connect_mysql, _mysql_settings(options))
    kind = ":".join(options.url.split(":")[:2])
    raise InvalidProgramError(
        "JDBC: databases are reached at jdbc:postgresql:, jdbc:mysql:, jdbc:mariadb: and jdbc:sqlite: URLs, not "
        f"{kind}:; "
        "connectors.sql.SqlSink writes to any DB-API database."
    )


def _postgresql_settings(options: JdbcConnectionOptions) -> dict[str, Any]:
    """Return what libpq is told, of what JDBC's driver understands."""
    url = urlsplit(options.url.removeprefix("jdbc:"))
    told = dict(parse_qsl(url.query))
    found = {
        "connect_timeout": _CONNECT_SECONDS,
        "host": url.hostname,
        "port": url.port,
        "dbname": url.path.lstrip("/"),
        "user": options.user_name,
        "password": options.password,
        **{_POSTGRESQL_WORDS.get(name, name): value for name, value in told.items()},
    }
    return {name: value for name, value in found.items() if value}


def _connect_postgresql(settings: dict[str, Any]) -> Connection:
    import psycopg

    return psycopg.connect(**settings)


def _mysql_settings(options: JdbcConnectionOptions) -> dict[str, Any]:
    """Return what pymysql is told, of what JDBC's driver understands."""
    url = urlsplit(options.url.removeprefix("jdbc:"))
    told = dict(parse_qsl(url.query))
    found = {
        "host": url.hostname,
        "port": url.port,
        "database": url.path.lstrip("/"),
        "user": options.user_name or told.get("user"),
        "password": options.password or told.get("password"),
        "unix_socket": told.get("unix_socket"),
    }
    return {name: value for name, value in found.items() if value}


def _connect_mysql(settings: dict[str, Any]) -> Connection:
    import pymysql

    return pymysql.connect(charset="utf8mb4", connect_timeout=_CONNECT_SECONDS, **settings)


# DB-API has no types of its own: any driver's connection and cursor.
Connection = Any
Cursor = Any
T = TypeVar("T")

_MYSQL_MODULES = ("pymysql", "MySQLdb", "mysql.connector")
_PLACEHOLDERS = {"qmark": "?", "format": "%s", "pyformat": "%s"}
# How long a transaction is tried again while others are in its way, and how long SQLite waits by itself for each try.
PATIENCE_SECONDS = 60.0
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
