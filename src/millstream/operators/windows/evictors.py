"""Evictors, which remove records from a window when it fires."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable

from millstream.common.aliases import UserCode, Value
from millstream.common.errors import InvalidProgramError
from millstream.common.time import Duration, Time, to_millis
from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.operators.functions.metrics import MetricGroup
from millstream.operators.windows.windows import Window


class TimestampedValue:
    """A record in a window, with its timestamp."""

    __slots__ = ("timestamp", "value")

    def __init__(self, value: Value, timestamp: int | None) -> None:
        self.value = value
        self.timestamp = timestamp

    def get_value(self) -> Value:
        """Return the record."""
        return self.value

    def get_timestamp(self) -> int:
        """Return its timestamp."""
        return MIN_WATERMARK if self.timestamp is None else self.timestamp

    def has_timestamp(self) -> bool:
        """Return whether it has a timestamp."""
        return self.timestamp is not None


class EvictorContext:
    """The time and metrics of an evictor."""

    def __init__(self, watermark: int, processing_time: int, metrics: MetricGroup) -> None:
        self._watermark = watermark
        self._processing_time = processing_time
        self._metrics = metrics

    def get_current_watermark(self) -> int:
        """Return the watermark in milliseconds."""
        return self._watermark

    def get_current_processing_time(self) -> int:
        """Return the processing time in milliseconds."""
        return self._processing_time

    def get_metric_group(self) -> MetricGroup:
        """Return the metric group of the operator."""
        return self._metrics


# Inside Evictor the plain name is its attribute.
_Context = EvictorContext


class Evictor(ABC):
    """Removes records from a window that fires, before or after its window function is called.

    `elements` is a list of TimestampedValue; the evictor removes records from it in place.
    """

    EvictorContext = EvictorContext

    def evict_before(self, elements: list[TimestampedValue], size: int, window: Window, ctx: _Context) -> None:
        """Remove records before the window function is called."""

    def evict_after(self, elements: list[TimestampedValue], size: int, window: Window, ctx: _Context) -> None:
        """Remove records after the window function was called."""


class _BeforeOrAfter(Evictor):
    def __init__(self, do_evict_after: bool) -> None:
        self._after = do_evict_after

    def evict_before(self, elements: list[TimestampedValue], size: int, window: Window, ctx: EvictorContext) -> None:
        if not self._after:
            self._evict(elements)

    def evict_after(self, elements: list[TimestampedValue], size: int, window: Window, ctx: EvictorContext) -> None:
        if self._after:
            self._evict(elements)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define evict_before() or evict_after()")


class CountEvictor(_BeforeOrAfter):
    """Retains the last `max_count` records."""

    def __init__(self, max_count: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        if max_count < 0:
            raise InvalidProgramError(f"CountEvictor cannot retain {max_count} records.")
        self._max_count = max_count

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor:
        """Retain the last `max_count` records of a window."""
        return CountEvictor(max_count, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        del elements[: max(len(elements) - self._max_count, 0)]


class TimeEvictor(_BeforeOrAfter):
    """Retains the records within a duration of the latest one."""

    def __init__(self, window_size: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self._window_size = window_size

    @staticmethod
    def of(window_size: Time | Duration | int, do_evict_after: bool = False) -> TimeEvictor:
        """Retain the records of the last `window_size` milliseconds."""
        return TimeEvictor(to_millis(window_size), do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        if not elements or not elements[0].has_timestamp():
            return
        oldest = max(e.get_timestamp() for e in elements) - self._window_size
        elements[:] = [e for e in elements if e.get_timestamp() > oldest]


class DeltaEvictor(_BeforeOrAfter):
    """Removes the records that are at least a threshold away from the last one."""

    def __init__(self, threshold: float, delta_function: UserCode, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self._threshold = threshold
        delta: Callable[[Value, Value], float] = delta_function
        self._delta = getattr(delta, "get_delta", delta)

    @staticmethod
    def of(threshold: float, delta_function: UserCode, do_evict_after: bool = False) -> DeltaEvictor:
        """Retain the records whose `delta_function` with the last one is below the threshold."""
        return DeltaEvictor(threshold, delta_function, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        if elements:
            last = elements[-1].value
            elements[:] = [e for e in elements if self._delta(e.value, last) < self._threshold]
