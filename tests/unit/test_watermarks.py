"""Watermarks: by split, at ingestion, and values that state and stream must not share."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from millstream.common import IngestionTimeAssigner, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.base import Dealt, Source, SourceReader, SplitEnumerator
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.testing import CollectSink, LocalJob

Env = StreamExecutionEnvironment


class TwoSplits(Source, SplitEnumerator, SourceReader):
    """Deals out (split, timestamps) in the order of a script, one an epoch."""

    def __init__(self, script: list[tuple[str, list[int]]]) -> None:
        self.script = list(script)

    @property
    def is_bounded(self) -> bool:
        return True

    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        return TwoSplits(self.script)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return TwoSplits([])

    def poll(self, budget: int, now: float) -> Dealt:
        return Dealt({0: [self.script.pop(0)]}, limited=True)

    def is_finished(self) -> bool:
        return not self.script

    def read(self, share: tuple[str, list[int]]) -> Iterator[list[int]]:
        yield share[1]

    def split_of(self, share: tuple[str, list[int]]) -> str:
        return share[0]


def test_the_slowest_split_decides(env1: Env) -> None:
    sink = CollectSink()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda t, _: t)
    script = [("a", [1]), ("b", [2]), ("a", [50]), ("b", [12]), ("a", [51]), ("b", [60]), ("a", [70])]
    source = env1.from_source(TwoSplits(script), strategy).set_parallelism(1)
    windows = source.key_by(lambda t: 0).window(TumblingEventTimeWindows.of(10))
    windows.reduce(lambda a, b: a + b).sink_to(sink)
    job, seen = LocalJob(env1), []
    while not job.is_finished:
        job.run_epoch()
        job.restart_slots()
        seen.append(sink.results())
    # Only when split b has come to 12 may the window up to 10 fire, however far a is ahead.
    assert seen == [[], [], [], [3], [3], [3, 12], [3, 12, 101, 60, 70]]


def test_ingestion_time(env1: Env) -> None:
    sink = CollectSink()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(IngestionTimeAssigner())

    class Stamp(KeyedProcessFunction):  # type: ignore[type-arg]
        def process_element(self, value: int, ctx: Any) -> Iterator[int]:
            yield ctx.timestamp()

    env1.from_collection([1]).assign_timestamps_and_watermarks(strategy).key_by(lambda v: v).process(Stamp()).sink_to(
        sink
    )
    LocalJob(env1).run()
    assert abs(sink.results()[0] - time.time() * 1000) < 60_000


def test_what_follows_a_reduce_cannot_change_its_state(env1: Env) -> None:
    sink = CollectSink()

    def spoil(value: dict[str, int]) -> dict[str, int]:
        value["n"] += 100
        return value

    counts = env1.from_collection([{"n": 1}] * 3).key_by(lambda v: 0).reduce(lambda a, b: {"n": a["n"] + b["n"]})
    counts.map(spoil).sink_to(sink)
    LocalJob(env1).run()
    assert sink.results() == [{"n": 101}, {"n": 102}, {"n": 103}]
