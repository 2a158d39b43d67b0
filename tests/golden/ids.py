"""Ids of operators without a uid, one of each kind: python -m tests.golden.ids"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from millstream.cep import CEP, Pattern
from millstream.common import Time, Types, WatermarkStrategy
from millstream.datastream import AsyncDataStream, OutputTag
from millstream.datastream.functions import (
    AsyncFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    ProcessFunction,
    ProcessJoinFunction,
)
from millstream.datastream.state import MapStateDescriptor
from millstream.datastream.stream_execution_environment import builder_of
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.graph.stream_graph import build_stream_graph
from millstream.state.backend import Backend
from millstream.testing import CollectSink, LocalEnvironment

FILE = Path(__file__).parent / "v3" / "ids.json"


class _Process(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


class _CoMap(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return value

    map2 = map1


class _CoFlatMap(CoFlatMapFunction):
    def flat_map1(self, value: Any) -> Any:
        yield value

    flat_map2 = flat_map1


class _Join(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        yield left, right


class _Broadcast(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        yield value


class _Async(AsyncFunction):
    async def async_invoke(self, value: Any) -> Any:
        return [value]


def ids() -> list[list[str]]:
    """Return the kind and the id of each operator of a program that has all of them, none with a uid."""
    env, sink = LocalEnvironment(), CollectSink()
    numbers = env.from_collection([1, 2], type_info=Types.INT())
    events = numbers.map(lambda n: n).filter(bool).flat_map(lambda n: [n]).process(_Process())
    timed = events.assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps())
    keyed = timed.key_by(lambda n: n)
    late: OutputTag = OutputTag("late", Types.INT())
    windows = keyed.window(TumblingEventTimeWindows.of(Time.seconds(1))).side_output_late_data(late)
    sums = windows.reduce(lambda a, b: a + b)
    streams = [
        keyed.reduce(lambda a, b: a + b),
        sums,
        sums.get_side_output(late),
        keyed.interval_join(keyed).between(Time.seconds(-1), Time.seconds(1)).process(_Join()),
        timed.connect(events).map(_CoMap()),
        timed.connect(events).flat_map(_CoFlatMap()),
        timed.connect(events.broadcast(MapStateDescriptor("rules", Types.INT(), Types.INT()))).process(_Broadcast()),
        AsyncDataStream.unordered_wait(timed, _Async(), Time.seconds(1), 5),
        CEP.pattern(keyed, Pattern.begin("a")).select(lambda match: match),
        CEP.dynamic_patterns(keyed, env.from_collection([])),
    ]
    for stream in streams:
        stream.sink_to(sink)
    events.add_sink(lambda n: None)
    graph = build_stream_graph(builder_of(env).take_sinks(), 2, "ids", True, Backend("hashmap"))
    return [[node.operator.identity, node.operator_id] for node in graph.nodes]


def main() -> None:
    """Write the ids."""
    FILE.write_text(json.dumps(ids(), indent=1) + "\n")


if __name__ == "__main__":
    main()
