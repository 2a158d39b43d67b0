"""User functions of records, connected and broadcast streams, and what accepts a plain callable in their place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Generic, TypeAlias

from millstream.common.aliases import (
    IN1_contra,
    IN2_contra,
    IN_contra,
    KEY_co,
    KEY_contra,
    OUT_co,
    T,
    T_contra,
    Value,
)
from millstream.common.errors import WrongTypeError
from millstream.operators.broadcast import BroadcastReadContext, BroadcastWriteContext
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.functions.operator_state import FunctionInitializationContext, FunctionSnapshotContext
from millstream.operators.functions.output_tag import OutputTag
from millstream.operators.functions.user_function import UserFunction, not_overridden
from millstream.operators.process import ProcessContext

# A side output of a process function.
SideOutput: TypeAlias = tuple[OutputTag[Value], Value]


class Function(ABC):
    """A function that is opened once before its first record and closed once after its last: the base of all functions.

    Each subtask has one instance; its attributes live as long as the subtask and are not fault tolerant: use state.

    Example:
        >>> from millstream.datastream import MapFunction
        >>> class Scale(MapFunction):
        ...     def open(self, runtime_context):
        ...         self.factor = 10
        ...     def map(self, value):
        ...         return value * self.factor
        >>> list(env.from_collection([1, 2]).map(Scale()).execute_and_collect())
        [10, 20]
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        """Prepare for work: called once, before the first record.

        Args:
            runtime_context: gives the subtask, state and metrics.
        """

    def close(self) -> None:
        """Release resources: called once, at the end, also after a failure."""


class MapFunction(Function, Generic[IN_contra, OUT_co]):
    """Turns every record into another, for `map()`, which also takes a plain function.

    Example:
        >>> from millstream.datastream import MapFunction
        >>> class Square(MapFunction):
        ...     def map(self, value):
        ...         return value * value
        >>> list(env.from_collection([1, 2, 3]).map(Square()).execute_and_collect())
        [1, 4, 9]
    """

    @abstractmethod
    def map(self, value: IN_contra) -> OUT_co:
        """Return the result for a record."""


class FlatMapFunction(Function, Generic[IN_contra, OUT_co]):
    """Turns every record into any number of others, for `flat_map()`, which also takes a plain function.

    Example:
        >>> from millstream.datastream import FlatMapFunction
        >>> class Words(FlatMapFunction):
        ...     def flat_map(self, value):
        ...         yield from value.split()
        >>> list(env.from_collection(["to be", "or"]).flat_map(Words()).execute_and_collect())
        ['to', 'be', 'or']
    """

    @abstractmethod
    def flat_map(self, value: IN_contra) -> Iterable[OUT_co] | None:
        """Return or yield any number of results for a record; None is no result."""


class FilterFunction(Function, Generic[T_contra]):
    """Selects the records for which it is true, for `filter()`, which also takes a plain function.

    Example:
        >>> from millstream.datastream import FilterFunction
        >>> class Odd(FilterFunction):
        ...     def filter(self, value):
        ...         return value % 2 == 1
        >>> list(env.from_collection([1, 2, 3]).filter(Odd()).execute_and_collect())
        [1, 3]
    """

    @abstractmethod
    def filter(self, value: T_contra) -> bool:
        """Return whether the record passes."""


class ReduceFunction(Function, Generic[T]):
    """Combines two records into one of the same type, for `reduce()`, which also takes a plain function.

    Example:
        >>> from millstream.datastream import ReduceFunction
        >>> class Add(ReduceFunction):
        ...     def reduce(self, value1, value2):
        ...         return value1[0], value1[1] + value2[1]
        >>> sales = env.from_collection([("tea", 3), ("tea", 4)])
        >>> list(sales.key_by(lambda sale: sale[0]).reduce(Add()).execute_and_collect())
        [('tea', 3), ('tea', 7)]
    """

    @abstractmethod
    def reduce(self, value1: T, value2: T) -> T:
        """Return two values as one; the first one is the result so far."""


class KeySelector(Function, Generic[IN_contra, KEY_co]):
    """Extracts the key of a record, for `key_by()`, which also takes a plain function or a field's index or name.

    Example:
        >>> from millstream.datastream import KeySelector
        >>> class First(KeySelector):
        ...     def get_key(self, value):
        ...         return value[0]
        >>> sales = env.from_collection([("tea", 3), ("tea", 4)])
        >>> list(sales.key_by(First()).sum(1).execute_and_collect())
        [('tea', 3), ('tea', 7)]
    """

    @abstractmethod
    def get_key(self, value: IN_contra) -> KEY_co:
        """Return the key of a record."""


class NullByteKeySelector(KeySelector[Value, int]):
    """Assigns the same key to all records.

    Example:
        >>> from millstream.datastream.functions import NullByteKeySelector
        >>> list(env.from_collection([(3,), (4,)]).key_by(NullByteKeySelector()).sum(0).execute_and_collect())
        [(3,), (7,)]
    """

    def get_key(self, value: Value) -> int:
        """Return the same key for every record."""
        return 0


class Partitioner(Function, Generic[KEY_contra]):
    """Chooses the subtask for a key, for `partition_custom()`, which also takes a plain function.

    Example:
        >>> from millstream.datastream import Partitioner
        >>> class Remainder(Partitioner):
        ...     def partition(self, key, num_partitions):
        ...         return key % num_partitions
        >>> numbers = env.from_collection([7, 8]).partition_custom(Remainder(), lambda value: value)
        >>> list(numbers.map(lambda value: value * 10).execute_and_collect())
        [70, 80]
    """

    @abstractmethod
    def partition(self, key: KEY_contra, num_partitions: int) -> int:
        """Return the number of the subtask for a key, below `num_partitions`."""


class CoMapFunction(Function, Generic[IN1_contra, IN2_contra, OUT_co]):
    """Turns the records of two connected streams into results, one each; a result of None is not emitted.

    Example:
        >>> from millstream.datastream import CoMapFunction
        >>> class Label(CoMapFunction):
        ...     def map1(self, value):
        ...         return f"order {value}"
        ...     def map2(self, value):
        ...         return f"payment {value}"
        >>> orders, payments = env.from_collection([1, 2]), env.from_collection([30])
        >>> sorted(orders.connect(payments).map(Label()).execute_and_collect())
        ['order 1', 'order 2', 'payment 30']
    """

    @abstractmethod
    def map1(self, value: IN1_contra) -> OUT_co:
        """Return the result for a record of the first stream."""

    @abstractmethod
    def map2(self, value: IN2_contra) -> OUT_co:
        """Return the result for a record of the second stream."""


class CoFlatMapFunction(Function, Generic[IN1_contra, IN2_contra, OUT_co]):
    """Turns the records of two connected streams into any number of results.

    Example:
        >>> from millstream.datastream import CoFlatMapFunction
        >>> class Words(CoFlatMapFunction):
        ...     def flat_map1(self, value):
        ...         return value.split()
        ...     def flat_map2(self, value):
        ...         yield str(value)
        >>> both = env.from_collection(["to be"]).connect(env.from_collection([1, 2]))
        >>> sorted(both.flat_map(Words()).execute_and_collect())
        ['1', '2', 'be', 'to']
    """

    @abstractmethod
    def flat_map1(self, value: IN1_contra) -> Iterable[OUT_co] | None:
        """Return the results for a record of the first stream."""

    @abstractmethod
    def flat_map2(self, value: IN2_contra) -> Iterable[OUT_co] | None:
        """Return the results for a record of the second stream."""


class ProcessFunction(Function, Generic[IN_contra, OUT_co]):
    """Processes a record with its context; yields results, and `(OutputTag, value)` for side outputs.

    Example:
        >>> from millstream.datastream import OutputTag, ProcessFunction
        >>> rejected = OutputTag("rejected")
        >>> class Parse(ProcessFunction):
        ...     def process_element(self, value, ctx):
        ...         yield int(value) if value.isdigit() else (rejected, value)
        >>> list(env.from_collection(["1", "two", "3"]).process(Parse()).execute_and_collect())
        [1, 3]
    """

    Context: TypeAlias = ProcessContext

    @abstractmethod
    def process_element(self, value: IN_contra, ctx: ProcessContext) -> Iterable[OUT_co | SideOutput] | None:
        """Process a record; yield results, and `(OutputTag, value)` for side outputs."""


class KeyedProcessFunction(Function, Generic[KEY_contra, IN_contra, OUT_co]):
    """A process function on a keyed stream: it has keyed state and timers, and its context knows the current key.

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

    Context: TypeAlias = ProcessContext
    OnTimerContext: TypeAlias = ProcessContext

    @abstractmethod
    def process_element(self, value: IN_contra, ctx: ProcessContext) -> Iterable[OUT_co | SideOutput] | None:
        """Process a record with the state and the timers of its key; yield results."""

    @not_overridden
    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Iterable[OUT_co | SideOutput] | None:
        """Handle a timer of the current key that fires; yield results.

        Args:
            timestamp: the time the timer was set to.
            ctx: gives the key, the time domain and the timer service.
        """
        return None


class CoProcessFunction(Function, Generic[IN1_contra, IN2_contra, OUT_co]):
    """Processes the records of two connected streams with their context.

    Example:
        >>> from millstream.datastream import CoProcessFunction
        >>> class Label(CoProcessFunction):
        ...     def process_element1(self, value, ctx):
        ...         yield f"order {value}"
        ...     def process_element2(self, value, ctx):
        ...         yield f"payment {value}"
        >>> orders, payments = env.from_collection([1, 2]), env.from_collection([30])
        >>> sorted(orders.connect(payments).process(Label()).execute_and_collect())
        ['order 1', 'order 2', 'payment 30']
    """

    Context: TypeAlias = ProcessContext

    @abstractmethod
    def process_element1(self, value: IN1_contra, ctx: ProcessContext) -> Iterable[OUT_co | SideOutput] | None:
        """Process a record of the first stream; yield results."""

    @abstractmethod
    def process_element2(self, value: IN2_contra, ctx: ProcessContext) -> Iterable[OUT_co | SideOutput] | None:
        """Process a record of the second stream; yield results."""


class KeyedCoProcessFunction(Function, Generic[KEY_contra, IN1_contra, IN2_contra, OUT_co]):
    """Processes the records of two connected streams of the same keys, with one keyed state and timers for both.

    Example:
        >>> from millstream.datastream import KeyedCoProcessFunction
        >>> from millstream.datastream.state import ValueStateDescriptor
        >>> from millstream.testing import KeyedTwoInputHarness
        >>> class Match(KeyedCoProcessFunction):
        ...     def open(self, runtime_context):
        ...         self.order = runtime_context.get_state(ValueStateDescriptor("order"))
        ...     def process_element1(self, value, ctx):
        ...         self.order.update(value)
        ...     def process_element2(self, value, ctx):
        ...         yield self.order.value(), value
        >>> with KeyedTwoInputHarness(Match(), lambda order: order[0], lambda payment: payment[0]) as harness:
        ...     harness.process_element1(("ann", "tea"))
        ...     harness.process_element2(("ann", 3))
        ...     harness.output()
        [(('ann', 'tea'), ('ann', 3))]
    """

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
        """Handle a timer of the current key that fires; yield results."""
        return None


class BaseBroadcastProcessFunction(Function):
    """The base of functions over a broadcast stream."""

    BaseContext: TypeAlias = BroadcastReadContext
    Context: TypeAlias = BroadcastWriteContext
    ReadOnlyContext: TypeAlias = BroadcastReadContext


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1_contra, IN2_contra, OUT_co]):
    """Processes a stream and a broadcast stream, whose records update state that the other side reads.

    Example:
        >>> from millstream.datastream import BroadcastProcessFunction
        >>> from millstream.datastream.state import MapStateDescriptor
        >>> from millstream.testing import BroadcastHarness
        >>> rates = MapStateDescriptor("rates")
        >>> class Convert(BroadcastProcessFunction):
        ...     def process_element(self, value, ctx):
        ...         yield value * ctx.get_broadcast_state(rates).get("eur")
        ...     def process_broadcast_element(self, value, ctx):
        ...         ctx.get_broadcast_state(rates).put(*value)
        >>> with BroadcastHarness(Convert(), [rates]) as harness:
        ...     harness.process_broadcast_element(("eur", 2))
        ...     harness.process_element(10)
        ...     harness.output()
        [20]
    """

    @abstractmethod
    def process_element(self, value: IN1_contra, ctx: BroadcastReadContext) -> Iterable[OUT_co | SideOutput] | None:
        """Process a record of the non-broadcast stream; yield results."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2_contra, ctx: BroadcastWriteContext
    ) -> Iterable[OUT_co | SideOutput] | None:
        """Process a record of the broadcast stream and update broadcast state; yield results."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY_contra, IN1_contra, IN2_contra, OUT_co]):
    """Processes a keyed stream and a broadcast stream, with keyed state and timers.

    On the broadcast side `ctx.apply_to_keyed_state()` visits the state of every key.

    Example:
        >>> from millstream.datastream import KeyedBroadcastProcessFunction
        >>> from millstream.datastream.state import MapStateDescriptor
        >>> from millstream.testing import KeyedBroadcastHarness
        >>> blocked = MapStateDescriptor("blocked")
        >>> class Check(KeyedBroadcastProcessFunction):
        ...     def process_element(self, value, ctx):
        ...         yield value, ctx.get_broadcast_state(blocked).contains(ctx.get_current_key())
        ...     def process_broadcast_element(self, value, ctx):
        ...         ctx.get_broadcast_state(blocked).put(value, True)
        >>> with KeyedBroadcastHarness(Check(), lambda event: event["user"], [blocked]) as harness:
        ...     harness.process_broadcast_element("ann")
        ...     harness.process_element({"user": "ann"})
        ...     harness.output()
        [({'user': 'ann'}, True)]
    """

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
        """Handle a timer of the current key that fires; yield results."""
        return None


class CheckpointedFunction(ABC):
    """A second base class for functions that snapshot and restore operator state. Not in PyFlink.

    Example:
        >>> from millstream.datastream import CheckpointedFunction, MapFunction
        >>> from millstream.datastream.state import ListStateDescriptor
        >>> from millstream.testing import OneInputHarness
        >>> class Count(MapFunction, CheckpointedFunction):
        ...     def initialize_state(self, context):
        ...         self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("counts"))
        ...         self.count = sum(self.state.get())
        ...     def snapshot_state(self, context):
        ...         self.state.update([self.count])
        ...     def map(self, value):
        ...         self.count += 1
        ...         return self.count
        >>> with OneInputHarness(Count()) as harness:
        ...     harness.process_elements(["a", "b"])
        ...     harness.output(), harness.operator_state("counts")
        ([1, 2], [2])
    """

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Bring the states up to date; called whenever state is written."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Get the states; called before open, on a first start and on every later one."""


class AsyncFunction(Function, Generic[IN_contra, OUT_co]):
    """Sends an asynchronous request for a record, for AsyncDataStream.

    Example:
        >>> from millstream.common import Time
        >>> from millstream.datastream import AsyncDataStream, AsyncFunction
        >>> class Lookup(AsyncFunction):
        ...     async def async_invoke(self, value):
        ...         return [value * 10]
        >>> results = AsyncDataStream.ordered_wait(env.from_collection([1, 2]), Lookup(), Time.seconds(10))
        >>> list(results.execute_and_collect())
        [10, 20]
    """

    @abstractmethod
    async def async_invoke(self, value: IN_contra) -> list[OUT_co]:
        """Return the results for a record, as a list."""

    def timeout(self, value: IN_contra) -> list[OUT_co]:
        """Return the results for a record whose request timed out; raises an error unless overridden."""
        raise TimeoutError(f"Async function call has timed out for input: {value!r}")


class SinkFunction(Function, Generic[IN_contra]):
    """Called for every record at the end of a stream, by `add_sink()`; its effects are not rolled back on a failure.

    Example:
        >>> from millstream.datastream import SinkFunction
        >>> class Show(SinkFunction):
        ...     def invoke(self, value, context=None):
        ...         print("got", value)
        >>> _ = env.from_collection([1, 2]).add_sink(Show())
        >>> _ = env.execute()
        got 1
        got 2
    """

    @abstractmethod
    def invoke(self, value: IN_contra, context: None) -> None:
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
