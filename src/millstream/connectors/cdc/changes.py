"""Row changes of any database, and the schemas that turn them into records."""

from __future__ import annotations

import base64
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import NamedTuple, TypeAlias
from uuid import UUID

from millstream.common.aliases import Json, Value
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.tags import tagged
from millstream.common.types import Row, RowKind

__all__ = [
    "BatchDeserializationSchema",
    "Change",
    "DebeziumDeserializationSchema",
    "JsonDebeziumDeserializationSchema",
    "RowDeserializationSchema",
]

# Placeholder for a large value that an UPDATE left unchanged and the log omits, as in Debezium.
UNAVAILABLE = "__debezium_unavailable_value"

READ, CREATE, UPDATE, DELETE, TRUNCATE = "r", "c", "u", "d", "t"

# A log offset: `lsn` and `txId` for PostgreSQL; `file`, `pos` and `gtid` for MySQL.
LogSource: TypeAlias = dict[str, int | str | None]

_INSERT, _BEFORE, _AFTER, _DELETE = RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE


@tagged("cdc-change")
class Change(NamedTuple):
    """Describes a change of one row.

    Attributes:
        op: `r` (read by the snapshot), `c` (inserted), `u` (updated), `d` (deleted), `t` (table truncated).
        table: the qualified name, `schema.table` or `database.table`.
        columns: the column names at the time of the change.
        keys: indexes of the key columns.
        before: the row before the change, or None if there was none or the log omits it.
        after: the row after the change, or None if it was deleted.
        is_before_complete: whether `before` has all columns; otherwise only key columns are set.
        ms: commit time of the transaction, or time of the snapshot, in milliseconds.
        source: the log offset.
        schema: the schema or database, for names that contain dots.
    """

    op: str
    table: str
    columns: tuple[str, ...]
    keys: tuple[int, ...]
    before: list[Value] | None
    after: list[Value] | None
    is_before_complete: bool
    ms: int
    source: LogSource
    schema: str = ""

    @property
    def names(self) -> tuple[str, str]:
        """The schema or database, and the table name without it."""
        schema = self.schema or self.table.partition(".")[0]
        return schema, self.table[len(schema) + 1 :]


class DebeziumDeserializationSchema(ABC):
    """Converts changes into records of the stream.

    Example:
        >>> class Tables(DebeziumDeserializationSchema):
        ...     def deserialize(self, change): return [change.table]
        >>> Tables().deserialize(Change("c", "public.t", ("id",), (0,), None, [1], False, 5, {}))
        ['public.t']
    """

    @abstractmethod
    def deserialize(self, change: Change) -> Iterable[Value]:
        """Return the records of a change: zero, one or more."""

    def check(self, table: str, is_full: bool) -> None:
        """Raise InvalidProgramError if changes of a table cannot be converted; `is_full`: the log has old rows."""


class BatchDeserializationSchema(DebeziumDeserializationSchema):
    """Converts many changes into one record, for SQL."""

    @abstractmethod
    def deserialize_all(self, changes: Sequence[Change]) -> Value:
        """Return one record with the changes in order."""

    def deserialize(self, change: Change) -> list[Value]:
        return [self.deserialize_all([change])]


class RowDeserializationSchema(DebeziumDeserializationSchema):
    """Converts changes into Rows with a row kind: +I, -U and +U, -D.

    Args:
        changelog_mode: `all` emits complete rows in -U and -D; the database must log old rows.
            `upsert` omits -U and emits only the key of a deleted row; a large unchanged value is
            `__debezium_unavailable_value`.
        with_table: emit pairs of table name and Row, for more than one table.
        skip_truncate: ignore TRUNCATE, which no Row can express; otherwise the job fails.

    Example:
        >>> change = Change("d", "public.t", ("id", "name"), (0,), [1, "a"], None, True, 0, {})
        >>> RowDeserializationSchema().deserialize(change)[0].get_row_kind()
        <RowKind.DELETE: 3>
    """

    def __init__(self, changelog_mode: str = "all", with_table: bool = False, skip_truncate: bool = False) -> None:
        if changelog_mode not in ("all", "upsert"):
            raise InvalidProgramError(
                f"RowDeserializationSchema: changelog_mode is all or upsert, not {changelog_mode!r}."
            )
        self._all = changelog_mode == "all"
        self._with_table = with_table
        self._skip_truncate = skip_truncate

    def check(self, table: str, is_full: bool) -> None:
        if self._all and not is_full:
            raise InvalidProgramError(
                f"Table {table} does not log rows as they were before a change (its replica identity is not FULL), "
                f"which Rows of an UPDATE or DELETE need: run  ALTER TABLE {table} "
                "REPLICA IDENTITY FULL  or use RowDeserializationSchema(changelog_mode='upsert'), which has only "
                "the key of a deleted row."
            )

    def deserialize(self, change: Change) -> list[Value]:
        op, columns = change.op, change.columns
        if op in (READ, CREATE):
            assert change.after is not None
            rows = [Row.of(columns, change.after, _INSERT)]
        elif op == UPDATE:
            assert change.after is not None
            rows = [Row.of(columns, change.after, _AFTER)]
            if self._all:
                rows.insert(0, Row.of(columns, self._whole(change), _BEFORE))
        elif op == DELETE:
            before = self._whole(change) if self._all else change.before
            assert before is not None
            rows = [Row.of(columns, before, _DELETE)]
        elif self._skip_truncate:
            rows = []
        else:
            raise MillstreamError(
                f"Table {change.table} was truncated, which no Row can express: use "
                "JsonDebeziumDeserializationSchema, or ignore it with RowDeserializationSchema(skip_truncate=True)."
            )
        return [(change.table, row) for row in rows] if self._with_table else rows

    def _whole(self, change: Change) -> list[Value]:
        if not change.is_before_complete or change.before is None:
            # The check ran at the start of the job; the replica identity changed since.
            self.check(change.table, False)
        assert change.before is not None
        return change.before


class JsonDebeziumDeserializationSchema(DebeziumDeserializationSchema):
    """Converts changes into JSON in Debezium's format: `before`, `after`, `op`, `ts_ms`, `source`.

    Decimals are written as strings, dates and times in ISO 8601, bytes in base64.

    Example:
        >>> change = Change("c", "public.t", ("id",), (0,), None, [1], False, 5, {"lsn": 7})
        >>> json.loads(JsonDebeziumDeserializationSchema().deserialize(change)[0])["after"]
        {'id': 1}
    """

    def deserialize(self, change: Change) -> list[str]:
        schema, table = change.names
        before, after = change.before, change.after
        if before is not None and not change.is_before_complete:
            columns = [change.columns[k] for k in change.keys]
            old_row: dict[str, Value] | None = dict(zip(columns, (before[k] for k in change.keys), strict=True))
        else:
            old_row = None if before is None else dict(zip(change.columns, before, strict=True))
        envelope = {
            "before": old_row,
            "after": None if after is None else dict(zip(change.columns, after, strict=True)),
            "source": {**change.source, "ts_ms": change.ms, "schema": schema, "table": table},
            "op": change.op,
            "ts_ms": change.ms,
        }
        return [_ENCODER.encode(envelope)]


def _to_json(value: Value) -> Json:
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return _time_text(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{value!r} cannot be written as JSON.")


def _time_text(value: timedelta) -> str:
    """Format MySQL's TIME, which may be negative or longer than a day, as MySQL does."""
    seconds, fraction = divmod(abs(value), timedelta(seconds=1))
    sign = "-" if value < timedelta(0) else ""
    text = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction.microseconds:06}" if fraction else text


class _Encoder(json.JSONEncoder):
    """Writes NaN and infinity, which JSON lacks, as null."""

    def encode(self, o: Json) -> str:
        try:
            return super().encode(o)
        except ValueError:
            return super().encode(_finite(o))


def _finite(value: Json) -> Json:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, (list, tuple)) else value


_ENCODER = _Encoder(default=_to_json, ensure_ascii=False, allow_nan=False)
