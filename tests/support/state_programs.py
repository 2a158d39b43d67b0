"""A program with every kind of state, for tests that read checkpoints and savepoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millstream.common import Time, Types, WatermarkStrategy
from millstream.common.time import Duration
from millstream.datastream import KeyedProcessFunction, MapFunction, StreamExecutionEnvironment
from millstream.datastream.functions import KeyedBroadcastProcessFunction, ProcessWindowFunction
from millstream.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from millstream.testing import CollectSink

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())
COUNT = 60


# Keys of several types: numbers, texts, a tuple, and unhashable ones. Each of two subtasks has some, and each of three.
KEYS: list[Any] = [0, "1", (5, "x"), [3, 1], {"k": 4}, 3, "3"]


def key_of(i: int) -> Any:
    return KEYS[i % 7]


class Keep(KeyedProcessFunction):
    """Value, list, map and reducing state, one value that expires, and timers."""

    def open(self, runtime_context: Any) -> None:
        c = runtime_context
        self.total = c.get_state(ValueStateDescriptor("total", Types.INT()))
        self.seen = c.get_list_state(ListStateDescriptor("seen", Types.STRING()))
        self.by_rest = c.get_map_state(MapStateDescriptor("by rest", Types.INT(), Types.INT()))
        self.sum = c.get_reducing_state(ReducingStateDescriptor("sum", lambda a, b: a + b))
        descriptor = ValueStateDescriptor("recent", Types.INT())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
        self.recent = c.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.total.update((self.total.value() or 0) + value)
        self.seen.add(str(value))
        self.by_rest.put(value % 3, value)
        self.sum.add(value)
        self.recent.update(value)
        ctx.timer_service().register_event_time_timer(value + 1000)
        return iter(())

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        values = self.total.value(), self.seen.get(), dict(self.by_rest.items()), self.sum.get(), self.recent.value()
        yield "keep", ctx.get_current_key(), timestamp, values


class CountUp(MapFunction):
    """Operator list state: how many records each subtask has seen."""

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("seen here", Types.INT()))
        self.count = sum(self.state.get())

    def snapshot_state(self, context: Any) -> None:
        self.state.update([self.count])

    def map(self, value: Any) -> Any:
        self.count += 1
        return value


class Ruled(KeyedBroadcastProcessFunction):
    """Broadcast state."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield "ruled", value, dict(ctx.get_broadcast_state(RULES).items())

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.get_broadcast_state(RULES).put(*value)
        return iter(())


class Listed(ProcessWindowFunction):
    """All records of a window."""

    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        yield "general", key, context.window().start, sorted(elements)

    def clear(self, context: Any) -> None:
        pass


def build(parallelism: int = 2, keep_uid: str = "keep") -> tuple[StreamExecutionEnvironment, CollectSink]:
    """Return the program, and the sink of all its results."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    sink = CollectSink()
    marks = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(5)).with_timestamp_assigner(
        lambda value, _: value
    )
    numbers = env.from_collection(list(range(COUNT))).uid("numbers").map(CountUp()).uid("counter")
    keyed = numbers.assign_timestamps_and_watermarks(marks).uid("marks").key_by(key_of)
    keyed.process(Keep()).uid(keep_uid).sink_to(sink).uid("kept")
    tumbling = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(20)))
    tumbling.reduce(lambda a, b: a + b).uid("panes").sink_to(sink).uid("paned")
    sessions = keyed.window(EventTimeSessionWindows.with_gap(Time.milliseconds(9)))
    sessions.reduce(lambda a, b: a + b).uid("sessions").sink_to(sink).uid("sessioned")
    sliding = keyed.window(SlidingEventTimeWindows.of(Time.milliseconds(20), Time.milliseconds(10)))
    sliding.process(Listed()).uid("general").sink_to(sink).uid("listed")
    keyed.sum(0).sink_to(sink).uid("summed")
    rules = env.from_collection([("a", 1), ("b", 2)]).uid("rules-in").broadcast(RULES)
    keyed.connect(rules).process(Ruled()).uid("rules").sink_to(sink).uid("ruled")
    return env, sink
