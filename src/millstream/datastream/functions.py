"""User functions. Every method that takes one of these also takes a plain callable with the same signature."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeAlias

from millstream.common.aliases import (
    ACC,
    KEY,
    IN1_contra,
    IN2_contra,
    IN_contra,
    KEY_co,
    KEY_contra,
    OUT_co,
    T,
    T_contra,
    Value,
    W,
    W_contra,
)
from millstream.common.errors import WrongTypeError
from millstream.common.unsupported import JAVA, missing_class
from millstream.datastream.async_retry_strategies import AsyncRetryPredicate, AsyncRetryStrategy
from millstream.operators.broadcast import BroadcastReadContext, BroadcastWriteContext
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.functions.operator_state import FunctionInitializationContext, FunctionSnapshotContext
from millstream.operators.functions.output_tag import OutputTag
from millstream.operators.functions.user_function import UserFunction, not_overridden
from millstream.operators.interval_join import IntervalJoinContext
from millstream.operators.process import ProcessContext
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

# A side output of a process function.
SideOutput: TypeAlias = tuple[OutputTag[Value], Value]


class Function(ABC):
    """A function that is opened once before its first record and closed once after its last.

    Each subtask has one instance; its attributes live as long as the subtask and are not fault tolerant.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called once, before the first record."""

    def close(self) -> None:
        """Called once, at the end."""


class MapFunction(Function, Generic[IN_contra, OUT_co]):
    """One record in, one record out."""

    @abstractmethod
    def map(self, value: IN_contra) -> OUT_co:
        """Return the result for a record."""


class FlatMapFunction(Function, Generic[IN_contra, OUT_co]):
    """One record in, any number out."""

    @abstractmethod
    def flat_map(self, value: IN_contra) -> Iterable[OUT_co] | None:
        """Return or yield any number of results for a record."""


class FilterFunction(Function, Generic[T_contra]):
    """Selects the records for which it is true."""

    @abstractmethod
    def filter(self, value: T_contra) -> bool:
        """Return whether the record passes."""


class ReduceFunction(Function, Generic[T]):
    """Combines two records into one of the same type."""

    @abstractmethod
    def reduce(self, value1: T, value2: T) -> T:
        """Return two values as one."""


class KeySelector(Function, Generic[IN_contra, KEY_co]):
    """Extracts the key of a record."""

    @abstractmethod
    def get_key(self, value: IN_contra) -> KEY_co:
        """Return the key of a record."""


class NullByteKeySelector(KeySelector[Value, int]):
    """Assigns the same key to all records."""

    def get_key(self, value: Value) -> int:
        """Return the same key for every record."""
        return 0


class Partitioner(Function, Generic[KEY_contra]):
    """Chooses the subtask for a key."""

    @abstractmethod
    def partition(self, key: KEY_contra, num_partitions: int) -> int:
        """Return the number of the subtask for a key, below `num_partitions`."""


class CoMapFunction(Function, Generic[IN1_contra, IN2_contra, OUT_co]):
    """map over two connected streams; a result of None is not emitted."""

    @abstractmethod
    def map1(self, value: IN1_contra) -> OUT_co:
        """Return the result for a record of the first stream."""

    @abstractmethod
    def map2(self, value: IN2_contra) -> OUT_co:
        """Return the result for a record of the second stream."""


class CoFlatMapFunction(Function, Generic[IN1_contra, IN2_contra, OUT_co]):
    """flat_map over two connected streams."""

    @abstractmethod
    def flat_map1(self, value: IN1_contra) -> Iterable[OUT_co] | None:
        """Return the results for a record of the first stream."""

    @abstractmethod
    def flat_map2(self, value: IN2_contra) -> Iterable[OUT_co] | None:
        """Return the results for a record of the second stream."""


class ProcessFunction(Function, Generic[IN_contra, OUT_co]):
    """Processes a record with its context; yields results, and `(OutputTag, value)` for side outputs."""

    Context: TypeAlias = ProcessContext

    @abstractmethod
    def process_element(self, value: IN_contra, ctx: ProcessContext) -> Iterable[OUT_co | SideOutput] | None:
        """Process a record; yield results, and `(OutputTag, value)` for side outputs."""


class KeyedProcessFunction(Function, Generic[KEY_contra, IN_contra, OUT_co]):
    """A process function on a keyed stream: it has keyed state and timers, and its context knows the current key."""

    Context: TypeAlias = ProcessContext
    OnTimerContext: TypeAlias = ProcessContext

    @abstractmethod
    def process_element(self, value: IN_contra, ctx: ProcessContext) -> Iterable[OUT_co | SideOutput] | None:
        """Process a record with the state and the timers of its key; yield results."""

    @not_overridden
    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Iterable[OUT_co | SideOutput] | None:
        """Called when a timer of the current key fires."""
        return None


class CoProcessFunction(Function, Generic[IN1_contra, IN2_contra, OUT_co]):
    """process over two connected streams."""

    Context: TypeAlias = ProcessContext

    @abstractmethod
    def process_element1(self, value: IN1_contra, ctx: ProcessContext) -> Iterable[OUT_co | SideOutput] | None:
        """Process a record of the first stream; yield results."""

    @abstractmethod
    def process_element2(self, value: IN2_contra, ctx: ProcessContext) -> Iterable[OUT_co | SideOutput] | None:
        """Process a record of the second stream; yield results."""


class KeyedCoProcessFunction(Function, Generic[KEY_contra, IN1_contra, IN2_contra, OUT_co]):
    """process over two connected streams with the same keys, and one keyed state and timers for both."""

    Context: TypeAlias = ProcessContext
    OnTimerContext: TypeAlias = ProcessContext

    @abstractmethod
    def process_element1(self, value: IN1_contra, ctx: ProcessContext) -> Iterable[OUT_co | SideOutput] | None:
        """Process a record of the first stream, with the state of its key; yield results."""

    @abstractmethod
    def process_element2(self, value: IN2_contra, ctx: ProcessContext) -> Iterable[OUT_co | SideOutput] | None:
        """Process a record of the second stream, with the state of its key; yield results."""

    @not_overridden
    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Iterable[OUT_co | SideOutput] | None:
        """Called when a timer of the current key fires."""
        return None


class BaseBroadcastProcessFunction(Function):
    """The base of functions over a broadcast stream."""

    BaseContext: TypeAlias = BroadcastReadContext
    Context: TypeAlias = BroadcastWriteContext
    ReadOnlyContext: TypeAlias = BroadcastReadContext


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1_contra, IN2_contra, OUT_co]):
    """process over a stream and a broadcast stream; broadcast elements update state that the other side reads."""

    @abstractmethod
    def process_element(self, value: IN1_contra, ctx: BroadcastReadContext) -> Iterable[OUT_co | SideOutput] | None:
        """Process a record of the non-broadcast stream; yield results."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2_contra, ctx: BroadcastWriteContext
    ) -> Iterable[OUT_co | SideOutput] | None:
        """Process a record of the broadcast stream and update broadcast state; yield results."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY_contra, IN1_contra, IN2_contra, OUT_co]):
    """The same on a keyed stream: with keyed state, timers, and `ctx.apply_to_keyed_state` on the broadcast side."""

    OnTimerContext: TypeAlias = BroadcastReadContext

    @abstractmethod
    def process_element(self, value: IN1_contra, ctx: BroadcastReadContext) -> Iterable[OUT_co | SideOutput] | None:
        """Process a record of the keyed stream; yield results."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2_contra, ctx: BroadcastWriteContext
    ) -> Iterable[OUT_co | SideOutput] | None:
        """Process a record of the broadcast stream and update broadcast state; yield results."""

    @not_overridden
    def on_timer(self, timestamp: int, ctx: BroadcastReadContext) -> Iterable[OUT_co | SideOutput] | None:
        """Called when a timer of the current key fires."""
        return None


class CheckpointedFunction(ABC):
    """A second base class for functions that snapshot and restore operator state."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Bring the states up to date; called at the end of every epoch."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Get the states; called before open, on a first start and on every later one."""


class AggregateFunction(Function, Generic[IN_contra, ACC, OUT_co]):
    """Combines records into an accumulator, and computes a result from it."""

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
    """Sees all records of a key's window, with a context."""

    Context: TypeAlias = ProcessWindowContext

    @abstractmethod
    def process(
        self, key: KEY_contra, context: ProcessWindowContext, elements: Iterable[IN_contra]
    ) -> Iterable[OUT_co | SideOutput] | None:
        """Process the records of a key's window; yield results."""

    def clear(self, context: ProcessWindowContext) -> None:
        """Clear window_state() when the window expires."""


class ProcessAllWindowFunction(Function, Generic[IN_contra, OUT_co, W_contra]):
    """Sees all records of a window, with a context."""

    Context: TypeAlias = ProcessWindowContext

    @abstractmethod
    def process(
        self, context: ProcessWindowContext, elements: Iterable[IN_contra]
    ) -> Iterable[OUT_co | SideOutput] | None:
        """Process the records of a window over the unkeyed stream; yield results."""

    def clear(self, context: ProcessWindowContext) -> None:
        """Clear window_state() when the window expires."""


class WindowFunction(Function, Generic[IN_contra, OUT_co, KEY_contra, W_contra]):
    """Sees all records of a key's window."""

    @abstractmethod
    def apply(self, key: KEY_contra, window: W_contra, inputs: Iterable[IN_contra]) -> Iterable[OUT_co]:
        """Return the results for the records of a key's window."""


class AllWindowFunction(Function, Generic[IN_contra, OUT_co, W_contra]):
    """Sees all records of a window."""

    @abstractmethod
    def apply(self, window: W_contra, inputs: Iterable[IN_contra]) -> Iterable[OUT_co]:
        """Return the results for the records of a window."""


class PassThroughWindowFunction(WindowFunction[T, T, KEY, W]):
    """Emits a window's records as they are."""

    def apply(self, key: KEY, window: W, inputs: Iterable[T]) -> Iterable[T]:
        """Return the records as they are."""
        return inputs


class PassThroughAllWindowFunction(AllWindowFunction[T, T, W]):
    """Emits a window's records as they are."""

    def apply(self, window: W, inputs: Iterable[T]) -> Iterable[T]:
        """Return the records as they are."""
        return inputs


class ProcessJoinFunction(Function, Generic[IN1_contra, IN2_contra, OUT_co]):
    """Processes a pair of an interval join; yields results."""

    Context: TypeAlias = IntervalJoinContext

    @abstractmethod
    def process_element(
        self, left: IN1_contra, right: IN2_contra, ctx: IntervalJoinContext
    ) -> Iterable[OUT_co | SideOutput] | None:
        """Process a pair of records within the join interval; yield results."""


class JoinFunction(Function, Generic[IN1_contra, IN2_contra, OUT_co]):
    """Combines a pair of a window join into a result."""

    @abstractmethod
    def join(self, first: IN1_contra, second: IN2_contra) -> OUT_co:
        """Return the result for a pair of records."""


class CoGroupFunction(Function, Generic[IN1_contra, IN2_contra, OUT_co]):
    """Processes both sides of a key's window; yields results."""

    @abstractmethod
    def co_group(self, first: Iterable[IN1_contra], second: Iterable[IN2_contra]) -> Iterable[OUT_co]:
        """Return the results for both sides of a key's window."""


class AsyncFunction(Function, Generic[IN_contra, OUT_co]):
    """Sends an asynchronous request for a record."""

    @abstractmethod
    async def async_invoke(self, value: IN_contra) -> list[OUT_co]:
        """Return the results for a record."""

    def timeout(self, value: IN_contra) -> list[OUT_co]:
        """Return the results for a record whose request timed out; raises an error unless overridden."""
        raise TimeoutError(f"Async function call has timed out for input: {value!r}")


class SinkFunction(Function, Generic[IN_contra]):
    """Called for every record at the end of a stream; its effects are not rolled back on a failure."""

    @abstractmethod
    def invoke(self, value: IN_contra, context: Any) -> None:
        """Process a record."""


def as_user_function(function: object, method: str, operation: str) -> UserFunction:
    """Return a UserFunction of an object with the method, or of a plain callable (including a class like `str`)."""
    if isinstance(function, type) and (hasattr(function, method) or issubclass(function, Function)):
        raise WrongTypeError(
            f"{operation}() was given the class {function.__name__}: give it an instance, {function.__name__}()."
        )
    if hasattr(function, method) and not isinstance(function, (str, bytes, int, float)):
        return UserFunction(function, method)
    if callable(function):
        return UserFunction(function, None)
    raise WrongTypeError(
        f"{operation}() takes a callable or an object with a method {method}(), "
        f"not {function!r} ({type(function).__name__})."
    )


def as_rich_function(function: object, methods: tuple[str, ...], operation: str) -> UserFunction:
    """Accept only an object that has all the methods."""
    missing = [m for m in methods if not hasattr(function, m)]
    if isinstance(function, type) or missing:
        type_name = function.__name__ if isinstance(function, type) else type(function).__name__
        reason = "a class, not an instance" if isinstance(function, type) else f"without {', '.join(missing)}()"
        raise WrongTypeError(f"{operation}() takes a function object; it was given {type_name}, {reason}.")
    return UserFunction(function, methods[0])


def key_of(selector: object) -> UserFunction:
    """Return the key function of a KeySelector, a callable, or a field's index or name."""
    if isinstance(selector, (int, str)) and not isinstance(selector, bool):
        field = selector
        getter: Callable[[Value], Value] = lambda value: value[field]  # noqa: E731
        return UserFunction(getter, None)
    return as_user_function(selector, "get_key", "key_by")


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
