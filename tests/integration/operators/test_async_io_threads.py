"""Async I/O with real threads and clocks: requests continue between epochs and end with their job."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from millstream.common import Time
from millstream.common.errors import JobCancelledError, JobExecutionError
from millstream.datastream import AsyncDataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from millstream.datastream.functions import AsyncFunction, RuntimeContext
from millstream.testing import CollectSink, LocalEnvironment, LocalJob, StreamHarness
from millstream.testing.sources import ScriptedInput, record, scripted_stream


def test_async_requests_continue_between_epochs_and_in_savepoint() -> None:
    requested = threading.Event()
    _Gate.requested, _Gate.open_ = requested, threading.Event()
    env, sink = StreamExecutionEnvironment.get_execution_environment(), CollectSink()
    env.set_parallelism(1)
    AsyncDataStream.ordered_wait(env.from_collection(["a"]), _Gate(), Time.seconds(100)).sink_to(sink)
    job = LocalJob(env)
    job.run_epoch()
    assert requested.wait(10)
    _Gate.open_.set()
    deadline = time.monotonic() + 10
    while not job.is_finished and time.monotonic() < deadline:
        job.run_epoch()
    assert sink.results() == ["a"]


class _Gate(AsyncFunction):
    requested: threading.Event
    open_: threading.Event

    async def async_invoke(self, value: Any) -> list[Any]:
        _Gate.requested.set()
        while not _Gate.open_.is_set():
            await asyncio.sleep(0.001)
        return [value]


class Sleeps(AsyncFunction):
    def __init__(self, seconds: Callable[[Any], float]) -> None:
        self.seconds = seconds

    async def async_invoke(self, value: Any) -> list[Any]:
        await asyncio.sleep(self.seconds(value))
        return [value]


def test_async_batch_job_completes_requests_in_epoch() -> None:
    env = LocalEnvironment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    numbers = env.from_collection(list(range(200))).key_by(lambda x: x % 3).reduce(lambda a, b: a + b)
    wait = AsyncDataStream.unordered_wait(numbers.rebalance(), Sleeps(lambda v: 0.05), Time.seconds(10), 2)
    assert sorted(wait.execute_and_collect()) == sorted(sum(range(k, 200, 3)) for k in range(3))


def test_async_epoch_without_in_flight_state_waits_for_requests() -> None:
    """With at-most-once, for example, requests in flight would be repeated."""
    env, sink = StreamExecutionEnvironment.get_execution_environment(), CollectSink()
    source = ScriptedInput()
    stream = scripted_stream(env.set_parallelism(1), source, 1)
    AsyncDataStream.ordered_wait(stream, Sleeps(lambda v: 0.05), Time.seconds(5)).sink_to(sink)
    job = LocalJob(env)
    source.put([record("a", 0)])
    job.run_tasks(job.execution.tasks({job.plan.vertices[0].id: {0: source.pending}}, frozenset()))
    assert sink.results() == ["a"] and not job.has_requests
    job.close()


def test_async_drain_reads_all_input_beyond_capacity() -> None:
    env, sink = StreamExecutionEnvironment.get_execution_environment(), CollectSink()
    numbers = env.set_parallelism(1).from_collection(list(range(5)))
    AsyncDataStream.ordered_wait(numbers, Sleeps(lambda v: 0.12), Time.seconds(5), 1).sink_to(sink)
    job = LocalJob(env)
    job.run_epoch()
    (source,) = job.execution.sources_with_pending_input()
    assert job.execution.backpressured_sources() == {source}
    job.run_tasks(job.execution.tasks({}, frozenset({source})))
    assert sink.results() == list(range(5)) and job.is_finished


def test_stream_harness_waits_for_async_requests() -> None:
    with StreamHarness(lambda s: AsyncDataStream.ordered_wait(s, Sleeps(lambda v: 0.02), Time.seconds(5))) as harness:
        harness.process_element("a", timestamp=7)
        assert harness.records() == [("a", 7)]


def test_async_cancel_cancels_requests_and_closes_functions_on_loop() -> None:
    _ClosingFunction.seen = []
    env = LocalEnvironment()
    stream = AsyncDataStream.ordered_wait(env.from_collection([1]), _ClosingFunction(), Time.seconds(100))
    stream.sink_to(CollectSink())
    client = env.execute_async("waits")
    deadline = time.monotonic() + 10
    while "requested" not in _ClosingFunction.seen and time.monotonic() < deadline:
        time.sleep(0.005)
    began = time.monotonic()
    client.cancel().result()
    with pytest.raises(JobCancelledError):
        client.get_job_execution_result().result()
    assert _ClosingFunction.seen == ["requested", "cancelled", "closed"] and time.monotonic() - began < 2


class _ClosingFunction(AsyncFunction):
    seen: list[str] = []

    def open(self, runtime_context: RuntimeContext) -> None:
        self.loop = asyncio.get_event_loop()

    async def async_invoke(self, value: Any) -> list[Any]:
        assert asyncio.get_running_loop() is self.loop
        _ClosingFunction.seen.append("requested")
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            _ClosingFunction.seen.append("cancelled")
            raise
        return []

    def close(self) -> None:
        self.loop.run_until_complete(asyncio.sleep(0))
        _ClosingFunction.seen.append("closed")


def test_async_request_that_exits_or_cancels_itself_fails_job() -> None:
    for error in (SystemExit(3), asyncio.CancelledError()):
        env = LocalEnvironment()
        stream = AsyncDataStream.ordered_wait(env.from_collection([1]), _Raises(error), Time.seconds(100))
        with pytest.raises(JobExecutionError, match=type(error).__name__):
            list(stream.execute_and_collect())


class _Raises(AsyncFunction):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def async_invoke(self, value: Any) -> list[Any]:
        raise self.error


def test_async_timeout_error_of_user_code_fails_job() -> None:
    env = LocalEnvironment()
    stream = AsyncDataStream.ordered_wait(env.from_collection([1]), _RaisesTimeout(), Time.seconds(100))
    with pytest.raises(JobExecutionError, match="mine"):
        list(stream.execute_and_collect())


class _RaisesTimeout(AsyncFunction):
    async def async_invoke(self, value: Any) -> list[Any]:
        raise TimeoutError("mine")

    def timeout(self, value: Any) -> list[Any]:
        return ["late"]
