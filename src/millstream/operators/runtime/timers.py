"""The timers of an operator, and the TimerService for user code."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from millstream.common.errors import InvalidProgramError
from millstream.state.keyed import KeyedState
from millstream.state.timers import Timer


class TimeDomain(Enum):
    """The clock that a timer follows."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1


class Timers:
    """The event-time and processing-time timers of one keyed state."""

    def __init__(self, state: KeyedState) -> None:
        self.event = state.timers("_event_timers")
        self.processing = state.timers("_processing_timers")


class Timed(Protocol):
    """An operator with a watermark."""

    watermark: int


class TimerService:
    """Registers timers for the current key and returns the time."""

    def __init__(
        self,
        operator: Timed,
        timers: Timers | None,
        state: KeyedState | None,
        clock: Callable[[], int],
        task_name: str,
    ) -> None:
        self._operator = operator
        self._timers = timers
        self._cell = state.cell if state is not None else None
        self._clock = clock
        self._task_name = task_name

    def current_processing_time(self) -> int:
        """Return the wall clock in milliseconds."""
        return self._clock()

    def current_watermark(self) -> int:
        """Return the watermark; -2^63 before the first."""
        return self._operator.watermark

    def register_event_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` for the current key once event time has reached the timestamp."""
        self._keyed().event.register(self._timer(timestamp))

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` for the current key once the wall clock has reached the timestamp."""
        self._keyed().processing.register(self._timer(timestamp))

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Delete an event-time timer of the current key."""
        self._keyed().event.delete(self._timer(timestamp))

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Delete a processing-time timer of the current key."""
        self._keyed().processing.delete(self._timer(timestamp))

    def _keyed(self) -> Timers:
        if self._timers is None:
            raise InvalidProgramError(
                f"Setting timers is only supported on a keyed stream: call key_by(...) before '{self._task_name}'."
            )
        return self._timers

    def _timer(self, timestamp: int) -> Timer:
        if timestamp.__class__ is not int:
            raise InvalidProgramError(f"A timer takes a timestamp in milliseconds as an int, not {timestamp!r}.")
        assert self._cell is not None
        return timestamp, self._cell.key, None
