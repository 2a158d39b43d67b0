"""Programs with type errors: mypy must report one in each marked line, and no other. Never run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from millstream.datastream import (
    AggregateFunction,
    AsyncDataStream,
    AsyncFunction,
    CoMapFunction,
    DataStream,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    SinkFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.window import GlobalWindow, TimeWindow, TumblingEventTimeWindows


class Event(NamedTuple):
    user: str
    amount: int


class Length(MapFunction[str, int]):
    def map(self, value: str) -> int:
        return len(value)


class Longer(ReduceFunction[str]):
    def reduce(self, value1: str, value2: str) -> str:
        return max(value1, value2, key=len)


class Words(ProcessFunction[str, str]):
    def process_element(self, value: str, ctx: ProcessFunction.Context) -> Iterator[str]:
        yield from value.split()


class ByNumber(KeyedProcessFunction[int, Event, str]):
    def process_element(self, value: Event, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        yield value.user


class WrongOutput(ProcessFunction[str, str]):
    def process_element(self, value: str, ctx: ProcessFunction.Context) -> Iterator[int]:  # error: incompatible with
        yield len(value)


class Store(SinkFunction[str]):
    def invoke(self, value: str, context: Any) -> None:
        return None


class Total(AggregateFunction[int, int, float]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> float:
        return float(accumulator)

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class OfText(ProcessWindowFunction[str, str, str, TimeWindow]):
    def process(self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[str]) -> Iterable[str]:
        return elements


class OfGlobal(ProcessWindowFunction[Event, str, str, GlobalWindow]):
    def process(self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[Event]) -> Iterable[str]:
        return [key]


class Both(CoMapFunction[str, int, str]):
    def map1(self, value: str) -> str:
        return value

    def map2(self, value: int) -> str:
        return str(value)


class Evaluate(AsyncFunction[str, str]):
    async def async_invoke(self, value: str) -> list[str]:
        return [value]


env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_collection([1, 2])
events = env.from_collection([Event("ann", 1)])
keyed = events.key_by(lambda e: e.user)
windowed = keyed.window(TumblingEventTimeWindows.of(5))

env.from_collection(7)  # error: overload variant
numbers.map(Length())  # error: incompatible type "Length"
numbers.map(len)  # error: incompatible type
numbers.map(lambda x: x.upper())  # error: "int" has no attribute "upper"
numbers.map(Length)  # error: incompatible type "type[Length]"
numbers.map(lambda x: str(x)).map(lambda s: s + 1)  # error: Unsupported operand types
numbers.flat_map(lambda x: x)  # error: Incompatible return value
numbers.filter(Length())  # error: incompatible type "Length"
events.key_by(lambda e: e.missing)  # error: "Event" has no attribute "missing"
keyed.reduce(lambda a, b: a.amount + b.amount)  # error: Incompatible return value
keyed.reduce(Longer())  # error: incompatible type "Longer"
keyed.sum(1).map(lambda e: e.missing)  # error: "Event" has no attribute "missing"
numbers.process(Words())  # error: incompatible type "Words"
events.process(ByNumber())  # error: matches argument type "ByNumber"
keyed.process(ByNumber())  # error: incompatible type "ByNumber"
windowed.aggregate(Total())  # error: incompatible type "Total"
windowed.process(OfText())  # error: incompatible type "OfText"
windowed.process(OfGlobal())  # error: incompatible type "OfGlobal"
windowed.apply(lambda window, inputs: [])  # error: incompatible type
windowed.side_output_late_data(OutputTag[int]("late"))  # error: incompatible type "OutputTag[int]"
events.union(numbers)  # error: incompatible type "DataStream[int]"
events.connect(numbers).map(Both())  # error: incompatible type "Both"
events.join(numbers).where(lambda e: e.missing)  # error: "Event" has no attribute "missing"
events.join(numbers).where("user").equal_to(0).apply(lambda a, b: a)  # error: has no attribute "apply"
AsyncDataStream.ordered_wait(numbers, Evaluate(), 5)  # error: incompatible type
numbers.add_sink(Store())  # error: incompatible type "Store"
numbers.sink_to(Store())  # error: incompatible type "Store"
text: DataStream[str] = numbers  # error: Incompatible types in assignment
late: DataStream[str] = events.process(Words()).get_side_output(OutputTag[str]("x"))  # error: incompatible type "Words"
for number in numbers.execute_and_collect():
    number.upper()  # error: "int" has no attribute "upper"
