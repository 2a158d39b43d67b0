"""Windows that fire periodically by processing time, before or after their end.

Implements `table.exec.emit.early-fire.delay` and `late-fire.delay` above 0 for windows in a GROUP BY. Each window has
its own schedule, which starts with its first row. As in Flink, late rows of a window that had no rows at its end fire
it at once, and late rows not yet fired when the allowed lateness expires are never emitted.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.common.watermark_strategy import MAX_WATERMARK
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.index import Slots
from millstream.sql.columns.keyed_columns import StateColumn
from millstream.sql.columns.keyed_rows import KeyedRows, equal_values
from millstream.sql.columns.numpy_arrays import Ints, Mask
from millstream.sql.operators.base import split_batches
from millstream.sql.operators.changelog import Changelog
from millstream.sql.operators.window.early_late_fire import END, SAID, FiringWindowOperator, Placed
from millstream.sql.plan.specs import PeriodicFires

# When a window fires next by the clock, whether it had rows when it ended, and whether it has changed since it fired:
# then the other table has the emitted results.
_TOLD_NEXT, _ENDED, _CHANGED = "next_fire", "ended", "changed"
_NEVER = MAX_WATERMARK


class PeriodicWindowOperator(FiringWindowOperator):
    """Emits keys, aggregates, then window properties, with updates."""

    fires: PeriodicFires

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        # Keys, the window end, and the last emitted aggregates.
        self._width = len(self.keys) + 1
        kinds = [*(self.kinds[k] for k in self.keys), pa.int64(), *(a.result for a in self.aggregates.accumulators)]
        before = KeyedRows(kinds, range(self._width), len(self.keys), marked=False)
        self._before: KeyedRows = self.state_table("fired", before)
        self._wake = _NEVER

    def _about_windows(self) -> list[StateColumn]:
        flags = [StateColumn(_ENDED, np.bool_, False), StateColumn(_CHANGED, np.bool_, False)]
        return [*super()._about_windows(), StateColumn(_TOLD_NEXT, np.int64, _NEVER), *flags]

    def _fire_at_once(self, placed: Placed) -> Mask:
        in_time = self.times.triggers(placed.ends) > self.watermark
        before_end = in_time & self.fires.early
        return np.where(self._state.column(_ENDED)[placed.slots], not self.fires.late_delay, ~in_time | before_end)

    def _fold(self, placed: Placed) -> None:
        state = self._state
        slots = np.unique(placed.slots)
        self._remember(slots[state.column(SAID)[slots] & ~state.column(_CHANGED)[slots]])
        super()._fold(placed)
        self._begin(slots[state.column(_TOLD_NEXT)[slots] == _NEVER])

    def _remember(self, slots: Slots) -> None:
        """Store the emitted results of windows that change now."""
        if len(slots):
            self._before.compact()
            keys = self._state.keys_at(slots)
            owners = self._before.find_or_add(keys, len(slots))
            self._before.add(owners, [*keys, *self.aggregates.results(self._state, slots)])
            self._state.column(_CHANGED)[slots] = True

    def _begin(self, slots: Slots) -> None:
        """Schedule windows that got their first row."""
        delays = self._delays(slots)
        slots, delays = slots[delays > 0], delays[delays > 0]
        if len(slots):
            times = self.setup.clock() + delays
            self._state.column(_TOLD_NEXT)[slots] = times
            self._wake = min(self._wake, int(times.min()))

    def _delays(self, slots: Slots) -> Ints:
        return np.where(self._state.column(_ENDED)[slots], self.fires.late_delay, self.fires.early_delay)

    # --- firing

    def _fire_changed(self, slots: Slots) -> None:
        """Fire windows in this order, if they have changed since they last fired."""
        state = self._state
        slots = slots[~state.column(SAID)[slots] | state.column(_CHANGED)[slots]]
        if not len(slots):
            return
        count, fired = len(slots), state.column(SAID)[slots]
        keys, results = state.keys_at(slots), self.aggregates.results(state, slots)
        known = self._rows_before(keys, count)
        had = pa.array(known, mask=known < 0)
        before = self._before.take_all(range(self._width, self._width + len(results)), had)
        differs = np.zeros(count, np.bool_)
        for old, new in zip(before, results, strict=True):
            differs |= ~equal_values(old, new)
        exist = self._have_rows(slots)
        changes = Changelog.of(fired, exist, differs, self.pairs)
        positions = changes.chosen(changes.places, changes.places)
        places = pa.array(changes.chosen(changes.places, changes.places + count))
        columns = [k.take(pa.array(positions)) for k in keys[:-1]]
        columns += [pa.concat_arrays(both).take(places) for both in zip(before, results, strict=True)]
        columns += self._properties(state.column(END)[slots][positions])
        self.emit(split_batches(columns, len(positions), changes.kinds))
        self._before.remove(known[known >= 0])
        state.column(SAID)[slots], state.column(_CHANGED)[slots] = exist, False
        state.changed(slots)

    def _rows_before(self, keys: list[pa.Array], count: int) -> Ints:
        """Return the slots of the windows' emitted results; -1 if not stored."""
        result = np.full(count, -1, np.int64)
        places, rows = self._before.pairs(self._before.find(keys, count))
        result[places] = rows
        return result

    # --- time

    @property
    def follows_clock(self) -> bool:
        return True

    def next_wake(self) -> int | None:
        return None if self._wake == _NEVER else self._wake

    def _schedule_timer(self) -> None:
        super()._schedule_timer()
        times = self._state.column(_TOLD_NEXT)[self._state.slots()]
        self._wake = int(times.min(initial=_NEVER))

    def on_processing_time(self) -> None:
        now = self.setup.clock()
        if now < self._wake:
            return
        state, slots = self._state, self._state.slots()
        slots = slots[state.column(_TOLD_NEXT)[slots] <= now]
        times, delays = state.column(_TOLD_NEXT)[slots], self._delays(slots)
        self._fire_changed(slots[np.argsort(times, kind="stable")])
        # The schedule does not drift if timers run late, so checkpointed schedules stay valid if nothing else has
        # changed.
        state.column(_TOLD_NEXT)[slots] = times + ((now - times) // delays + 1) * delays
        self._schedule_timer()

    def _fire(self, watermark: int) -> None:
        """Fire changed windows that end now; discard those whose allowed lateness has expired."""
        state, slots = self._state, self._state.slots()
        ends = state.column(END)[slots]
        triggers = self.times.triggers(ends)
        # Windows without rows at their end have not ended: every late row fires them.
        end_now = (triggers > self.watermark) & (triggers <= watermark) & ~state.column(_ENDED)[slots]
        ended = slots[end_now][np.argsort(ends[end_now], kind="stable")]
        self._fire_changed(ended)
        state.column(_ENDED)[ended] = True
        if self.fires.early_delay != self.fires.late_delay:
            # Flink identifies triggers by their delays: equal early and late delays share one schedule.
            state.column(_TOLD_NEXT)[ended] = _NEVER
        state.changed(ended)
        self._discard(slots[triggers + self.fires.lateness <= watermark], watermark)

    def _discard(self, slots: Slots, watermark: int) -> None:
        known = self._rows_before(self._state.keys_at(slots), len(slots))
        self._before.remove(known[known >= 0])
        super()._discard(slots, watermark)
