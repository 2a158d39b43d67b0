"""Diagnosis of windows that have not fired: a running job for each reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient

from millstream.common import Duration, Time, WatermarkStrategy
from millstream.common.configuration import Configuration
from millstream.common.errors import JobExecutionError
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.datastream import DataStream, KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.operators.source import Source, SourceReader, SplitAssignment, SplitEnumerator
from millstream.service import diagnosis
from millstream.service.app import Service, make_app
from millstream.service.registry import Registry
from tests.support.helpers import job_of

Numbers = DataStream[int]


class Stamp(TimestampAssigner):
    """Extracts a record's timestamp with a function."""

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


class Splits(Source[tuple[str, int]]):
    """Splits with some times each; after them the source stays idle without ending."""

    def __init__(self, **times: list[int]) -> None:
        self._times = times

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return _Dealer(self._times, parallelism)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _Reader()


class _Dealer(SplitEnumerator):
    def __init__(self, times: dict[str, list[int]], parallelism: int) -> None:
        self._shares: dict[int, list[Any]] = {}
        for number, split in enumerate(times.items()):
            self._shares.setdefault(number % parallelism, []).append(split)

    def poll(self, budget: int, now: float) -> SplitAssignment:
        split_ranges, self._shares = self._shares, {}
        return SplitAssignment(split_ranges)

    def snapshot(self) -> Any:
        return None


class _Reader(SourceReader):
    def read(self, split_range: Any) -> Iterator[list[tuple[str, int]]]:
        split, times = split_range
        yield [(split, time) for time in times]

    def split_of(self, split_range: Any) -> Any:
        return split_range[0]


class OfPair(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class TimerFunction(KeyedProcessFunction[Any, Any, Any]):
    """Waits for an event-time timer."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(7_000)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        return []


def ordered(strategy: WatermarkStrategy | None = None) -> WatermarkStrategy:
    return (strategy or WatermarkStrategy.for_monotonous_timestamps()).with_timestamp_assigner(OfPair())


def windowed(stream: DataStream[Any]) -> DataStream[Any]:
    windows = stream.key_by(lambda v: v[0]).window(TumblingEventTimeWindows.of(Time.seconds(1)))
    return windows.reduce(lambda a, b: b)


def splits(env: StreamExecutionEnvironment, strategy: WatermarkStrategy, name: str, **times: list[int]) -> Any:
    return env.from_source(Splits(**times), strategy, name)


Program = Callable[[StreamExecutionEnvironment], DataStream[Any]]

# The parallelism and the program; the expected kind, and parts of the title and text.
REASONS: dict[str, tuple[int, Program, str, list[str]]] = {
    "a split that is behind the others": (
        1,
        lambda env: windowed(splits(env, ordered(), "orders", a=[1_000, 100_000], b=[1_000, 2_500])),
        "event time",
        [
            "Split 'b' of Source: orders delays event time",
            "Split 'b' (subtask 0 of 1) is at 1970-01-01 00:00:02.499, ",
            "; others are 98 s ahead. Its last record arrived 0 s ago; it is not idle.",
            "Downstream 2 windows wait, the first for 1970-01-01 00:00:02.999.",
        ],
    ),
    "a split that has nothing": (
        1,
        lambda env: windowed(splits(env, ordered(), "orders", a=[1_000, 100_000], b=[])),
        "event time",
        [
            "Event time does not advance after Source: orders",
            "Split 'b' (subtask 0 of 1) has read no record; it is not idle. Use with_idleness(...)",
            "Downstream 2 windows wait, the first for 1970-01-01 00:00:01.999.",
        ],
    ),
    "more subtasks than splits": (
        3,
        lambda env: windowed(splits(env, ordered(), "orders", a=[1_000], b=[1_000])),
        "event time",
        ["Source: orders has 3 subtasks and 2 splits: subtask 2 has no split to read, and event time waits for it."],
    ),
    "an input that is behind the other": (
        1,
        lambda env: windowed(
            splits(env, ordered(), "orders", a=[1_000, 90_000]).union(splits(env, ordered(), "prices", p=[1_000]))
        ),
        "event time",
        [
            "Split 'p' of Source: prices delays event time",
            "others are 89 s ahead",
            "Downstream (input 2 of TumblingEventTimeWindows",
        ],
    ),
    "timers behind no watermarks": (
        1,
        lambda env: (
            env.from_source(Splits(a=[1, 2]), WatermarkStrategy.no_watermarks(), "orders")
            .key_by(lambda v: v[1])
            .process(TimerFunction())
        ),
        "event time",
        ["Source: orders", "WatermarkStrategy", "2 timers wait, the first for 1970-01-01 00:00:07.000."],
    ),
    "no timestamps assigned": (
        1,
        lambda env: (
            env.from_source(NumberSequenceSource(1, 10**9).at_most(50), source_name="numbers")
            .key_by(lambda x: 0)
            .process(TimerFunction())
        ),
        "event time",
        [
            "has no event time",
            "Source: numbers (made at test_window_diagnosis.py:",
            "Downstream 1 timer waits, the first for 1970-01-01 00:00:07.000.",
        ],
    ),
    "watermarks that are not made": (
        1,
        lambda env: windowed(splits(env, ordered(WatermarkStrategy.no_watermarks()), "orders", a=[1_000])),
        "event time",
        ["Source: orders emits no watermarks", "is no_watermarks(): use for_bounded_out_of_orderness(...)"],
    ),
    "records that come too late": (
        1,
        lambda env: windowed(
            stamped(
                env.from_source(NumberSequenceSource(1, 10**9), WatermarkStrategy.no_watermarks(), "n").map(slowly),
                lambda x: 100_000 + x if x % 3 else 0,
            ).map(lambda x: (0, x))
        ),
        "late records",
        [
            "records were late for their windows and were dropped (made at test_window_diagnosis.py:",
            "Latest: (0, ",
            ") at 0, watermark 10",
        ],
    ),
}


def environment(parallelism: int) -> StreamExecutionEnvironment:
    settings = {"millstream.engine": "local", "millstream.quiet": "true", "parallelism.default": str(parallelism)}
    return StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))


@contextmanager
def running(env: StreamExecutionEnvironment, name: str) -> Iterator[tuple[TestClient, str]]:
    job = env.execute_async(name)
    registry = Registry()
    registry.add(job_of(job), {})
    try:
        yield TestClient(make_app(Service(registry))), str(job.get_job_id())
    finally:
        job.cancel().result()


@pytest.mark.parametrize("reason", REASONS)
def test_diagnosis_explains_why_window_has_not_fired(reason: str) -> None:
    parallelism, build, kind, texts = REASONS[reason]
    env = environment(parallelism)
    build(env).add_sink(lambda v: None)
    with running(env, reason) as (client, job):
        explanation = _wait_for_explanation(client, job, kind, texts)
    for text in texts:
        assert text in _shown(explanation), explanation


def test_diagnosis_names_split_with_stalled_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "_MAX_STALL_MS", 100)
    env = environment(1)
    windowed(splits(env, ordered(), "orders", a=[1_000, 1_500])).add_sink(lambda v: None)
    with running(env, "stalled") as (client, job):
        explanation = _wait_for_explanation(client, job, "event time")
    assert explanation["level"] == "high" and "unchanged for 0 s" in explanation["text"]
    assert "A window fires when a record arrives with a timestamp after its end." in explanation["text"]
    assert explanation["about"]["waiting"] == {"windows": 1} and explanation["about"]["earliest"] == 1_999
    assert (explanation["about"]["split"], explanation["about"]["watermark"], explanation["about"]["idle"]) == (
        "a",
        1_499,
        False,
    )


def test_diagnosis_ignores_idle_split() -> None:
    env = environment(1)
    strategy = ordered().with_idleness(Duration.of_millis(50))
    stream = splits(env, strategy, "orders", a=[1_000], b=[])
    windowed(stream).add_sink(lambda v: None)
    with running(env, "idle") as (client, job):
        vertex = client.get(f"/jobs/{job}").json()["vertices"][0]["id"]
        end = time.monotonic() + 20
        while True:
            (seen,) = client.get(f"/jobs/{job}/vertices/{vertex}/diagnostics").json()["subtasks"]
            marks = {m["name"]: m for m in seen["splits"]}
            if marks.get("b", {}).get("idle"):
                break
            assert time.monotonic() < end, seen
            time.sleep(0.02)
    assert seen["split-count"] == 2


def test_event_time_window_rejects_records_without_timestamp() -> None:
    env = environment(1)
    numbers = env.from_collection([1])
    numbers.key_by(lambda x: x).window(TumblingEventTimeWindows.of(Time.seconds(1))).reduce(lambda a, b: a).print()
    with pytest.raises(JobExecutionError, match="this one has none: did you forget to call 'data_stream.assign_timest"):
        env.execute()


def test_diagnosis_names_hot_key_and_state_per_subtask() -> None:
    env = environment(2)
    numbers = env.from_source(NumberSequenceSource(1, 10**9), WatermarkStrategy.no_watermarks(), "numbers")
    numbers.key_by(lambda x: "hot" if x % 10 else str(x)).reduce(lambda a, b: b).name("last").add_sink(lambda v: None)
    with running(env, "hot") as (client, job):
        explanation = _wait_for_explanation(client, job, "skew")
        end = time.monotonic() + 20
        while not explanation["about"]["keys"]:
            assert time.monotonic() < end
            explanation = _wait_for_explanation(client, job, "skew")
        vertices = client.get(f"/jobs/{job}").json()["vertices"]
        seen = client.get(f"/jobs/{job}/vertices/{vertices[1]['id']}/diagnostics").json()["subtasks"]
    assert explanation["about"]["keys"][0]["key"] == "'hot'" and explanation["about"]["keys"][0]["share"] > 0.8
    assert "hot key 'hot' with 9" in explanation["text"]
    subtask = seen[explanation["about"]["subtask"]]
    assert subtask["hottest-keys"][0]["key"] == "'hot'"
    assert subtask["records-in"] > 2 * seen[1 - explanation["about"]["subtask"]]["records-in"]
    assert subtask["state-rows"] > 100 and subtask["state-bytes"] > 10 * subtask["state-rows"] // 2


def _wait_for_explanation(client: TestClient, job: str, kind: str, texts: Sequence[str] = ()) -> dict[str, Any]:
    """Return an explanation with all texts, or the last one: examples of records are reported after their number."""
    end = time.monotonic() + 20
    while True:
        results: list[dict[str, Any]] = client.get(f"/jobs/{job}/explanations").json()["explanations"]
        matching = [e for e in results if e["kind"] == kind]
        is_late = time.monotonic() > end
        if matching and (is_late or all(text in _shown(matching[0]) for text in texts)):
            return matching[0]
        assert not is_late, results
        time.sleep(0.05)


def _shown(explanation: dict[str, Any]) -> str:
    return f"{explanation['title']}\n{explanation['text']}"
