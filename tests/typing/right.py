"""Programs whose types mypy infers at each step. Never run: integration/project/test_typing.py checks them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, assert_type

from millstream.cep import (
    CEP,
    Pattern,
    PatternFlatSelectFunction,
    PatternProcessFunction,
    PatternSelectFunction,
    PatternStream,
    TimedOutPartialMatchHandler,
)
from millstream.common import Row, Time, Types, WatermarkStrategy
from millstream.datastream import (
    AggregateFunction,
    AllWindowedStream,
    AsyncDataStream,
    AsyncFunction,
    BroadcastProcessFunction,
    BroadcastStream,
    CloseableIterator,
    CoMapFunction,
    ConnectedStreams,
    CoProcessFunction,
    DataStream,
    FilterFunction,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeyedStream,
    KeySelector,
    MapFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    SinkFunction,
    StreamExecutionEnvironment,
    WindowedStream,
    WindowFunction,
)
from millstream.datastream.connectors import NumberSequenceSource
from millstream.datastream.connectors.base import CommitContext, Committer, Sink, SinkWriter
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.data_stream import CachedDataStream
from millstream.datastream.functions import CoGroupFunction, JoinFunction, ProcessJoinFunction, RuntimeContext
from millstream.datastream.state import MapStateDescriptor
from millstream.datastream.window import (
    CountWindow,
    EventTimeSessionWindows,
    GlobalWindow,
    GlobalWindows,
    TimeWindow,
    TumblingEventTimeWindows,
)


class Event(NamedTuple):
    user: str
    amount: int


class BigEvent(Event):
    pass


LATE = OutputTag[Event]("late")
UNTYPED = OutputTag("untyped")

env = StreamExecutionEnvironment.get_execution_environment()
events = env.from_collection([Event("ann", 1), Event("bob", 2)])
numbers = env.from_collection([1, 2])

# --- sources

assert_type(events, DataStream[Event])
assert_type(numbers, DataStream[int])
assert_type(env.from_collection(range(3)), DataStream[int])
assert_type(env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.INT()])), DataStream[tuple[str, int]])
assert_type(env.from_collection([("a", 1)], Types.ROW([Types.STRING(), Types.INT()])), DataStream[Row])
assert_type(env.from_source(NumberSequenceSource(1, 9)), DataStream[int])
assert_type(env.from_source(DataGeneratorSource(lambda i: f"event {i}", 10)), DataStream[str])
assert_type(events.assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps()), DataStream[Event])

# --- stateless operators


class Length(MapFunction[str, int]):
    def map(self, value: str) -> int:
        return len(value)


class Describe(MapFunction[object, str]):
    def map(self, value: object) -> str:
        return str(value)


class Bare(MapFunction):
    def map(self, value: Any) -> Any:
        return value


class Words(FlatMapFunction[str, str]):
    def flat_map(self, value: str) -> Iterator[str]:
        yield from value.split()


class Some(FilterFunction[int]):
    def filter(self, value: int) -> bool:
        return value > 1


def untyped(value):  # type: ignore[no-untyped-def]
    return value


def half_value(value: int) -> Iterator[float]:
    yield value / 2


def pair(value: int) -> tuple[int, int]:
    return value, value


def rarely(value: int) -> list[str] | None:
    return None


assert_type(numbers.map(lambda x: str(x)), DataStream[str])
assert_type(numbers.map(lambda x: (x, str(x))), DataStream[tuple[int, str]])
assert_type(numbers.map(str), DataStream[str])
assert_type(numbers.map(untyped), DataStream[Any])
assert_type(numbers.map(Bare()), DataStream[Any])
assert_type(numbers.map(Describe()), DataStream[str])
assert_type(numbers.map(lambda x: str(x), Types.STRING()).map(Length()), DataStream[int])
# With a declared row type, tuples become rows; mypy cannot infer that of a lambda.
assert_type(numbers.map(pair, Types.ROW([Types.INT(), Types.INT()])), DataStream[Row])
assert_type(numbers.map(lambda x: (x, 1), output_type=Types.ROW([Types.INT(), Types.INT()])), DataStream[Any])
assert_type(events.map(lambda e: e.user).flat_map(Words()), DataStream[str])
assert_type(events.flat_map(lambda e: [e.amount]), DataStream[int])
assert_type(events.flat_map(lambda e: e.user.split()), DataStream[str])
assert_type(numbers.flat_map(half_value), DataStream[float])
assert_type(numbers.flat_map(rarely), DataStream[str])
assert_type(numbers.filter(lambda x: x % 2), DataStream[int])
assert_type(numbers.filter(Some()), DataStream[int])
assert_type(numbers.filter(untyped), DataStream[int])
assert_type(events.project(1), DataStream[tuple[Any, ...]])
assert_type(numbers.map(lambda x: str(x)).name("text").uid("text").set_parallelism(2), DataStream[str])

# --- partitioning and keys


class ByUser(KeySelector[Event, str]):
    def get_key(self, value: Event) -> str:
        return value.user


class Larger(ReduceFunction[Event]):
    def reduce(self, value1: Event, value2: Event) -> Event:
        return max(value1, value2)


keyed = events.key_by(lambda e: e.user)
assert_type(keyed, KeyedStream[Event, str])
assert_type(numbers.map(lambda x: str(x)).key_by(lambda s: len(s)), KeyedStream[str, int])
assert_type(events.key_by(ByUser(), Types.STRING()), KeyedStream[Event, str])
assert_type(events.key_by(0), KeyedStream[Event, Any])
assert_type(events.key_by("user"), KeyedStream[Event, Any])
assert_type(events.key_by(untyped), KeyedStream[Event, Any])
assert_type(keyed.key_by(lambda e: e.amount), KeyedStream[Event, int])
assert_type(keyed.map(lambda e: e.amount), DataStream[int])
assert_type(keyed.reduce(lambda a, b: Event(a.user, a.amount + b.amount)), DataStream[Event])
assert_type(keyed.reduce(Larger()), DataStream[Event])
assert_type(keyed.sum("amount"), DataStream[Event])
assert_type(keyed.min(1), DataStream[Event])
assert_type(keyed.max_by(1), DataStream[Event])
assert_type(events.rebalance().shuffle().rescale().forward().global_(), DataStream[Event])
assert_type(events.partition_custom(lambda key, n: len(key) % n, lambda e: e.user), DataStream[Event])
assert_type(events.partition_custom(lambda key, n: 0, 1), DataStream[Event])
assert_type(events.cache(), CachedDataStream[Event])

# --- process functions and side outputs


class Split(ProcessFunction[Event, int]):
    def process_element(
        self, value: Event, ctx: ProcessFunction.Context
    ) -> Iterator[int | tuple[OutputTag[Event], Event]]:
        if value.amount < 0:
            yield LATE, value
        yield value.amount


class Count(KeyedProcessFunction[str, Event, tuple[str, int]]):
    def process_element(self, value: Event, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[str, int]]:
        yield value.user, value.amount

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterator[tuple[OutputTag[Event], Event]]:
        yield LATE, Event("", 0)


assert_type(events.process(Split()), DataStream[int])
assert_type(events.process(Split()).get_side_output(LATE), DataStream[Event])
assert_type(events.process(Split()).get_side_output(UNTYPED), DataStream[Any])
assert_type(keyed.process(Count()), DataStream[tuple[str, int]])
assert_type(keyed.process(Split()), DataStream[int])
assert_type(keyed.process(Count(), Types.ROW([Types.STRING(), Types.INT()])), DataStream[Row])

# --- windows


class Mean(AggregateFunction[Event, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Event, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value.amount, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Show(ProcessWindowFunction[float, str, str, TimeWindow]):
    def process(self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[float]) -> Iterator[str]:
        yield f"{key} {list(elements)}"


class Sizes(WindowFunction[Event, int, str, TimeWindow]):
    def apply(self, key: str, window: TimeWindow, inputs: Iterable[Event]) -> Iterable[int]:
        return [len(list(inputs)), window.end]


class All(ProcessAllWindowFunction[Event, bytes, TimeWindow]):
    def process(self, context: ProcessAllWindowFunction.Context, elements: Iterable[Event]) -> Iterable[bytes]:
        return [e.user.encode() for e in elements]


tumbling = TumblingEventTimeWindows.of(Time.seconds(1))
windowed = keyed.window(tumbling)
assert_type(windowed, WindowedStream[Event, str, TimeWindow])
assert_type(keyed.window(EventTimeSessionWindows.with_gap(5)), WindowedStream[Event, str, TimeWindow])
assert_type(keyed.window(GlobalWindows.create()), WindowedStream[Event, str, GlobalWindow])
assert_type(keyed.count_window(3), WindowedStream[Event, str, CountWindow])
assert_type(windowed.allowed_lateness(5).side_output_late_data(LATE), WindowedStream[Event, str, TimeWindow])
assert_type(windowed.reduce(lambda a, b: max(a, b)), DataStream[Event])
assert_type(windowed.reduce(Larger()), DataStream[Event])
assert_type(windowed.reduce(Larger(), Sizes()), DataStream[int])
assert_type(windowed.reduce(Larger(), lambda key, window, inputs: [(key, window.end)]), DataStream[tuple[str, int]])
assert_type(windowed.aggregate(Mean()), DataStream[float])
assert_type(windowed.aggregate(Mean(), Show()), DataStream[str])
assert_type(windowed.aggregate(Mean(), output_type=Types.FLOAT()), DataStream[float])
assert_type(windowed.apply(Sizes()), DataStream[int])
assert_type(windowed.apply(lambda key, window, inputs: [e.amount for e in inputs]), DataStream[int])
assert_type(windowed.process(lambda key, context, elements: [key]), DataStream[str])
assert_type(windowed.sum(1), DataStream[Event])
assert_type(events.window_all(tumbling), AllWindowedStream[Event, TimeWindow])
assert_type(events.window_all(tumbling).process(All()), DataStream[bytes])
assert_type(events.window_all(tumbling).apply(lambda window, inputs: [window.start]), DataStream[int])
assert_type(events.window_all(tumbling).aggregate(Mean()), DataStream[float])
assert_type(events.count_window_all(5).max(1), DataStream[Event])

# --- connected streams


class Both(CoMapFunction[Event, int, str]):
    def map1(self, value: Event) -> str:
        return value.user

    def map2(self, value: int) -> str:
        return str(value)


class BothProcessed(CoProcessFunction[Event, int, float]):
    def process_element1(self, value: Event, ctx: CoProcessFunction.Context) -> Iterator[float]:
        yield value.amount

    def process_element2(self, value: int, ctx: CoProcessFunction.Context) -> Iterator[float]:
        yield value


class BothKeyed(KeyedCoProcessFunction[str, Event, int, bytes]):
    def process_element1(self, value: Event, ctx: KeyedCoProcessFunction.Context) -> Iterator[bytes]:
        yield b""

    def process_element2(self, value: int, ctx: KeyedCoProcessFunction.Context) -> Iterator[bytes]:
        yield b""


class Ruled(BroadcastProcessFunction[Event, int, str]):
    def process_element(self, value: Event, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterator[str]:
        yield value.user

    def process_broadcast_element(self, value: int, ctx: BroadcastProcessFunction.Context) -> None:
        return None


class KeyedRuled(KeyedBroadcastProcessFunction[str, Event, int, bytes]):
    def process_element(self, value: Event, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Iterator[bytes]:
        yield b""

    def process_broadcast_element(self, value: int, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        return None


class Pair(JoinFunction[Event, int, str]):
    def join(self, first: Event, second: int) -> str:
        return first.user * second


class Group(CoGroupFunction[Event, int, float]):
    def co_group(self, first: Iterable[Event], second: Iterable[int]) -> Iterable[float]:
        return [float(n) for n in second]


class Near(ProcessJoinFunction[Event, int, bytes]):
    def process_element(self, left: Event, right: int, ctx: ProcessJoinFunction.Context) -> Iterator[bytes]:
        yield b""


assert_type(events.union(env.from_collection([BigEvent("cat", 9)]), keyed), DataStream[Event])
connected = events.connect(numbers)
assert_type(connected, ConnectedStreams[Event, int])
assert_type(connected.map(Both()), DataStream[str])
assert_type(connected.process(BothProcessed()), DataStream[float])
assert_type(connected.key_by(lambda e: e.user, lambda n: n.bit_length()), ConnectedStreams[Event, int])
assert_type(connected.key_by("user", lambda n: str(n)).process(BothKeyed()), DataStream[bytes])
rules = numbers.broadcast(MapStateDescriptor("rules"))
assert_type(rules, BroadcastStream[int])
assert_type(numbers.broadcast(), DataStream[int])
assert_type(events.connect(rules).process(Ruled()), DataStream[str])
assert_type(keyed.connect(rules).process(KeyedRuled()), DataStream[bytes])
joined = events.join(numbers).where(lambda e: e.amount).equal_to(lambda n: n).window(tumbling)
assert_type(joined.apply(lambda event, number: (event.user, number + 1)), DataStream[tuple[str, int]])
assert_type(joined.allowed_lateness(1).apply(Pair()), DataStream[str])
grouped = events.co_group(numbers).where("amount").equal_to(lambda n: n).window(tumbling)
assert_type(grouped.apply(lambda left, right: [len(left) + sum(right)]), DataStream[int])
assert_type(grouped.apply(Group()), DataStream[float])
near = keyed.interval_join(numbers.key_by(lambda n: str(n))).between(-5, 5)
assert_type(near.process(Near()), DataStream[bytes])
assert_type(near.process(lambda left, right, ctx: [left.amount + right]), DataStream[int])

# --- patterns

pattern_stream = CEP.pattern(keyed, Pattern.begin("a"))
assert_type(pattern_stream.in_processing_time(), PatternStream[Event])
assert_type(pattern_stream.select(lambda match: match["a"][0].amount), DataStream[int])
assert_type(pattern_stream.select(OutputTag("late"), lambda match, time: time, lambda match: "x"), DataStream[str])
assert_type(pattern_stream.flat_select(lambda match: [e.user for e in match["a"]]), DataStream[str])
assert_type(pattern_stream.process(lambda match, ctx: [ctx.timestamp()]), DataStream[int])


class Alarm(PatternProcessFunction[Event, str], TimedOutPartialMatchHandler[Event]):
    def process_match(self, match: dict[str, list[Event]], ctx: PatternProcessFunction.Context) -> Iterator[str]:
        yield match["a"][0].user

    def process_timed_out_match(
        self, match: dict[str, list[Event]], ctx: PatternProcessFunction.Context
    ) -> Iterator[tuple[OutputTag[Event], Event]]:
        yield OutputTag("late"), match["a"][0]


class Amount(PatternSelectFunction[Event, int]):
    def select(self, match: dict[str, list[Event]]) -> int:
        return match["a"][0].amount


class Users(PatternFlatSelectFunction[Event, str]):
    def flat_select(self, match: dict[str, list[Event]]) -> Iterator[str]:
        yield from (e.user for e in match["a"])


assert_type(pattern_stream.process(Alarm()), DataStream[str])
assert_type(pattern_stream.select(Amount()), DataStream[int])
assert_type(pattern_stream.select(OutputTag("late"), lambda match, time: time, Amount()), DataStream[int])
assert_type(pattern_stream.flat_select(Users()), DataStream[str])

# --- asynchronous requests


class Evaluate(AsyncFunction[int, str]):
    async def async_invoke(self, value: int) -> list[str]:
        return [str(value)]


async def ask(value: int) -> list[bytes]:
    return [bytes(value)]


assert_type(AsyncDataStream.unordered_wait(numbers, Evaluate(), Time.seconds(1)), DataStream[str])
assert_type(AsyncDataStream.ordered_wait(numbers, ask, Time.seconds(1)), DataStream[bytes])

# --- sinks


class Store(SinkFunction[Event]):
    def invoke(self, value: Event, context: Any) -> None:
        return None


class Table(Sink[Event]):
    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        raise NotImplementedError

    def create_committer(self, context: CommitContext) -> Committer | None:
        return None


seen: list[int] = []
events.add_sink(Store())
events.sink_to(Table())
events.add_sink(lambda e: print(e.amount))
events.add_sink(lambda e, context: print(e.amount))
numbers.add_sink(seen.append)
env.from_collection([BigEvent("cat", 9)]).add_sink(Store())
assert_type(numbers.execute_and_collect(), CloseableIterator[int])
assert_type(numbers.execute_and_collect("job"), CloseableIterator[int])
assert_type(numbers.execute_and_collect(limit=2), list[int])
assert_type(numbers.execute_and_collect("job", 2), list[int])
with events.execute_and_collect() as results:
    for event in results:
        assert_type(event, Event)

# --- unparametrized names mean Any


def identity(stream: DataStream) -> DataStream:
    return stream


assert_type(identity(numbers), DataStream[Any])
assert_type(identity(numbers).map(lambda x: x.anything), DataStream[Any])
