"""Flow control: how much input the next epoch takes, how long it may last, and when to poll. Pure arithmetic.

One number, the budget, does the work of Flink's credits, buffers and debloating: sources are read only as fast as
epochs complete, and memory holds at most one epoch's input. The budget is chosen so that an epoch takes most of a
slice. The slice is the limit if records have become slower: the rest of the input is processed in the next epoch, and
its sources are assigned nothing until then.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

# The part of a slice that epochs are aimed at. With the whole slice, every second epoch would exceed it, and the rest
# of its input would be carried to the next one.
_AIM = 0.75


@dataclass
class _AssignedInput:
    """Assigned input of a source that is not fully processed.

    Attributes:
        since: when it was assigned.
        read: records of it that the busiest subtask has read.
        epochs: the number of epochs so far.
    """

    since: float
    read: int = 0
    epochs: int = 0


@dataclass
class EpochSizer:
    """Chooses the number of records a source subtask may read in the next epoch.

    With a backlog the budget grows until an epoch takes about its target time, within what `max_bytes`
    allows. Without a backlog, an epoch processes what has arrived and the budget stays.

    Attributes:
        fixed_target: the target seconds of an epoch, if configured; None for a fraction of a slice.
    """

    fixed_target: float | None = None
    max_records: int = 1 << 22
    max_bytes: int = 64 << 20
    budget: int = 1000

    _GROWTH = 16.0
    _SHRINK = 0.25
    # The estimated overhead of an epoch decays by this factor per epoch, since the machine may have been busy.
    _OVERHEAD_DECAY = 0.02
    # The maximum overhead, in multiples of the target.
    _MAX_OVERHEAD = 10.0

    def __post_init__(self) -> None:
        self.budget = min(self.budget, self.max_records)
        # Smaller budgets of sources whose input took several epochs.
        self._source_budgets: dict[int, int] = {}
        self._assigned: dict[int, _AssignedInput] = {}
        self._aim(1.0 if self.fixed_target is None else self.fixed_target)

    def aim_at(self, slice_seconds: float) -> None:
        """Aim at a slice of this length."""
        if self.fixed_target is None and slice_seconds < math.inf:
            self._aim(_AIM * slice_seconds)

    def _aim(self, seconds: float) -> None:
        self.target_seconds = seconds
        # The overhead of an epoch without records: at most the shortest epoch seen, and a small part of the target
        # unless epochs with fewer records took as long.
        self._overhead = seconds / 5
        self._larger_epoch: tuple[int, float] | None = None

    def budget_of(self, source: int) -> int:
        """Return the maximum number of records to assign to a subtask of a source."""
        return min(self.budget, self._source_budgets.get(source, self.budget))

    def epoch_processed(
        self, assigned: Collection[int], pending: Collection[int], read: Mapping[int, int], began: float, now: float
    ) -> None:
        """Learn which sources assign more than an epoch processes.

        Args:
            assigned: the sources that assigned records for the epoch.
            pending: the sources with pending input.
            read: records read by the busiest subtask of each source.
            began: when the epoch began.
            now: when it ended.
        """
        self._assigned |= {source: _AssignedInput(began) for source in assigned}
        for source, source_input in list(self._assigned.items()):
            source_input.read += read.get(source, 0)
            source_input.epochs += 1
            if source not in pending:
                del self._assigned[source]
                self._all_processed(source, source_input, now)

    def _all_processed(self, source: int, source_input: _AssignedInput, now: float) -> None:
        if source_input.epochs > 1:
            budget = source_input.read * self.target_seconds / max(now - source_input.since, 1e-3)
            self._source_budgets[source] = max(int(budget), 1)
            return
        budget = 2 * self._source_budgets.pop(source, self.budget)
        if budget < self.budget:
            self._source_budgets[source] = budget

    def finished(self, seconds: float, limited: bool, records: int, max_bytes: int) -> None:
        """Learn from an epoch.

        Args:
            seconds: its duration.
            limited: whether a source had more input than the budget.
            records: records read by the busiest source subtask.
            max_bytes: the maximum bytes sent by a subtask.
        """
        self._learn_overhead(seconds, records)
        # If the overhead alone exceeds the target, fewer records would only lower the throughput.
        target = max(self.target_seconds, 2 * self._overhead)
        ratio = (target - self._overhead) / max(seconds - self._overhead, 1e-3)
        if not limited and ratio >= 1:
            return
        self._larger_epoch = (records, seconds) if ratio < 1 and seconds > 0 else None
        # Damp the change so that noise does not make the size oscillate.
        factor = min(max(ratio, self._SHRINK), self._GROWTH)
        # The duration belongs to the records that were read, which may be fewer than the budget: see `budget_of`.
        budget = factor * (min(records, self.budget) if limited and records else self.budget)
        if max_bytes and records:
            budget = min(budget, records * self.max_bytes / max_bytes)
        self.budget = int(min(max(budget, 1), self.max_records))

    def _learn_overhead(self, seconds: float, records: int) -> None:
        """Estimate the overhead by comparison with a much larger previous epoch."""
        if self._overhead > self.target_seconds / 5:
            self._overhead *= 1 - self._OVERHEAD_DECAY
        more, longer = self._larger_epoch or (0, 0.0)
        # Otherwise the epochs differ too little, or the records took the time.
        if more and records <= more / 2 and seconds / longer > (1 + records / more) / 2:
            of_itself = (seconds * more - longer * records) / (more - records)
            self._overhead = max(self._overhead, min(of_itself, self._MAX_OVERHEAD * self.target_seconds))
        self._overhead = min(self._overhead, seconds)


# Minimum and maximum seconds between polls of an idle source that cannot say when it will have input.
MIN_POLL_WAIT = 0.001
MAX_POLL_WAIT = 0.1
# The wait is the idle time divided by this,
_IDLE_FRACTION = 16
# and it is at least this multiple of the duration of a poll.
_POLL_COST_FACTOR = 10

# Seconds between polls of a rate-limited source.
_PAUSE = 0.01

# The maximum share of time for epochs with little input.
_SHARE_OF_TIME = 0.05
# The weight of the newest epoch in the average duration.
_NEWEST = 0.2


class PollBackoff:
    """Backoff for polls of an idle source.

    A record after an idle period waits for up to a sixteenth of it; polling a long-idle source costs little.

    Example:
        >>> source = PollBackoff()
        >>> [round(source.next(at, at) - at, 5) for at in (100.0, 100.5, 130.0)]
        [0.001, 0.03125, 0.1]
    """

    def __init__(self) -> None:
        self._idle_since: float | None = None

    def reset(self) -> None:
        self._idle_since = None

    def next(self, requested: float, answered: float) -> float:
        """Return when to poll again after an empty poll."""
        if self._idle_since is None:
            self._idle_since = requested
        idle_seconds = answered - self._idle_since
        wait = max(MIN_POLL_WAIT, idle_seconds / _IDLE_FRACTION, (answered - requested) * _POLL_COST_FACTOR)
        return answered + min(wait, MAX_POLL_WAIT)


class RateLimit:
    """Limits the records per second that a source may assign.

    Unused allowance expires after a second.

    Example:
        >>> limit = RateLimit(per_second=100, subtasks=2)
        >>> [limit.allowed(1000, at) for at in (0.0, 0.5, 0.501, 9.0)]
        [0, 25, 0, 50]
    """

    def __init__(self, per_second: float, subtasks: int) -> None:
        self._per_second = per_second / subtasks
        self._since: float | None = None

    def allowed(self, budget: int, now: float) -> int:
        """Return how many of `budget` records each subtask may be assigned now; they count as read."""
        if self._since is None:
            self._since = now
        # Unused allowance of more than a second is dropped.
        self._since = max(self._since, now - max(1.0, 1 / self._per_second))
        records = min(budget, int((now - self._since) * self._per_second))
        if now < self.next():
            return 0
        self._since += records / self._per_second
        return records

    def next(self) -> float:
        """Return when the source may be polled: not for every single record of a fast source."""
        assert self._since is not None
        return self._since + max(1 / self._per_second, _PAUSE)


@dataclass
class GatherDelay:
    """How long input gathers between two epochs without backlog.

    No record waits longer than the buffer timeout. Short epochs follow each other sooner, as long as together they
    take a small share of the time.

    Attributes:
        timeout: the buffer timeout in seconds.
        always: whether to always wait that long, for larger epochs.
    """

    timeout: float
    always: bool = False
    _epoch_seconds: float | None = None

    def epoch_took(self, seconds: float) -> None:
        average = seconds if self._epoch_seconds is None else self._epoch_seconds
        self._epoch_seconds = average + _NEWEST * (seconds - average)

    def seconds(self) -> float:
        """Return the seconds from the start of one epoch to the start of the next."""
        if self.always or self._epoch_seconds is None:
            return self.timeout
        return min(self.timeout, self._epoch_seconds / _SHARE_OF_TIME)
