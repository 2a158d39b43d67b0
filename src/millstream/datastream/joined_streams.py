"""Joins of two streams: by window (join, co_group) and by interval."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Self

from millstream.common.aliases import OUT, A_co, B_co, Key, UserCode, Value
from millstream.common.errors import InvalidProgramError
from millstream.common.time import Duration, Time, to_millis
from millstream.common.typeinfo import TypeInformation
from millstream.datastream.functions import (
    CoGroupFunction,
    JoinFunction,
    KeySelector,
    ProcessJoinFunction,
    ProcessWindowFunction,
)
from millstream.datastream.stream_base import add_operator, ends_of, transformation_of
from millstream.datastream.stream_functions import as_user_function, key_of
from millstream.datastream.windowed_stream import WindowedStream
from millstream.operators.functions.output_tag import OutputTag
from millstream.operators.functions.user_function import UserFunction
from millstream.operators.interval_join import IntervalJoinContext, IntervalJoinOperator
from millstream.operators.windows.assigners import WindowAssigner
from millstream.operators.windows.windows import Window

if TYPE_CHECKING:
    from millstream.datastream.data_stream import DataStream, KeyedStream
    from millstream.operators.functions.context import RuntimeContext
    from millstream.operators.windows.evictors import Evictor
    from millstream.operators.windows.triggers import Trigger
    from millstream.operators.windows.window_operator import ProcessWindowContext

__all__ = ["CoGroupedStreams", "IntervalJoin", "JoinedStreams"]


class _Tagged:
    """Marks a record with its side and its key."""

    def __init__(self, side: int, selector: UserFunction) -> None:
        self._side = side
        self._selector = selector

    def map(self, value: Value) -> tuple[int, Key, Value]:
        return self._side, self._selector.call(value), value


def _tag(stream: DataStream[Value], side: int, selector: UserFunction) -> DataStream[tuple[int, Key, Value]]:
    tagging: UserCode = _Tagged(side, selector)
    tagged: DataStream[tuple[int, Key, Value]] = stream.map(tagging).name(("Left", "Right")[side])
    # The input's parallelism preserves the order of records.
    transformation_of(tagged).parallelism = ends_of(stream)[0].source.parallelism
    return tagged


class _CoGroup(ProcessWindowFunction[Value, Value, Key, Window]):
    """Passes both sides of a window to the user's function."""

    def __init__(self, function: UserFunction) -> None:
        self._function = function

    def open(self, runtime_context: RuntimeContext) -> None:
        self._function.open(runtime_context)

    def close(self) -> None:
        self._function.close()

    def process(
        self, key: Key, context: ProcessWindowContext, elements: Iterable[tuple[int, Key, Value]]
    ) -> Iterable[Value]:
        sides: tuple[list[Value], list[Value]] = ([], [])
        for side, _, value in elements:
            sides[side].append(value)
        return self._combine(*sides)

    def _combine(self, left: list[Value], right: list[Value]) -> Iterable[Value]:
        results: Iterable[Value] | None = self._function.call(left, right)
        return () if results is None else results


class _Join(_CoGroup):
    """Passes every pair of a window to the user's function."""

    def _combine(self, left: list[Value], right: list[Value]) -> Iterator[Value]:
        for one in left:
            for other in right:
                yield self._function.call(one, other)


class _Paired(Generic[A_co, B_co]):
    """Two streams to be grouped into windows."""

    _METHOD: str

    def __init__(self, left: DataStream[A_co], right: DataStream[B_co]) -> None:
        self._left = left
        self._right = right
        self._left_key: UserFunction | None = None
        self._right_key: UserFunction | None = None

    def where(self, key_selector: Callable[[A_co], Key] | KeySelector[A_co, Key] | int | str) -> Self:
        """Set the key of the first stream.

        Example:
            >>> left, right = env.from_collection(["tea", "pie"]), env.from_collection([3])
            >>> joined = left.join(right).where(lambda word: len(word)).equal_to(lambda length: length)
            >>> from millstream.datastream.window import CountTumblingWindowAssigner
            >>> windows = joined.window(CountTumblingWindowAssigner.of(3))
            >>> list(windows.apply(lambda word, length: word).execute_and_collect())
            ['tea', 'pie']
        """
        self._left_key = key_of(key_selector)
        return self

    def equal_to(self, key_selector: Callable[[B_co], Key] | KeySelector[B_co, Key] | int | str) -> Self:
        """Set the key of the second stream.

        Example:
            >>> left, right = env.from_collection(["tea", "pie"]), env.from_collection([3])
            >>> joined = left.join(right).where(lambda word: len(word)).equal_to(lambda length: length)
            >>> from millstream.datastream.window import CountTumblingWindowAssigner
            >>> windows = joined.window(CountTumblingWindowAssigner.of(3))
            >>> list(windows.apply(lambda word, length: word).execute_and_collect())
            ['tea', 'pie']
        """
        self._right_key = key_of(key_selector)
        return self

    def _windowed(
        self, window_assigner: WindowAssigner[Value, Any]
    ) -> WindowedStream[tuple[int, Key, Value], Key, Window]:
        if self._left_key is None or self._right_key is None:
            raise InvalidProgramError(f"{self._METHOD}() needs where(...) and equal_to(...) before window(...).")
        left, right = _tag(self._left, 0, self._left_key), _tag(self._right, 1, self._right_key)
        keyed = left.union(right).key_by(lambda tagged: tagged[1])
        return WindowedStream(keyed, window_assigner)


class _WithWindow(Generic[A_co, B_co]):
    """Two streams in windows."""

    def __init__(self, windowed: WindowedStream[tuple[int, Key, Value], Key, Window]) -> None:
        self._windowed = windowed

    def trigger(self, trigger: Trigger[Value, Window]) -> Self:
        """Set the trigger, which decides when windows fire."""
        self._windowed.trigger(trigger)
        return self

    def evictor(self, evictor: Evictor) -> Self:
        """Set an evictor, which removes records when a window fires."""
        self._windowed.evictor(evictor)
        return self

    def allowed_lateness(self, time_ms: int | Time | Duration) -> Self:
        """Retain windows for some time after their end; each late record fires its window again."""
        self._windowed.allowed_lateness(time_ms)
        return self


class CoGroupedStreams(_Paired[A_co, B_co]):
    """Two streams to be co-grouped, created by `co_group()`. Not in PyFlink.

    `a.co_group(b).where(key_of_a).equal_to(key_of_b).window(assigner).apply(function)`
    """

    _METHOD = "co_group"

    def window(self, window_assigner: WindowAssigner[Value, Any]) -> _CoGroupedInWindow[A_co, B_co]:
        """Group both streams into windows.

        Example:
            >>> from millstream.datastream.window import CountTumblingWindowAssigner
            >>> left, right = env.from_collection(["tea", "pie"]), env.from_collection([3])
            >>> grouped = left.co_group(right).where(lambda word: len(word)).equal_to(lambda length: length)
            >>> windows = grouped.window(CountTumblingWindowAssigner.of(3))
            >>> list(windows.apply(lambda words, lengths: [(sorted(words), lengths)]).execute_and_collect())
            [(['pie', 'tea'], [3])]
        """
        return _CoGroupedInWindow(self._windowed(window_assigner))


class _CoGroupedInWindow(_WithWindow[A_co, B_co]):
    """Two streams in windows, for a function of both sides."""

    def apply(
        self,
        function: Callable[[list[A_co], list[B_co]], Iterable[OUT] | None] | CoGroupFunction[A_co, B_co, OUT],
        output_type: TypeInformation | None = None,
    ) -> DataStream[OUT]:
        """Apply a function to the records of both sides of a window, as two lists; it returns or yields results."""
        wrapped = _CoGroup(as_user_function(function, "co_group", "apply"))
        return self._windowed.process(wrapped, output_type).name("CoGroup")


class JoinedStreams(_Paired[A_co, B_co]):
    """Two streams to be joined in windows, created by `join()`. Not in PyFlink.

    `a.join(b).where(key_of_a).equal_to(key_of_b).window(assigner).apply(lambda left, right: ...)`
    """

    _METHOD = "join"

    def window(self, window_assigner: WindowAssigner[Value, Any]) -> _JoinedInWindow[A_co, B_co]:
        """Group both streams into windows.

        Example:
            >>> from millstream.datastream.window import CountTumblingWindowAssigner
            >>> left, right = env.from_collection(["tea", "pie"]), env.from_collection([3])
            >>> joined = left.join(right).where(lambda word: len(word)).equal_to(lambda length: length)
            >>> windows = joined.window(CountTumblingWindowAssigner.of(3))
            >>> list(windows.apply(lambda word, length: (word, length)).execute_and_collect())
            [('tea', 3), ('pie', 3)]
        """
        return _JoinedInWindow(self._windowed(window_assigner))


class _JoinedInWindow(_WithWindow[A_co, B_co]):
    """Two streams in windows, for a function of pairs."""

    def apply(
        self,
        function: Callable[[A_co, B_co], OUT] | JoinFunction[A_co, B_co, OUT],
        output_type: TypeInformation | None = None,
    ) -> DataStream[OUT]:
        """Apply a function to every pair of records of a window; it returns one result."""
        wrapped = _Join(as_user_function(function, "join", "apply"))
        return self._windowed.process(wrapped, output_type).name("Join")


class IntervalJoin(Generic[A_co, B_co]):
    """Two keyed streams to be joined within an interval of event time, created by `interval_join()`. Not in PyFlink.

    `a.interval_join(b).between(Time.seconds(-5), Time.seconds(5)).process(function)`
    """

    def __init__(self, left: KeyedStream[A_co, Key], right: KeyedStream[B_co, Key]) -> None:
        self._left = left
        self._right = right
        self._bounds: tuple[int, int] | None = None
        self._exclusive = [False, False]
        self._late: list[OutputTag[Value] | None] = [None, None]

    def between(self, lower_bound: int | Time | Duration, upper_bound: int | Time | Duration) -> Self:
        """Set the bounds of the second stream's timestamps relative to the first's, both inclusive.

        Example:
            >>> from millstream.common import Time, WatermarkStrategy
            >>> by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])
            >>> orders = env.from_collection([("ann", 9_000)]).assign_timestamps_and_watermarks(by_time)
            >>> clicks = env.from_collection([("ann", 2_000), ("ann", 7_000)]).assign_timestamps_and_watermarks(by_time)
            >>> joined = orders.key_by(lambda e: e[0]).interval_join(clicks.key_by(lambda e: e[0]))
            >>> joined = joined.between(Time.seconds(-5), Time.seconds(0))
            >>> list(joined.process(lambda left, right, ctx: [(left, right)]).execute_and_collect())
            [(('ann', 9000), ('ann', 7000))]
        """
        lower, upper = to_millis(lower_bound), to_millis(upper_bound)
        if lower > upper:
            raise InvalidProgramError(f"between({lower}, {upper}): the lower bound must not be above the upper one.")
        self._bounds = lower, upper
        return self

    def lower_bound_exclusive(self) -> Self:
        """Exclude the lower bound: a pair at exactly that distance does not match."""
        self._exclusive[0] = True
        return self

    def upper_bound_exclusive(self) -> Self:
        """Exclude the upper bound: a pair at exactly that distance does not match."""
        self._exclusive[1] = True
        return self

    def side_output_left_late_data(self, output_tag: OutputTag[A_co]) -> Self:
        """Send late records of the first stream to a side output instead of dropping them."""
        self._late[0] = output_tag
        return self

    def side_output_right_late_data(self, output_tag: OutputTag[B_co]) -> Self:
        """Send late records of the second stream to a side output instead of dropping them."""
        self._late[1] = output_tag
        return self

    def process(
        self,
        process_join_function: Callable[[A_co, B_co, IntervalJoinContext], Iterable[OUT] | None]
        | ProcessJoinFunction[A_co, B_co, OUT],
        output_type: TypeInformation | None = None,
    ) -> DataStream[OUT]:
        """Call `process_element(left, right, ctx)` for every pair; it yields results.

        Example:
            >>> from millstream.common import WatermarkStrategy
            >>> by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])
            >>> left = env.from_collection([("a", 9)]).assign_timestamps_and_watermarks(by_time).key_by(lambda e: e[0])
            >>> right = env.from_collection([("a", 7)]).assign_timestamps_and_watermarks(by_time).key_by(lambda e: e[0])
            >>> function = lambda left, right, ctx: [(ctx.get_left_timestamp(), ctx.get_right_timestamp())]
            >>> list(left.interval_join(right).between(-5, 0).process(function).execute_and_collect())
            [(9, 7)]
        """
        if self._bounds is None:
            raise InvalidProgramError("interval_join() needs between(lower, upper) before process(...).")
        lower, upper = self._bounds[0] + self._exclusive[0], self._bounds[1] - self._exclusive[1]
        function = as_user_function(process_join_function, "process_element", "process")
        operator = IntervalJoinOperator(function, lower, upper, (self._late[0], self._late[1]))
        return add_operator(self._left, "Interval Join", operator, output_type, self._right)
