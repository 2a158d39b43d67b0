"""Windows that fire before their end, or again after it: every row changes the result of its window.

Implements `table.exec.emit.early-fire`, `late-fire` and `allow-lateness` for windows in a GROUP BY.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.index import Slots
from millstream.sql.columns.keyed_columns import KeyedColumns, StateColumn
from millstream.sql.columns.numpy_arrays import Mask
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.aggregate.aggregate_handler import AggregateHandler, signs_of
from millstream.sql.operators.aggregate.segments import Segments
from millstream.sql.operators.base import KeyedBatchOperator, split_batches
from millstream.sql.operators.changelog import Changelog
from millstream.sql.operators.window.window_aggregate import WindowTimes, property_column
from millstream.sql.operators.window.windowing import Times, Windowing
from millstream.sql.plan.specs import Fires

# The end of a slot's window, whether it has fired, and its number of rows if rows may be retracted.
END, SAID, _ROWS = "end", "fired", "rows"


@fast_dataclass
class Placed:
    """Rows with the ends of their windows, the window keys (the last is the end), and their slots."""

    batch: Batch
    ends: Times
    keys: list[pa.Array]
    slots: Slots

    def filter(self, mask: Mask) -> Placed:
        """Return some of the rows."""
        if mask.all():
            return self
        keys = [k.filter(pa.array(mask)) for k in self.keys]
        return Placed(self.batch.filter(mask), self.ends[mask], keys, self.slots[mask])


class FiringWindowOperator(KeyedBatchOperator):
    """Emits keys, aggregates, then window properties, with updates."""

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
        """Create the operator.

        Args:
            windowing: the windows.
            times: the event times of rows.
            keys: the columns to group by.
            calls: the aggregates.
            kinds: the Arrow types of the input's columns.
            properties: which of "start", "end" and "rowtime" the last columns are, and their types.
            fires: the emit strategy.
            retracts: whether the input may retract rows.
            pairs: whether an update is emitted as -U and +U, not as +U alone.
        """
        self.windowing = windowing
        self.times = times
        self.keys = tuple(keys)
        self.calls = tuple(calls)
        self.kinds = list(kinds)
        self.properties = list(properties)
        self.fires = fires
        self.retracts = retracts
        self.pairs = pairs
        self.aggregates = AggregateHandler(calls, kinds, retracts)
        times.are_points = kinds[times.column].tz is not None

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        kinds = [*(self.kinds[k] for k in self.keys), pa.int64()]
        owners = len(self.keys)
        columns = KeyedColumns(kinds, [*self._about_windows(), *self.aggregates.state_columns], owners)
        self._state: KeyedColumns = self.state_table("windows", columns)
        self.aggregates.open(kinds, self.state_table, owners)
        assert setup.state is not None
        setup.state.when_loaded(self._schedule_timer)
        self._next = MAX_WATERMARK
        self._late = setup.context.get_metrics_group().counter("numLateRecordsDropped")

    def _about_windows(self) -> list[StateColumn]:
        """Return the state columns of a window besides its aggregates."""
        about = [StateColumn(END, np.int64), StateColumn(SAID, np.bool_, False)]
        return [*about, StateColumn(_ROWS, np.int64)] if self.retracts else about

    def _have_rows(self, slots: Slots) -> Mask:
        """Return which windows have rows."""
        return self._state.column(_ROWS)[slots] > 0 if self.retracts else np.ones(len(slots), np.bool_)

    def process(self, batch: Batch) -> Iterable[Batch]:
        rows, ends = self.windowing.all_ends(self.times.of(batch, self.setup.clock()))
        is_open = self.times.triggers(ends) + self.fires.lateness > self.watermark
        if not is_open.all():
            self._late.inc(int((~is_open).sum()))
            rows, ends = rows[is_open], ends[is_open]
        if not len(rows):
            return ()
        self._state.compact()
        placed, first_new = self._placed(batch.take(rows), ends)
        at_once = self._fire_at_once(placed)
        if not at_once.all():
            self._fold(placed.filter(~at_once))
        return (self._emitted(placed.filter(at_once), first_new),) if at_once.any() else ()

    def _placed(self, batch: Batch, ends: Times) -> tuple[Placed, int]:
        """Return rows with the slots of their windows, and the first new slot."""
        keys = [*(batch.columns[k] for k in self.keys), pa.array(ends)]
        first_new = self._state.bound
        slots, new = self._state.find_or_add(keys, len(batch))
        if len(new):
            self._state.column(END)[first_new:] = ends[new]
            self._next = min(self._next, int(self._waits(self.times.triggers(ends[new])).min()))
        return Placed(batch, ends, keys, slots), first_new

    def _fire_at_once(self, placed: Placed) -> Mask:
        """Return which rows fire their windows at once."""
        in_time = self.times.triggers(placed.ends) > self.watermark
        return ~in_time | self.fires.early

    def _fold(self, placed: Placed) -> None:
        """Process rows of windows that fire later."""
        if self.retracts:
            signs = signs_of(placed.batch)
            np.add.at(self._state.column(_ROWS), placed.slots, 1 if signs is None else signs)
        self.aggregates.fold(placed.batch, placed.keys, placed.slots, self._state)
        self._state.changed(placed.slots)

    def _emitted(self, placed: Placed, first_new: int) -> Batch:
        """Process rows of windows that fire at once; return the changes."""
        state, batch = self._state, placed.batch
        segments = Segments.of(placed.slots, first_new, state.bound, signs_of(batch))
        fired = state.column(SAID)[segments.slots].copy()
        running = self.aggregates.run(batch, placed.keys, segments, state)
        exists = self._counted(segments)
        state.column(SAID)[segments.slots] = exists[segments.ends]
        state.changed(segments.slots)
        before, after = segments.before, np.arange(segments.rows)
        existed: Mask = np.append(False, exists[:-1])
        existed[segments.starts] = fired
        differs = np.zeros(segments.rows, np.bool_)
        for one in running:
            differs |= one.differs(before, after)
        changes = Changelog.of(existed, exists, differs, self.pairs)
        changes = changes.in_order(np.argsort(segments.order))
        places = changes.chosen(before[changes.order], after[changes.order])
        positions = changes.chosen(changes.places, changes.places)
        columns = [k.take(pa.array(positions)) for k in placed.keys[:-1]]
        columns += [r.take(places) for r in running]
        return Batch([*columns, *self._properties(placed.ends[positions])], changes.kinds, len(positions))

    def _counted(self, segments: Segments) -> Mask:
        """Count the rows of windows; return whether any are left after each row."""
        if not self.retracts:
            return np.ones(segments.rows, np.bool_)
        column = self._state.column(_ROWS)
        signs = np.ones(segments.rows, np.int64) if segments.signs is None else segments.signs
        running = segments.sums(signs, segments.begins(column, 0))
        segments.leave(column, running)
        return running > 0

    def _properties(self, ends: Times) -> list[pa.Array]:
        starts = self.windowing.starts(ends)
        return [property_column(name, kind, starts, ends, self.times) for name, kind in self.properties]

    # --- time

    def _waits(self, triggers: Times) -> Times:
        """Return the next timer of windows: their end, or the end of allowed lateness."""
        return np.where(triggers > self.watermark, triggers, triggers + self.fires.lateness)

    def _schedule_timer(self) -> None:
        slots = self._state.slots()
        self._next = MAX_WATERMARK
        if len(slots):
            self._next = int(self._waits(self.times.triggers(self._state.column(END)[slots])).min())

    def event_time_backlog(self) -> Iterable[tuple[str, int, int]]:
        if MIN_WATERMARK < self._next < MAX_WATERMARK:
            yield "windows", len(self._state), self._next

    def on_watermark(self, watermark: int) -> int | None:
        is_due = watermark >= self._next
        if is_due:
            self._fire(watermark)
        self.watermark = watermark
        if is_due:
            self._schedule_timer()
        return watermark

    def _fire(self, watermark: int) -> None:
        """Fire windows that end now and have not fired; discard those whose allowed lateness has expired."""
        state, slots = self._state, self._state.slots()
        ends = state.column(END)[slots]
        triggers = self.times.triggers(ends)
        due = (triggers <= watermark) & ~state.column(SAID)[slots] & self._have_rows(slots)
        order = np.argsort(ends[due], kind="stable")
        shown, their_ends = slots[due][order], ends[due][order]
        columns = state.keys_at(shown)[: len(self.keys)] + self.aggregates.results(state, shown)
        self.emit(split_batches([*columns, *self._properties(their_ends)], len(shown)))
        state.column(SAID)[shown] = True
        state.changed(shown)
        self._discard(slots[triggers + self.fires.lateness <= watermark], watermark)

    def _discard(self, slots: Slots, watermark: int) -> None:
        """Discard windows whose allowed lateness has expired."""
        self._state.remove(slots)
        lateness = self.fires.lateness
        self.aggregates.discard(len(self.keys), lambda e: self.times.triggers(e) + lateness <= watermark)
