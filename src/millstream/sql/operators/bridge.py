"""Between a DataStream and SQL: rows to batches, and batches to rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from millstream.common.types import Row, RowKind
from millstream.operators.base import Downstream, Operator, OperatorSetup
from millstream.operators.codegen import CodeWriter, Key, Var
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.numbers import plain, valid_of
from millstream.sql.columns.values import to_column, to_python
from millstream.sql.errors import TableException
from millstream.sql.types import DataType

# A batch is made of so many rows, or of fewer when time goes on.
_ROWS = 1 << 12
_KINDS = list(RowKind)


class RowsToBatches(Operator):
    """Makes batches of the records of a DataStream."""

    emits_batches = True
    drops_timestamps = True
    emits_later = True

    def __init__(self, types: Sequence[DataType], changelog: bool, event_time: int | None, zone: str) -> None:
        """Make one.

        Args:
            types: of the columns; a record is a Row or tuple of so many values, or the value of the one column.
            changelog: whether records have kinds.
            event_time: the column that is the record's timestamp; None for none.
            zone: the session's time zone.
        """
        self.types = list(types)
        self.changelog = changelog
        self.event_time = event_time
        self.zone = zone

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._records: list[Any] = []
        self._stamps: list[int | None] = []

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        w.line(f"{w.bind(self._records.append, 'add')}({value.name})", self, value.name)
        if self.event_time is not None:
            w.line(f"{w.bind(self._stamps.append, 'stamp')}({value.timestamp})")
        w.after(f"{w.bind(self._flush_if_many, 'flush')}()")

    def _flush_if_many(self) -> None:
        if len(self._records) >= _ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._records:
            return
        records, stamps = list(self._records), list(self._stamps)
        # The loop holds on to these very lists.
        self._records.clear()
        self._stamps.clear()
        self.setup.emit([self._batch(records, stamps)])

    def _batch(self, records: list[Any], stamps: list[int | None]) -> Batch:
        width = len(self.types) - (self.event_time is not None)
        rows = [self._values(r, width) for r in records]
        columns = list(zip(*rows, strict=True)) if width else []
        if self.event_time is not None:
            if None in stamps:
                raise TableException(
                    "Rowtime timestamp is not defined: a record of the stream has no timestamp. Assign timestamps and "
                    "watermarks to the stream before it becomes a table (assign_timestamps_and_watermarks)."
                )
            columns.insert(self.event_time, tuple(stamps))
        arrays = [
            _stamp_column(c, t) if i == self.event_time else to_column(list(c), t, self.zone)
            for i, (c, t) in enumerate(zip(columns, self.types, strict=True))
        ]
        kinds = None
        if self.changelog:
            kinds = np.fromiter((r.get_row_kind().value for r in records), np.int8, len(records))
        return Batch(arrays, kinds, len(records))

    def _values(self, record: Any, width: int) -> tuple[Any, ...]:
        values = tuple(record) if isinstance(record, (Row, tuple)) else (record,)
        if len(values) != width:
            values = (record,)
        if len(values) != width:
            raise TableException(
                f"A record of the stream has {len(values)} fields, {record!r}, and its table has {width}."
            )
        return values

    def on_watermark(self, watermark: int) -> int | None:
        self._flush()
        self.watermark = watermark
        return watermark

    def on_idle(self) -> bool:
        self._flush()
        return True

    def on_processing_time(self) -> None:
        # At the end of every epoch, too, so that nothing is in the list between two of them.
        self._flush()

    def finish(self) -> None:
        self._flush()


def _stamp_column(stamps: tuple[int | None, ...], kind: DataType) -> Any:
    from millstream.sql.columns.arrow import arrow_type
    from millstream.sql.columns.numbers import from_plain

    target = arrow_type(kind)
    scale = {"ms": 1, "us": 1000, "ns": 1_000_000}[target.unit]
    return from_plain(np.array(stamps, np.int64) * scale, None, target)


class BatchesToRows(Operator):
    """Makes records of a DataStream of batches."""

    takes_batches = True
    drops_timestamps = True

    def __init__(
        self, names: Sequence[str], types: Sequence[DataType], event_time: int | None, zone: str, upsert: bool = False
    ) -> None:
        """Make one.

        Args:
            names: of the columns.
            types: of the columns.
            event_time: the column that becomes the record's timestamp; None for none.
            zone: the session's time zone.
            upsert: whether what comes before an update is left out.
        """
        self.names = list(names)
        self.types = list(types)
        self.event_time = event_time
        self.zone = zone
        self.upsert = upsert
        self.assigns_timestamps = event_time is not None

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        row = w.var("r")
        if self.event_time is None:
            with w.block(f"for {row} in {w.bind(self.rows, 'rows')}({value.name}):", self, value.name):
                downstream(Var(row, None, detached=True))
            return
        stamp = w.var("t")
        text = f"for {row}, {stamp} in {w.bind(self.stamped_rows, 'rows')}({value.name}):"
        with w.block(text, self, value.name):
            downstream(Var(row, stamp, detached=True))

    def rows(self, batch: Batch) -> Iterator[Row]:
        """Yield the rows of a batch."""
        if self.upsert and batch.kinds is not None:
            batch = batch.filter(batch.kinds != RowKind.UPDATE_BEFORE.value)
        columns = [to_python(c, t) for c, t in zip(batch.columns, self.types, strict=True)]
        names = self.names
        kinds = [_KINDS[k] for k in batch.all_kinds().tolist()]
        for kind, values in zip(kinds, zip(*columns, strict=True) if columns else [()] * len(batch), strict=True):
            yield Row.of(names, list(values), kind)

    def stamped_rows(self, batch: Batch) -> Iterator[tuple[Row, int]]:
        """Yield the rows of a batch, each with its timestamp."""
        assert self.event_time is not None
        column = batch.columns[self.event_time]
        if valid_of(column) is not None:
            raise TableException("RowTime field should not be null, please convert it to a non-null long value.")
        scale = {"ms": 1, "us": 1000, "ns": 1_000_000}[column.type.unit]
        yield from zip(self.rows(batch), (plain(column) // scale).tolist(), strict=True)
