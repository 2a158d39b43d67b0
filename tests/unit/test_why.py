"""Why has my window not fired? Each reason is told, of a job that runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from millstream.common import Duration, Time, WatermarkStrategy
from millstream.common.configuration import Configuration
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.service.app import Service, make_app
from millstream.service.registry import Registry

HALF = 5 * 10**8
Numbers = DataStream[int]


class Stamp(TimestampAssigner):
    """Takes a record's time from a function."""

    def __init__(self, function: Callable[[int], int]) -> None:
        self._function = function

    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return self._function(value)


def stamped(numbers: Numbers, function: Callable[[int], int]) -> Numbers:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(0))
    return numbers.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(Stamp(function)))


def slowly(x: int) -> int:
    time.sleep(0.001)
    return x


# What the job does with numbers of which subtask 0 has the lower half; what is told, and where.
CASES: list[tuple[str, int, Callable[[Numbers], Numbers], str, str]] = [
    (
        "a subtask that has nothing to read",
        2,
        lambda numbers: stamped(numbers.filter(lambda x: x < HALF), lambda x: x),
        "event time",
        "Subtask 1 of 2 has had no record: it has no split to read, or nothing comes. Windows behind it wait.",
    ),
    (
        "a subtask that is behind the others",
        2,
        lambda numbers: stamped(numbers, lambda x: x),
        "event time",
        "others are 500,0",
    ),
    (
        "records that come too late",
        1,
        lambda numbers: stamped(numbers, lambda x: 100_000 + x if x % 3 else 0),
        "late records",
        "records came when their windows were over already, and were dropped (made at test_why.py:",
    ),
]


@pytest.mark.parametrize(("reason", "parallelism", "make", "kind", "text"), CASES, ids=[c[0] for c in CASES])
def test_why(reason: str, parallelism: int, make: Callable[[Numbers], Numbers], kind: str, text: str) -> None:
    settings = {"millstream.engine": "local", "millstream.quiet": "true", "parallelism.default": str(parallelism)}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    source = NumberSequenceSource(1, 2 * HALF)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").map(slowly)
    windows = make(numbers).key_by(lambda x: x % 2).window(TumblingEventTimeWindows.of(Time.seconds(1)))
    windows.reduce(lambda a, b: a + b).add_sink(lambda v: None)
    job = env.execute_async(reason)
    registry = Registry()
    registry.add(job._job, settings)  # type: ignore[attr-defined]
    client = TestClient(make_app(Service(registry)))
    try:
        told = _until_told(client, str(job.get_job_id()), kind)
    finally:
        job.cancel().result()
    assert text in told["text"], told


def _until_told(client: TestClient, job: str, kind: str) -> dict[str, Any]:
    end = time.monotonic() + 20
    while True:
        found: list[dict[str, Any]] = client.get(f"/jobs/{job}/explanations").json()["explanations"]
        told = [e for e in found if e["kind"] == kind]
        if told:
            return told[0]
        assert time.monotonic() < end, found
        time.sleep(0.05)
