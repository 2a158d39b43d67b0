"""In BATCH a keyed operator processes its inputs key by key in time order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millstream.common import WatermarkStrategy
from millstream.datastream import KeyedCoProcessFunction, RuntimeExecutionMode, StreamExecutionEnvironment
from millstream.testing import CollectSink
from millstream.testing.local_job import LocalJob

BY_TIME = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])
FIRST = [("a", 1), ("b", 2), ("a", 3), ("a", 4), ("a", 8)]
SECOND = [("a", 2), ("b", 1), ("a", 5), ("a", 6), ("a", 7)]


class LoggedInputs(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), 1, value[1], ctx.timestamp()

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), 2, value[1], ctx.timestamp()


def run(stamped: tuple[bool, bool], epoch: int) -> list[Any]:
    env, sink = StreamExecutionEnvironment.get_execution_environment(), CollectSink()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH).set_parallelism(1)
    streams = [env.from_collection(FIRST), env.from_collection(SECOND)]
    inputs = [
        (s.assign_timestamps_and_watermarks(BY_TIME) if timed else s).key_by(lambda e: e[0])
        for s, timed in zip(streams, stamped, strict=True)
    ]
    inputs[0].connect(inputs[1]).process(LoggedInputs()).sink_to(sink)
    job = LocalJob(env, epoch_sizes=lambda: epoch)
    while not job.is_finished:
        job.run_epoch()
        job.restart_slots()
    return sink.results()


@pytest.mark.parametrize("epoch", [2, 100])
def test_batch_keyed_operator_orders_two_inputs_by_time(epoch: int) -> None:
    rows = run((True, True), epoch)
    expected = [("a", n, t, t) for n, t in [(1, 1), (2, 2), (1, 3), (1, 4), (2, 5), (2, 6), (2, 7), (1, 8)]]
    assert [r for r in rows if r[0] == "a"] == expected
    assert [r for r in rows if r[0] == "b"] == [("b", 2, 1, 1), ("b", 1, 2, 2)]
    assert [r[0] for r in rows] in (["a"] * 8 + ["b"] * 2, ["b"] * 2 + ["a"] * 8)


def test_batch_keyed_operator_puts_records_without_timestamps_first() -> None:
    none = -(1 << 63)
    expected = [("a", 2, t, none) for t in (2, 5, 6, 7)] + [("a", 1, t, t) for t in (1, 3, 4, 8)]
    assert [r for r in run((True, False), 2) if r[0] == "a"] == expected
