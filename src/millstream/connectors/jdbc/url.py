"""Statements and URLs written for JDBC, for the DB-API modules of Python."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from millstream.common.errors import InvalidProgramError
from millstream.connectors.jdbc.connection import Connection
from millstream.connectors.jdbc.options import JdbcConnectionOptions

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
