"""Windows that fire before their end, or again after it: on every row, or periodically by processing time.

Implements `table.exec.emit.early-fire`, `late-fire` and `allow-lateness` for windows in a GROUP BY.

With a delay above 0 (`early-fire.delay`, `late-fire.delay`), each window has its own schedule, which starts with its
first row. As in Flink, late rows of a window that had no rows at its end fire it immediately, and late rows not yet
fired when the allowed lateness expires are never emitted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.index import KeyIds
from millstream.sql.columns.keyed_columns import KeyedColumns, StateColumn
from millstream.sql.columns.keyed_rows import KeyedRows, equal_values
from millstream.sql.columns.numpy_arrays import Ints, Mask
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.aggregate.aggregate_handler import AggregateHandler, signs_of
from millstream.sql.operators.aggregate.segments import Segments
from millstream.sql.operators.base import KeyedBatchOperator, split_batches
from millstream.sql.operators.row_kinds import Changelog
from millstream.sql.operators.window.window_aggregate import WindowTimes, property_column
from millstream.sql.operators.window.windowing import Times, Windowing
from millstream.sql.plan.specs import Fires, PeriodicFires

# The end of a key id's window, whether it has fired, and its number of rows if rows may be retracted.
END, FIRED, _ROWS = "end", "fired", "rows"


@fast_dataclass
class WindowedRows:
    """Rows with the ends of their windows, the window keys (the last is the end), and their key ids."""

    batch: Batch
    ends: Times
    keys: list[pa.Array]
    key_ids: KeyIds

    def filter(self, mask: Mask) -> WindowedRows:
        """Return some of the rows."""
        if mask.all():
            return self
        keys = [k.filter(pa.array(mask)) for k in self.keys]
        return WindowedRows(self.batch.filter(mask), self.ends[mask], keys, self.key_ids[mask])


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
        columns = KeyedColumns(kinds, [*self._window_columns(), *self.aggregates.state_columns], owners)
        self._state: KeyedColumns = self.state_table("windows", columns)
        self.aggregates.open(kinds, self.state_table, owners)
        assert setup.state is not None
        setup.state.when_loaded(self._schedule_timer)
        self._next = MAX_WATERMARK
        self._late = setup.context.get_metrics_group().counter("numLateRecordsDropped")

    def _window_columns(self) -> list[StateColumn]:
        """Return the state columns of a window besides its aggregates."""
        columns = [StateColumn(END, np.int64), StateColumn(FIRED, np.bool_, False)]
        return [*columns, StateColumn(_ROWS, np.int64)] if self.retracts else columns

    def _have_rows(self, key_ids: KeyIds) -> Mask:
        """Return which windows have rows."""
        return self._state.column(_ROWS)[key_ids] > 0 if self.retracts else np.ones(len(key_ids), np.bool_)

    def process(self, batch: Batch) -> Iterable[Batch]:
        rows, ends = self.windowing.all_ends(self.times.of(batch, self.setup.clock()))
        is_open = self.times.triggers(ends) + self.fires.lateness > self.watermark
        if not is_open.all():
            self._late.inc(int((~is_open).sum()))
            rows, ends = rows[is_open], ends[is_open]
        if not len(rows):
            return ()
        self._state.compact()
        windowed, first_new = self._with_windows(batch.take(rows), ends)
        at_once = self._fire_at_once(windowed)
        if not at_once.all():
            self._fold(windowed.filter(~at_once))
        return (self._emitted(windowed.filter(at_once), first_new),) if at_once.any() else ()

    def _with_windows(self, batch: Batch, ends: Times) -> tuple[WindowedRows, int]:
        """Return rows with the key ids of their windows, and the first new key id."""
        keys = [*(batch.columns[k] for k in self.keys), pa.array(ends)]
        first_new = self._state.bound
        key_ids, new = self._state.find_or_add(keys, len(batch))
        if len(new):
            self._state.column(END)[first_new:] = ends[new]
            self._next = min(self._next, int(self._next_timers(self.times.triggers(ends[new])).min()))
        return WindowedRows(batch, ends, keys, key_ids), first_new

    def _fire_at_once(self, windowed: WindowedRows) -> Mask:
        """Return which rows fire their windows at once."""
        in_time = self.times.triggers(windowed.ends) > self.watermark
        return ~in_time | self.fires.early

    def _fold(self, windowed: WindowedRows) -> None:
        """Process rows of windows that fire later."""
        if self.retracts:
            signs = signs_of(windowed.batch)
            np.add.at(self._state.column(_ROWS), windowed.key_ids, 1 if signs is None else signs)
        self.aggregates.fold(windowed.batch, windowed.keys, windowed.key_ids, self._state)
        self._state.changed(windowed.key_ids)

    def _emitted(self, windowed: WindowedRows, first_new: int) -> Batch:
        """Process rows of windows that fire at once; return the changes."""
        state, batch = self._state, windowed.batch
        segments = Segments.of(windowed.key_ids, first_new, state.bound, signs_of(batch))
        fired = state.column(FIRED)[segments.key_ids].copy()
        running = self.aggregates.run(batch, windowed.keys, segments, state)
        exists = self._count_rows(segments)
        state.column(FIRED)[segments.key_ids] = exists[segments.ends]
        state.changed(segments.key_ids)
        before, after = segments.before, np.arange(segments.rows)
        existed: Mask = np.append(False, exists[:-1])
        existed[segments.starts] = fired
        differs = np.zeros(segments.rows, np.bool_)
        for one in running:
            differs |= one.differs(before, after)
        changes = Changelog.of(existed, exists, differs, self.pairs)
        changes = changes.in_order(np.argsort(segments.order))
        value_rows = changes.chosen(before[changes.order], after[changes.order])
        positions = changes.chosen(changes.positions, changes.positions)
        columns = [k.take(pa.array(positions)) for k in windowed.keys[:-1]]
        columns += [r.take(value_rows) for r in running]
        return Batch([*columns, *self._properties(windowed.ends[positions])], changes.kinds, len(positions))

    def _count_rows(self, segments: Segments) -> Mask:
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

    def _next_timers(self, triggers: Times) -> Times:
        """Return the next timer of windows: their end, or the end of allowed lateness."""
        return np.where(triggers > self.watermark, triggers, triggers + self.fires.lateness)

    def _schedule_timer(self) -> None:
        key_ids = self._state.key_ids()
        self._next = MAX_WATERMARK
        if len(key_ids):
            self._next = int(self._next_timers(self.times.triggers(self._state.column(END)[key_ids])).min())

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
        state, key_ids = self._state, self._state.key_ids()
        ends = state.column(END)[key_ids]
        triggers = self.times.triggers(ends)
        due = (triggers <= watermark) & ~state.column(FIRED)[key_ids] & self._have_rows(key_ids)
        order = np.argsort(ends[due], kind="stable")
        fired, fired_ends = key_ids[due][order], ends[due][order]
        columns = state.keys_at(fired)[: len(self.keys)] + self.aggregates.results(state, fired)
        self.emit(split_batches([*columns, *self._properties(fired_ends)], len(fired)))
        state.column(FIRED)[fired] = True
        state.changed(fired)
        self._discard(key_ids[triggers + self.fires.lateness <= watermark], watermark)

    def _discard(self, key_ids: KeyIds, watermark: int) -> None:
        """Discard windows whose allowed lateness has expired."""
        self._state.remove(key_ids)
        lateness = self.fires.lateness
        self.aggregates.discard(len(self.keys), lambda e: self.times.triggers(e) + lateness <= watermark)


# When a window fires next by the clock, whether it had rows when it ended, and whether it has changed since it fired:
# then the other table has the emitted results.
_NEXT_FIRE, _ENDED, _CHANGED = "next_fire", "ended", "changed"
_NEVER = MAX_WATERMARK


class PeriodicWindowOperator(FiringWindowOperator):
    """Emits keys, aggregates, then window properties, with updates."""

    fires: PeriodicFires

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        # Keys, the window end, and the last emitted aggregates.
        self._width = len(self.keys) + 1
        kinds = [*(self.kinds[k] for k in self.keys), pa.int64(), *(a.result for a in self.aggregates.accumulators)]
        emitted_rows = KeyedRows(kinds, range(self._width), len(self.keys), marked=False)
        self._emitted_rows: KeyedRows = self.state_table("fired", emitted_rows)
        self._wake = _NEVER

    def _window_columns(self) -> list[StateColumn]:
        flags = [StateColumn(_ENDED, np.bool_, False), StateColumn(_CHANGED, np.bool_, False)]
        return [*super()._window_columns(), StateColumn(_NEXT_FIRE, np.int64, _NEVER), *flags]

    def _fire_at_once(self, windowed: WindowedRows) -> Mask:
        in_time = self.times.triggers(windowed.ends) > self.watermark
        before_end = in_time & self.fires.early
        return np.where(self._state.column(_ENDED)[windowed.key_ids], not self.fires.late_delay, ~in_time | before_end)

    def _fold(self, windowed: WindowedRows) -> None:
        state = self._state
        key_ids = np.unique(windowed.key_ids)
        self._store_emitted(key_ids[state.column(FIRED)[key_ids] & ~state.column(_CHANGED)[key_ids]])
        super()._fold(windowed)
        self._begin(key_ids[state.column(_NEXT_FIRE)[key_ids] == _NEVER])

    def _store_emitted(self, key_ids: KeyIds) -> None:
        """Store the emitted results of windows that change now."""
        if len(key_ids):
            self._emitted_rows.compact()
            keys = self._state.keys_at(key_ids)
            owners = self._emitted_rows.find_or_add(keys, len(key_ids))
            self._emitted_rows.add(owners, [*keys, *self.aggregates.results(self._state, key_ids)])
            self._state.column(_CHANGED)[key_ids] = True

    def _begin(self, key_ids: KeyIds) -> None:
        """Schedule windows that got their first row."""
        delays = self._delays(key_ids)
        key_ids, delays = key_ids[delays > 0], delays[delays > 0]
        if len(key_ids):
            times = self.setup.clock() + delays
            self._state.column(_NEXT_FIRE)[key_ids] = times
            self._wake = min(self._wake, int(times.min()))

    def _delays(self, key_ids: KeyIds) -> Ints:
        return np.where(self._state.column(_ENDED)[key_ids], self.fires.late_delay, self.fires.early_delay)

    # --- firing

    def _fire_changed(self, key_ids: KeyIds) -> None:
        """Fire windows in this order, if they have changed since they last fired."""
        state = self._state
        key_ids = key_ids[~state.column(FIRED)[key_ids] | state.column(_CHANGED)[key_ids]]
        if not len(key_ids):
            return
        count, fired = len(key_ids), state.column(FIRED)[key_ids]
        keys, results = state.keys_at(key_ids), self.aggregates.results(state, key_ids)
        emitted_key_ids = self._emitted_key_ids(keys, count)
        positions_before = pa.array(emitted_key_ids, mask=emitted_key_ids < 0)
        before = self._emitted_rows.take_all(range(self._width, self._width + len(results)), positions_before)
        differs = np.zeros(count, np.bool_)
        for old, new in zip(before, results, strict=True):
            differs |= ~equal_values(old, new)
        exist = self._have_rows(key_ids)
        changes = Changelog.of(fired, exist, differs, self.pairs)
        positions = changes.chosen(changes.positions, changes.positions)
        value_rows = pa.array(changes.chosen(changes.positions, changes.positions + count))
        columns = [k.take(pa.array(positions)) for k in keys[:-1]]
        columns += [pa.concat_arrays(both).take(value_rows) for both in zip(before, results, strict=True)]
        columns += self._properties(state.column(END)[key_ids][positions])
        self.emit(split_batches(columns, len(positions), changes.kinds))
        self._emitted_rows.remove(emitted_key_ids[emitted_key_ids >= 0])
        state.column(FIRED)[key_ids], state.column(_CHANGED)[key_ids] = exist, False
        state.changed(key_ids)

    def _emitted_key_ids(self, keys: list[pa.Array], count: int) -> Ints:
        """Return the key ids of the windows' emitted results; -1 if not stored."""
        result = np.full(count, -1, np.int64)
        positions, rows = self._emitted_rows.pairs(self._emitted_rows.find(keys, count))
        result[positions] = rows
        return result

    # --- time

    @property
    def follows_clock(self) -> bool:
        return True

    def next_wake(self) -> int | None:
        return None if self._wake == _NEVER else self._wake

    def _schedule_timer(self) -> None:
        super()._schedule_timer()
        times = self._state.column(_NEXT_FIRE)[self._state.key_ids()]
        self._wake = int(times.min(initial=_NEVER))

    def on_processing_time(self) -> None:
        now = self.setup.clock()
        if now < self._wake:
            return
        state, key_ids = self._state, self._state.key_ids()
        key_ids = key_ids[state.column(_NEXT_FIRE)[key_ids] <= now]
        times, delays = state.column(_NEXT_FIRE)[key_ids], self._delays(key_ids)
        self._fire_changed(key_ids[np.argsort(times, kind="stable")])
        # The schedule does not drift if timers run late, so checkpointed schedules stay valid if nothing else has
        # changed.
        state.column(_NEXT_FIRE)[key_ids] = times + ((now - times) // delays + 1) * delays
        self._schedule_timer()

    def _fire(self, watermark: int) -> None:
        """Fire changed windows that end now; discard those whose allowed lateness has expired."""
        state, key_ids = self._state, self._state.key_ids()
        ends = state.column(END)[key_ids]
        triggers = self.times.triggers(ends)
        # Windows without rows at their end have not ended: every late row fires them.
        end_now = (triggers > self.watermark) & (triggers <= watermark) & ~state.column(_ENDED)[key_ids]
        ended = key_ids[end_now][np.argsort(ends[end_now], kind="stable")]
        self._fire_changed(ended)
        state.column(_ENDED)[ended] = True
        if self.fires.early_delay != self.fires.late_delay:
            # Flink identifies triggers by their delays: equal early and late delays share one schedule.
            state.column(_NEXT_FIRE)[ended] = _NEVER
        state.changed(ended)
        self._discard(key_ids[triggers + self.fires.lateness <= watermark], watermark)

    def _discard(self, key_ids: KeyIds, watermark: int) -> None:
        emitted_key_ids = self._emitted_key_ids(self._state.keys_at(key_ids), len(key_ids))
        self._emitted_rows.remove(emitted_key_ids[emitted_key_ids >= 0])
        super()._discard(key_ids, watermark)
