"""Random streams through windows, against a brute-force computation over the whole input.

Watermarks are emitted at every record, so results must not depend on epoch boundaries, parallelism or process restarts:
a record is late exactly if its window had ended before it arrived.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common import WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
)
from millstream.testing import CollectSink, LocalJob, per_element_watermarks

Event = tuple[str, int, int]  # key, timestamp, value

events = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-30, 120), st.integers(0, 9)), min_size=1, max_size=40)


def brute_force(stream: list[Event], windows_of: Callable[[int], list[tuple[int, int]]]) -> list[Any]:
    """Assign every record that is not late to its windows; a window fires once, when the watermark passes its end."""
    contents: dict[tuple[str, int, int], list[int]] = {}
    watermark = -(1 << 63)
    for key, timestamp, value in stream:
        for start, end in windows_of(timestamp):
            if end - 1 > watermark:
                contents.setdefault((key, start, end), []).append(value)
        watermark = max(watermark, timestamp)
    return sorted((k, s, e, v) for (k, s, e), v in contents.items())


def brute_force_sessions(stream: list[Event], gap: int) -> list[Any]:
    """Merge sessions record by record in arrival order; close those that the watermark has passed."""
    done: list[Any] = []
    watermark = -(1 << 63)
    open_sessions: dict[str, list[list[Any]]] = {}
    for key, timestamp, value in stream:
        mine = open_sessions.setdefault(key, [])
        touching = [s for s in mine if s[0] <= timestamp + gap and s[1] >= timestamp]
        start, end = min([timestamp, *(s[0] for s in touching)]), max([timestamp + gap, *(s[1] for s in touching)])
        if touching or end - 1 > watermark:
            values = [v for s in sorted(touching) for v in s[2]] + [value]
            mine[:] = [s for s in mine if s not in touching] + [[start, end, values]]
        watermark = max(watermark, timestamp)
        for k, sessions in open_sessions.items():
            done += [(k, *s) for s in sessions if s[1] - 1 <= watermark]
            sessions[:] = [s for s in sessions if s[1] - 1 > watermark]
    return sorted(done + [(k, *s) for k, sessions in open_sessions.items() for s in sessions])


def joined(a: Any, b: Any) -> Any:
    return a[0], a[1], a[2] + b[2]


def run(stream: list[Event], assigner: Any, parallelism: int, seed: int, with_reduce: bool = False) -> list[Any]:
    """Run the windows; with `as_they_come` the records are reduced, which uses another operator."""
    dice = random.Random(seed)
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    sink = CollectSink()
    source = env.from_collection(stream).set_parallelism(1)
    marked = source.assign_timestamps_and_watermarks(per_element_watermarks(lambda e, _: e[1])).set_parallelism(1)

    class Show:
        def process(self, key: str, context: Any, elements: Any) -> Any:
            window: TimeWindow = context.window()
            yield key, window.start, window.end, [e[2] for e in elements]

    class ShowOne:
        def process(self, key: str, context: Any, elements: Any) -> Any:
            window: TimeWindow = context.window()
            [(_, _, values)] = elements
            yield key, window.start, window.end, values

    if with_reduce:
        listed = marked.map(lambda e: (e[0], e[1], [e[2]])).set_parallelism(1)
        listed.key_by(lambda e: e[0]).window(assigner).reduce(joined, ShowOne()).sink_to(sink)  # type: ignore[call-overload]
    else:
        marked.key_by(lambda e: e[0]).window(assigner).process(Show()).sink_to(sink)  # type: ignore[arg-type]
    job = LocalJob(env, epoch_sizes=lambda: dice.randint(1, 10))
    while not job.is_finished:
        job.run_epoch()
        if dice.random() < 0.3:
            job.restart_slots()
    # The state and timers of fired windows are cleared.
    for table in ("_window_contents", "_event_timers", "_merging_windows", "_panes", "_sessions"):
        assert job.state_rows(table) == []
    return sorted(sink.results())


parallelisms = st.sampled_from([1, 2, 5])


@settings(max_examples=150, deadline=None)
@given(events, st.integers(1, 25), st.integers(0, 24), parallelisms, st.integers(0, 1000), st.booleans())
def test_tumbling_window_matches_oracle(
    stream: list[Event], size: int, offset: int, parallelism: int, seed: int, with_reduce: bool
) -> None:
    offset %= size

    def windows_of(t: int) -> list[tuple[int, int]]:
        start = (t - offset) // size * size + offset
        return [(start, start + size)]

    results = run(stream, TumblingEventTimeWindows.of(size, offset), parallelism, seed, with_reduce)
    assert results == brute_force(stream, windows_of)


@settings(max_examples=150, deadline=None)
@given(events, st.integers(1, 25), st.integers(1, 30), parallelisms, st.integers(0, 1000), st.booleans())
def test_sliding_window_matches_oracle(
    stream: list[Event], size: int, slide: int, parallelism: int, seed: int, with_reduce: bool
) -> None:
    def windows_of(t: int) -> list[tuple[int, int]]:
        return [(s, s + size) for s in range(t - size + 1, t + 1) if s % slide == 0]

    results = run(stream, SlidingEventTimeWindows.of(size, slide), parallelism, seed, with_reduce)
    assert results == brute_force(stream, windows_of)


@settings(max_examples=150, deadline=None)
@given(events, st.integers(1, 25), parallelisms, st.integers(0, 1000), st.booleans())
def test_session_window_matches_oracle(
    stream: list[Event], gap: int, parallelism: int, seed: int, with_reduce: bool
) -> None:
    results = run(stream, EventTimeSessionWindows.with_gap(gap), parallelism, seed, with_reduce)
    assert results == brute_force_sessions(stream, gap)


@pytest.mark.parametrize("bound", [0, 3])
def test_periodic_watermark_is_emitted_at_epoch_end(bound: int) -> None:
    """The epoch boundary affects only which records are late."""
    from millstream.common import Duration

    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(bound))
    stream = [("a", 5, 1), ("a", 25, 2), ("a", 6, 3)]
    for sizes, expected in (([3], [(0, 4), (20, 2)]), ([2, 1], [(0, 1), (20, 2)])):
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        sink = CollectSink()
        marked = env.from_collection(stream).assign_timestamps_and_watermarks(
            strategy.with_timestamp_assigner(lambda e, _: e[1])
        )

        class Sum:
            def process(self, key: str, context: Any, elements: Any) -> Any:
                yield context.window().start, sum(e[2] for e in elements)

        marked.key_by(lambda e: e[0]).window(TumblingEventTimeWindows.of(10)).process(Sum()).sink_to(sink)  # type: ignore[arg-type]
        left = iter(sizes)
        LocalJob(env, epoch_sizes=lambda left=left: next(left, 100)).run()  # type: ignore[misc]
        assert sink.results() == expected


@pytest.mark.parametrize("backend", ["hashmap", "lmdb"])
def test_session_windows_fire_in_time_order_across_keys(backend: str) -> None:
    """Also at the end of the input, where all windows fire at once."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1).get_configuration().set_string("state.backend.type", backend)
    sink = CollectSink()
    events = [("ann", 0), ("bob", 5), ("ann", 100), ("bob", 50), ("ann", 8), ("bob", 300), ("cid", 200)]
    stamped = env.from_collection(events).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])
    )
    windows = stamped.key_by(lambda e: e[0]).window(EventTimeSessionWindows.with_gap(10))
    windows.reduce(lambda a, b: (a[0], max(a[1], b[1]))).sink_to(sink)
    LocalJob(env).run()
    assert [t for _, t in sink.results()] == [5, 8, 50, 100, 200, 300]
