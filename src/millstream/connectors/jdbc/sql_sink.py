"""SqlSink: records as rows of a table in a DB-API database, exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.types import Row, field_names
from millstream.connectors.base import CommitContext, Committer, Sink, SinkWriter
from millstream.connectors.jdbc.connection import Connection, Cursor, Database, OvertakenError
from millstream.connectors.jdbc.statements import conflict_clause, error_text
from millstream.operators.diagnostics.failures import shorten
from millstream.operators.functions.context import RuntimeContext

__all__ = ["SqlSink"]

_QUOTES = '"`]'


@dataclass(frozen=True)
class Table:
    """A table and its staging table, which also has the transaction of each row and the row's number in it.

    All names are as the user writes them in SQL, quoted or not. In the methods `p` is the driver's placeholder.

    Attributes:
        keys: the columns of the unique key; none if rows are only inserted.
        is_mysql: whether the database is MySQL or MariaDB.
    """

    name: str
    columns: tuple[str, ...]
    keys: tuple[str, ...] = ()
    is_mysql: bool = False

    @property
    def staged(self) -> str:
        """The staging table; all sinks of a table share it, so it has all of the table's columns."""
        return _extended(self.name, "__staged")

    def create_staged(self, is_sqlite: bool) -> list[str]:
        schema, dot, bare = self.name.rpartition(".")
        index, on = _extended(bare, "__staged_index"), self.staged
        if is_sqlite:
            # SQLite takes the schema with the index, other databases with the table.
            index, on = schema + dot + index, _extended(bare, "__staged")
        # MySQL cannot index a TEXT.
        text = "CHAR(200)" if self.is_mysql else "TEXT"
        return [
            f"CREATE TABLE IF NOT EXISTS {self.staged} AS SELECT CAST('' AS {text}) AS transaction_name, "
            f"0 AS transaction_row, original.* FROM {self.name} original WHERE 1 = 0",
            f"CREATE INDEX IF NOT EXISTS {index} ON {on} (transaction_name, transaction_row)",
        ]

    def probe_staged(self) -> str:
        return f"SELECT transaction_name, transaction_row, {self._columns} FROM {self.staged} WHERE 1 = 0"

    def stage(self, p: str) -> str:
        parameters = ", ".join([p] * (len(self.columns) + 2))
        return f"INSERT INTO {self.staged} (transaction_name, transaction_row, {self._columns}) VALUES ({parameters})"

    def stage_by_copy(self) -> str:
        return f"COPY {self.staged} (transaction_name, transaction_row, {self._columns}) FROM STDIN"

    def unstage(self, p: str) -> str:
        return f"DELETE FROM {self.staged} WHERE transaction_name = {p}"

    def sweep(self, prefix: str, p: str) -> str:
        # LIKE would interpret some characters of the prefix.
        return f"DELETE FROM {self.staged} WHERE SUBSTR(transaction_name, 1, {len(prefix)}) = {p}"

    def move(self, p: str) -> str:
        insert = f"INSERT INTO {self.name} ({self._columns}) SELECT {self._columns} FROM"
        if not self.keys:
            return f"{insert} {self.staged} WHERE transaction_name = {p} ORDER BY transaction_row"
        keys = ", ".join(self.keys)
        # One statement must not change a row twice, so of rows with the same key only the last is moved. The database
        # compares the keys; a NULL is equal to no other.
        counts = " OR ".join(["newest_first = 1", *(f"{key} IS NULL" for key in self.keys)])
        return (
            f"{insert} (SELECT {self._columns}, transaction_row, "
            f"ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY transaction_row DESC) AS newest_first "
            f"FROM {self.staged} WHERE transaction_name = {p}) AS waiting WHERE {counts} "
            f"ORDER BY transaction_row {conflict_clause(self.columns, self.keys, self.is_mysql)}"
        )

    def lock_staged(self, p: str) -> str:
        """Return the statement that blocks a second committer of the same rows; MySQL's row counts do not reveal it."""
        return f"SELECT transaction_row FROM {self.staged} WHERE transaction_name = {p} FOR UPDATE"

    @property
    def _columns(self) -> str:
        return ", ".join(self.columns)


def unquoted(name: str) -> str:
    """Return a column's name as records have it."""
    return name[1:-1] if name[-1] in _QUOTES else name


def _extended(name: str, suffix: str) -> str:
    return f"{name[:-1]}{suffix}{name[-1]}" if name[-1] in _QUOTES else name + suffix


# Maximum rows in memory; full batches are staged during the epoch.
BATCH = 10_000


class SqlSink(Sink):
    """Inserts records into a table exactly once, or upserts them with `key_columns`.

    Rows are staged in the table `{table}__staged`, which the sink creates if it is missing. When their checkpoint is
    complete, one database transaction moves them. A row that violates a constraint of the table fails the job at that
    time. Tested with SQLite, PostgreSQL and MariaDB.

    Args:
        connect: returns a new DB-API connection; called on the driver and in the workers.
        table: the table, which must exist.
        columns: the columns to write. A record is a tuple, a list or a Row without names, in this order, or a dict or a
            Row with exactly these names.
        key_columns: the columns of a unique key. A record replaces the row with the same key; the last one counts.

    Example:
        >>> import sqlite3
        >>> database = sqlite3.connect("words.db")
        >>> _ = database.execute("CREATE TABLE words (word TEXT PRIMARY KEY, n INT)")
        >>> sink = SqlSink(lambda: sqlite3.connect("words.db"), "words", ["word", "n"], key_columns=["word"])
        >>> _ = env.from_collection([("to", 1), ("to", 2)]).sink_to(sink)
        >>> _ = env.execute()
        >>> database.execute("SELECT * FROM words").fetchall()
        [('to', 2)]
        >>> database.close()
    """

    name = "SQL Sink"

    def __init__(
        self,
        connect: Callable[[], Connection],
        table: str,
        columns: Sequence[str],
        *,
        key_columns: Sequence[str] | None = None,
    ) -> None:
        if not callable(connect):
            raise InvalidProgramError(f"SqlSink: connect must be a function without arguments, not {connect!r}.")
        if not table:
            raise InvalidProgramError("SqlSink: the name of the table is empty.")
        keys = [] if key_columns is None else key_columns
        for parameter, names in (("columns", columns), ("key_columns", keys)):
            if isinstance(names, str) or len(set(names)) < len(names) or not all(names):
                raise InvalidProgramError(f"SqlSink: {parameter} must be a list of different names, not {names!r}.")
        if not columns or not set(keys) <= set(columns) or (key_columns is not None and not keys):
            raise InvalidProgramError(f"SqlSink: key_columns {keys!r} must be some of the columns {columns!r}.")
        self._connect = connect
        self._table = Table(table, tuple(columns), tuple(keys))

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        database = Database(self._connect)
        return _Writer(database, self._table_in(database))

    def create_committer(self, context: CommitContext) -> Committer:
        database = Database(self._connect)
        committer = _Committer(database, self._table_in(database), context)
        committer.check()
        return committer

    def _table_in(self, database: Database) -> Table:
        return replace(self._table, is_mysql=database.driver.is_mysql)


class _Writer(SinkWriter):
    def __init__(self, database: Database, table: Table) -> None:
        self._database = database
        self._table = table
        self._width = len(table.columns)
        self._names = tuple(unquoted(column) for column in table.columns)
        self._ready = False
        self._transaction = ""
        self._rows: list[Sequence[Value]] = []
        self._staged: list[str] = []

    def begin(self, transaction: str) -> None:
        self._transaction = transaction
        # Discards the rows of a failed epoch.
        self._rows.clear()
        self._staged.clear()

    def write(self, value: Value) -> None:
        rows = self._rows
        rows.append(value if value.__class__ is tuple and len(value) == self._width else self._row(value))
        if len(rows) >= BATCH:
            self._stage()

    def prepare_commit(self, flush: bool) -> list[str] | None:
        if self._rows:
            self._stage()
        return self._staged[:] or None

    def close(self) -> None:
        self._database.close()

    def _row(self, value: Value) -> Sequence[Value]:
        """Return a record's fields in the order of the columns."""
        fields = value
        if isinstance(value, Row):
            fields = list(value) if field_names(value) is None else value.as_dict()
        if isinstance(fields, dict):
            if fields.keys() == set(self._names):
                return [fields[name] for name in self._names]
        elif isinstance(fields, (tuple, list)) and len(fields) == self._width:
            return fields
        raise MillstreamError(
            f"SqlSink: the record {shorten(value)} does not fit the {self._width} columns "
            f"{', '.join(self._names)} of table {self._table.name}."
        )

    def _stage(self) -> None:
        """Write the buffered rows to the staging table, under a name of their own."""
        if not self._ready:
            _create_staged(self._database, self._table)
            self._ready = True
        name = f"{self._transaction}.{len(self._staged)}" if self._staged else self._transaction
        rows = [(name, i, *row) for i, row in enumerate(self._rows)]
        driver = self._database.driver

        def work(cursor: Cursor) -> None:
            # A broken connection leaves unknown whether its transaction was committed.
            cursor.execute(self._table.unstage(driver.placeholder), (name,))
            if driver.copies:
                with cursor.copy(self._table.stage_by_copy()) as copy:
                    for row in rows:
                        copy.write_row(row)
            else:
                cursor.executemany(self._table.stage(driver.placeholder), rows)

        try:
            self._database.run(work)
        except driver.error as e:
            raise MillstreamError(
                f"SqlSink: {len(rows)} rows for table {self._table.name}, "
                f"the first of them {shorten(tuple(self._rows[0]))}, could not be staged: {error_text(e)}."
            ) from e
        self._staged.append(name)
        self._rows.clear()


class _Committer(Committer):
    """Moves staged rows. Each call has its own connection: it may come from any thread, and after a long time."""

    def __init__(self, database: Database, table: Table, context: CommitContext) -> None:
        self._database = database
        self._table = table
        self._context = context

    def check(self) -> None:
        """Check the table before the job starts."""
        table, driver = self._table, self._database.driver
        try:
            _create_staged(self._database, table)
            self._database.run(lambda cursor: cursor.execute(table.move(driver.placeholder), ("",)))
        except driver.error as e:
            keys = f" and a unique key over {', '.join(table.keys)}" if table.keys else ""
            raise InvalidProgramError(
                f"SqlSink: rows cannot be moved into table {table.name}, "
                f"which needs the columns {', '.join(table.columns)}{keys}: {error_text(e)}."
            ) from e
        finally:
            self._database.close()

    def commit(self, committables: list[tuple[int, list[str]]]) -> None:
        names = [name for _, staged in committables for name in staged]
        self._run(lambda cursor, p: self._move(cursor, p, names))

    def recover(self, committables: list[tuple[int, list[str]]], former_job_id: str) -> None:
        super().recover(committables, former_job_id)
        prefixes = {self._context.prefix(former_job_id), self._context.prefix()}
        self._run(lambda cursor, p: [cursor.execute(self._table.sweep(x, p), (x,)) for x in sorted(prefixes)])

    def _run(self, work: Callable[[Cursor, str], object]) -> None:
        driver = self._database.driver
        try:
            self._database.run(lambda cursor: work(cursor, driver.placeholder))
        except driver.error as e:
            raise MillstreamError(
                f"SqlSink: staged rows could not be moved into table {self._table.name}: {error_text(e)}."
            ) from e
        finally:
            self._database.close()

    def _move(self, cursor: Cursor, p: str, names: list[str]) -> None:
        for name in names:
            if self._table.is_mysql:
                cursor.execute(self._table.lock_staged(p), (name,))
                cursor.fetchall()
            cursor.execute(self._table.move(p), (name,))
            moved = cursor.rowcount
            cursor.execute(self._table.unstage(p), (name,))
            if cursor.rowcount < moved and not self._table.is_mysql:
                # Another committer, of a driver assumed dead, has moved and deleted them since this one read them.
                raise OvertakenError(f"SqlSink: {name} was committed by two drivers at the same time.")


def _create_staged(database: Database, table: Table) -> None:
    """Create the staging table if it is missing; others may create it at the same time."""
    driver = database.driver
    try:
        database.run(lambda cursor: cursor.execute(table.probe_staged()))
        return
    except driver.error:
        pass
    refusal: Exception | None = None
    try:
        database.run(lambda cursor: [cursor.execute(statement) for statement in table.create_staged(driver.is_sqlite)])
    except driver.error as e:
        # If two sessions create a table at the same time, one fails in PostgreSQL, in spite of IF NOT EXISTS.
        refusal = e
    try:
        database.run(lambda cursor: cursor.execute(table.probe_staged()))
    except driver.error as e:
        raise InvalidProgramError(
            f"SqlSink: rows with the columns {', '.join(table.columns)} cannot be staged in {table.staged}: "
            f"{error_text(refusal or e)}. Create the table {table.name} with these columns before the job starts; "
            f"drop {table.staged} if it is older than a change of the table."
        ) from e
