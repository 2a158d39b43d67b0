"""Every operator with two inputs, in both modes, with and without timestamps, with any epoch boundaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

from millstream.common import Time, Types, WatermarkStrategy
from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.datastream import DataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from millstream.datastream.functions import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
)
from millstream.datastream.state import MapStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.testing import CollectSink
from millstream.testing.local_job import LocalJob

LEFT = [("a", 3), ("b", 1), ("a", 2)]
RIGHT = [("a", 5), ("c", 4)]
RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


class CoMap(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return "left", value

    def map2(self, value: Any) -> Any:
        return "right", value


class CoFlatMap(CoFlatMapFunction):
    def flat_map1(self, value: Any) -> Any:
        return [("left", value)]

    def flat_map2(self, value: Any) -> Any:
        return [("right", value)]


class CoProcess(CoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield "left", value, ctx.timestamp()

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield "right", value, ctx.timestamp()


class KeyedCoProcess(KeyedCoProcessFunction):
    process_element1 = CoProcess.process_element1
    process_element2 = CoProcess.process_element2


class Broadcast(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield "left", value, ctx.timestamp()

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.get_broadcast_state(RULES).put(*value)
        yield "right", value, ctx.timestamp()


class KeyedBroadcast(KeyedBroadcastProcessFunction):
    process_element = Broadcast.process_element
    process_broadcast_element = Broadcast.process_broadcast_element


def part(value: Any) -> Any:
    return value[0]


def derived_key(value: Any) -> Any:
    return value[0] + "!"


Streams = DataStream[Any]
OPERATIONS: dict[str, Callable[[Streams, Streams], Streams]] = {
    "map": lambda a, b: a.connect(b).map(CoMap()),
    "flat_map": lambda a, b: a.connect(b).flat_map(CoFlatMap()),
    "process": lambda a, b: a.connect(b).process(CoProcess()),
    "keyed map": lambda a, b: a.connect(b).key_by(part, derived_key).map(CoMap()),
    "keyed flat_map": lambda a, b: a.key_by(derived_key).connect(b.key_by(part)).flat_map(CoFlatMap()),
    "keyed process": lambda a, b: a.key_by(part).connect(b.key_by(part)).process(KeyedCoProcess()),
    "broadcast": lambda a, b: a.connect(b.broadcast(RULES)).process(Broadcast()),
    "keyed broadcast": lambda a, b: a.key_by(part).connect(b.broadcast(RULES)).process(KeyedBroadcast()),
    "keyed broadcast by a derived key": lambda a, b: (
        a.key_by(derived_key).connect(b.broadcast(RULES)).process(KeyedBroadcast())
    ),
}
JOINS: dict[str, Callable[[Streams, Streams], Streams]] = {
    "join": lambda a, b: (
        a.join(b)
        .where(part)
        .equal_to(part)
        .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .apply(lambda left, right: (left, right))
    ),
    "co_group": lambda a, b: (
        a.co_group(b)
        .where(derived_key)
        .equal_to(derived_key)
        .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .apply(lambda lefts, rights: [(left, right) for left in lefts for right in rights])
    ),
}


def results(
    operation: Callable[[Streams, Streams], Streams], batch: bool, stamped: tuple[bool, bool], size: int
) -> list[Any]:
    env, sink = StreamExecutionEnvironment.get_execution_environment(), CollectSink()
    env.set_parallelism(2)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH if batch else RuntimeExecutionMode.STREAMING)
    by_second = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: v[1])
    streams = [env.from_collection(elements) for elements in (LEFT, RIGHT)]
    left, right = (
        s.assign_timestamps_and_watermarks(by_second) if has else s for s, has in zip(streams, stamped, strict=True)
    )
    operation(left, right).sink_to(sink)
    LocalJob(env, epoch_sizes=lambda: size).run()
    return sorted(sink.results())


@pytest.mark.parametrize("stamped", list(product((False, True), repeat=2)))
@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_two_input_operator_processes_every_record_once(name: str, batch: bool, stamped: tuple[bool, bool]) -> None:
    def expected_record(side: str, value: Any, has_timestamp: bool) -> Any:
        return (side, value) if "map" in name else (side, value, value[1] if has_timestamp else MIN_WATERMARK)

    copies = 2 if "broadcast" in name else 1
    right = [expected_record("right", v, stamped[1]) for v in RIGHT] * copies
    expected = sorted([expected_record("left", v, stamped[0]) for v in LEFT] + right)
    for size in (1, 2, 100):
        assert results(OPERATIONS[name], batch, stamped, size) == expected


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("name", JOINS)
def test_two_input_joins_in_both_modes(name: str, batch: bool) -> None:
    # The timestamps are declared monotonous but are not: streaming results are right in a single epoch only.
    for size in (1, 100) if batch else (100,):
        pairs = results(JOINS[name], batch, (True, True), size)
        assert pairs == [(("a", 2), ("a", 5)), (("a", 3), ("a", 5))]
