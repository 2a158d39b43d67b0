"""Flow control: how much input the next epoch takes. Pure arithmetic.

One number, the budget, does the work of Flink's credits, buffers and debloating: sources are read
only as fast as epochs complete, and no more is in memory than one epoch's input.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class EpochSizer:
    """Chooses the number of records a source subtask may read in the next epoch.

    With a backlog the budget grows until an epoch takes about `target_seconds`, within what `max_bytes` allows. Without
    one, the epoch is as small as what has arrived and the budget stays.
    """

    target_seconds: float = 1.0
    max_records: int = 1 << 22
    max_bytes: int = 64 << 20
    budget: int = 1000

    _GROWTH = 16.0
    _SHRINK = 0.25

    def __post_init__(self) -> None:
        self.budget = min(self.budget, self.max_records)
        # Less for sources whose records are so slow that a slice was over before the budget was read.
        self._less: dict[int, int] = {}
        # What an epoch costs however few its records: the shortest that was seen.
        self._overhead = self.target_seconds / 5

    def budget_of(self, source: int) -> int:
        """Return how many records a subtask of a source may be dealt out."""
        return min(self.budget, self._less.get(source, self.budget))

    def source_was_cut(self, source: int, records: int) -> None:
        """A subtask of a source has read so many records when its slice was over, and more are left."""
        self._less[source] = max(records, 1)

    def source_was_read(self, source: int) -> None:
        """All that a source was dealt out was read within a slice."""
        more = 2 * self._less.pop(source, self.budget)
        if more < self.budget:
            self._less[source] = more

    def finished(self, seconds: float, limited: bool, records: int, most_bytes: int) -> None:
        """Learn from an epoch.

        Args:
            seconds: how long it took.
            limited: whether a source had more than the budget allowed.
            records: how many records its busiest source subtask read.
            most_bytes: the most any subtask sent.
        """
        self._overhead = min(self._overhead, seconds)
        wish = (self.target_seconds - self._overhead) / max(seconds - self._overhead, 1e-3)
        if not limited and wish >= 1:
            return
        # Small steps near the target, so that noise does not make the size swing.
        factor = min(max(wish, self._SHRINK), self._GROWTH)
        budget = self.budget * factor
        if most_bytes and records:
            budget = min(budget, records * self.max_bytes / most_bytes)
        self.budget = int(min(max(budget, 1), self.max_records))
