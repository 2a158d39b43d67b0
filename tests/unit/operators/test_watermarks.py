"""Watermarks by split and at ingestion, and isolation of values between state and stream."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common import IngestionTimeAssigner, Watermark, WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.base import Source, SourceReader, SplitAssignment, SplitEnumerator
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.testing import CollectSink, LocalJob

Env = StreamExecutionEnvironment


class TwoSplits(Source, SplitEnumerator, SourceReader):
    """Assigns (split, timestamps) in the order of a script, one per epoch."""

    def __init__(self, script: list[tuple[str, list[int]]]) -> None:
        self.script = list(script)

    @property
    def is_bounded(self) -> bool:
        return True

    def create_enumerator(self, parallelism: int, restored: object = None) -> SplitEnumerator:
        return TwoSplits(self.script)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return TwoSplits([])

    def poll(self, budget: int, now: float) -> SplitAssignment:
        return SplitAssignment({0: [self.script.pop(0)]}, limited=True)

    def is_finished(self) -> bool:
        return not self.script

    def snapshot(self) -> list[tuple[str, list[int]]]:
        return list(self.script)

    def read(self, split_range: tuple[str, list[int]]) -> Iterator[list[int]]:
        yield split_range[1]

    def split_of(self, split_range: tuple[str, list[int]]) -> str:
        return split_range[0]


def test_watermark_follows_the_slowest_split(env1: Env) -> None:
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
    # The window ending at 10 fires only when split b reaches 12, however far split a is ahead.
    assert seen == [[], [], [], [3], [3], [3, 12], [3, 12, 101, 60, 70]]


class Marking(WatermarkGenerator):
    """Emits a watermark at every record; a record None marks its split as idle."""

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        if event is None:
            output.mark_idle()
        else:
            output.emit_watermark(Watermark(event_timestamp))

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


shares = st.lists(
    st.tuples(st.sampled_from("xyz"), st.lists(st.one_of(st.none(), st.integers(0, 80)), min_size=1, max_size=5)),
    min_size=1,
    max_size=12,
)


def brute_force(script: list[tuple[str, list[int | None]]], size: int) -> list[Any]:
    """The watermark is the minimum over all active splits so far, and never decreases."""
    windows: dict[int, list[int]] = {}
    splits: dict[str, int | None] = {}
    reached: dict[str, int] = {}
    now = -1
    for split, records in script:
        splits.setdefault(split, -1)
        for record in records:
            if record is None:
                splits[split] = None
            else:
                if record // size * size + size - 1 > now:
                    windows.setdefault(record // size * size, []).append(record)
                reached[split] = splits[split] = max(record, reached.get(split, -1))
            active = [w for w in splits.values() if w is not None]
            now = max(now, min(active)) if active else now
    return sorted((start, sorted(records)) for start, records in windows.items())


@settings(max_examples=60, deadline=None)
@given(shares, st.integers(1, 20), st.sampled_from([1, 2, 5]), st.integers(0, 99))
def test_watermark_ignores_idle_splits(script: list[Any], size: int, parallelism: int, seed: int) -> None:
    dice = random.Random(seed)
    env = Env.get_execution_environment().set_parallelism(parallelism)
    sink = CollectSink()
    strategy = WatermarkStrategy.for_generator(Marking).with_timestamp_assigner(lambda t, _: -1 if t is None else t)
    source = env.from_source(TwoSplits(script), strategy).set_parallelism(1)
    records = source.filter(lambda t: t is not None).set_parallelism(1)

    class Show:
        def process(self, key: int, context: Any, elements: Any) -> Iterator[Any]:
            yield context.window().start, sorted(elements)

    records.key_by(lambda t: 0).window(TumblingEventTimeWindows.of(size)).process(Show()).sink_to(sink)  # type: ignore[arg-type]
    job = LocalJob(env)
    while not job.is_finished:
        job.run_epoch()
        if dice.random() < 0.4:
            job.restart_slots()
    assert sorted(sink.results()) == brute_force(script, size)


def test_watermark_of_ingestion_time(env1: Env) -> None:
    sink = CollectSink()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(IngestionTimeAssigner())

    class Stamp(KeyedProcessFunction):
        def process_element(self, value: int, ctx: Any) -> Iterator[int]:
            yield ctx.timestamp()

    env1.from_collection([1]).assign_timestamps_and_watermarks(strategy).key_by(lambda v: v).process(Stamp()).sink_to(
        sink
    )
    LocalJob(env1).run()
    assert abs(sink.results()[0] - time.time() * 1000) < 60_000


def test_reduce_state_is_isolated_from_downstream_mutation(env1: Env) -> None:
    sink = CollectSink()

    def mutate(value: dict[str, int]) -> dict[str, int]:
        value["n"] += 100
        return value

    counts = env1.from_collection([{"n": 1}] * 3).key_by(lambda v: 0).reduce(lambda a, b: {"n": a["n"] + b["n"]})
    counts.map(mutate).sink_to(sink)
    LocalJob(env1).run()
    assert sink.results() == [{"n": 101}, {"n": 102}, {"n": 103}]
