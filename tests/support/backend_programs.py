"""Windows that emit which operator runs them and which table holds its state, as seen from the slot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millstream.common import WatermarkStrategy
from millstream.datastream import AggregateFunction, DataStream, ProcessWindowFunction, StreamExecutionEnvironment
from millstream.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from millstream.state.backend import Backend

Env = StreamExecutionEnvironment


class Sum(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + int(value[1])

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return a + b


class EmitOperator(ProcessWindowFunction):
    """Emits the class of the operator in the slot, and of its state table."""

    def __init__(self, windows: str) -> None:
        self.windows = windows

    def process(self, key: str, context: Any, elements: Any) -> Iterator[tuple[str, str, str]]:
        operator = context._operator
        yield self.windows, type(operator).__name__, type(operator.contents.table.base).__name__


def windows(env: Env) -> list[DataStream]:
    """Return windows with specialized operators, and one without."""
    by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])
    events = env.from_collection([("a", 1), ("b", 2), ("a", 30)]).assign_timestamps_and_watermarks(by_time)
    keyed = events.key_by(lambda e: e[0])
    return [
        keyed.window(TumblingEventTimeWindows.of(10)).reduce(lambda a, b: a, EmitOperator("tumbling")),
        keyed.window(SlidingEventTimeWindows.of(10, 5)).aggregate(Sum(), EmitOperator("sliding")),
        keyed.window(EventTimeSessionWindows.with_gap(10)).reduce(lambda a, b: a, EmitOperator("sessions")),
        keyed.window(TumblingEventTimeWindows.of(10)).process(EmitOperator("all records")),
    ]


def running(backend: Backend) -> set[tuple[str, str, str]]:
    """Return the expected output of windows()."""
    if backend is Backend.LMDB:
        return {(w, "WindowOperator", "LmdbBase") for w in ("tumbling", "sliding", "sessions", "all records")}
    return {
        ("tumbling", "PaneOperator", "dict"),
        ("sliding", "PaneOperator", "dict"),
        ("sessions", "SessionOperator", "dict"),
        ("all records", "WindowOperator", "dict"),
    }
