"""Flow control: how much input the next epoch takes, and how long it may last. Pure arithmetic.

One number, the budget, does the work of Flink's credits, buffers and debloating: sources are read only as fast as
epochs complete, and no more is in memory than one epoch's input. It is chosen so that an epoch takes most of a
slice. A slice is the limit for when that was wrong because records have become slow: what slots have not processed by
then waits for the next epoch, and the sources it came from are dealt nothing until it is done with.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

# So much of a slice epochs are aimed to take. Aimed at all of it, every second one would be cut, since none takes just
# as long as the one before; and what is left has to be carried.
_AIM = 0.75


@dataclass
class _Open:
    """What a source has dealt out and is not all processed.

    Attributes:
        since: when it was dealt out.
        read: how many records of it the busiest subtask has read.
        epochs: how many epochs it took so far.
    """

    since: float
    read: int = 0
    epochs: int = 0


@dataclass
class EpochSizer:
    """Chooses the number of records a source subtask may read in the next epoch.

    With a backlog the budget grows until an epoch takes about as long as it is aimed to, within what `max_bytes`
    allows. Without one, the epoch is as small as what has arrived and the budget stays.

    Attributes:
        fixed_target: how many seconds epochs are aimed to take, if the user says so; else most of a slice.
    """

    fixed_target: float | None = None
    max_records: int = 1 << 22
    max_bytes: int = 64 << 20
    budget: int = 1000

    _GROWTH = 16.0
    _SHRINK = 0.25
    # What an epoch costs of itself is forgotten by so much with each, since the machine may have been busy just then.
    _FORGOTTEN = 0.02
    # Whatever was seen, it is no more than so many targets.
    _MOST_OVERHEAD = 10.0

    def __post_init__(self) -> None:
        self.budget = min(self.budget, self.max_records)
        # Less for sources whose records are so slow that they took several epochs.
        self._less: dict[int, int] = {}
        self._open: dict[int, _Open] = {}
        self._aim(1.0 if self.fixed_target is None else self.fixed_target)

    def aim_at(self, slice_seconds: float) -> None:
        """Epochs may take so long."""
        if self.fixed_target is None and slice_seconds < math.inf:
            self._aim(_AIM * slice_seconds)

    def _aim(self, seconds: float) -> None:
        self.target_seconds = seconds
        # What an epoch costs however few its records: not more than the shortest that was seen, nor much of the target,
        # unless epochs with fewer records have taken as long.
        self._overhead = seconds / 5
        self._larger: tuple[int, float] | None = None

    def budget_of(self, source: int) -> int:
        """Return how many records a subtask of a source may be dealt out."""
        return min(self.budget, self._less.get(source, self.budget))

    def epoch_processed(
        self, dealt: Collection[int], left: Collection[int], read: Mapping[int, int], began: float, now: float
    ) -> None:
        """Learn which sources deal out more than is processed in an epoch.

        Args:
            dealt: the sources that have dealt out records for it.
            left: those of whose records some are not processed.
            read: how many records the busiest subtask of each has read.
            began: when the epoch began.
            now: when it ended.
        """
        self._open |= {source: _Open(began) for source in dealt}
        for source, about in list(self._open.items()):
            about.read += read.get(source, 0)
            about.epochs += 1
            if source not in left:
                del self._open[source]
                self._all_processed(source, about, now)

    def _all_processed(self, source: int, about: _Open, now: float) -> None:
        if about.epochs > 1:
            fitting = about.read * self.target_seconds / max(now - about.since, 1e-3)
            self._less[source] = max(int(fitting), 1)
            return
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
        self._learn_overhead(seconds, records)
        # Where an epoch alone costs as much as it should take, fewer records would only make it worth less.
        target = max(self.target_seconds, 2 * self._overhead)
        wish = (target - self._overhead) / max(seconds - self._overhead, 1e-3)
        if not limited and wish >= 1:
            return
        self._larger = (records, seconds) if wish < 1 and seconds > 0 else None
        # Small steps near the target, so that noise does not make the size swing.
        factor = min(max(wish, self._SHRINK), self._GROWTH)
        # What it took is what the records took that were read, which may be fewer than the budget: see `budget_of`.
        budget = factor * (min(records, self.budget) if limited and records else self.budget)
        if most_bytes and records:
            budget = min(budget, records * self.max_bytes / most_bytes)
        self.budget = int(min(max(budget, 1), self.max_records))

    def _learn_overhead(self, seconds: float, records: int) -> None:
        """Compare with the epoch before if that was much larger: what both would take without any records."""
        if self._overhead > self.target_seconds / 5:
            self._overhead *= 1 - self._FORGOTTEN
        more, longer = self._larger or (0, 0.0)
        # Else they differ by too little to say, or it was the records that took the time.
        if more and records <= more / 2 and seconds / longer > (1 + records / more) / 2:
            of_itself = (seconds * more - longer * records) / (more - records)
            self._overhead = max(self._overhead, min(of_itself, self._MOST_OVERHEAD * self.target_seconds))
        self._overhead = min(self._overhead, seconds)


# A source that cannot say when there will be something is asked again after so many seconds, at least and at most,
SOONEST = 0.001
LATEST = 0.1
# as long as it has had nothing, divided by this,
_PART_OF_SILENCE = 16
# and not before so many times as long as the answer took.
_TIMES_ANSWER = 10

# A source that is limited to a rate is asked so often.
_PAUSE = 0.01

# Epochs that come for little input may take this much of the time.
_SHARE_OF_TIME = 0.05
# How much the newest epoch says about what the next one takes.
_NEWEST = 0.2


class PollBackoff:
    """How often a source is asked that has nothing.

    A record that comes after a silence waits for a sixteenth of it; a source that is silent for long costs little.

    Example:
        >>> source = PollBackoff()
        >>> [round(source.next(at, at) - at, 5) for at in (100.0, 100.5, 130.0)]
        [0.001, 0.03125, 0.1]
    """

    def __init__(self) -> None:
        self._silent_since: float | None = None

    def had_input(self) -> None:
        self._silent_since = None

    def next(self, asked: float, answered: float) -> float:
        """Return when to ask again, after it was asked in vain."""
        if self._silent_since is None:
            self._silent_since = asked
        silence = answered - self._silent_since
        wait = max(SOONEST, silence / _PART_OF_SILENCE, (answered - asked) * _TIMES_ANSWER)
        return answered + min(wait, LATEST)


class RateLimit:
    """How many records a source may be asked for that is limited to so many a second.

    What it did not have when it was allowed to is not made up for later.

    Example:
        >>> limit = RateLimit(per_second=100, subtasks=2)
        >>> [limit.allowed(1000, at) for at in (0.0, 0.5, 0.501, 9.0)]
        [0, 25, 0, 50]
    """

    def __init__(self, per_second: float, subtasks: int) -> None:
        self._per_second = per_second / subtasks
        self._since: float | None = None

    def allowed(self, budget: int, now: float) -> int:
        """Return how many of so many records each subtask may be dealt out now; they count as read."""
        if self._since is None:
            self._since = now
        # No more than in a second, however long it was silent.
        self._since = max(self._since, now - max(1.0, 1 / self._per_second))
        records = min(budget, int((now - self._since) * self._per_second))
        if now < self.next():
            return 0
        self._since += records / self._per_second
        return records

    def next(self) -> float:
        """Return when it may be asked: for a record, and not so often that a fast source is asked for each."""
        assert self._since is not None
        return self._since + max(1 / self._per_second, _PAUSE)


@dataclass
class GatherDelay:
    """How long input gathers between two epochs that take all there is.

    No record waits longer than the buffer timeout. Where an epoch takes little time the next one may come sooner, as
    long as all of them take little.

    Attributes:
        timeout: the buffer timeout in seconds.
        always: whether to wait that long in any case, for larger epochs.
    """

    timeout: float
    always: bool = False
    _epoch_seconds: float | None = None

    def epoch_took(self, seconds: float) -> None:
        known = seconds if self._epoch_seconds is None else self._epoch_seconds
        self._epoch_seconds = known + _NEWEST * (seconds - known)

    def seconds(self) -> float:
        """Return how long it is from the begin of one epoch to that of the next."""
        if self.always or self._epoch_seconds is None:
            return self.timeout
        return min(self.timeout, self._epoch_seconds / _SHARE_OF_TIME)
