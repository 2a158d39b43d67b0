"""Looks up rows of a database: many keys per statement, each compared as the database does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np

from millstream.common.aliases import Key, Value
from millstream.common.errors import MillstreamError
from millstream.connectors.database_values import read_values
from millstream.connectors.jdbc.connection import Connection, is_permanent
from millstream.connectors.jdbc.dialect import Dialect
from millstream.connectors.jdbc.statements import error_text, fetch_rows
from millstream.connectors.retries import Retries, linear
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.value_conversion import to_column
from millstream.sql.connector_contract import LookupResult, LookupSource
from millstream.sql.schema import Field

# Maximum keys per statement; SQLite allows at most 500 terms in a UNION ALL.
_MAX_KEYS = 200
_BACKOFF = linear(1.0)


class JdbcLookup(LookupSource):
    """Returns the rows of keys.

    Args:
        connect: returns a connection.
        dialect: the database's SQL dialect.
        table: the table's name.
        keys: the columns of keys.
        fields: the columns of rows.
        max_retries: the retries of a failed statement.
        zone: the session's time zone.
        parallelism: the maximum number of concurrent statements.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        dialect: Dialect,
        table: str,
        keys: tuple[Field, ...],
        fields: tuple[Field, ...],
        max_retries: int,
        zone: str,
        parallelism: int = 1,
    ) -> None:
        self._connect = connect
        self._dialect = dialect
        self._table = table
        self._keys = keys
        self._fields = fields
        self._max_retries = max_retries
        self._zone = zone
        # Only the thread that opened a connection of SQLite may use it.
        self._parallelism = 1 if dialect.name == "sqlite" else parallelism
        self._idle: list[Connection] = []
        self._pool: ThreadPoolExecutor | None = None

    def find(self, keys: Sequence[tuple[Key, ...]]) -> LookupResult:
        starts = range(0, len(keys), _MAX_KEYS)
        parts = [keys[start : start + _MAX_KEYS] for start in starts]
        if self._parallelism > 1 and len(parts) > 1:
            results = list(self._threads().map(self._query, parts))
        else:
            results = [self._query(part) for part in parts]
        counts = np.zeros(len(keys), np.int64)
        for start, rows in zip(starts, results, strict=True):
            for row in rows:
                counts[start + row[0]] += 1
        return LookupResult(self._batch([row[1:] for rows in results for row in rows]), counts)

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._parallelism, "millstream-lookup")
        return self._pool

    def all_rows(self) -> tuple[list[tuple[Key, ...]], Batch]:
        fields = [*self._fields, *self._keys]
        rows = self._run(self._dialect.selected(self._table, [f.name for f in fields]), [])
        width = len(self._fields)
        columns = [read_values([r[width + i] for r in rows], f.name, f.type) for i, f in enumerate(self._keys)]
        keys = list(zip(*columns, strict=True)) if columns else [()] * len(rows)
        return keys, self._batch([r[:width] for r in rows])

    def _batch(self, rows: Sequence[Sequence[Value]]) -> Batch:
        columns = [
            to_column(read_values([r[i] for r in rows], f.name, f.type), f.type, self._zone)
            for i, f in enumerate(self._fields)
        ]
        return Batch(columns, None, len(rows))

    def _query(self, keys: Sequence[tuple[Key, ...]]) -> list[Sequence[Value]]:
        """Return the rows of keys, each after the number of its key, in the order of keys."""
        dialect = self._dialect
        names = [dialect.quoted(f.name) for f in self._fields]
        condition = dialect.equal([f.name for f in self._keys])
        table = dialect.table(self._table)
        texts = [f"SELECT {', '.join([str(n), *names])} FROM {table} WHERE {condition}" for n in range(len(keys))]
        writers = [dialect.writer(f.type) for f in self._keys]
        values = [v if w is None else w(v) for key in keys for v, w in zip(key, writers, strict=True)]
        return sorted(self._run(" UNION ALL ".join(texts), values), key=lambda row: row[0])

    def _run(self, statement: str, values: list[Value]) -> list[Sequence[Value]]:
        retries = Retries(_BACKOFF, self._max_retries)
        while True:
            connection: Connection = None
            try:
                connection = self._idle.pop() if self._idle else self._connect()
                rows = fetch_rows(connection, statement, values)
                # The next statement sees rows that are committed in the meantime.
                connection.rollback()
            except Exception as e:
                if connection is not None:
                    with suppress(Exception):
                        connection.close()
                if is_permanent(e) or not retries.wait():
                    raise MillstreamError(f"JDBC: table {self._table!r} cannot be read: {error_text(e)}.") from e
            else:
                self._idle.append(connection)
                return rows

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        while self._idle:
            with suppress(Exception):
                self._idle.pop().close()
