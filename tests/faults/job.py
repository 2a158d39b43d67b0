"""The DataStream job of fault injection: offsets -> keyed state, timers, windows, patterns -> a transactional sink.

    python -m tests.faults.job <directory> [--fault SETTING] [--latest] [--set KEY=VALUE]

This command runs the job once, as a separate driver; `directory` holds its database and its checkpoints.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from millstream.cep import CEP, Pattern
from millstream.common import Configuration, WatermarkStrategy
from millstream.common.faults import SETTING
from millstream.datastream import DataStream, OutputTag, StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.sql import SqlSink
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows

RECORDS, KEYS, WINDOW, TIMER_DELAY = 2400, 11, 400, 250
# The records per second of the source.
RATE = "faults.rate"
# The maximum time between an opening and its closing value.
WITHIN = 100
# Records per subtask and epoch: about twenty epochs.
EPOCH = 60
NAME = "faults"

Fact = tuple[str, int, int]


class CountAndRemind(KeyedProcessFunction):
    """Counts the records of a key, and sets a timer for each."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: int, ctx: Any) -> Iterator[Fact]:
        n = (self.count.value() or 0) + 1
        self.count.update(n)
        ctx.timer_service().register_event_time_timer(value + TIMER_DELAY)
        yield "count", value % KEYS, n

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Fact]:
        yield "timer", ctx.get_current_key(), timestamp


def opens(value: int) -> bool:
    return value % 3 == 0


def closes(value: int) -> bool:
    return value % 13 == 0


OVERDUE = OutputTag("overdue")


def match_openings(values: DataStream) -> tuple[DataStream, DataStream]:
    """Return the values that were closed in time, and those that were not."""
    pattern = Pattern.begin("open").where(opens).followed_by("close").where(closes).within(WITHIN)
    matches = CEP.pattern(values.key_by(lambda v: v % KEYS), pattern).select(
        OVERDUE,
        lambda match, timestamp: ("overdue", match["open"][0], timestamp),
        lambda match: ("closed", match["open"][0], match["close"][0]),
    )
    return matches.uid("openings"), matches.get_side_output(OVERDUE)


def expected_match(value: int) -> Fact:
    """Return the expected result of an opening value, computed without an automaton."""
    later = range(value + KEYS, min(value + WITHIN, RECORDS), KEYS)
    closing = next(filter(closes, later), None)
    return ("overdue", value, value + WITHIN) if closing is None else ("closed", value, closing)


def expected() -> Counter[Fact]:
    """The results, computed by brute force."""
    values = range(RECORDS)
    facts = [("count", k, n) for k in range(KEYS) for n in range(1, len(range(k, RECORDS, KEYS)) + 1)]
    facts += [("timer", v % KEYS, v + TIMER_DELAY) for v in values]
    sums: Counter[tuple[int, int]] = Counter()
    for v in values:
        sums[v % KEYS, v // WINDOW] += v
    facts += [("window", k, total) for (k, _), total in sums.items()]
    facts += [expected_match(v) for v in values if opens(v)]
    return Counter(facts)


def results(directory: Path) -> Counter[Fact]:
    with sqlite3.connect(directory / "sink.db") as database:
        rows = database.execute("SELECT kind, number, value FROM facts").fetchall()
    database.close()
    return Counter(rows)


def staged_rows(directory: Path) -> int:
    """Return the number of rows that are still staged."""
    with sqlite3.connect(directory / "sink.db") as database:
        (count,) = database.execute("SELECT count(*) FROM facts__staged").fetchone()
    database.close()
    return int(count)


def make_database(directory: Path) -> None:
    with sqlite3.connect(directory / "sink.db") as database:
        database.execute("CREATE TABLE IF NOT EXISTS facts (kind TEXT, number INTEGER, value INTEGER)")
    database.close()


def environment(directory: Path, config: Configuration) -> StreamExecutionEnvironment:
    """Return an environment whose jobs take many checkpoints and restart at once."""
    settings = {
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.tolerable-failed-checkpoints": "3",
        "execution.buffer-timeout.interval": "0",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "20",
        "restart-strategy.fixed-delay.delay": "10 ms",
        "millstream.epoch.max-records": str(EPOCH),
        "millstream.quiet": "true",
        "millstream.exchange": os.environ.get("MILLSTREAM_TEST_EXCHANGE", "auto"),
        "parallelism.default": "2",
    }
    merged = Configuration.from_dict(settings)
    merged.add_all(config)
    return StreamExecutionEnvironment.get_execution_environment(merged)


def build(directory: Path, config: Configuration) -> StreamExecutionEnvironment:
    """Return an environment with the job."""
    env = environment(directory, config)
    make_database(directory)
    path = str(directory / "sink.db")
    sink = SqlSink(lambda: sqlite3.connect(path, timeout=30), "facts", ["kind", "number", "value"])
    rate = config.get_integer(RATE, 1200)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: v)
    values = env.from_source(DataGeneratorSource(lambda i: i, RECORDS, rate), strategy).uid("values")
    facts = values.key_by(lambda v: v % KEYS).process(CountAndRemind()).uid("count")
    pairs = values.map(lambda v: ("window", v % KEYS, v)).key_by(lambda t: t[1])
    sums = pairs.window(TumblingEventTimeWindows.of(WINDOW)).reduce(lambda a, b: (*a[:2], a[2] + b[2])).uid("sums")
    facts.union(sums, *match_openings(values)).sink_to(sink).uid("sink")
    return env


def main(build: Callable[[Path, Configuration], StreamExecutionEnvironment], about: str | None) -> None:
    """Run a job once, with the settings of the command line."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--fault")
    parser.add_argument("--latest", action="store_true")
    parser.add_argument("--master")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    config = Configuration.from_dict(dict(setting.split("=", 1) for setting in options.set))
    if options.fault:
        config.set_string(SETTING, options.fault)
    if options.master:
        config.set_string("spark.master", options.master)
    if options.latest:
        config.set_string("execution.state-recovery.path", "latest")
    build(options.directory, config).execute(NAME)


if __name__ == "__main__":
    main(build, __doc__)
