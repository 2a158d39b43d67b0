"""The job of the soak test: keyed state, timers and windows into a transactional sink, all of constant size.

python -m tests.soak.job <directory> <records> <records per second>
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from millstream.common import Configuration, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.sql import SqlSink
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import MapStateDescriptor, ValueStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows

KEYS, WINDOW, TIMER_DELAY = 500, 1000, 400
COLUMNS = ["kind", "number", "value"]


class Count(KeyedProcessFunction):
    """Counts a key's records, and stores each until its timer fires."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))
        self.pending = runtime_context.get_map_state(MapStateDescriptor("waiting"))

    def process_element(self, value: tuple[int, float], ctx: Any) -> Iterator[tuple[str, int, float]]:
        number, read_at = value
        n = (self.count.value() or 0) + 1
        self.count.update(n)
        self.pending.put(number, read_at)
        ctx.timer_service().register_event_time_timer(number + TIMER_DELAY)
        yield "count", number % KEYS, n
        if number % KEYS == 0:
            yield "latency", 0, time.time() - read_at

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[tuple[str, int, float]]:
        self.pending.remove(timestamp - TIMER_DELAY)
        yield "waiting", ctx.get_current_key(), len(list(self.pending.keys()))


def expected(records: int) -> dict[tuple[str, int], float]:
    """The results, computed by brute force: the count of each key, also in windows, and no pending record."""
    counts = {k: len(range(k, records, KEYS)) for k in range(min(KEYS, records))}
    facts: dict[tuple[str, int], float] = {("count", k): n for k, n in counts.items()}
    facts |= {("windowed", k): n for k, n in counts.items()}
    return facts | {("waiting", k): 0 for k in counts}


def stored_facts(directory: Path) -> dict[tuple[str, int], float]:
    """Return the sink's values, by kind and number."""
    database = sqlite3.connect(directory / "sink.db", timeout=30)
    rows = database.execute("SELECT kind, number, value FROM facts").fetchall()
    database.close()
    return {(kind, number): value for kind, number, value in rows}


def main(directory: Path, records: int, rate: int) -> None:
    settings = {
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "execution.checkpointing.interval": "500 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000000",
        "restart-strategy.fixed-delay.delay": "100 ms",
        "millstream.quiet": "true",
        "parallelism.default": "2",
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    path = str(directory / "sink.db")
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE facts (kind TEXT, number INTEGER, value REAL, PRIMARY KEY (kind, number))")
    database.close()
    sink = SqlSink(lambda: sqlite3.connect(path, timeout=30), "facts", COLUMNS, key_columns=["kind", "number"])
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: v)
    numbers = env.from_source(DataGeneratorSource(lambda i: i, records, rate), strategy).uid("numbers")
    counted = numbers.map(lambda v: (v, time.time())).key_by(lambda v: v[0] % KEYS).process(Count()).uid("count")
    window_counts = (
        numbers.map(lambda v: ("windowed", v % KEYS, 1))
        .key_by(lambda t: t[1])
        .window(TumblingEventTimeWindows.of(WINDOW))
        .reduce(lambda a, b: (*a[:2], a[2] + b[2]))
        .uid("windows")
    )
    windowed = window_counts.key_by(lambda t: t[1]).reduce(lambda a, b: (*a[:2], a[2] + b[2])).uid("windowed")
    counted.union(windowed).sink_to(sink).uid("sink")
    env.execute("soak")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
