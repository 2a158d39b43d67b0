"""JdbcSink: runs a SQL statement for each record, in batches, at least once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.common.typeinfo import RowTypeInfo
from millstream.connectors.base import CommitContext, Committer, Sink, SinkWriter
from millstream.connectors.jdbc.connection import (
    Connection,
    Cursor,
    Driver,
    JdbcConnectionOptions,
    JdbcExecutionOptions,
    connector,
    count_parameters,
    translated,
)
from millstream.connectors.jdbc.statements import BatchExecutor
from millstream.operators.diagnostics.failures import shorten
from millstream.operators.functions.context import RuntimeContext

__all__ = ["JdbcConnectionOptions", "JdbcExecutionOptions", "JdbcSink"]


class JdbcSink(Sink):
    """Runs a SQL statement for each record, in batches.

    At least once: a replayed epoch writes its batches again, so the statement should be idempotent, such as an upsert.
    `connectors.sql.SqlSink` writes exactly once.

    Example:
        >>> import sqlite3
        >>> from millstream.common import Types
        >>> database = sqlite3.connect("words.db")
        >>> _ = database.execute("CREATE TABLE words (word TEXT, n INT)")
        >>> options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("jdbc:sqlite:words.db").build()
        >>> kind = Types.ROW([Types.STRING(), Types.INT()])
        >>> sink = JdbcSink.sink("INSERT INTO words VALUES (?, ?)", kind, options, JdbcExecutionOptions.defaults())
        >>> _ = env.from_collection([("to", 1)], kind).add_sink(sink)
        >>> _ = env.execute()
        >>> database.execute("SELECT * FROM words").fetchall()
        [('to', 1)]
        >>> database.close()
    """

    name = "JDBC Sink"

    def __init__(
        self, sql: str, type_info: RowTypeInfo, connect: Callable[[], Connection], options: JdbcExecutionOptions
    ) -> None:
        self._sql = sql
        self._type_info = type_info
        self._connect = connect
        self._options = options

    @staticmethod
    def sink(
        sql: str,
        type_info: RowTypeInfo,
        jdbc_connection_options: JdbcConnectionOptions,
        jdbc_execution_options: JdbcExecutionOptions | None = None,
    ) -> JdbcSink:
        """Return a sink for `add_sink` or `sink_to`.

        Args:
            sql: a statement with a `?` for each field.
            type_info: the row type to which records are coerced.
            jdbc_connection_options: the URL and the user.
            jdbc_execution_options: the batches and retries.
        """
        if not isinstance(type_info, RowTypeInfo):
            raise InvalidProgramError(f"JdbcSink takes a row type, Types.ROW([...]), not {type_info!r}.")
        parameters, fields = count_parameters(sql), len(type_info.get_field_types())
        if parameters != fields:
            raise InvalidProgramError(f"JdbcSink: {sql!r} has {parameters} of ?, but the rows have {fields} fields.")
        connect = connector(jdbc_connection_options)
        return JdbcSink(sql, type_info, connect, jdbc_execution_options or JdbcExecutionOptions.defaults())

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return _Writer(self._sql, self._type_info, self._connect, self._options)

    def create_committer(self, context: CommitContext) -> Committer | None:
        return None


class _Writer(SinkWriter):
    """Writes full batches, and the rest at the end of an epoch."""

    def __init__(
        self, sql: str, type_info: RowTypeInfo, connect: Callable[[], Connection], options: JdbcExecutionOptions
    ) -> None:
        self._sql = sql
        self._convert = type_info.converter()
        self._executor = BatchExecutor(connect, options.max_retries)
        self._batch_size = options.batch_size
        self._interval = options.batch_interval_ms / 1000
        self._rows: list[Sequence[Value]] = []
        # When the first row of the batch was buffered.
        self._since = 0.0

    def begin(self, transaction: str) -> None:
        # Discards the rows of a failed epoch.
        self._rows.clear()

    def write(self, value: Value) -> None:
        rows = self._rows
        if not rows and self._interval:
            self._since = time.monotonic()
        rows.append(list(value if self._convert is None else self._convert(value)))
        if len(rows) >= self._batch_size or (self._interval and time.monotonic() - self._since >= self._interval):
            self._flush()

    def prepare_commit(self, flush: bool) -> None:
        self._flush()

    def close(self) -> None:
        self._executor.close()

    def _flush(self) -> None:
        if self._rows:
            self._executor.execute(self._write_batch, self._failure)
            self._rows.clear()

    def _write_batch(self, connection: Connection, cursor: Cursor) -> None:
        cursor.executemany(translated(self._sql, Driver.of(connection).placeholder), self._rows)

    def _failure(self, cause: str) -> str:
        return (
            f"JdbcSink: {len(self._rows)} records, the first of them {shorten(tuple(self._rows[0]))}, could not be "
            f"written with {self._sql!r}: {cause}."
        )
