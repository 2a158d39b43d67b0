"""ManualClock: a wall clock for tests."""

from __future__ import annotations


class ManualClock:
    """A wall clock in milliseconds that only the test advances.

    Harnesses have one, and `LocalJob` takes one: timers of processing time, TTL and `current_processing_time()` follow
    it.

    Example:
        >>> clock = ManualClock(1_000)
        >>> clock.advance(500)
        >>> clock()
        1500
    """

    def __init__(self, millis: int = 0) -> None:
        self.millis = millis

    def __call__(self) -> int:
        return self.millis

    def set(self, millis: int) -> None:
        """Set the time, in milliseconds.

        Example:
            >>> clock = ManualClock()
            >>> clock.set(1_000)
            >>> clock()
            1000
        """
        self.millis = millis

    def advance(self, millis: int) -> None:
        """Advance by milliseconds."""
        self.millis += millis
