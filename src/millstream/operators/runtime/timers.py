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
    """Registers timers for the current key and returns the time; a process function gets it from its context.

    Example:
        >>> from millstream.datastream import KeyedProcessFunction
        >>> from millstream.testing import KeyedOneInputHarness
        >>> class Remind(KeyedProcessFunction):
        ...     def process_element(self, value, ctx):
        ...         ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10)
        ...     def on_timer(self, timestamp, ctx):
        ...         yield ctx.get_current_key(), timestamp
        >>> with KeyedOneInputHarness(Remind(), lambda user: user) as harness:
        ...     harness.process_element("ann", timestamp=5)
        ...     harness.process_watermark(15)
        ...     harness.output()
        [('ann', 15)]
    """

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
        """Return the wall clock in milliseconds.

        Example:
            >>> from millstream.datastream import ProcessFunction
            >>> from millstream.testing import OneInputHarness
            >>> class Clock(ProcessFunction):
            ...     def process_element(self, value, ctx):
            ...         yield ctx.timer_service().current_processing_time()
            >>> with OneInputHarness(Clock()) as harness:
            ...     harness.set_processing_time(1_000)
            ...     harness.process_element("tick")
            ...     harness.output()
            [1000]
        """
        return self._clock()

    def current_watermark(self) -> int:
        """Return the watermark in milliseconds; -2^63 before the first.

        Example:
            >>> from millstream.datastream import ProcessFunction
            >>> from millstream.testing import OneInputHarness
            >>> class Clock(ProcessFunction):
            ...     def process_element(self, value, ctx):
            ...         yield ctx.timer_service().current_watermark()
            >>> with OneInputHarness(Clock()) as harness:
            ...     harness.process_watermark(7)
            ...     harness.process_element("tick", timestamp=9)
            ...     harness.output()
            [7]
        """
        return self._operator.watermark

    def register_event_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` for the current key once event time has reached the timestamp; the same timer fires once.

        Example:
            >>> from millstream.datastream import KeyedProcessFunction
            >>> from millstream.testing import KeyedOneInputHarness
            >>> class Remind(KeyedProcessFunction):
            ...     def process_element(self, value, ctx):
            ...         ctx.timer_service().register_event_time_timer(20)
            ...     def on_timer(self, timestamp, ctx):
            ...         yield ctx.get_current_key(), timestamp
            >>> with KeyedOneInputHarness(Remind(), lambda user: user) as harness:
            ...     harness.process_elements(["ann", "bob", "ann"])
            ...     harness.process_watermark(20)
            ...     harness.output()
            [('ann', 20), ('bob', 20)]
        """
        self._keyed().event.register(self._timer(timestamp))

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` for the current key once the wall clock has reached the timestamp.

        Example:
            >>> from millstream.datastream import KeyedProcessFunction
            >>> from millstream.testing import KeyedOneInputHarness
            >>> class Remind(KeyedProcessFunction):
            ...     def process_element(self, value, ctx):
            ...         timers = ctx.timer_service()
            ...         timers.register_processing_time_timer(timers.current_processing_time() + 1_000)
            ...     def on_timer(self, timestamp, ctx):
            ...         yield ctx.get_current_key(), timestamp
            >>> with KeyedOneInputHarness(Remind(), lambda user: user) as harness:
            ...     harness.process_element("ann")
            ...     harness.set_processing_time(1_000)
            ...     harness.output()
            [('ann', 1000)]
        """
        self._keyed().processing.register(self._timer(timestamp))

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Delete an event-time timer of the current key, if there is one.

        Example:
            >>> from millstream.datastream import KeyedProcessFunction
            >>> from millstream.testing import KeyedOneInputHarness
            >>> class Remind(KeyedProcessFunction):
            ...     def process_element(self, value, ctx):
            ...         ctx.timer_service().register_event_time_timer(20)
            ...         if value == "bob":
            ...             ctx.timer_service().delete_event_time_timer(20)
            >>> with KeyedOneInputHarness(Remind(), lambda user: user) as harness:
            ...     harness.process_elements(["ann", "bob"])
            ...     harness.event_timers()
            [TimerView(timestamp=20, key='ann')]
        """
        self._keyed().event.delete(self._timer(timestamp))

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Delete a processing-time timer of the current key, if there is one.

        Example:
            >>> from millstream.datastream import KeyedProcessFunction
            >>> from millstream.testing import KeyedOneInputHarness
            >>> class Remind(KeyedProcessFunction):
            ...     def process_element(self, value, ctx):
            ...         ctx.timer_service().register_processing_time_timer(20)
            ...         if value == "bob":
            ...             ctx.timer_service().delete_processing_time_timer(20)
            >>> with KeyedOneInputHarness(Remind(), lambda user: user) as harness:
            ...     harness.process_elements(["ann", "bob"])
            ...     harness.processing_timers()
            [TimerView(timestamp=20, key='ann')]
        """
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
