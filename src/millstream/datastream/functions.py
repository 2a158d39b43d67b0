"""User functions. Every method that takes one of these also takes a plain callable with the same signature."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeAlias

from millstream.common.aliases import (
    ACC,
    KEY,
    IN1_contra,
    IN2_contra,
    IN_contra,
    KEY_contra,
    OUT_co,
    T,
    W,
    W_contra,
)
from millstream.common.unsupported import JAVA, missing_class
from millstream.datastream.async_retry_strategies import AsyncRetryPredicate, AsyncRetryStrategy
from millstream.datastream.stream_functions import (
    AsyncFunction,
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    CheckpointedFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    NullByteKeySelector,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
    SideOutput,
    SinkFunction,
)
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.interval_join import IntervalJoinContext
from millstream.operators.runtime.timers import TimeDomain, TimerService
from millstream.operators.windows.window_operator import ProcessWindowContext, WindowStateStore

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AsyncFunction",
    "AsyncFunctionDescriptor",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BaseBroadcastProcessFunction",
    "BroadcastProcessFunction",
    "CheckpointedFunction",
    "CoFlatMapFunction",
    "CoGroupFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "FunctionWrapper",
    "InternalIterableAllWindowFunction",
    "InternalIterableProcessAllWindowFunction",
    "InternalIterableProcessWindowFunction",
    "InternalIterableWindowFunction",
    "InternalProcessAllWindowContext",
    "InternalProcessWindowContext",
    "InternalSingleValueAllWindowFunction",
    "InternalSingleValueProcessAllWindowFunction",
    "InternalSingleValueProcessWindowFunction",
    "InternalSingleValueWindowFunction",
    "InternalWindowFunction",
    "JavaFunctionWrapper",
    "JoinFunction",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateStore",
    "MapFunction",
    "NullByteKeySelector",
    "Partitioner",
    "PassThroughAllWindowFunction",
    "PassThroughWindowFunction",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "ReduceFunctionWrapper",
    "RuntimeContext",
    "SinkFunction",
    "SourceFunction",
    "TimeDomain",
    "TimerService",
    "WindowFunction",
]

# Keyed state as window contexts expose it.
KeyedStateStore = WindowStateStore


class AggregateFunction(Function, Generic[IN_contra, ACC, OUT_co]):
    """Combines records into an accumulator, and computes a result from it, for windows and aggregating state.

    Example:
        >>> from millstream.datastream import AggregateFunction
        >>> class Average(AggregateFunction):
        ...     def create_accumulator(self):
        ...         return 0, 0
        ...     def add(self, value, accumulator):
        ...         return accumulator[0] + value, accumulator[1] + 1
        ...     def get_result(self, accumulator):
        ...         return accumulator[0] / accumulator[1]
        ...     def merge(self, acc_a, acc_b):
        ...         return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]
        >>> list(env.from_collection([1, 2, 5, 8]).count_window_all(2).aggregate(Average()).execute_and_collect())
        [1.5, 6.5]
    """

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Return a new accumulator."""

    @abstractmethod
    def add(self, value: IN_contra, accumulator: ACC) -> ACC:
        """Return the accumulator with a value added."""

    @abstractmethod
    def get_result(self, accumulator: ACC) -> OUT_co:
        """Return the result of an accumulator."""

    @abstractmethod
    def merge(self, acc_a: ACC, acc_b: ACC) -> ACC:
        """Return two accumulators as one; needed for windows that merge."""


class ProcessWindowFunction(Function, Generic[IN_contra, OUT_co, KEY_contra, W_contra]):
    """Processes all records of a key's window with a context, for `process()` of a WindowedStream.

    Example:
        >>> from millstream.datastream import ProcessWindowFunction
        >>> class Median(ProcessWindowFunction):
        ...     def process(self, key, context, elements):
        ...         yield key, context.window().id, sorted(elements)[1]
        >>> numbers = env.from_collection([9, 1, 5, 2, 4, 8])
        >>> list(numbers.key_by(lambda x: x % 2).count_window(3).process(Median()).execute_and_collect())
        [(1, 0, 5), (0, 0, 4)]
    """

    Context: TypeAlias = ProcessWindowContext

    @abstractmethod
    def process(
        self, key: KEY_contra, context: ProcessWindowContext, elements: Iterable[IN_contra]
    ) -> Iterable[OUT_co | SideOutput] | None:
        """Process the records of a key's window; yield results."""

    def clear(self, context: ProcessWindowContext) -> None:
        """Clear `context.window_state()` when the window expires."""


class ProcessAllWindowFunction(Function, Generic[IN_contra, OUT_co, W_contra]):
    """Processes all records of a window with a context, for `process()` of an AllWindowedStream.

    Example:
        >>> from millstream.datastream import ProcessAllWindowFunction
        >>> class Median(ProcessAllWindowFunction):
        ...     def process(self, context, elements):
        ...         yield context.window().id, sorted(elements)[1]
        >>> list(env.from_collection([9, 1, 5, 2, 4, 8]).count_window_all(3).process(Median()).execute_and_collect())
        [(0, 5), (1, 4)]
    """

    Context: TypeAlias = ProcessWindowContext

    @abstractmethod
    def process(
        self, context: ProcessWindowContext, elements: Iterable[IN_contra]
    ) -> Iterable[OUT_co | SideOutput] | None:
        """Process the records of a window over the unkeyed stream; yield results."""

    def clear(self, context: ProcessWindowContext) -> None:
        """Clear `context.window_state()` when the window expires."""


class WindowFunction(Function, Generic[IN_contra, OUT_co, KEY_contra, W_contra]):
    """Processes all records of a key's window, for `apply()` of a WindowedStream, which also takes a plain function.

    Example:
        >>> from millstream.datastream import WindowFunction
        >>> class Sorted(WindowFunction):
        ...     def apply(self, key, window, inputs):
        ...         yield key, sorted(inputs)
        >>> numbers = env.from_collection([9, 1, 5, 2, 4, 8])
        >>> list(numbers.key_by(lambda x: x % 2).count_window(3).apply(Sorted()).execute_and_collect())
        [(1, [1, 5, 9]), (0, [2, 4, 8])]
    """

    @abstractmethod
    def apply(self, key: KEY_contra, window: W_contra, inputs: Iterable[IN_contra]) -> Iterable[OUT_co]:
        """Return the results for the records of a key's window."""


class AllWindowFunction(Function, Generic[IN_contra, OUT_co, W_contra]):
    """Processes all records of a window, for `apply()` of an AllWindowedStream, which also takes a plain function.

    Example:
        >>> from millstream.datastream import AllWindowFunction
        >>> class Sorted(AllWindowFunction):
        ...     def apply(self, window, inputs):
        ...         yield sorted(inputs)
        >>> list(env.from_collection([9, 1, 5, 2, 4, 8]).count_window_all(3).apply(Sorted()).execute_and_collect())
        [[1, 5, 9], [2, 4, 8]]
    """

    @abstractmethod
    def apply(self, window: W_contra, inputs: Iterable[IN_contra]) -> Iterable[OUT_co]:
        """Return the results for the records of a window."""


class PassThroughWindowFunction(WindowFunction[T, T, KEY, W]):
    """Emits a window's records as they are.

    Example:
        >>> from millstream.datastream.functions import PassThroughWindowFunction
        >>> windows = env.from_collection([1, 2, 3]).key_by(lambda x: 0).count_window(2)
        >>> list(windows.apply(PassThroughWindowFunction()).execute_and_collect())
        [1, 2]
    """

    def apply(self, key: KEY, window: W, inputs: Iterable[T]) -> Iterable[T]:
        """Return the records as they are."""
        return inputs


class PassThroughAllWindowFunction(AllWindowFunction[T, T, W]):
    """Emits a window's records as they are.

    Example:
        >>> from millstream.datastream.functions import PassThroughAllWindowFunction
        >>> windows = env.from_collection([1, 2, 3]).count_window_all(2)
        >>> list(windows.apply(PassThroughAllWindowFunction()).execute_and_collect())
        [1, 2]
    """

    def apply(self, window: W, inputs: Iterable[T]) -> Iterable[T]:
        """Return the records as they are."""
        return inputs


class ProcessJoinFunction(Function, Generic[IN1_contra, IN2_contra, OUT_co]):
    """Processes a pair of an interval join; yields results. Not in PyFlink.

    Example:
        >>> from millstream.common import WatermarkStrategy
        >>> from millstream.datastream.functions import ProcessJoinFunction
        >>> class Pair(ProcessJoinFunction):
        ...     def process_element(self, left, right, ctx):
        ...         yield left, right
        >>> by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])
        >>> left = env.from_collection([("a", 9)]).assign_timestamps_and_watermarks(by_time).key_by(lambda e: e[0])
        >>> right = env.from_collection([("a", 7)]).assign_timestamps_and_watermarks(by_time).key_by(lambda e: e[0])
        >>> list(left.interval_join(right).between(-5, 0).process(Pair()).execute_and_collect())
        [(('a', 9), ('a', 7))]
    """

    Context: TypeAlias = IntervalJoinContext

    @abstractmethod
    def process_element(
        self, left: IN1_contra, right: IN2_contra, ctx: IntervalJoinContext
    ) -> Iterable[OUT_co | SideOutput] | None:
        """Process a pair of records within the join interval; yield results."""


class JoinFunction(Function, Generic[IN1_contra, IN2_contra, OUT_co]):
    """Combines a pair of a window join into a result, for `join()`, which also takes a plain function. Not in PyFlink.

    Example:
        >>> from millstream.datastream.functions import JoinFunction
        >>> from millstream.datastream.window import CountTumblingWindowAssigner
        >>> class Pair(JoinFunction):
        ...     def join(self, first, second):
        ...         return first, second
        >>> left, right = env.from_collection(["tea", "pie"]), env.from_collection([3])
        >>> joined = left.join(right).where(lambda word: len(word)).equal_to(lambda length: length)
        >>> list(joined.window(CountTumblingWindowAssigner.of(3)).apply(Pair()).execute_and_collect())
        [('tea', 3), ('pie', 3)]
    """

    @abstractmethod
    def join(self, first: IN1_contra, second: IN2_contra) -> OUT_co:
        """Return the result for a pair of records."""


class CoGroupFunction(Function, Generic[IN1_contra, IN2_contra, OUT_co]):
    """Processes both sides of a key's window; yields results. Not in PyFlink.

    Example:
        >>> from millstream.datastream.functions import CoGroupFunction
        >>> from millstream.datastream.window import CountTumblingWindowAssigner
        >>> class Sides(CoGroupFunction):
        ...     def co_group(self, first, second):
        ...         yield sorted(first), list(second)
        >>> left, right = env.from_collection(["tea", "pie"]), env.from_collection([3])
        >>> grouped = left.co_group(right).where(lambda word: len(word)).equal_to(lambda length: length)
        >>> list(grouped.window(CountTumblingWindowAssigner.of(3)).apply(Sides()).execute_and_collect())
        [(['pie', 'tea'], [3])]
    """

    @abstractmethod
    def co_group(self, first: Iterable[IN1_contra], second: Iterable[IN2_contra]) -> Iterable[OUT_co]:
        """Return the results for both sides of a key's window."""


_INSIDE = "it is internal to PyFlink and works differently here"


def _nested_class(name: str) -> type:
    placeholder: type = missing_class("millstream.datastream.functions", name, _INSIDE)
    return placeholder


AsyncFunctionDescriptor = _nested_class("AsyncFunctionDescriptor")
FunctionWrapper = _nested_class("FunctionWrapper")
ReduceFunctionWrapper = _nested_class("ReduceFunctionWrapper")
InternalIterableAllWindowFunction = _nested_class("InternalIterableAllWindowFunction")
InternalIterableProcessAllWindowFunction = _nested_class("InternalIterableProcessAllWindowFunction")
InternalIterableProcessWindowFunction = _nested_class("InternalIterableProcessWindowFunction")
InternalIterableWindowFunction = _nested_class("InternalIterableWindowFunction")
InternalProcessAllWindowContext = _nested_class("InternalProcessAllWindowContext")
InternalProcessWindowContext = _nested_class("InternalProcessWindowContext")
InternalSingleValueAllWindowFunction = _nested_class("InternalSingleValueAllWindowFunction")
InternalSingleValueProcessAllWindowFunction = _nested_class("InternalSingleValueProcessAllWindowFunction")
InternalSingleValueProcessWindowFunction = _nested_class("InternalSingleValueProcessWindowFunction")
InternalSingleValueWindowFunction = _nested_class("InternalSingleValueWindowFunction")
InternalWindowFunction = _nested_class("InternalWindowFunction")
JavaFunctionWrapper = missing_class("millstream.datastream.functions", "JavaFunctionWrapper", JAVA)
SourceFunction = missing_class(
    "millstream.datastream.functions", "SourceFunction", f"{JAVA}; write a Source for env.from_source()"
)
