"""Connections to MariaDB and MySQL, what their catalogs say, and what goes wrong in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millstream.common.errors import IncurableError, InvalidProgramError, MillstreamError
from millstream.datastream.connectors.cdc.mysql_gtids import Gtids
from millstream.datastream.connectors.cdc.mysql_places import Place, place_of
from millstream.datastream.connectors.cdc.mysql_values import ColumnNote, is_ordered, why_unreadable
from millstream.datastream.connectors.cdc.table_names import check_named, is_wanted

__all__ = ["Database", "MySqlFailure", "MySqlLost", "TableNote"]

# Where the events of a file begin.
_FIRST_EVENT = 4
_SYSTEM = ("mysql", "information_schema", "performance_schema", "sys")


class MySqlFailure(MillstreamError):
    """MySQL or MariaDB could not do what it was asked to."""


class MySqlLost(MySqlFailure, IncurableError):
    """What is to be read is no longer there: to start the job again would not help."""


def library() -> Any:
    """Return the client library; that and the one for the binlog are packages of their own."""
    try:
        import pymysql
        import pymysqlreplication  # noqa: F401
    except ImportError:
        raise InvalidProgramError(
            "The MySQL connector needs the packages pymysql and mysql-replication: run  pip install mysql-replication  "
            "(or install millstream[mysql])."
        ) from None
    return pymysql


def said(error: Exception) -> str:
    """Return a database's words in one line."""
    words = error.args[1] if len(error.args) > 1 else error
    return str(words).strip().partition("\n")[0].rstrip(".") or type(error).__name__


@dataclass(frozen=True)
class Database:
    """Where a server is and who asks."""

    host: str
    port: int
    user: str
    password: str = ""
    timeout: int = 10

    @property
    def place(self) -> str:
        return f"{self.host}:{self.port}"

    def settings(self) -> dict[str, Any]:
        where = {"unix_socket": self.host} if self.host.startswith("/") else {"host": self.host, "port": self.port}
        return {
            **where,
            "user": self.user,
            "password": self.password,
            "charset": "utf8mb4",
            "connect_timeout": self.timeout,
        }

    def connect(self, **more: Any) -> Any:
        """Return a connection; fails in bounded time, with a sentence."""
        pymysql = library()
        try:
            connection = pymysql.connect(autocommit=True, **self.settings(), **more)
        except pymysql.Error as e:
            if e.args and e.args[0] in (1045, 1698, 1044):
                raise MySqlFailure(
                    f"MySQL at {self.place} refuses user {self.user!r}: {said(e)}. Check username and password."
                ) from e
            raise MySqlFailure(
                f"MySQL at {self.place} does not answer: {said(e)}. Check hostname, port and the network."
            ) from e
        run(connection, "SET time_zone = '+00:00'")
        run(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        return connection


def run(connection: Any, query: str, values: Sequence[Any] = ()) -> list[Any]:
    """Run a statement, in which % is written twice; return its rows."""
    with connection.cursor() as cursor:
        cursor.execute(query, tuple(values))
        return list(cursor.fetchall())


@dataclass(frozen=True)
class TableNote:
    """A table."""

    schema: str
    name: str
    columns: tuple[ColumnNote, ...]
    keys: tuple[str, ...]
    engine: str = ""

    @property
    def table(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def key_places(self) -> tuple[int, ...]:
        names = [c.name for c in self.columns]
        return tuple(names.index(k) for k in self.keys)


def quoted(name: str) -> str:
    """Write a name so that SQL takes it as it is, in a statement that `run` takes."""
    return "`" + name.replace("`", "``").replace("%", "%%") + "`"


def find_table(connection: Any, schema: str, name: str) -> TableNote | None:
    """Return a table as it is now, None if it is gone."""
    columns = run(
        connection,
        "SELECT column_name, data_type, column_type, character_set_name, collation_name FROM "
        "information_schema.columns "
        "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
        (schema, name),
    )
    keys = run(
        connection,
        "SELECT column_name FROM information_schema.statistics WHERE table_schema = %s AND table_name = %s "
        "AND index_name = 'PRIMARY' ORDER BY seq_in_index",
        (schema, name),
    )
    if not columns:
        return None
    ((engine,),) = run(
        connection,
        "SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
        (schema, name),
    ) or (("",),)
    return TableNote(schema, name, tuple(ColumnNote(*c) for c in columns), tuple(k for (k,) in keys), engine or "")


def find_tables(connection: Any, patterns: tuple[str, ...]) -> list[TableNote]:
    """Return the tables that a list means; fails where it names one that is not there."""
    found = []
    listed = run(
        connection,
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE' "
        f"AND table_schema NOT IN ({', '.join(['%s'] * len(_SYSTEM))}) ORDER BY 1, 2",
        _SYSTEM,
    )
    for schema, name in listed:
        if is_wanted(f"{schema}.{name}", patterns) and (table := find_table(connection, schema, name)) is not None:
            found.append(table)
    check_named(patterns, [t.table for t in found], "MySQL", "database, as in 'shop.orders'")
    return found


# What the server must log, and in a form that can be read; of those it knows.
_WANTED = {
    "log_bin": ("1", "ON"),
    "binlog_format": ("ROW",),
    "binlog_row_image": ("FULL",),
    "binlog_row_metadata": ("FULL",),
    "log_bin_compress": ("OFF",),
    "binlog_transaction_compression": ("OFF",),
    "binlog_row_value_options": ("",),
}


def check_server(connection: Any, place: str, reads_tables: bool) -> None:
    """Refuse a server that does not log what is needed."""
    names = ", ".join(f"'{name}'" for name in _WANTED)
    for name, value in run(connection, f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({names})"):
        if str(value).upper() not in (values := _WANTED[name.lower()]):
            raise InvalidProgramError(
                f"MySQL at {place} does not log what is needed ({name} is {value}): set {name.replace('_', '-')} to "
                f"{values[-1] or 'nothing'} in its configuration."
            )
    if reads_tables and snapshot_place(connection) is None:
        raise InvalidProgramError(
            f"MySQL at {place} does not tell where in the binlog a snapshot is, as MariaDB does, so that its tables "
            "cannot be read: take StartupOptions.latest() or specific_offset(...)."
        )


def check_tables(connection: Any, tables: Sequence[TableNote], reads_tables: bool) -> None:
    """Refuse tables that are not logged, or of which not all values could be told."""
    _, _, only, ignored = _log_status(connection)[:4]
    for table in tables:
        if (only and table.schema not in only.split(",")) or table.schema in ignored.split(","):
            raise InvalidProgramError(
                f"The server does not log database {table.schema}: see binlog-do-db and binlog-ignore-db in its "
                "configuration."
            )
        for column in table.columns:
            if (why := why_unreadable(column)) is not None:
                raise InvalidProgramError(
                    f"Column {column.name} of table {table.table} {why}, which cannot be read from the binlog: change "
                    "it (utf8mb4 can be read), or leave the table out of table_list."
                )
        if reads_tables:
            _check_chunks(table)


def _check_chunks(table: TableNote) -> None:
    if table.engine and table.engine.upper() not in ("INNODB", "ROCKSDB"):
        raise InvalidProgramError(
            f"Table {table.table} is of engine {table.engine}, which has no snapshots: run  ALTER TABLE {table.table} "
            "ENGINE = InnoDB  or begin with StartupOptions.latest()."
        )
    for column in table.columns:
        if column.name in table.keys and not is_ordered(column):
            raise InvalidProgramError(
                f"The key of table {table.table} has column {column.name} of type {column.type}, by which a table "
                "cannot be read in chunks: begin with StartupOptions.latest(), or change the key."
            )


def snapshot_place(connection: Any) -> Place | None:
    """Return where in the binlog the connection's snapshot is; None if the server does not tell."""
    rows = run(connection, "SHOW STATUS LIKE 'binlog_snapshot_%%'")
    found = {name.lower(): value for name, value in rows}
    if "binlog_snapshot_file" not in found:
        return None
    file = found["binlog_snapshot_file"]
    return place_of(file, int(found["binlog_snapshot_position"])) if file else Place(0, 0)


def _log_status(connection: Any) -> list[Any]:
    """Return the file of the binlog, the place in it, and the databases that alone are logged, or are not."""
    for statement in ("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS"):
        try:
            rows = run(connection, statement)
        except library().Error as e:
            if e.args and e.args[0] in (1227, 1044):
                raise MySqlFailure(
                    f"The user may not ask where the binlog is: {said(e)}. Grant it REPLICATION CLIENT (BINLOG MONITOR "
                    "in MariaDB) and REPLICATION SLAVE."
                ) from e
            continue
        if rows:
            return list(rows[0])
    raise MySqlFailure("The server does not tell where its binlog is.")


def current_place(connection: Any) -> Place:
    """Return where the binlog ends."""
    file, position = _log_status(connection)[:2]
    return place_of(file, int(position))


def check_file(connection: Any, place: Place) -> None:
    """Fail where the file of a place was purged."""
    if place.prefix and place.file not in _files(connection):
        raise MySqlLost(
            f"The server no longer has {place.file} of its binlog, where the job left off: start the job without its "
            "state, so that it reads the tables anew, and let the server keep its binlog for longer."
        )


def _files(connection: Any) -> list[str]:
    return [str(row[0]) for row in run(connection, "SHOW BINARY LOGS")]


def place_before(connection: Any, done: Gtids, text: str) -> Place:
    """Return a place that no transaction is before but those of a set; fails if the server has deleted it."""
    is_mariadb = "mariadb" in str(run(connection, "SELECT version()")[0][0]).lower()
    ((now,),) = run(connection, f"SELECT @@global.{'gtid_binlog_pos' if is_mariadb else 'gtid_executed'}")
    if not Gtids.parse(now).covers(done):
        raise InvalidProgramError(f"MySqlSource: the server has not come to GTID {text!r} yet, its last are {now!r}.")
    for file in reversed(_files(connection)):
        if done.covers(Gtids.parse(_gtids_before(connection, file, is_mariadb))):
            return place_of(file, _FIRST_EVENT)
    raise MySqlLost(f"The server no longer has its binlog from GTID {text!r} on: begin with StartupOptions.initial().")


def _gtids_before(connection: Any, file: str, is_mariadb: bool) -> str:
    """Return the transactions that are not in a file of the binlog because they were before it."""
    if is_mariadb:
        return str(run(connection, "SELECT binlog_gtid_pos(%s, %s)", (file, _FIRST_EVENT))[0][0] or "")
    events = run(connection, "SHOW BINLOG EVENTS IN %s LIMIT 3", (file,))
    return next((str(e[5]) for e in events if e[2] == "Previous_gtids"), "").replace("\n", "")


def typed_place(column: ColumnNote) -> str:
    """Return the place of a parameter that is compared as a column's values are."""
    if column.collation is not None:
        return f"CONVERT(%s USING {column.charset}) COLLATE {column.collation}"
    casts = {"datetime": "DATETIME(6)", "timestamp": "DATETIME(6)", "date": "DATE", "time": "TIME(6)"}
    casts |= {"uuid": "UUID", "inet4": "INET4", "inet6": "INET6"}
    return f"CAST(%s AS {casts[column.type]})" if column.type in casts else "%s"


def compare(connection: Any, table: TableNote, keys: list[tuple[Any, ...]], bounds: list[tuple[Any, ...]]) -> list[int]:
    """Return how many bounds each key is above, by the order of the database."""
    by_name = {c.name: c for c in table.columns}
    places = [typed_place(by_name[k]) for k in table.keys]
    names = [f"k{i}" for i in range(len(places))]
    row = ", ".join(names)
    above = " + ".join([f"(({row}) > ({', '.join(['%s'] * len(names))}))"] * len(bounds))
    found: list[int] = []
    for start in range(0, len(keys), 200):
        some = keys[start : start + 200]
        selects = [
            f"SELECT {', '.join(f'{p} AS {n}' for p, n in zip(places, names, strict=True))}, {i} AS n"
            for i in range(len(some))
        ]
        query = f"SELECT {above} FROM ({' UNION ALL '.join(selects)}) AS e ORDER BY n"
        values = [part for bound in bounds for part in bound] + [part for key in some for part in key]
        found += [int(n) for (n,) in run(connection, query, values)]
    return found
