"""The upgraded job: it uses only names that all versions have.

    millstream run job.py RECORDS OUT

It is slow until the file OUT.go exists. When the file OUT.save exists, it stops with a savepoint and writes its path to
OUT.saved.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from millstream.common import Encoder, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSink
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.functions import AggregateFunction, KeyedProcessFunction, ReduceFunction
from millstream.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from millstream.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows

KEYS, TIMER_DELAY, WINDOW, BLOCK, PAUSE, GAP, END = 7, 250, 400, 100, 60, 30, 1 << 40


def time_of(i: int) -> int:
    """Return the event time of a number; a pause after each block of numbers ends the sessions."""
    return i + i // BLOCK * PAUSE


class Sum(ReduceFunction):
    """Adds."""

    def reduce(self, value1: int, value2: int) -> int:
        return value1 + value2


class Spread(AggregateFunction):
    """Smallest and largest."""

    def create_accumulator(self) -> Any:
        return (1 << 60, -1)

    def add(self, value: int, accumulator: Any) -> Any:
        return min(accumulator[0], value), max(accumulator[1], value)

    def get_result(self, accumulator: Any) -> int:
        return int(accumulator[1] - accumulator[0])

    def merge(self, a: Any, b: Any) -> Any:
        return min(a[0], b[0]), max(a[1], b[1])


class Kinds(KeyedProcessFunction):
    """Has one state of each kind, and emits their values when a timer fires."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.all = runtime_context.get_list_state(ListStateDescriptor("all", Types.LONG()))
        self.rests = runtime_context.get_map_state(MapStateDescriptor("rests", Types.STRING(), Types.LONG()))
        self.sum = runtime_context.get_reducing_state(ReducingStateDescriptor("sum", Sum(), Types.LONG()))
        self.spread = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("spread", Spread(), Types.PICKLED_BYTE_ARRAY())
        )

    def process_element(self, value: Any, ctx: Any) -> Iterator[str]:
        key, i = value
        self.count.update((self.count.value() or 0) + 1)
        self.all.add(i)
        rest = f"rest {i % 3}"
        self.rests.put(rest, (self.rests.get(rest) or 0) + 1)
        self.sum.add(i)
        self.spread.add(i)
        ctx.timer_service().register_event_time_timer(time_of(i) + TIMER_DELAY)
        # At the end of the input, this timer emits the final values of all states.
        ctx.timer_service().register_event_time_timer(END)
        yield f"seen,{key},{i}"

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[str]:
        key = ctx.get_current_key()
        if timestamp != END:
            yield f"timer,{key},{timestamp}"
            return
        rests = " ".join(f"{rest}: {n}" for rest, n in sorted(self.rests.items()))
        yield f"end,{key},{self.count.value()},{sum(self.all.get())},{rests},{self.sum.get()},{self.spread.get()}"


def main(records: int, out: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(200)

    def slowly(i: int) -> Any:
        if not os.path.exists(out + ".go"):
            time.sleep(0.005)
        return i % KEYS, i

    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda i, _: time_of(i))
    numbers = env.from_source(NumberSequenceSource(0, records - 1), times, "numbers").uid("numbers")
    pairs = numbers.map(slowly, Types.TUPLE([Types.LONG(), Types.LONG()])).uid("pairs").key_by(lambda p: p[0])
    kinds = pairs.process(Kinds(), Types.STRING()).uid("kinds")
    sums = pairs.window(TumblingEventTimeWindows.of(WINDOW)).reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sums")
    sessions = pairs.window(EventTimeSessionWindows.with_gap(GAP)).reduce(lambda a, b: (a[0], a[1] + b[1]))
    lines = kinds.union(
        sums.map(lambda p: f"window,{p[0]},{p[1]}", Types.STRING()).uid("sum lines"),
        sessions.uid("sessions").map(lambda p: f"session,{p[0]},{p[1]}", Types.STRING()).uid("session lines"),
    )
    lines.sink_to(FileSink.for_row_format(out, Encoder.simple_string_encoder()).build()).uid("files")
    job = env.execute_async("upgraded")
    result = job.get_job_execution_result()
    while not result.done():
        if os.path.exists(out + ".save"):
            location = job.stop_with_savepoint(False, out + "-savepoints").result()
            with open(out + ".saved", "w") as file:
                file.write(location)
            break
        time.sleep(0.05)
    result.result()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
