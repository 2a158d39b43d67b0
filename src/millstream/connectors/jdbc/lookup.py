"""Looks rows of a database up: many keys with one statement, each compared as the database does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

import numpy as np

from millstream.common.errors import MillstreamError
from millstream.connectors.jdbc.connection import Connection, is_mistake
from millstream.connectors.jdbc.dialect import Dialect, read_values
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.value_conversion import to_column
from millstream.sql.connectors import Found, LookupSource
from millstream.sql.schema import Field

# So many keys are asked for with one statement; SQLite takes at most 500 of what stands between UNION ALL.
_KEYS = 200
_PAUSE_SECONDS = 1.0


class JdbcLookup(LookupSource):
    """Finds the rows of keys.

    Args:
        connect: returns a connection.
        dialect: of its database.
        table: its name.
        keys: the columns of keys.
        fields: the columns of rows.
        tries: how often a statement that fails is tried again.
        zone: the session's time zone.
        at_once: so many statements run at the same time.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        dialect: Dialect,
        table: str,
        keys: tuple[Field, ...],
        fields: tuple[Field, ...],
        tries: int,
        zone: str,
        at_once: int = 1,
    ) -> None:
        self._connect = connect
        self._dialect = dialect
        self._table = table
        self._keys = keys
        self._fields = fields
        self._tries = tries
        self._zone = zone
        # A connection of SQLite's belongs to the thread that made it.
        self._at_once = 1 if dialect.name == "sqlite" else at_once
        # Connections that nobody is using.
        self._idle: list[Connection] = []
        self._pool: ThreadPoolExecutor | None = None

    def find(self, keys: Sequence[tuple[Any, ...]]) -> Found:
        starts = range(0, len(keys), _KEYS)
        if self._at_once > 1 and len(keys) > _KEYS:
            answers = list(self._threads().map(lambda at: self._asked(keys[at : at + _KEYS]), starts))
        else:
            answers = [self._asked(keys[at : at + _KEYS]) for at in starts]
        counts = np.zeros(len(keys), np.int64)
        for start, answer in zip(starts, answers, strict=True):
            for row in answer:
                counts[start + row[0]] += 1
        return Found(self._batch([row[1:] for answer in answers for row in answer]), counts)

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._at_once, "millstream-lookup")
        return self._pool

    def all_rows(self) -> tuple[list[tuple[Any, ...]], Batch]:
        wanted = [*self._fields, *self._keys]
        rows = self._run(self._dialect.selected(self._table, [f.name for f in wanted]), [])
        width = len(self._fields)
        columns = [
            read_values([r[width + i] for r in rows], f.name, f.type, self._zone) for i, f in enumerate(self._keys)
        ]
        keys = list(zip(*columns, strict=True)) if columns else [()] * len(rows)
        return keys, self._batch([r[:width] for r in rows])

    def _batch(self, rows: Sequence[Sequence[Any]]) -> Batch:
        columns = [
            to_column(read_values([r[i] for r in rows], f.name, f.type, self._zone), f.type, self._zone)
            for i, f in enumerate(self._fields)
        ]
        return Batch(columns, None, len(rows))

    def _asked(self, keys: Sequence[tuple[Any, ...]]) -> list[Sequence[Any]]:
        """Return rows with the number of their key before them, in the order of keys."""
        dialect = self._dialect
        names = [dialect.quoted(f.name) for f in self._fields]
        condition = dialect.equal([f.name for f in self._keys])
        table = dialect.table(self._table)
        texts = [f"SELECT {', '.join([str(n), *names])} FROM {table} WHERE {condition}" for n in range(len(keys))]
        writers = [dialect.writer(f.type) for f in self._keys]
        values = [v if w is None else w(v) for key in keys for v, w in zip(key, writers, strict=True)]
        found = self._run(" UNION ALL ".join(texts), values)
        return sorted(found, key=lambda row: row[0])

    def _run(self, text: str, values: list[Any]) -> list[Sequence[Any]]:
        attempt = 0
        while True:
            connection: Connection = None
            try:
                connection = self._idle.pop() if self._idle else self._connect()
                with closing(connection.cursor()) as cursor:
                    cursor.execute(text, values)
                    rows = list(cursor.fetchall())
                # So that the next one sees what others have committed meanwhile.
                connection.rollback()
            except Exception as e:
                if connection is not None:
                    with suppress(Exception):
                        connection.close()
                if attempt == self._tries or is_mistake(e):
                    said = str(e).strip().partition("\n")[0].rstrip(".")
                    raise MillstreamError(f"JDBC: table {self._table!r} cannot be looked up: {said}.") from e
                time.sleep(_PAUSE_SECONDS * attempt)
                attempt += 1
            else:
                self._idle.append(connection)
                return rows

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        while self._idle:
            with suppress(Exception):
                self._idle.pop().close()
