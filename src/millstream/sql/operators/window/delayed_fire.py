"""Windows that are told by the clock before they end, or behind it: a delay after the first row, and again after each.

What `table.exec.emit.early-fire.delay` and `late-fire.delay` above 0 say of windows in a GROUP BY. Every window has its
own rhythm. Rows that come behind the end of a window that was not there at its end tell it at once, as in Flink; and
what has come late and was not told when the allowed lateness is over is never told.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.common.watermark_strategy import MAX_WATERMARK
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.index import Slots
from millstream.sql.columns.keyed_columns import StateColumn
from millstream.sql.columns.keyed_rows import Ints, KeyedRows, Mask, equal_values
from millstream.sql.operators.base import split_batches
from millstream.sql.operators.changelog import Changelog
from millstream.sql.operators.window.early_late_fire import END, SAID, FiringWindowOperator, Placed
from millstream.sql.plan.specs import PeriodicFires

# When a window is told next by the clock, whether it was there when it ended, and whether it has changed since it was
# told: then the other table has what was told.
_TOLD_NEXT, _ENDED, _CHANGED = "next_fire", "ended", "changed"
_NEVER = MAX_WATERMARK


class PeriodicWindowOperator(FiringWindowOperator):
    """Keys, aggregates, then properties of the window, with updates."""

    fires: PeriodicFires

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        # Keys, the end of the window, and what its aggregates had come to.
        self._width = len(self.keys) + 1
        kinds = [*(self.kinds[k] for k in self.keys), pa.int64(), *(a.result for a in self.aggregates.accumulators)]
        before = KeyedRows(kinds, range(self._width), len(self.keys), marked=False)
        self._before: KeyedRows = self.state_table("fired", before)
        self._wake = _NEVER

    def _about_windows(self) -> list[StateColumn]:
        flags = [StateColumn(_ENDED, np.bool_, False), StateColumn(_CHANGED, np.bool_, False)]
        return [*super()._about_windows(), StateColumn(_TOLD_NEXT, np.int64, _NEVER), *flags]

    def _are_told_at_once(self, placed: Placed) -> Mask:
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
        """Keep what was told of windows that change now."""
        if len(slots):
            self._before.compact()
            keys = self._state.keys_at(slots)
            owners = self._before.find_or_add(keys, len(slots))
            self._before.add(owners, [*keys, *self.aggregates.results(self._state, slots)])
            self._state.column(_CHANGED)[slots] = True

    def _begin(self, slots: Slots) -> None:
        """Rows have come for windows that were waiting for one."""
        delays = self._delays(slots)
        slots, delays = slots[delays > 0], delays[delays > 0]
        if len(slots):
            times = self.setup.clock() + delays
            self._state.column(_TOLD_NEXT)[slots] = times
            self._wake = min(self._wake, int(times.min()))

    def _delays(self, slots: Slots) -> Ints:
        return np.where(self._state.column(_ENDED)[slots], self.fires.late_delay, self.fires.early_delay)

    # --- telling

    def _tell(self, slots: Slots) -> None:
        """Tell windows, in this order, if they have changed since they were told."""
        state = self._state
        slots = slots[~state.column(SAID)[slots] | state.column(_CHANGED)[slots]]
        if not len(slots):
            return
        count, said = len(slots), state.column(SAID)[slots]
        keys, results = state.keys_at(slots), self.aggregates.results(state, slots)
        known = self._rows_before(keys, count)
        had = pa.array(known, mask=known < 0)
        before = self._before.take_all(range(self._width, self._width + len(results)), had)
        differs = np.zeros(count, np.bool_)
        for old, new in zip(before, results, strict=True):
            differs |= ~equal_values(old, new)
        are_there = self._have_rows(slots)
        changes = Changelog.of(said, are_there, differs, self.pairs)
        at = changes.chosen(changes.places, changes.places)
        places = pa.array(changes.chosen(changes.places, changes.places + count))
        columns = [k.take(pa.array(at)) for k in keys[:-1]]
        columns += [pa.concat_arrays(both).take(places) for both in zip(before, results, strict=True)]
        self.emit(split_batches([*columns, *self._properties(state.column(END)[slots][at])], len(at), changes.kinds))
        self._before.remove(known[known >= 0])
        state.column(SAID)[slots], state.column(_CHANGED)[slots] = are_there, False
        state.changed(slots)

    def _rows_before(self, keys: list[pa.Array], count: int) -> Ints:
        """Return where that is which was told of windows; -1 where it is not kept."""
        found = np.full(count, -1, np.int64)
        places, rows = self._before.pairs(self._before.find(keys, count))
        found[places] = rows
        return found

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
        self._tell(slots[np.argsort(times, kind="stable")])
        # The rhythm stays what it was, though nobody looked at the clock for some beats of it; so what files know of it
        # is as good where nothing else has changed.
        state.column(_TOLD_NEXT)[slots] = times + ((now - times) // delays + 1) * delays
        self._schedule_timer()

    def _fire(self, watermark: int) -> None:
        """Tell windows that end now, if they have changed; forget those that nobody can be late for any more."""
        state, slots = self._state, self._state.slots()
        ends = state.column(END)[slots]
        triggers = self.times.triggers(ends)
        # Those that were not there at their end have not ended: they are told with every row.
        end_now = (triggers > self.watermark) & (triggers <= watermark) & ~state.column(_ENDED)[slots]
        ended = slots[end_now][np.argsort(ends[end_now], kind="stable")]
        self._tell(ended)
        state.column(_ENDED)[ended] = True
        if self.fires.early_delay != self.fires.late_delay:
            # Flink knows its triggers by their delays: those that are equal are one, and its rhythm goes on.
            state.column(_TOLD_NEXT)[ended] = _NEVER
        state.changed(ended)
        self._discard(slots[triggers + self.fires.lateness <= watermark], watermark)

    def _discard(self, slots: Slots, watermark: int) -> None:
        known = self._rows_before(self._state.keys_at(slots), len(slots))
        self._before.remove(known[known >= 0])
        super()._discard(slots, watermark)
