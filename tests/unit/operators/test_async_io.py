"""Async I/O across epochs: emitted results and snapshots, with a clock that only the test advances."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from millstream.common import Time, WatermarkStrategy
from millstream.common.time import Duration
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.datastream import (
    AsyncDataStream,
    DataStream,
    KeyedProcessFunction,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.async_retry_predicates import empty_result_predicate, has_exception_predicate
from millstream.datastream.async_retry_strategies import AsyncRetryStrategy
from millstream.datastream.functions import AsyncFunction, RuntimeContext
from millstream.datastream.state import ListStateDescriptor
from millstream.event_loop import Requests
from millstream.jobmaster import local
from millstream.operators.async_io import Fence, InFlight
from millstream.operators.diagnostics.failures import SubtaskFailed
from millstream.testing import CollectSink, LocalJob, ManualClock
from millstream.testing.sources import ScriptedInput, record, scripted_stream, watermark

# --- the queue without an operator


def out(queue: InFlight) -> list[Any]:
    return [one if isinstance(one, Fence) else one.value for one in queue.ready()]


def answered(queue: InFlight, *numbers: int) -> list[Any]:
    for number in numbers:
        entry = queue.input_of(number)
        assert entry is not None
        queue.complete(entry, [])
    return out(queue)


def queue_of(ordered: bool, *items: Any) -> InFlight:
    """Return a queue of numbers; strings are fences, with their watermarks."""
    queue = InFlight(ordered)
    for item in items:
        if isinstance(item, int):
            queue.add(item, item, None)
        else:
            queue.fence(None if item == "idle" else int(item))
    return queue


def test_async_queue_ordered_holds_back_later_results() -> None:
    queue = queue_of(True, 1, 2, 3)
    assert answered(queue, 3, 2) == [] and len(queue) == 3
    assert answered(queue, 1) == [1, 2, 3] and len(queue) == 0


def test_async_queue_unordered_emits_results_on_completion() -> None:
    queue = queue_of(False, 1, 2, 3)
    assert answered(queue, 3) == [3] and answered(queue, 1, 2) == [1, 2]


@pytest.mark.parametrize("ordered", [True, False])
def test_async_queue_results_do_not_overtake_a_watermark(ordered: bool) -> None:
    queue = queue_of(ordered, 1, 2, "10", 3, "20")
    assert answered(queue, 3) == []
    assert answered(queue, 1) == [1]
    assert answered(queue, 2) == [2, Fence(10, False), 3, Fence(20, False)]


def test_async_queue_merges_adjacent_watermarks_and_idleness() -> None:
    queue = queue_of(False, 1, "10", "20", "idle")
    assert queue.fences() == [(1, 20, True)]
    queue.fence(20)
    assert answered(queue, 1) == [1, Fence(20, False)]
    assert answered(queue_of(False, 1, "idle"), 1) == [1, Fence(None, True)]


@pytest.mark.parametrize("ordered", [True, False])
def test_async_queue_restores_from_its_snapshot(ordered: bool) -> None:
    queue = queue_of(ordered, 1, 2, "10", 3, 4, "20", "idle", 5)
    assert answered(queue, 1, 4) == [1]
    again = InFlight(ordered)
    again.restore([(v, v, t) for v, t in queue.inputs()], queue.fences())
    assert again.inputs() == [(2, None), (3, None), (4, None), (5, None)]
    expected = [2, Fence(10, False), 3, 4, Fence(20, True), 5]
    assert answered(again, 2, 3, 4, 5) == expected


# --- programs


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose time is that of a clock."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock

    def time(self) -> float:
        return self.clock() / 1000


class Stepped(Requests):
    """Async requests without a thread: each poll advances them as far as the clock allows."""

    all: list[Stepped] = []

    def __init__(self, capacity: int, clock: ManualClock) -> None:
        super().__init__(capacity)
        self._loop.close()
        self._loop = _Loop(clock)
        self.max_running = 0
        self.all.append(self)

    def start(self, requests: Any) -> None:
        self._take(requests)

    def answers(self) -> Any:
        for _ in range(20):
            self.max_running = max(self.max_running, len(self._running))
            self._loop.call_soon(self._loop.stop)
            self._loop.run_forever()
        return super().answers()

    def wait(self, seconds: float) -> bool:
        assert seconds < math.inf, "the clock does not advance meanwhile"
        return bool(self._answers)

    def cancel(self) -> None:
        self._drop()

    def stop(self) -> None:
        if self._loop.is_closed():
            return
        self._drop()
        for _ in range(5):
            self._loop.call_soon(self._loop.stop)
            self._loop.run_forever()


class MachineHarness(AsyncFunction):
    """Answers a record (name, seconds) after that many seconds of the test clock."""

    requested: list[str] = []
    cancelled: list[str] = []

    async def async_invoke(self, value: Any) -> list[Any]:
        name, seconds = value
        MachineHarness.requested.append(name)
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            MachineHarness.cancelled.append(name)
            raise
        return [name]


class Late(MachineHarness):
    def timeout(self, value: Any) -> list[Any]:
        return [f"{value[0]} late"]


class EmitWatermarks(ProcessFunction):
    """Emits a watermark whenever it advances."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last_watermark = MIN_WATERMARK

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        if ctx.timer_service().current_watermark() > self.last_watermark:
            self.last_watermark = ctx.timer_service().current_watermark()
            yield self.last_watermark
        yield value


Wait = Callable[[DataStream], DataStream]


def async_wait(function: Any = None, ordered: bool = True, capacity: int = 100, timeout: float = 1000) -> Wait:
    wait = AsyncDataStream.ordered_wait if ordered else AsyncDataStream.unordered_wait
    return lambda stream: wait(stream, function or MachineHarness(), Time.milliseconds(int(timeout * 1000)), capacity)


class Job:
    """A job whose epochs and clock the test controls."""

    def __init__(self, build: Wait, before: Job | None = None, parallelism: int = 1) -> None:
        self.clock = ManualClock() if before is None else before.clock  # type: ignore[has-type]
        self.input = ScriptedInput()
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(parallelism)
        self.sink = CollectSink()
        stream = build(scripted_stream(env, self.input, 1)).uid("wait")
        stream.process(EmitWatermarks()).uid("watermarks").sink_to(self.sink).uid("sink")
        if before is None:
            self.job = LocalJob(env, self.clock)
        else:
            self.job = LocalJob(env, self.clock, snapshot=before.job.snapshot(), storage=before.job.storage)
        self._seen = 0

    def epoch(self, *items: Any, seconds: float = 0, end: bool = False) -> list[Any]:
        """Advance the clock, run an epoch with records ("name", seconds) and watermarks, and return its output."""
        self.clock.advance(int(seconds * 1000))
        if items:
            self.input.put([watermark(i) if isinstance(i, int) else record(i, 0) for i in items])
        self.input.ended = self.input.ended or end
        self.job.run_epoch()
        results = self.sink.results()
        new, self._seen = results[self._seen :], len(results)
        return new


@pytest.fixture(autouse=True)
def stepped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    Stepped.all, MachineHarness.requested, MachineHarness.cancelled = [], [], []
    real = local.RuntimeServices  # type: ignore[attr-defined]

    def services(clock: Any, requests: Any, *others: Any) -> Any:
        return real(clock, lambda capacity: Stepped(capacity, clock), *others)

    monkeypatch.setattr(local, "RuntimeServices", services)
    yield
    for requests in Stepped.all:
        requests.stop()
        requests.close()


def test_async_wait_emits_results_in_a_later_epoch() -> None:
    job = Job(async_wait())
    assert job.epoch(("slow", 5), ("quick", 0)) == []
    assert job.job.has_requests and job.job.progress.epochs == 1
    assert job.epoch(("second", 1), seconds=1) == []
    assert job.epoch(seconds=4) == ["slow", "quick", "second"]
    assert not job.job.has_requests


def test_async_wait_unordered_emits_completed_results_first() -> None:
    job = Job(async_wait(ordered=False))
    assert job.epoch(("slow", 5), ("quick", 1)) == []
    assert job.epoch(("second", 0), seconds=1) == ["quick", "second"]
    assert job.epoch(seconds=4) == ["slow"]


@pytest.mark.parametrize("ordered", [True, False])
def test_async_wait_watermark_waits_for_earlier_results(ordered: bool) -> None:
    job = Job(async_wait(ordered=ordered))
    assert job.epoch(("a", 5), 10, ("b", 1), 20) == []
    assert job.epoch(("c", 0), seconds=2) == []
    # Records after a watermark see it; records before it do not.
    assert job.epoch(seconds=3) == ["a", 10, "b", 20, "c"]


def test_async_wait_watermark_passes_without_requests() -> None:
    job = Job(async_wait())
    assert job.epoch(("a", 0)) == ["a"]
    assert job.epoch(10, ("b", 0)) == [10, "b"]


def test_async_wait_capacity_limits_requests_and_pauses_sources() -> None:
    job = Job(async_wait(ordered=False, capacity=3))
    job.epoch(*[(f"r{i}", 1) for i in range(8)])
    # All sent records are accepted and pending; the source must not read meanwhile.
    assert len(MachineHarness.requested) == 3 and job.job.execution.backpressured_sources()
    job.input.put([record(("more", 0), 0)])
    assert set(job.epoch(seconds=1)) == {"r0", "r1", "r2"}
    assert job.job.execution.backpressured_sources() and not job.job.execution.readable_sources()
    assert set(job.epoch(seconds=1)) == {"r3", "r4", "r5"}
    assert not job.job.execution.backpressured_sources() and "more" not in MachineHarness.requested
    assert set(job.epoch(seconds=1)) == {"r6", "r7", "more"}
    assert max(r.max_running for r in Stepped.all) == 3


def test_async_wait_paused_source_retains_its_splits() -> None:
    job = Job(async_wait(capacity=1))
    job.epoch(("a", 1))
    execution = job.job.execution
    (source,) = execution.backpressured_sources()
    job.input.put([record(("b", 0), 0)])
    job.job.run_tasks(execution.tasks({source: {0: job.input.pending}}, frozenset(), slice=1.0))
    job.input.pending = []
    assert MachineHarness.requested == ["a"] and execution.sources_with_pending_input() == {source}
    assert job.epoch(seconds=1) == ["a"]
    assert job.epoch() == ["b"]


def chained(capacity: int, seconds: float = 0.0) -> LocalJob:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    numbers = env.from_collection(list(range(10)))
    wait = AsyncDataStream.unordered_wait(
        numbers.map(lambda x: (x, seconds)), MachineHarness(), Time.seconds(100), capacity
    )
    wait.sink_to(CollectSink())
    return LocalJob(env, ManualClock())


def test_async_wait_chained_source_returns_input_above_capacity() -> None:
    job = chained(4, 1.0)
    job.run_epoch()
    assert (
        MachineHarness.requested == [0, 1, 2, 3]  # type: ignore[comparison-overlap]
        and job.execution.sources_with_pending_input() == job.execution.backpressured_sources() != set()
    )
    job.run_epoch()
    assert MachineHarness.requested == [0, 1, 2, 3]  # type: ignore[comparison-overlap]
    assert isinstance(job._clock, ManualClock)
    for _ in range(2):
        job._clock.advance(1000)
        # Capacity becomes free, and the next epoch reads.
        job.run_epoch()
        job.run_epoch()
    assert MachineHarness.requested == list(range(10)) and job.execution.running_sources()  # type: ignore[comparison-overlap]
    job._clock.advance(1000)
    job.run_epoch()
    assert job.is_finished


def test_async_wait_job_runs_until_requests_complete() -> None:
    job = Job(async_wait())
    assert job.epoch(("a", 5), 10, ("b", 1), end=True) == []
    assert not job.job.is_finished and not job.job.execution.running_sources()
    assert job.epoch(seconds=1) == []
    assert job.epoch(seconds=4) == ["a", 10, "b"]
    assert job.job.is_finished


def test_async_wait_timeout_counts_from_the_request_across_epochs() -> None:
    job = Job(async_wait(Late(), timeout=3))
    job.epoch(("a", 10))
    assert job.epoch(("b", 10), seconds=1) == [] and job.epoch(seconds=1.5) == []
    assert job.epoch(seconds=0.5) == ["a late"]
    assert job.epoch(seconds=0.9) == [] and job.epoch(seconds=0.1) == ["b late"]
    assert MachineHarness.cancelled == ["a", "b"]


def test_async_wait_timeout_fails_the_job_with_the_record() -> None:
    job = Job(async_wait(timeout=3))
    job.epoch(("a", 10), ("b", 0))
    with pytest.raises(SubtaskFailed, match=r"timed out for input: \('a', 10\)[^$]*record: \('a', 10\)"):
        job.epoch(seconds=3)


class Refuses(MachineHarness):
    async def async_invoke(self, value: Any) -> list[Any]:
        if value[0] == "bad":
            await asyncio.sleep(1)
            raise ValueError("no such thing")
        return await super().async_invoke(value)


def test_async_wait_error_fails_the_job_with_operator_and_record() -> None:
    job = Job(async_wait(Refuses()))
    job.epoch(("first", 10), ("bad", 1))
    with pytest.raises(SubtaskFailed) as failed:
        # An unordered result does not wait.
        job.epoch(("more", 0), seconds=1)
    failure = failed.value.failure
    assert failure.operator == "Async Wait" and failure.record == "('bad', 1)" and failure.epoch == 2
    assert 'raise ValueError("no such thing")' in failure.user_traceback and "event_loop" not in failure.user_traceback


class Tries(AsyncFunction):
    """Returns no result, or fails, until the third attempt."""

    times: list[int] = []

    async def async_invoke(self, value: Any) -> list[Any]:
        Tries.times.append(round(asyncio.get_running_loop().time()))
        if len(Tries.times) == 1:
            raise ValueError("not yet")
        return [] if len(Tries.times) < 3 else [value[0]]


@pytest.mark.parametrize("timeout", [100, 7])
def test_async_wait_retries_continue_across_epochs_within_the_timeout(timeout: int) -> None:
    Tries.times = []
    delays = AsyncRetryStrategy.fixed_delay(5, 4000, empty_result_predicate, has_exception_predicate)
    job = Job(
        lambda stream: AsyncDataStream.ordered_wait_with_retry(stream, Tries(), Time.seconds(timeout), delays, 10)
    )
    assert job.epoch(("a", 0)) == [] and Tries.times == [0]
    assert job.epoch(seconds=3) == [] and job.epoch(seconds=1) == [] and Tries.times == [0, 4]
    if timeout == 7:
        with pytest.raises(SubtaskFailed, match="timed out"):
            job.epoch(seconds=4)
    else:
        assert job.epoch(seconds=4) == ["a"] and Tries.times == [0, 4, 8]


def test_async_wait_snapshot_is_isolated_from_record_mutation() -> None:
    class Changes(AsyncFunction):
        async def async_invoke(self, value: Any) -> list[Any]:
            value.append("changed")
            await asyncio.sleep(1)
            return [value]

    job = Job(async_wait(Changes()))
    job.epoch(["a"])
    again = Job(async_wait(Changes()), job)
    again.epoch()
    assert again.epoch(seconds=1) == [["a", "changed"]]


# --- snapshots


def test_async_wait_restore_repeats_requests_in_flight() -> None:
    job = Job(async_wait(Late(), timeout=5))
    assert job.epoch(("a", 4), ("b", 1), 10, ("c", 10), seconds=0) == []
    again = Job(async_wait(Late(), timeout=5), job)
    # Their timeouts restart, as in Flink, because they are new requests.
    assert again.epoch(seconds=100) == [] and MachineHarness.requested == ["a", "b", "c"] * 2
    assert again.epoch(seconds=4) == ["a", "b"]
    assert again.epoch(("d", 0), 20, ("e", 0), seconds=1) == [10, "c late", "d", 20, "e"]


def test_async_wait_restore_repeats_only_results_not_emitted() -> None:
    job = Job(async_wait())
    assert job.epoch(("a", 0), ("b", 5), ("c", 0)) == ["a"]
    again = Job(async_wait(), job)
    assert again.epoch() == [] and MachineHarness.requested == ["a", "b", "c", "b", "c"]
    assert again.epoch(seconds=5) == ["b", "c"]
    third = Job(async_wait(), again)
    assert third.epoch(seconds=50) == [] and len(MachineHarness.requested) == 5


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 3)])
@pytest.mark.parametrize("ordered", [True, False])
def test_async_wait_rescaling_redistributes_requests(before: int, after: int, ordered: bool) -> None:
    job = Job(async_wait(ordered=ordered), parallelism=before)
    names = [f"r{i}" for i in range(10)]
    job.epoch(*[(name, 5) for name in names], 10)
    again = Job(async_wait(ordered=ordered), job, parallelism=after)
    # The driver schedules an epoch although there is no input.
    assert again.job.has_requests
    again.epoch()
    assert sorted(MachineHarness.requested) == sorted(names * 2)
    # The watermark follows all results in every subtask.
    assert sorted(again.epoch(seconds=5), key=str) == names
    assert set(again.epoch(*[("z", 0)] * after)) == {10, "z"}
    assert not again.job.has_requests


def test_async_wait_rescaling_at_end_of_input() -> None:
    job = Job(async_wait(), parallelism=2)
    job.epoch(("a", 5), ("b", 5), ("c", 5), end=True)
    again = Job(async_wait(), job, parallelism=3)
    again.input.ended = True
    again.epoch()
    assert not again.job.is_finished
    assert sorted(again.epoch(seconds=5)) == ["a", "b", "c"]
    assert again.job.is_finished and again.job.execution.snapshot({}).vertices


def test_async_wait_chained_to_a_finished_source_completes_after_restore() -> None:
    def build(parallelism: int) -> tuple[StreamExecutionEnvironment, CollectSink]:
        env, sink = StreamExecutionEnvironment.get_execution_environment(), CollectSink()
        env.set_parallelism(parallelism)
        numbers = env.from_collection([("a", 5), ("b", 6)]).uid("source").set_parallelism(1)
        AsyncDataStream.ordered_wait(numbers, MachineHarness(), Time.seconds(100)).uid("wait").sink_to(sink).uid("sink")
        return env, sink

    clock, (env, _) = ManualClock(), build(2)
    job = LocalJob(env, clock)
    job.run_epoch()
    assert len(job.plan.vertices) == 2 and job.has_requests and not job.execution.running_sources()
    env, sink = build(1)
    again = LocalJob(env, clock, snapshot=job.snapshot(), storage=job.storage)
    again.run_epoch()
    assert len(again.plan.vertices) == 1 and not again.is_finished
    clock.advance(6000)
    again.run_epoch()
    assert sink.results() == ["a", "b"] and again.is_finished


def test_async_wait_slot_restart_cancels_requests() -> None:
    job = Job(async_wait())
    job.epoch(("a", 5))
    job.job.restart_slots()
    assert MachineHarness.cancelled == ["a"]
    assert job.epoch(seconds=4) == [] and job.epoch(seconds=5) == ["a"]


def test_async_wait_final_watermark_follows_results_after_rescaling() -> None:
    def build(parallelism: int) -> tuple[StreamExecutionEnvironment, CollectSink]:
        env, sink = StreamExecutionEnvironment.get_execution_environment(), CollectSink()
        env.set_parallelism(parallelism)
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: v[1])
        stamped = env.from_collection([("a", 5), ("b", 6)]).uid("source").assign_timestamps_and_watermarks(strategy)
        answers = AsyncDataStream.ordered_wait(stamped.uid("marks"), MachineHarness(), Time.seconds(100)).uid("wait")
        # An event-time window fires only with the final watermark.
        windows = answers.key_by(lambda _: 0).process(AtTheEnd()).uid("end")
        windows.sink_to(sink).uid("sink")
        return env, sink

    clock = ManualClock()
    env, sink = build(1)
    job = LocalJob(env, clock)
    job.run_epoch()
    assert job.has_requests
    for parallelism in (1, 2):
        clock = ManualClock()
        env, sink = build(parallelism)
        again = LocalJob(env, clock, snapshot=job.snapshot(), storage=job.storage)
        for _ in range(3):
            again.run_epoch()
        assert sink.results() == [] and not again.is_finished
        clock.advance(6000)
        again.run_epoch()
        assert sink.results() == [["a", "b"]] and again.is_finished


class AtTheEnd(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.all = runtime_context.get_list_state(ListStateDescriptor("all"))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.all.add(value)
        ctx.timer_service().register_event_time_timer(MAX_WATERMARK - 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield sorted(self.all.get())


@pytest.mark.parametrize("heads", [False, True])
def test_async_wait_idleness_waits_for_earlier_results(heads: bool) -> None:
    """One input becomes idle while its request is in flight: the watermark must not pass it before the result."""
    env, sink, clock = StreamExecutionEnvironment.get_execution_environment(), CollectSink(), ManualClock()
    env.set_parallelism(1)
    quiet, other = ScriptedInput(), ScriptedInput()
    silent = WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_seconds(1))
    stamped = scripted_stream(env, quiet, 1).assign_timestamps_and_watermarks(
        silent.with_timestamp_assigner(lambda v, _: int(v[1]))
    )
    # The first operator of a chain gets idleness from its channels.
    stream = stamped.rebalance() if heads else stamped
    answers = AsyncDataStream.ordered_wait(stream, MachineHarness(), Time.seconds(100))
    answers.union(scripted_stream(env, other, 2)).process(EmitWatermarks()).sink_to(sink)
    job = LocalJob(env, clock)
    quiet.put([record(("a", 5), 0)])
    job.run_epoch()
    other.put([watermark(500), record("x", 500)])
    clock.advance(2000)
    job.run_epoch()
    other.put([record("y", 500)])
    job.run_epoch()
    assert sink.results() == ["x", "y"]
    clock.advance(3000)
    job.run_epoch()
    other.put([record("z", 500)])
    job.run_epoch()
    assert sink.results() == ["x", "y", "a", 500, "z"]


def test_async_wait_is_exactly_once_for_random_epochs_and_restarts() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        build = async_wait(ordered=rng.random() < 0.5, capacity=rng.choice([1, 3, 100]))
        job, sent, got, stamp = Job(build, parallelism=rng.choice([1, 2])), 0, list[Any](), 0
        for _ in range(rng.randint(3, 12)):
            items: list[Any] = []
            for _ in range(rng.randint(0, 5)):
                stamp += 1
                items.append(stamp if rng.random() < 0.3 else (f"r{(sent := sent + 1)}", rng.choice([0, 1, 3, 8])))
            got += job.epoch(*items, seconds=rng.choice([0, 1, 2]))
            if rng.random() < 0.3:
                before, job = job, Job(build, job, parallelism=rng.choice([1, 2, 3]))
                job.input.pending = before.input.pending
        job.input.ended = True
        for _ in range(300):
            if job.job.is_finished:
                break
            got += job.epoch(seconds=1)
        assert job.job.is_finished, seed
        names = [x for x in got if not isinstance(x, int)]
        assert sorted(names) == sorted(f"r{i + 1}" for i in range(sent)), seed


def test_async_requests_close_their_event_loop_when_collected() -> None:
    requests = Requests(1)
    loop = asyncio.get_event_loop_policy().get_event_loop()
    assert not loop.is_closed()
    del requests
    assert loop.is_closed()
