"""Writes batches to tables of databases: rows are added, or by a primary key changed and taken away."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any

from millstream.common.errors import MillstreamError
from millstream.common.fast_dataclass import record
from millstream.connectors.jdbc.connection import Connection, is_mistake
from millstream.connectors.jdbc.dialect import Dialect
from millstream.operators.diagnostics.failures import shorten
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.sink import CommitContext, Committer, Sink, SinkWriter
from millstream.sql.columns.batch import INSERT, UPDATE_AFTER, Batch
from millstream.sql.columns.value_conversion import to_python
from millstream.sql.schema import Field

_PAUSE_SECONDS = 1.0


@record
class TableWrite:
    """What is written, and how.

    Attributes:
        connect: returns a connection.
        dialect: of its database.
        table: its name.
        fields: the columns of rows.
        keys: the primary key; without one rows are only added.
        rows: so many are written at once.
        seconds: for so long they wait at most.
        tries: how often a batch that fails is tried again.
        zone: the session's time zone.
    """

    connect: Callable[[], Connection]
    dialect: Dialect
    table: str
    fields: tuple[Field, ...]
    keys: tuple[str, ...]
    rows: int
    seconds: float
    tries: int
    zone: str


class _Writer(SinkWriter):
    """At least once: by the end of an epoch all of it is in the database, and comes again if the epoch does."""

    keeps_values = False

    def __init__(self, write: TableWrite) -> None:
        self._write = write
        names = [f.name for f in write.fields]
        dialect = write.dialect
        self._keys = [names.index(k) for k in write.keys]
        self._put = (
            dialect.upserted(write.table, names, write.keys) if write.keys else dialect.inserted(write.table, names)
        )
        self._delete = dialect.deleted(write.table, write.keys) if write.keys else ""
        self._convert = [dialect.writer(f.type) for f in write.fields]
        # Of a table with a key, the last row of each: None is one that goes. Else rows by their number.
        self._waiting: dict[Any, tuple[bool, Sequence[Any]]] = {}
        self._since = 0.0
        self._connection: Connection = None

    def begin(self, transaction: str) -> None:
        # Of an epoch that did not get to its end.
        self._waiting.clear()

    def write(self, value: Batch) -> None:
        columns = []
        for column, field, convert in zip(value.columns, self._write.fields, self._convert, strict=True):
            values = to_python(column, field.type, self._write.zone)
            columns.append(values if convert is None else [None if v is None else convert(v) for v in values])
        most, limit = self._write.rows or len(value) + 1, self._write.seconds
        for kind, row in zip(value.all_kinds().tolist(), zip(*columns, strict=True), strict=True):
            if not self._waiting:
                self._since = time.monotonic()
            key = tuple(row[k] for k in self._keys) if self._keys else len(self._waiting)
            self._waiting[key] = (kind in (INSERT, UPDATE_AFTER), row)
            if len(self._waiting) >= most:
                self._flush()
        if self._waiting and limit and time.monotonic() - self._since >= limit:
            self._flush()

    def prepare_commit(self, flush: bool) -> None:
        self._flush()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()

    def _flush(self) -> None:
        """Write what waits, again over a new connection when that fails."""
        if not self._waiting:
            return
        put = [row for is_there, row in self._waiting.values() if is_there]
        gone = [[row[k] for k in self._keys] for is_there, row in self._waiting.values() if not is_there]
        for attempt in range(self._write.tries + 1):
            try:
                self._run(put, gone)
                break
            except Exception as e:
                self.close()
                if attempt == self._write.tries or is_mistake(e):
                    first, said = shorten((put or gone)[0]), str(e).strip().partition("\n")[0].rstrip(".")
                    raise MillstreamError(
                        f"JDBC: {len(put) + len(gone)} rows for table {self._write.table!r}, the first of them "
                        f"{first}, could not be written: {said}."
                    ) from e
                time.sleep(_PAUSE_SECONDS * attempt)
        self._waiting.clear()

    def _run(self, put: list[Sequence[Any]], gone: list[list[Any]]) -> None:
        if self._connection is None:
            self._connection = self._write.connect()
        with closing(self._connection.cursor()) as cursor:
            if gone:
                cursor.executemany(self._delete, gone)
            if put:
                cursor.executemany(self._put, put)
        self._connection.commit()


class JdbcTableSink(Sink[Batch]):
    """Writes rows to a table."""

    name = "jdbc"

    def __init__(self, write: TableWrite) -> None:
        self._write = write

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return _Writer(self._write)

    def create_committer(self, context: CommitContext) -> Committer | None:
        return None
