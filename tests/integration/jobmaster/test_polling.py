"""The poll intervals of sources, and sources that wake the job instead."""

from __future__ import annotations

import itertools
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millstream.datastream.connectors.base import Source, SourceReader, SplitAssignment, SplitEnumerator
from millstream.datastream.connectors.hybrid_source import HybridSource
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.jobmaster.machine.flow import MAX_POLL_WAIT, MIN_POLL_WAIT, PollBackoff
from millstream.testing import CollectSink, LocalEnvironment


def asked_times(until: float, answer: float = 0.0) -> list[float]:
    """Return the times at which a source without input is polled, if each poll takes `answer` seconds."""
    back_off, now, times = PollBackoff(), 0.0, []
    while now < until:
        times.append(now)
        now = back_off.next(now, now + answer)
    return times


def test_poll_backoff_grows_while_source_is_idle() -> None:
    times = asked_times(60.0)
    gaps = [round(b - a, 6) for a, b in itertools.pairwise(times)]
    assert gaps[0] == pytest.approx(MIN_POLL_WAIT) and gaps == sorted(gaps) and gaps[-1] == pytest.approx(MAX_POLL_WAIT)
    # Input after an idle time waits for a small part of it.
    assert all(gap <= max(time / 10, MIN_POLL_WAIT) + 1e-9 for time, gap in zip(times[1:], gaps[1:], strict=False))
    assert sum(time >= 50 for time in times) <= 101


def test_poll_backoff_grows_with_poll_duration() -> None:
    times = asked_times(0.1, answer=0.002)
    assert times[1] == pytest.approx(0.022)


def test_poll_backoff_resets_after_input() -> None:
    back_off = PollBackoff()
    back_off.next(0.0, 0.0)
    assert back_off.next(50.0, 50.0) == pytest.approx(50.0 + MAX_POLL_WAIT)
    back_off.reset()
    assert back_off.next(51.0, 51.0) == pytest.approx(51.0 + MIN_POLL_WAIT)


# --- a source that wakes the job


class Letters(Source):
    """Buffers records that the test adds while the job runs; the job polls it only when it has input."""

    def __init__(self) -> None:
        self.pending: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.wake: Callable[[], None] | None = None
        self.has_ended = False
        self.n_polls = 0

    @property
    def is_bounded(self) -> bool:
        return False

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return _Letters(self)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _Reader()

    def __reduce__(self) -> Any:
        return Letters, ()

    def put(self, letter: str) -> None:
        self.pending.put(letter)
        assert self.wake is not None
        self.wake()


class _Letters(SplitEnumerator):
    def __init__(self, source: Letters) -> None:
        self._source = source

    def listen(self, wake: Callable[[], None]) -> None:
        self._source.wake = wake

    def poll(self, budget: int, now: float) -> SplitAssignment:
        self._source.n_polls += 1
        letters = [self._source.pending.get() for _ in range(self._source.pending.qsize())]
        return SplitAssignment({0: letters} if letters else {})

    def next_poll(self, now: float) -> float:
        return math.inf

    def is_finished(self) -> bool:
        return self._source.has_ended

    def snapshot(self) -> None:
        return None


class _Reader(SourceReader):
    def read(self, split_range: str) -> Iterator[list[str]]:
        yield [split_range]


@pytest.mark.parametrize("behind", [False, True])
def test_source_wakes_job_when_it_has_input(behind: bool) -> None:
    letters, sink = Letters(), CollectSink()
    source = HybridSource.builder(NumberSequenceSource(0, 0)).add_source(letters).build() if behind else letters
    env = LocalEnvironment()
    env.from_source(source).sink_to(sink)
    job = env.execute_async()

    def wait_for(count: int) -> None:
        deadline = time.monotonic() + 20
        while len(sink.results()) < count and time.monotonic() < deadline:
            time.sleep(0.001)

    first = [0] if behind else []
    while letters.wake is None or not letters.n_polls:
        time.sleep(0.001)
    wait_for(len(first))
    time.sleep(0.05)
    n_polls = letters.n_polls
    time.sleep(0.2)
    assert letters.n_polls == n_polls, "it was polled without a wake-up"
    for count, letter in enumerate("abc", 1):
        letters.put(letter)
        wait_for(len(first) + count)
    assert sink.results() == [*first, "a", "b", "c"]
    threads = [threading.Thread(target=lambda: [letters.put("x") for _ in range(500)]) for _ in range(2)]  # type: ignore[func-returns-value]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_for(len(first) + 1003)
    assert len(sink.results()) == len(first) + 1003
    letters.has_ended = True
    letters.put("end")
    job.get_job_execution_result().result()
