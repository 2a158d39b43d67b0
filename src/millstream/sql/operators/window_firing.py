"""Windows that are told before they end, or again after it: every row changes the result of its window.

What `table.exec.emit.early-fire`, `late-fire` and `allow-lateness` say of windows in a GROUP BY.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.keyed import Kept, KeyedColumns
from millstream.sql.columns.rows import Ints, Mask
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.aggregates import Aggregates, signs_of
from millstream.sql.operators.base import KeyedBatchOperator, pieces
from millstream.sql.operators.changelog import Changelog
from millstream.sql.operators.segments import Segments
from millstream.sql.operators.window_aggregate import WindowTimes, property_column
from millstream.sql.operators.windowing import Times, Windowing
from millstream.sql.plan.nodes import Fires

_END, _SAID = "end", "said"


class FiringWindowOperator(KeyedBatchOperator):
    """Keys, aggregates, then properties of the window, with updates."""

    emits_later = True

    def __init__(
        self,
        windowing: Windowing,
        times: WindowTimes,
        keys: Sequence[int],
        calls: Sequence[AggregateCall],
        kinds: Sequence[pa.DataType],
        properties: Sequence[tuple[str, pa.DataType]],
        fires: Fires,
        *,
        retracts: bool = False,
        pairs: bool = True,
    ) -> None:
        """Make one.

        Args:
            windowing: the windows.
            times: where rows are in time: event time.
            keys: the columns to group by.
            calls: the aggregates.
            kinds: the Arrow types of the input's columns.
            properties: which of "start", "end" and "rowtime" the last columns are, and their types.
            fires: when a window is told.
            retracts: whether the input may take rows back.
            pairs: whether an update is -U and +U, not +U alone.
        """
        self.windowing = windowing
        self.times = times
        self.keys = tuple(keys)
        self.calls = tuple(calls)
        self.kinds = list(kinds)
        self.properties = list(properties)
        self.fires = fires
        self.pairs = pairs
        self.aggregates = Aggregates(calls, kinds, retracts)
        times.are_points = kinds[times.column].tz is not None

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        kinds = [*(self.kinds[k] for k in self.keys), pa.int64()]
        kept = [Kept(_END, np.int64), Kept(_SAID, np.bool_, False), *self.aggregates.kept]
        owners = len(self.keys)
        self._state: KeyedColumns = self.keeps("windows", KeyedColumns(kinds, kept, owners))
        self.aggregates.open(kinds, self.keeps, owners)
        assert setup.state is not None
        setup.state.when_loaded(self._look)
        self._next = MAX_WATERMARK
        self._late = setup.context.get_metrics_group().counter("numLateRecordsDropped")

    def process(self, batch: Batch) -> Iterable[Batch]:
        rows, ends = self.windowing.all_ends(self.times.of(batch, self.setup.clock()))
        triggers = self.times.triggers(ends)
        kept = triggers + self.fires.lateness > self.watermark
        if not kept.all():
            self._late.inc(int((~kept).sum()))
            rows, ends, triggers = rows[kept], ends[kept], triggers[kept]
        if not len(rows):
            return ()
        batch = batch.take(rows)
        in_time = triggers > self.watermark
        self._state.compact()
        now = ~in_time | self.fires.early
        if not now.all():
            self._fold(batch.filter(~now), ends[~now])
        return (self._told(batch.filter(now), ends[now]),) if now.any() else ()

    def _slots(self, batch: Batch, ends: Times) -> tuple[list[pa.Array], Ints, int]:
        keys = [*(batch.columns[k] for k in self.keys), pa.array(ends)]
        first_new = self._state.bound
        slots, new = self._state.find_or_add(keys, len(batch))
        if len(new):
            self._state.column(_END)[first_new:] = ends[new]
            triggers = self.times.triggers(ends[new])
            waits = np.where(triggers > self.watermark, triggers, triggers + self.fires.lateness)
            self._next = min(self._next, int(waits.min()))
        return keys, slots, first_new

    def _fold(self, batch: Batch, ends: Times) -> None:
        """Take rows of windows that are told at their end."""
        keys, slots, _ = self._slots(batch, ends)
        self.aggregates.fold(batch, keys, slots, self._state)
        self._state.changed(slots)

    def _told(self, batch: Batch, ends: Times) -> Batch:
        """Take rows of windows that are told at once; return what changes."""
        state = self._state
        keys, slots, first_new = self._slots(batch, ends)
        segments = Segments.of(slots, first_new, state.bound, signs_of(batch))
        said = state.column(_SAID)[segments.slots].copy()
        running = self.aggregates.run(batch, keys, segments, state)
        state.column(_SAID)[segments.slots] = True
        state.changed(segments.slots)
        before, after = segments.before, np.arange(segments.rows)
        there_before: Mask = np.ones(segments.rows, np.bool_)
        there_before[segments.starts] = said
        differs = np.zeros(segments.rows, np.bool_)
        for one in running:
            differs |= one.differs(before, after)
        changes = Changelog.of(there_before, np.ones(segments.rows, np.bool_), differs, self.pairs)
        changes = changes.in_order(np.argsort(segments.order))
        places = changes.chosen(before[changes.order], after[changes.order])
        at = changes.chosen(changes.places, changes.places)
        columns = [k.take(pa.array(at)) for k in keys[:-1]]
        columns += [r.take(places) for r in running]
        return Batch([*columns, *self._properties(ends[at])], changes.kinds, len(at))

    def _properties(self, ends: Times) -> list[pa.Array]:
        starts = self.windowing.starts(ends)
        return [property_column(name, kind, starts, ends, self.times) for name, kind in self.properties]

    # --- time

    def _look(self) -> None:
        state, slots = self._state, self._state.slots()
        self._next = MAX_WATERMARK
        if len(slots):
            triggers = self.times.triggers(state.column(_END)[slots])
            waits = np.where(triggers > self.watermark, triggers, triggers + self.fires.lateness)
            self._next = int(waits.min())

    def waiting(self) -> Iterable[tuple[str, int, int]]:
        if MIN_WATERMARK < self._next < MAX_WATERMARK:
            yield "windows", len(self._state), self._next

    def on_watermark(self, watermark: int) -> int | None:
        is_due = watermark >= self._next
        if is_due:
            self._fire(watermark)
        self.watermark = watermark
        if is_due:
            self._look()
        return watermark

    def _fire(self, watermark: int) -> None:
        """Tell windows that end now and have not been told; forget those that nobody can be late for any more."""
        state, slots = self._state, self._state.slots()
        ends = state.column(_END)[slots]
        triggers = self.times.triggers(ends)
        due = (triggers <= watermark) & ~state.column(_SAID)[slots]
        order = np.argsort(ends[due], kind="stable")
        shown, their_ends = slots[due][order], ends[due][order]
        columns = state.keys_at(shown)[: len(self.keys)] + self.aggregates.results(state, shown)
        self.emit(pieces([*columns, *self._properties(their_ends)], len(shown)))
        state.column(_SAID)[shown] = True
        state.changed(shown)
        over = slots[triggers + self.fires.lateness <= watermark]
        state.remove(over)
        lateness = self.fires.lateness
        self.aggregates.forget(len(self.keys), lambda e: self.times.triggers(e) + lateness <= watermark)
