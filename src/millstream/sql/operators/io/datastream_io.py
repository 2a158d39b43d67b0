"""Conversion between DataStream records and batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.aliases import Value
from millstream.common.errors import TypeMismatchError
from millstream.common.types import Row, RowKind
from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.operators.base import Downstream, Operator
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.value_conversion import names_of, to_column, to_python
from millstream.sql.errors import TableException, null_rowtime
from millstream.sql.plan.specs import StreamInput
from millstream.sql.schema import Fields
from millstream.sql.types import DataType

# Maximum records per batch; a watermark or the end of an epoch flushes earlier.
_BATCH_RECORDS = 1 << 12
_KINDS = tuple(RowKind(i) for i in range(4))


class StreamScanOperator(Operator):
    """Converts the records of a stream to batches."""

    identity = "sql-stream-scan"

    emits_batches = True
    emits_later = True
    drops_timestamps = True

    def __init__(self, stream: StreamInput, fields: Fields, event_time: int | None, changelog: bool, zone: str) -> None:
        """Create the operator.

        Args:
            stream: the stream.
            fields: the columns: those of the stream, and the record's timestamp among them.
            event_time: the timestamp's column; None without one.
            changelog: whether records are Rows with row kinds.
            zone: the time zone of naive datetimes.
        """
        self._names = stream.fields
        self._types = fields.types
        self._columns = [i for i in range(len(fields)) if i != event_time]
        self._event_time = event_time
        self._changelog = changelog
        self._zone = zone
        self._records: list[Value] = []
        self._times: list[int] = []

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        w.line(f"{w.bind(self._records.append, 'keep')}({value.name})")
        if self._event_time is not None:
            stamp = value.timestamp or str(MIN_WATERMARK)
            w.line(f"{w.bind(self._times.append, 'stamp')}({stamp})")
        w.after(f"{w.bind(self._send_if_many, 'send')}()", self)

    def _send_if_many(self) -> None:
        # One call may have few records, and a small batch costs nearly as much as a large one.
        if len(self._records) >= _BATCH_RECORDS:
            self._send()

    # Records are flushed before anything that follows them: a watermark, or the end of the epoch, where processing
    # time is checked.

    def on_watermark(self, watermark: int) -> int | None:
        self._send()
        return super().on_watermark(watermark)

    def on_idle(self) -> bool:
        self._send()
        return True

    def on_processing_time(self) -> None:
        self._send()

    def finish(self) -> None:
        self._send()

    def _send(self) -> None:
        if not self._records:
            return
        records, times = self._records[:], self._times[:]
        self._records.clear()
        self._times.clear()
        self.setup.emit([self._batch(records, times)])

    def _batch(self, records: list[Value], times: list[int]) -> Batch:
        columns: list[pa.Array] = [None] * len(self._types)
        values = [(r,) for r in records] if self._names is None else [self._members(r) for r in records]
        for index, column in zip(self._columns, zip(*values, strict=True), strict=True):
            columns[index] = to_column(list(column), self._types[index], self._zone)
        if self._event_time is not None:
            columns[self._event_time] = self._stamped(times)
        kinds = None
        if self._changelog:
            kinds = np.array([r.get_row_kind().value if isinstance(r, Row) else 0 for r in records], np.int8)
        return Batch(columns, kinds, len(records))

    def _members(self, record: Value) -> Sequence[Value]:
        names = self._names
        assert names is not None
        if isinstance(record, Row):
            field_names = names_of(record)
            if field_names is not None and set(names) <= set(field_names):
                return [record[n] for n in names]
        if isinstance(record, dict):
            return [record.get(n) for n in names]
        if not isinstance(record, (Row, tuple, list)) or len(record) < len(names):
            raise TypeMismatchError(f"The record {record!r} of the stream does not have the fields {', '.join(names)}.")
        return list(record)[: len(names)]

    def _stamped(self, times: list[int]) -> pa.Array:
        if MIN_WATERMARK in times:
            raise TableException(
                "Rowtime timestamp is not defined: a record has none. Give the stream timestamps with "
                "assign_timestamps_and_watermarks(), or omit the event-time column."
            )
        assert self._event_time is not None
        kind: DataType = self._types[self._event_time]
        return pa.array(times, pa.int64()).cast(pa.timestamp("ms")).cast(arrow_type(kind))


class ToRowsOperator(Operator):
    """Converts batches to Rows with row kinds."""

    identity = "sql-to-rows"

    takes_batches = True

    def __init__(self, fields: Fields, event_time: int | None, wrap: Callable[[Row], Value] | None = None) -> None:
        """Create the operator.

        Args:
            fields: the columns.
            event_time: the column that is the row's timestamp; None without one.
            wrap: converts a row.
        """
        self._names = tuple(fields.names)
        self._types = fields.types
        self._event_time = event_time
        self._wrap = wrap
        self.assigns_timestamps = event_time is not None

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        row, stamp = w.var("row"), w.var("t")
        rows = w.bind(self._rows, "rows")
        if self._event_time is None:
            with w.block(f"for {row} in {rows}({value.name}):", self, value.name):
                downstream(Var(row, None, detached=True))
            return
        times = w.bind(self._times, "times")
        with w.block(f"for {row}, {stamp} in zip({rows}({value.name}), {times}({value.name})):", self, value.name):
            downstream(Var(row, stamp, detached=True))

    def _rows(self, batch: Batch) -> Iterator[Value]:
        columns = [to_python(c, t, None) for c, t in zip(batch.columns, self._types, strict=True)]
        rows = Row.many(self._names, zip(*columns, strict=True))
        if batch.kinds is not None:
            for row, kind in zip(rows, batch.kinds.tolist(), strict=True):
                row.set_row_kind(_KINDS[kind])
        return iter(rows) if self._wrap is None else map(self._wrap, rows)

    def _times(self, batch: Batch) -> list[int]:
        assert self._event_time is not None
        column = batch.columns[self._event_time]
        if column.null_count:
            raise null_rowtime()
        plain = pa.timestamp("ms", column.type.tz)
        return column.cast(plain, safe=False).cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
