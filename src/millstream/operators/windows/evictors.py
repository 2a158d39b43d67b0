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
    """A record in a window, with its timestamp, as an evictor sees it.

    Example:
        >>> from millstream.datastream.window import TimestampedValue
        >>> TimestampedValue("click", 7).get_value()
        'click'
    """

    __slots__ = ("timestamp", "value")

    def __init__(self, value: Value, timestamp: int | None) -> None:
        self.value = value
        self.timestamp = timestamp

    def get_value(self) -> Value:
        """Return the record.

        Example:
            >>> TimestampedValue("click", 7).get_value()
            'click'
        """
        return self.value

    def get_timestamp(self) -> int:
        """Return its timestamp, -2^63 if it has none.

        Example:
            >>> TimestampedValue("click", 7).get_timestamp()
            7
        """
        return MIN_WATERMARK if self.timestamp is None else self.timestamp

    def has_timestamp(self) -> bool:
        """Return whether it has a timestamp.

        Example:
            >>> TimestampedValue("click", None).has_timestamp()
            False
        """
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
    """Removes records from a window that fires, before or after its window function is called. Not in PyFlink.

    `elements` is a list of TimestampedValue; the evictor removes records from it in place.

    Example:
        >>> from millstream.datastream.window import Evictor
        >>> class Positive(Evictor):
        ...     def evict_before(self, elements, size, window, ctx):
        ...         elements[:] = [element for element in elements if element.value > 0]
        >>> windows = env.from_collection([3, -1, -2, 5]).count_window_all(2).evictor(Positive())
        >>> list(windows.reduce(lambda a, b: a + b).execute_and_collect())
        [3, 5]
    """

    EvictorContext = EvictorContext

    def evict_before(self, elements: list[TimestampedValue], size: int, window: Window, ctx: _Context) -> None:
        """Remove records before the window function is called; by default none.

        Args:
            elements: the records of the window, to change in place.
            size: their number.
            window: the window.
            ctx: gives the time and the metrics.

        Example:
            >>> from millstream.datastream.window import CountEvictor
            >>> elements = [TimestampedValue(value, None) for value in "abc"]
            >>> CountEvictor.of(2).evict_before(elements, 3, None, None)
            >>> [element.value for element in elements]
            ['b', 'c']
        """

    def evict_after(self, elements: list[TimestampedValue], size: int, window: Window, ctx: _Context) -> None:
        """Remove records after the window function was called; by default none.

        Example:
            >>> from millstream.datastream.window import CountEvictor
            >>> elements = [TimestampedValue(value, None) for value in "abc"]
            >>> CountEvictor.of(2, do_evict_after=True).evict_after(elements, 3, None, None)
            >>> [element.value for element in elements]
            ['b', 'c']
        """


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
    """Retains the last `max_count` records. Not in PyFlink.

    Example:
        >>> from millstream.datastream.window import CountEvictor
        >>> windows = env.from_collection([1, 2, 3, 4, 5, 6]).count_window_all(3).evictor(CountEvictor.of(2))
        >>> list(windows.apply(lambda window, inputs: [list(inputs)]).execute_and_collect())
        [[2, 3], [5, 6]]
    """

    def __init__(self, max_count: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        if max_count < 0:
            raise InvalidProgramError(f"CountEvictor cannot retain {max_count} records.")
        self._max_count = max_count

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor:
        """Retain the last `max_count` records of a window.

        Example:
            >>> windows = env.from_collection([1, 2, 3]).count_window_all(3).evictor(CountEvictor.of(1))
            >>> list(windows.apply(lambda window, inputs: [list(inputs)]).execute_and_collect())
            [[3]]
        """
        return CountEvictor(max_count, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        del elements[: max(len(elements) - self._max_count, 0)]


class TimeEvictor(_BeforeOrAfter):
    """Retains the records within a duration of the latest one; records without timestamps stay. Not in PyFlink.

    Example:
        >>> from millstream.common import WatermarkStrategy
        >>> from millstream.datastream.window import TimeEvictor
        >>> by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda time, _: time)
        >>> times = env.from_collection([1, 12, 15]).assign_timestamps_and_watermarks(by_time)
        >>> windows = times.count_window_all(3).evictor(TimeEvictor.of(10))
        >>> list(windows.apply(lambda window, inputs: [list(inputs)]).execute_and_collect())
        [[12, 15]]
    """

    def __init__(self, window_size: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self._window_size = window_size

    @staticmethod
    def of(window_size: Time | Duration | int, do_evict_after: bool = False) -> TimeEvictor:
        """Retain the records of the last `window_size`: a Time, a Duration or milliseconds.

        Example:
            >>> elements = [TimestampedValue(time, time) for time in (1_000, 12_000, 15_000)]
            >>> TimeEvictor.of(Time.seconds(10)).evict_before(elements, 3, None, None)
            >>> [element.value for element in elements]
            [12000, 15000]
        """
        return TimeEvictor(to_millis(window_size), do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        if not elements or not elements[0].has_timestamp():
            return
        oldest = max(e.get_timestamp() for e in elements) - self._window_size
        elements[:] = [e for e in elements if e.get_timestamp() > oldest]


class DeltaEvictor(_BeforeOrAfter):
    """Removes the records that are at least a threshold away from the last one. Not in PyFlink.

    Example:
        >>> from millstream.datastream.window import DeltaEvictor
        >>> near = DeltaEvictor.of(10, lambda value, last: abs(value - last))
        >>> windows = env.from_collection([100, 3, 8]).count_window_all(3).evictor(near)
        >>> list(windows.apply(lambda window, inputs: [list(inputs)]).execute_and_collect())
        [[3, 8]]
    """

    def __init__(self, threshold: float, delta_function: UserCode, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self._threshold = threshold
        delta: Callable[[Value, Value], float] = delta_function
        self._delta = getattr(delta, "get_delta", delta)

    @staticmethod
    def of(threshold: float, delta_function: UserCode, do_evict_after: bool = False) -> DeltaEvictor:
        """Retain the records whose `delta_function` with the last one is below the threshold.

        Example:
            >>> elements = [TimestampedValue(value, None) for value in (100, 3, 8)]
            >>> DeltaEvictor.of(10, lambda value, last: abs(value - last)).evict_before(elements, 3, None, None)
            >>> [element.value for element in elements]
            [3, 8]
        """
        return DeltaEvictor(threshold, delta_function, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        if elements:
            last = elements[-1].value
            elements[:] = [e for e in elements if self._delta(e.value, last) < self._threshold]
