"""JdbcSink: any statement of SQL for every record, in batches, at least once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.typeinfo import RowTypeInfo
from millstream.connectors.base import CommitContext, Committer, Sink, SinkWriter
from millstream.connectors.jdbc.connection import (
    Connection,
    Driver,
    JdbcConnectionOptions,
    JdbcExecutionOptions,
    connector,
    count_places,
    is_mistake,
    translated,
)
from millstream.operators.diagnostics.failures import shorten
from millstream.operators.functions.context import RuntimeContext

__all__ = ["JdbcConnectionOptions", "JdbcExecutionOptions", "JdbcSink"]

log = logging.getLogger("millstream")

# As in Flink, a batch that fails again waits so long before the next try, and longer every time.
_PAUSE_SECONDS = 1.0


class JdbcSink(Sink):
    """Runs a statement of SQL for every record, in batches.

    At least once: a batch counts when it is written, and comes again when its epoch is run again, so that the statement
    should do no harm twice, such as an upsert. For exactly once there is `connectors.sql.SqlSink`.

    Example:
        >>> from millstream.common import Types
        >>> options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url("jdbc:sqlite:/tmp/w.db").build()
        >>> words = Types.ROW([Types.STRING(), Types.INT()])
        >>> sink = JdbcSink.sink("INSERT INTO words VALUES (?, ?)", words, options)
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
            sql: a statement with a `?` for every field.
            type_info: the type of the records' fields, which are made to fit it.
            jdbc_connection_options: where the database is.
            jdbc_execution_options: how records are put into batches.
        """
        if not isinstance(type_info, RowTypeInfo):
            raise InvalidProgramError(f"JdbcSink takes the type of rows, Types.ROW([...]), not {type_info!r}.")
        places, fields = count_places(sql), len(type_info.get_field_types())
        if places != fields:
            raise InvalidProgramError(f"JdbcSink: {sql!r} has {places} of ?, but the rows have {fields} fields.")
        connect = connector(jdbc_connection_options)
        return JdbcSink(sql, type_info, connect, jdbc_execution_options or JdbcExecutionOptions.defaults())

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return _Writer(self._sql, self._type_info, self._connect, self._options)

    def create_committer(self, context: CommitContext) -> Committer | None:
        return None


class _Writer(SinkWriter):
    """Writes batches as they fill up; by the end of an epoch all of it is in the database."""

    def __init__(
        self, sql: str, type_info: RowTypeInfo, connect: Callable[[], Connection], options: JdbcExecutionOptions
    ) -> None:
        self._sql = sql
        self._fit = type_info.converter()
        self._connect = connect
        self._options = options
        self._interval = options.batch_interval_ms / 1000
        self._rows: list[Sequence[Any]] = []
        self._since = 0.0
        self._connection: Connection = None

    def begin(self, transaction: str) -> None:
        # Of an epoch that did not get to its end.
        self._rows.clear()

    def write(self, value: Any) -> None:
        rows = self._rows
        if not rows and self._interval:
            self._since = time.monotonic()
        rows.append(list(value if self._fit is None else self._fit(value)))
        if len(rows) >= self._options.batch_size or (
            self._interval and time.monotonic() - self._since >= self._interval
        ):
            self._flush()

    def prepare_commit(self, flush: bool) -> None:
        self._flush()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _flush(self) -> None:
        """Write the batch, again over a new connection when that fails."""
        if not self._rows:
            return
        for attempt in range(self._options.max_retries + 1):
            try:
                self._write_batch()
                break
            except Exception as e:
                self._drop_connection()
                if attempt == self._options.max_retries or is_mistake(e):
                    raise self._failed(e) from e
                time.sleep(_PAUSE_SECONDS * attempt)
        self._rows.clear()

    def _failed(self, error: Exception) -> MillstreamError:
        first, said = shorten(tuple(self._rows[0])), str(error).partition("\n")[0]
        return MillstreamError(
            f"JdbcSink: {len(self._rows)} records, the first of them {first}, could not be written "
            f"with {self._sql!r}: {said}"
        )

    def _write_batch(self) -> None:
        if self._connection is None:
            self._connection = self._connect()
        connection = self._connection
        with closing(connection.cursor()) as cursor:
            cursor.executemany(translated(self._sql, Driver.of(connection).placeholder), self._rows)
        connection.commit()

    def _drop_connection(self) -> None:
        """Whatever the connection has not committed is undone by closing it."""
        try:
            self.close()
        except Exception as e:
            # It was broken already, which is told if it matters: the batch comes again over another.
            log.debug("JdbcSink: a connection could not be closed: %s", e)
