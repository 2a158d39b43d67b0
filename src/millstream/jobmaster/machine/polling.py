"""When to look for input, and when to let it gather. Pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

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


class BackOff:
    """How often a source is asked that has nothing.

    A record that comes after a silence waits for a sixteenth of it; a source that is silent for long costs little.

    Example:
        >>> source = BackOff()
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
class Gathering:
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
