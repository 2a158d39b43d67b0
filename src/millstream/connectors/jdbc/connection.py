"""Connections to databases: JDBC options and URLs, drivers, error classes and retries."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import ClassVar, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlsplit

from millstream.common.aliases import LibraryObject
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.connectors.retries import Retries, exponential

# DB-API has no common base class: the connection and the cursor of any driver.
Connection: TypeAlias = LibraryObject
Cursor: TypeAlias = LibraryObject

T = TypeVar("T")

# DB-API's classes of errors that a retry does not cure.
_PERMANENT_ERRORS = {"ProgrammingError", "IntegrityError", "DataError", "NotSupportedError"}
# PostgreSQL: serialization failure, deadlock, lock not available; a retry may succeed.
_CONFLICT_STATES = {"40001", "40P01", "55P03"}
# MySQL: lock wait timeout, deadlock, record has changed.
_CONFLICT_CODES = {1205, 1213, 1020}
# MySQL: too many connections, shutdown, killed, network; its client: cannot connect, gone away, lost during query.
_DISCONNECT_CODES = {1040, 1053, 1158, 1159, 1160, 1161, 1927, 2002, 2003, 2006, 2013, 2055, 4031}
# MySQL: the user, the password, the database or the host is refused.
_REFUSED_CODES = {1044, 1045, 1049, 1130, 1698}
# PostgreSQL reports no state if it refuses a connection, only a message.
_REFUSED_MESSAGES = (
    "authentication failed",
    "does not exist",
    "no password supplied",
    "no pg_hba.conf entry",
    "permitted",
)
_SQLITE_PERMANENT_ERRORS = ("no such", "syntax error", "has no column", "near ", "incomplete input", "values for")


def _code(error: Exception) -> int | None:
    """Return MySQL's error code."""
    first = error.args[0] if error.args else None
    return first if isinstance(first, int) else None


def _state(error: Exception) -> str:
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""


def is_conflict(error: Exception) -> bool:
    """Return whether the transaction failed because of a concurrent one."""
    is_sqlite = type(error).__module__ == "sqlite3"
    return (
        _state(error) in _CONFLICT_STATES
        or _code(error) in _CONFLICT_CODES
        or (is_sqlite and ("is locked" in str(error) or "busy" in str(error)))
    )


def is_lost_connection(error: Exception) -> bool:
    """Return whether the server closed the connection; a new one may succeed."""
    state = _state(error)
    return state[:2] == "08" or state[:4] == "57P0" or _code(error) in _DISCONNECT_CODES


def is_access_denied(error: Exception) -> bool:
    """Return whether the server refuses the user, or the user's access to the database."""
    fatal = "FATAL:" in str(error) and any(message in str(error) for message in _REFUSED_MESSAGES)
    return _code(error) in _REFUSED_CODES or fatal


def is_permanent(error: Exception) -> bool:
    """Return whether a retry would fail again: a wrong statement or password, or a row that is refused."""
    if is_access_denied(error):
        return True
    if is_conflict(error) or is_lost_connection(error):
        return False
    if any(cls.__name__ in _PERMANENT_ERRORS for cls in type(error).__mro__):
        return True
    if type(error).__module__ == "sqlite3":
        return any(message in str(error) for message in _SQLITE_PERMANENT_ERRORS)
    code = _code(error)
    # MySQL reports some wrong statements as operational errors: no such column, no default, access denied.
    return code is not None and 1000 < code < 2000 and code not in (1040, 1053)


@dataclass(frozen=True)
class JdbcConnectionOptions:
    """Holds the URL and the user of a database.

    Example:
        >>> options = (
        ...     JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
        ...     .with_url("jdbc:postgresql://localhost:5432/shop")
        ...     .with_driver_name("org.postgresql.Driver")
        ...     .with_user_name("me")
        ...     .with_password("secret")
        ...     .build()
        ... )
        >>> options
        JdbcConnectionOptions('jdbc:postgresql://localhost:5432/shop', user_name='me')
    """

    url: str
    driver_name: str | None = None
    user_name: str | None = None
    password: str | None = None

    # PyFlink has the builders inside the classes they build.
    JdbcConnectionOptionsBuilder: ClassVar[type[ConnectionOptionsBuilder]]

    def get_db_url(self) -> str:
        """Return the URL."""
        return self.url

    def get_driver_name(self) -> str | None:
        """Return the driver's name, which has no effect."""
        return self.driver_name

    def get_user_name(self) -> str | None:
        """Return the user."""
        return self.user_name

    def get_password(self) -> str | None:
        """Return the password."""
        return self.password

    def __repr__(self) -> str:
        # Logs must not contain the password.
        return f"JdbcConnectionOptions({self.url!r}, user_name={self.user_name!r})"


class ConnectionOptionsBuilder:
    """Builds JdbcConnectionOptions; see there for an example."""

    def __init__(self) -> None:
        self._options = JdbcConnectionOptions("")

    def with_url(self, url: str) -> ConnectionOptionsBuilder:
        """Set the URL: jdbc:postgresql://host:port/database, jdbc:mysql:, jdbc:mariadb:, or jdbc:sqlite:/path."""
        self._options = replace(self._options, url=url)
        return self

    def with_driver_name(self, driver_name: str) -> ConnectionOptionsBuilder:
        """Accept Flink's setting, without effect: the URL determines the driver."""
        self._options = replace(self._options, driver_name=driver_name)
        return self

    def with_user_name(self, user_name: str) -> ConnectionOptionsBuilder:
        """Set the user, by default that of the client library."""
        self._options = replace(self._options, user_name=user_name)
        return self

    def with_password(self, password: str) -> ConnectionOptionsBuilder:
        """Set the password, by default none."""
        self._options = replace(self._options, password=password)
        return self

    def build(self) -> JdbcConnectionOptions:
        """Return the options."""
        if not self._options.url:
            raise InvalidProgramError("JdbcConnectionOptions: set the database with with_url(...).")
        return self._options


@dataclass(frozen=True)
class JdbcExecutionOptions:
    """Holds the batches of a sink, and the retries.

    Attributes:
        batch_interval_ms: the maximum time in milliseconds that a batch waits for more records; 0 for no limit.
        batch_size: the maximum records per batch; the end of an epoch writes the rest.
        max_retries: the retries of a failed batch.

    Example:
        >>> JdbcExecutionOptions.builder().with_batch_size(100).with_batch_interval_ms(200).with_max_retries(5).build()
        JdbcExecutionOptions(batch_interval_ms=200, batch_size=100, max_retries=5)
    """

    batch_interval_ms: int = 0
    batch_size: int = 5000
    max_retries: int = 3

    Builder: ClassVar[type[ExecutionOptionsBuilder]]

    def get_batch_interval_ms(self) -> int:
        """Return the maximum time in milliseconds that a batch waits for more records; 0 for no limit."""
        return self.batch_interval_ms

    def get_batch_size(self) -> int:
        """Return the maximum records per batch."""
        return self.batch_size

    def get_max_retries(self) -> int:
        """Return the retries of a failed batch."""
        return self.max_retries

    @staticmethod
    def defaults() -> JdbcExecutionOptions:
        """Return the defaults: batches of 5000 records, three retries."""
        return JdbcExecutionOptions()

    @staticmethod
    def builder() -> ExecutionOptionsBuilder:
        """Return a builder with the defaults."""
        return ExecutionOptionsBuilder()


class ExecutionOptionsBuilder:
    """Builds JdbcExecutionOptions; see there for an example."""

    def __init__(self) -> None:
        self._options = JdbcExecutionOptions()

    def with_batch_size(self, size: int) -> ExecutionOptionsBuilder:
        """Set the maximum records per batch, by default 5000."""
        _check_min("with_batch_size", size, 1)
        self._options = replace(self._options, batch_size=size)
        return self

    def with_batch_interval_ms(self, interval_ms: int) -> ExecutionOptionsBuilder:
        """Set the maximum time in milliseconds that a batch waits for more records, by default 0 for no limit."""
        _check_min("with_batch_interval_ms", interval_ms, 0)
        self._options = replace(self._options, batch_interval_ms=interval_ms)
        return self

    def with_max_retries(self, max_retries: int) -> ExecutionOptionsBuilder:
        """Set the retries of a failed batch, by default 3."""
        _check_min("with_max_retries", max_retries, 0)
        self._options = replace(self._options, max_retries=max_retries)
        return self

    def build(self) -> JdbcExecutionOptions:
        """Return the options."""
        return self._options


def _check_min(method: str, value: int, min_value: int) -> None:
    if value < min_value:
        raise InvalidProgramError(
            f"JdbcExecutionOptions: {method} takes a number of at least {min_value}, not {value}."
        )


JdbcConnectionOptions.JdbcConnectionOptionsBuilder = ConnectionOptionsBuilder
JdbcExecutionOptions.Builder = ExecutionOptionsBuilder


# Quoted texts, quoted names and comments, which stay as they are, and the characters to replace.
_TOKENS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|\?|%""", re.DOTALL)
_SQLITE_SECONDS = 10
# The connection timeout, unless the URL has a connectTimeout.
_CONNECT_SECONDS = 10
# Parameters that JDBC's driver names differently than libpq; libpq gets all others of a URL unchanged.
_POSTGRESQL_NAMES = {"ApplicationName": "application_name", "connectTimeout": "connect_timeout"}


def translated(sql: str, placeholder: str) -> str:
    """Return a statement with a driver's placeholders for `?`, except in quotes and comments."""
    if placeholder == "?":
        return sql

    def token(match: re.Match[str]) -> str:
        text = match.group()
        # With %s as the placeholder, every other % is doubled, in quotes too.
        return placeholder if text == "?" else text.replace("%", "%%")

    return _TOKENS.sub(token, sql)


def count_parameters(sql: str) -> int:
    """Return the number of a statement's parameters."""
    return sum(token == "?" for token in _TOKENS.findall(sql))


def connector(options: JdbcConnectionOptions) -> Callable[[], Connection]:
    """Return a function that connects to a database, on the driver and in the workers."""
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
        f"JDBC: {kind}: URLs are not supported; use jdbc:postgresql:, jdbc:mysql:, jdbc:mariadb: or jdbc:sqlite:, or "
        "connectors.sql.SqlSink, which writes to any DB-API database."
    )


def _postgresql_settings(options: JdbcConnectionOptions) -> dict[str, str | int]:
    """Return libpq's settings for a URL of JDBC."""
    url = urlsplit(options.url.removeprefix("jdbc:"))
    settings = {
        "connect_timeout": _CONNECT_SECONDS,
        "host": url.hostname,
        "port": url.port,
        "dbname": url.path.lstrip("/"),
        "user": options.user_name,
        "password": options.password,
        **{_POSTGRESQL_NAMES.get(name, name): value for name, value in parse_qsl(url.query)},
    }
    return {name: value for name, value in settings.items() if value}


def _connect_postgresql(settings: dict[str, str | int]) -> Connection:
    # An optional package.
    import psycopg
    from psycopg.conninfo import make_conninfo

    return psycopg.connect(make_conninfo("", **settings))


def _mysql_settings(options: JdbcConnectionOptions) -> dict[str, str | int]:
    """Return pymysql's settings for a URL of JDBC."""
    url = urlsplit(options.url.removeprefix("jdbc:"))
    parameters = dict(parse_qsl(url.query))
    settings = {
        "host": url.hostname,
        "port": url.port,
        "database": url.path.lstrip("/"),
        "user": options.user_name or parameters.get("user"),
        "password": options.password or parameters.get("password"),
        "unix_socket": parameters.get("unix_socket"),
    }
    return {name: value for name, value in settings.items() if value}


def _connect_mysql(settings: dict[str, LibraryObject]) -> Connection:
    # An optional package.
    import pymysql

    return pymysql.connect(charset="utf8mb4", connect_timeout=_CONNECT_SECONDS, **settings)


_MYSQL_MODULES = ("pymysql", "MySQLdb", "mysql.connector")
_PLACEHOLDERS = {"qmark": "?", "format": "%s", "pyformat": "%s"}
# The time for which a transaction is retried after conflicts with others.
PATIENCE_SECONDS = 60.0
_BACKOFF = exponential(0.005, max_seconds=0.5, jitter=True)


class OvertakenError(MillstreamError):
    """A concurrent transaction did the same work."""


@dataclass(frozen=True)
class Driver:
    """The differences between DB-API modules.

    Attributes:
        placeholder: the placeholder of a parameter.
        error: the base class of the module's errors.
        is_sqlite: whether it is SQLite, which locks the whole database, on request when a transaction begins.
        copies: whether its cursors have PostgreSQL's COPY, as those of psycopg do; it is much faster than INSERT.
        is_mysql: whether it is MySQL or MariaDB, whose SQL for upserts differs.
    """

    placeholder: str
    error: type[Exception]
    is_sqlite: bool = False
    copies: bool = False
    is_mysql: bool = False

    @staticmethod
    def of(connection: Connection) -> Driver:
        """Find the DB-API module of a connection; its class may extend the module's own."""
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
            f"SqlSink: connect() returned {connection!r}, which is no connection of a DB-API module "
            f"with one of the parameter styles {', '.join(_PLACEHOLDERS)}."
        )


class Database:
    """Runs transactions over one connection, which it opens on first use; conflicts with others are retried."""

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
        """Run a transaction and retry it after conflicts; `work` may be called more than once."""
        retries = Retries(_BACKOFF, max_seconds=PATIENCE_SECONDS)
        while True:
            try:
                return self._run_once(work)
            except Exception as e:
                if not self._may_retry(e) or not retries.wait():
                    raise

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
                # SQLite does not wait for a lock in a transaction that has read.
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

    def _may_retry(self, error: Exception) -> bool:
        if isinstance(error, OvertakenError):
            return True
        if self._driver is None or not isinstance(error, self._driver.error):
            return False
        if getattr(self._connection, "closed", False) is True or is_lost_connection(error):
            # The next attempt opens a new connection.
            self.close()
            return True
        return is_conflict(error)


def _prepare_sqlite(connection: Connection) -> None:
    if hasattr(connection, "autocommit"):
        # Since Python 3.12 the module may begin and end transactions by itself.
        connection.autocommit = getattr(sys.modules["sqlite3"], "LEGACY_TRANSACTION_CONTROL", -1)
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {_SQLITE_SECONDS * 1000}")
