"""Checkpoints, restarts, savepoints, rescaling: on real Spark, with real failures."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.checkpoint.store import list_checkpoints, open_checkpoint
from millstream.common import Configuration, JobStatus, Types, WatermarkStrategy
from millstream.common.checkpointing_mode import CheckpointingMode
from millstream.common.errors import (
    DamagedStateError,
    InvalidProgramError,
    JobCancelledError,
    JobExecutionError,
    MillstreamError,
)
from millstream.common.faults import SETTING
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.functions import KeyedBroadcastProcessFunction, KeyedProcessFunction, MapFunction
from millstream.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.jobmaster.machine.parallelism_bounds import Bounds
from millstream.jobmaster.machine.requests import RequirementsRequest
from millstream.spark.session import stop_context
from millstream.testing import CollectSink
from tests.support.helpers import job_of, slot_processes, wait_until

Env = StreamExecutionEnvironment
pytestmark = pytest.mark.spark

KEYS = 7


class FailingOnce(KeyedProcessFunction):
    """Counts by key; fails once at a certain record, in one of several ways."""

    def __init__(self, marker: Path | None = None, trigger: int = -1, failure: str = "raise") -> None:
        self.marker, self.trigger, self.failure = str(marker), trigger, failure

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        n = (self.count.value() or 0) + 1
        self.count.update(n)
        if value == self.trigger and not os.path.exists(self.marker):
            Path(self.marker).touch()
            if self.failure == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("no luck")
        yield value % KEYS, n


def counted(count: int) -> list[tuple[int, int]]:
    return sorted((k, n) for k in range(KEYS) for n in range(1, len(range(k, count, KEYS)) + 1))


def checkpointed(config: Configuration, directory: Path, interval: int = 200, **settings: str) -> Env:
    config.set_string("execution.checkpointing.dir", str(directory))
    config.set_string("restart-strategy.type", "fixed-delay")
    config.set_string("restart-strategy.fixed-delay.delay", "10 ms")
    config.set_integer("restart-strategy.fixed-delay.attempts", 20)
    for key, value in settings.items():
        config.set_string(key.replace("__", "-").replace("_", "."), value)
    env = Env.get_execution_environment(config)
    env.enable_checkpointing(interval)
    return env


def counting(env: Env, sink: CollectSink, count: int, function: FailingOnce | None = None, rate: float = 2000) -> None:
    source = env.from_source(DataGeneratorSource(lambda i: i, count, rate)).uid("numbers")
    source.key_by(lambda v: v % KEYS).process(function or FailingOnce()).uid("count").sink_to(sink).uid("sink")


@pytest.mark.parametrize("failure", ["raise", "kill"])
def test_job_restores_last_checkpoint_after_failure(config: Configuration, tmp_path: Path, failure: str) -> None:
    env, sink = checkpointed(config, tmp_path / "checkpoints"), CollectSink()
    counting(env, sink, 4000, FailingOnce(tmp_path / "failed", 2500, failure))
    env.execute()
    assert (tmp_path / "failed").exists()
    assert sorted(sink.results()) == counted(4000)
    # A finished job leaves no files.
    assert os.listdir(tmp_path / "checkpoints") == []


class Everything(KeyedBroadcastProcessFunction):
    """Keyed state, event-time timers and broadcast state."""

    RULES = MapStateDescriptor("rules", Types.INT(), Types.INT())

    def __init__(self, marker: Path, trigger: int) -> None:
        self.marker, self.trigger = str(marker), trigger

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        if value == self.trigger and not os.path.exists(self.marker):
            Path(self.marker).touch()
            raise RuntimeError("no luck")
        self.seen.add(value)
        ctx.timer_service().register_event_time_timer(value + 5)
        yield "value", value

    def process_broadcast_element(self, value: int, ctx: Any) -> Iterator[Any]:
        ctx.get_broadcast_state(self.RULES).put(value, value)
        return iter(())

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield "timer", timestamp - 5, len(self.seen.get()), sorted(ctx.get_broadcast_state(self.RULES).keys())


class Buffering(MapFunction):
    """Counts in an attribute that is stored as operator state."""

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("kept"))
        self.count = sum(self.state.get())

    def snapshot_state(self, context: Any) -> None:
        self.state.update([self.count])

    def map(self, value: Any) -> Any:
        self.count += 1
        return self.count, value


def test_restore_covers_offsets_state_timers_and_watermarks(config: Configuration, tmp_path: Path) -> None:
    env, sink, total = checkpointed(config, tmp_path / "cp").set_parallelism(1), CollectSink(), 2000
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: v)
    values = env.from_source(DataGeneratorSource(lambda i: i, total, 1000), strategy)
    rules = env.from_collection([1, 2, 3]).broadcast(Everything.RULES)
    process = Everything(tmp_path / "failed", 1500)
    values.key_by(lambda v: v % 5).connect(rules).process(process).map(Buffering()).sink_to(sink)
    env.execute()
    assert (tmp_path / "failed").exists()
    counts, results = zip(*sink.results(), strict=True)
    # Operator state: each record is counted exactly once.
    assert list(counts) == list(range(1, 2 * total + 1))
    assert sorted(r[1] for r in results if r[0] == "value") == list(range(total))
    timers = [r for r in results if r[0] == "timer"]
    assert [t[1] for t in timers] == sorted(t[1] for t in timers) == list(range(total))
    assert all(t[3] == [1, 2, 3] for t in timers)


def test_restore_covers_windows(config: Configuration, tmp_path: Path) -> None:
    env, sink = checkpointed(config, tmp_path / "cp"), CollectSink()
    marker = str(tmp_path / "failed")

    def fragile(value: int) -> int:
        if value == 1700 and not os.path.exists(marker):
            Path(marker).touch()
            raise RuntimeError("no luck")
        return value

    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: v)
    values = env.from_source(DataGeneratorSource(lambda i: i, 2400, 1500), strategy).map(fragile)
    pairs = values.map(lambda v: (v % 3, 1)).key_by(lambda v: v[0])
    pairs.window(TumblingEventTimeWindows.of(300)).reduce(lambda a, b: (a[0], a[1] + b[1])).sink_to(sink)
    env.execute()
    assert os.path.exists(marker)
    assert Counter(sink.results()) == Counter({(k, 100): 8 for k in range(3)})


def test_restart_strategy_limits_restarts(config: Configuration, tmp_path: Path) -> None:
    env = checkpointed(config, tmp_path / "cp")
    env.get_configuration().set_integer("restart-strategy.fixed-delay.attempts", 2)
    tries = str(tmp_path / "tries")

    def fail(value: int) -> int:
        with open(tries, "a") as f:
            f.write("x")
        raise RuntimeError("never")

    env.from_collection([1]).map(fail).sink_to(CollectSink())
    with pytest.raises(JobExecutionError, match="never"):
        env.execute()
    assert Path(tries).read_text() == "xxx"


def test_job_without_checkpoints_fails(env: Env, tmp_path: Path) -> None:
    counting(env, CollectSink(), 100, FailingOnce(tmp_path / "failed", 50))
    with pytest.raises(JobExecutionError, match="no luck"):
        env.execute()


def test_at_least_once_repeats_but_loses_nothing(config: Configuration, tmp_path: Path) -> None:
    env, sink = checkpointed(config, tmp_path / "cp", 60_000), CollectSink()
    env.enable_checkpointing(60_000, CheckpointingMode.AT_LEAST_ONCE)
    counting(env, sink, 2000, FailingOnce(tmp_path / "failed", 1900))
    env.execute()
    results = Counter(sink.results())
    assert set(results) == set(counted(2000))
    # Counts before the failure are repeated: there was no checkpoint yet.
    assert sum(results.values()) > 2000


def test_at_most_once_loses_but_repeats_nothing(config: Configuration, tmp_path: Path) -> None:
    env, sink = checkpointed(config, tmp_path / "cp", 60_000), CollectSink()
    env.enable_checkpointing(60_000, CheckpointingMode.AT_MOST_ONCE)
    env.get_configuration().set_integer("millstream.epoch.max-records", 100)
    source = env.from_source(DataGeneratorSource(lambda i: i, 2000, 2000))
    marker = str(tmp_path / "failed")

    def fragile(value: int) -> int:
        if value == 1500 and not os.path.exists(marker):
            Path(marker).touch()
            raise RuntimeError("no luck")
        return value

    source.map(fragile).sink_to(sink)
    env.execute()
    results = Counter(sink.results())
    assert max(results.values()) == 1
    # Only the failed epoch is lost.
    assert 1500 not in results and 2000 - 2 * 200 <= len(results) < 2000


def test_failover_restarts_only_failed_region(config: Configuration, tmp_path: Path) -> None:
    env = checkpointed(config, tmp_path / "cp", 60_000)
    env.get_configuration().set_integer("millstream.epoch.max-records", 200)
    first, second = CollectSink(), CollectSink()
    counting(env, first, 2000, FailingOnce(tmp_path / "failed", 1500), rate=1000)
    seen = str(tmp_path / "seen")

    def note(value: int) -> int:
        with open(seen, "a") as f:
            f.write(f"{value}\n")
        return value

    env.from_source(DataGeneratorSource(lambda i: i, 2000, 1000)).map(note).sink_to(second)
    env.execute()
    assert sorted(first.results()) == counted(2000)
    assert sorted(second.results()) == list(range(2000))
    # The other region repeats only the failed epoch, although no checkpoint was taken.
    again = len(Path(seen).read_text().split()) - 2000
    assert 0 < again <= 2 * 200


def test_checkpoint_directory_size_is_bounded(config: Configuration, tmp_path: Path) -> None:
    env, sink = checkpointed(config, tmp_path / "cp", 20), CollectSink()
    env.get_configuration().set_integer("millstream.epoch.max-records", 20)
    source = env.from_source(DataGeneratorSource(lambda i: i))
    source.key_by(lambda v: v % 50).process(FailingOnce()).sink_to(sink)
    job = env.execute_async()
    max_files, deadline = 0, time.monotonic() + 12
    try:
        while time.monotonic() < deadline:
            files = [f for _, _, names in os.walk(tmp_path / "cp") for f in names]
            max_files = max(max_files, len(files))
            time.sleep(0.05)
        manifest = newest(tmp_path / "cp")
        assert manifest.snapshot.epoch > 60
    finally:
        job.cancel().result()
    # Two chains of at most 64 files, one checkpoint, and the files about to replace them.
    assert max_files < 2 * 64 * 2 + 10
    assert os.listdir(tmp_path / "cp") == []


def newest(directory: Path) -> Any:
    (job,) = os.listdir(directory)
    while True:
        location, _ = list_checkpoints(str(directory / job))[0]
        try:
            return open_checkpoint(location).manifest
        except DamagedStateError:
            # The job has deleted it meanwhile, because there is a newer one.
            continue


def test_checkpoint_layout_and_retention(config: Configuration, tmp_path: Path) -> None:
    env = checkpointed(config, tmp_path / "cp", 50, execution_checkpointing_num__retained="3")
    env.get_configuration().set_string(
        "execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION"
    )
    counting(env, CollectSink(), 1 << 40, rate=500)
    job = env.execute_async()
    home = tmp_path / "cp" / job.get_job_id()
    wait_until(lambda: len(list_checkpoints(str(home))) == 3 and list_checkpoints(str(home))[0][1] > 5)
    job.cancel().result()
    assert sorted(os.listdir(home))[-1] == "shared"
    checkpoints = list_checkpoints(str(home))
    assert len(checkpoints) == 3
    needed = set()
    for location, _ in checkpoints:
        needed |= open_checkpoint(location).manifest.snapshot.files()
    assert set(os.listdir(home / "shared")) == needed
    # A job restores from a retained checkpoint.
    env, sink = checkpointed(config, tmp_path / "cp"), CollectSink()
    env.get_configuration().set_string("execution.state-recovery.path", checkpoints[0][0])
    counting(env, sink, 5000)
    env.execute()
    n = sum(1 for _ in sink.results())
    assert 0 < n < 5000 and sorted(sink.results())[-1] == counted(5000)[-1]


def sign(config: Configuration, key: Path) -> None:
    """Let a job sign its state."""
    key.write_text("0123456789abcdef")
    key.chmod(0o600)
    config.set_string("millstream.state.signing-key-file", str(key))


def test_savepoint_restores_with_other_parallelism(config: Configuration, tmp_path: Path) -> None:
    sign(config, tmp_path / "key")
    env, first = checkpointed(config, tmp_path / "cp"), CollectSink()
    counting(env, first, 20_000, rate=1000)
    job = env.execute_async()
    wait_until(lambda: bool(first.results()))
    savepoint = job.trigger_savepoint(str(tmp_path / "sp")).result()
    assert job.get_job_status().result() is JobStatus.RUNNING
    stopped = job.stop_with_savepoint(False, str(tmp_path / "sp")).result()
    job.get_job_execution_result().result()
    header = json.loads(Path(savepoint, "_metadata").read_text().splitlines()[0])
    assert header["millstream"] == "savepoint" and header["signature"]
    before = len(first.results())
    # A savepoint can be moved.
    moved = tmp_path / "moved"
    os.rename(stopped, moved)
    for parallelism in (1, 4):
        again = CollectSink()
        resumed = checkpointed(Configuration(config), tmp_path / "cp").set_parallelism(parallelism)
        resumed.get_configuration().set_string("execution.state-recovery.path", str(moved))
        counting(resumed, again, before + 500)
        resumed.execute()
        assert sorted(first.results() + again.results()) == counted(before + 500)


def test_stop_with_drain_fires_all_timers_and_windows(config: Configuration, tmp_path: Path) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: v)

    def start(drain: bool) -> tuple[int, int]:
        env, sink, seen = checkpointed(Configuration(config), tmp_path / "cp"), CollectSink(), CollectSink()
        values = env.from_source(DataGeneratorSource(lambda i: i, rate_per_second=500), strategy)
        values.sink_to(seen)
        windows = values.map(lambda v: (0, 1)).key_by(lambda v: v[0]).window(TumblingEventTimeWindows.of(10_000_000))
        windows.reduce(lambda a, b: (0, a[1] + b[1])).sink_to(sink)
        job = env.execute_async()
        wait_until(lambda: len(seen.results()) > 100)
        job.stop_with_savepoint(drain, str(tmp_path / "sp")).result()
        job.get_job_execution_result().result()
        return sum(n for _, n in sink.results()), len(seen.results())

    in_windows, read = start(drain=True)
    assert in_windows == read
    assert start(drain=False)[0] == 0


def test_cancel_with_savepoint_returns_location(config: Configuration, tmp_path: Path) -> None:
    env = checkpointed(config, tmp_path / "cp", execution_checkpointing_savepoint__dir=str(tmp_path / "sp"))
    counting(env, CollectSink(), 1 << 40, rate=500)
    job = env.execute_async()
    location = job.cancel_with_savepoint().result()
    with pytest.raises(JobCancelledError):
        job.get_job_execution_result().result()
    assert open_checkpoint(location).manifest.kind == "savepoint"


def test_requests_to_finished_job_are_rejected(config: Configuration, tmp_path: Path) -> None:
    env = checkpointed(config, tmp_path / "cp")
    counting(env, CollectSink(), 10)
    job = env.execute_async()
    job.get_job_execution_result().result()
    with pytest.raises(MillstreamError, match="is not running: it is FINISHED"):
        job.trigger_savepoint(str(tmp_path)).result(5)
    with pytest.raises(InvalidProgramError, match=r"execution\.checkpointing\.savepoint-dir"):
        job.trigger_savepoint()


class WithPid(FailingOnce):
    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        for key, n in super().process_element(value, ctx):
            yield key, n, self.subtasks

    def open(self, runtime_context: Any) -> None:
        super().open(runtime_context)
        self.subtasks = runtime_context.get_number_of_parallel_subtasks()


def test_rescale_takes_effect_without_restart(config: Configuration, tmp_path: Path) -> None:
    env, sink = checkpointed(config, tmp_path / "cp"), CollectSink()
    counting(env, sink, 6000, WithPid(), rate=1500)
    job = env.execute_async()
    for parallelism in (4, 1, 3):
        seen = len(sink.results())
        wait_until(lambda seen=seen: len(sink.results()) > seen + 200)  # type: ignore[misc]
        job.rescale(parallelism).result()
        assert job.get_job_status().result() is JobStatus.RUNNING
        assert len(slot_processes()) <= parallelism
    job.get_job_execution_result().result()
    assert sorted((k, n) for k, n, _ in sink.results()) == counted(6000)
    assert {subtasks for _, _, subtasks in sink.results()} == {2, 4, 1, 3}


@pytest.mark.parametrize("exchange", ["auto", "spark"])
def test_adaptive_job_follows_slots_and_bounds(config: Configuration, tmp_path: Path, exchange: str) -> None:
    config.set_string("millstream.exchange", exchange).set_string("jobmanager.scheduler", "adaptive")
    for wait in (
        "submission.resource-stabilization-timeout",
        "executing.cooldown-after-rescaling",
        "executing.resource-stabilization-timeout",
        "rescale-trigger.max-delay",
    ):
        config.set_string(f"jobmanager.adaptive-scheduler.{wait}", "0 ms")
    env, sink = checkpointed(config, tmp_path / "cp").set_parallelism(4), CollectSink()
    counting(env, sink, 1 << 40, WithPid(), rate=1500)
    job = env.execute_async()
    # Spark has two slots, the program wants four.
    wait_until(lambda: bool(sink.results()) and sink.results()[-1][2] == 2, 120)
    request = RequirementsRequest({v.head.id: Bounds(1, 1) for v in job_of(job).view.plan.vertices})
    job_of(job).ask(request)
    request.done.result(120)
    wait_until(lambda: sink.results()[-1][2] == 1, 120)
    job.stop_with_savepoint(savepoint_directory=str(tmp_path / "saved")).result(60)
    assert sorted((k, n) for k, n, _ in sink.results()) == counted(len(sink.results()))
    assert job_of(job).view.restarts == 0


def test_rescale_above_max_parallelism_is_rejected(config: Configuration, tmp_path: Path) -> None:
    env = checkpointed(config, tmp_path / "cp").set_max_parallelism(4)
    counting(env, CollectSink(), 1 << 40, rate=500)
    job = env.execute_async()
    with pytest.raises(InvalidProgramError, match="above its max parallelism 4"):
        job.rescale(5).result()
    assert job.get_job_status().result() is JobStatus.RUNNING
    job.cancel().result()


def test_trigger_checkpoint_takes_one_now(config: Configuration, tmp_path: Path) -> None:
    env = checkpointed(config, tmp_path / "cp", 3_600_000)
    counting(env, CollectSink(), 1 << 40, rate=500)
    job = env.execute_async()
    location = job.trigger_checkpoint().result()
    assert open_checkpoint(location).manifest.snapshot.job_id == job.get_job_id()
    job.cancel().result()


def test_checkpoint_directory_of_running_job_is_rejected(config: Configuration, tmp_path: Path) -> None:
    config.set_string("$internal.pipeline.job-id", "ab" * 16)
    env = checkpointed(config, tmp_path / "cp")
    counting(env, CollectSink(), 1 << 40, rate=500)
    job = env.execute_async()
    wait_until(lambda: (tmp_path / "cp" / ("ab" * 16) / "_owner").exists())
    counting(env, CollectSink(), 10)
    with pytest.raises(InvalidProgramError, match=r"abab/_owner: process \d+"):
        env.execute()
    job.cancel().result()


def damage(path: Path, kind: str) -> None:
    data = bytearray(path.read_bytes())
    if kind == "missing":
        path.unlink()
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "truncated":
        path.write_bytes(data[: len(data) // 2])
    else:
        data[len(data) // 3] ^= 0xFF
        path.write_bytes(data)


@pytest.mark.parametrize("kind", ["missing", "truncated", "flipped"])
def test_job_falls_back_when_state_is_damaged(config: Configuration, tmp_path: Path, kind: str) -> None:
    """The last checkpoint of a running job cannot be read, so the job falls back to the one before."""
    env = checkpointed(config, tmp_path / "cp", 150, execution_checkpointing_num__retained="10")
    sink, marker = CollectSink(), tmp_path / "failed"
    home = tmp_path / "cp"

    def damage_checkpoint(value: int) -> int:
        if value == 1500 and not marker.exists():
            marker.touch()
            (job,) = os.listdir(home)
            latest = open_checkpoint(list_checkpoints(str(home / job))[0][0]).manifest.snapshot
            before = open_checkpoint(list_checkpoints(str(home / job))[1][0]).manifest.snapshot
            new = sorted(latest.files() - before.files())
            damage(home / job / "shared" / new[0], kind)
            raise RuntimeError("no luck")
        return value

    source = env.from_source(DataGeneratorSource(lambda i: i, 2000, 1500)).map(damage_checkpoint)
    source.key_by(lambda v: v % KEYS).process(FailingOnce()).uid("count").sink_to(sink)
    env.execute()
    assert marker.exists()
    # Nothing is lost; counts since the readable checkpoint are repeated.
    assert set(sink.results()) == set(counted(2000))


def test_job_survives_killed_spark(config: Configuration, tmp_path: Path) -> None:
    """The Java process dies: the job starts another and continues."""
    config.set_string(SETTING, f"task.after-delta|kill-executor|8|{tmp_path / 'fault'}")
    env, sink = checkpointed(config, tmp_path / "cp"), CollectSink()
    counting(env, sink, 3000, rate=1000)
    env.execute()
    assert (tmp_path / "fault").exists()
    assert sorted(sink.results()) == counted(3000)
    # The other tests need a Spark with their own settings.
    stop_context()


@pytest.mark.parametrize("setting", ["snapshot-compression=true", "incremental=false"])
def test_compressed_and_full_checkpoints_restore(config: Configuration, tmp_path: Path, setting: str) -> None:
    # Replacement slots have no key, but check what they read.
    sign(config, tmp_path / "key")
    env, sink = checkpointed(config, tmp_path / "cp", 100), CollectSink()
    key, _, value = setting.partition("=")
    env.get_configuration().set_string(f"execution.checkpointing.{key}", value)
    counting(env, sink, 3000, FailingOnce(tmp_path / "failed", 2000, "kill"))
    job = env.execute_async()
    if key == "incremental":
        wait_until(lambda: len(job.get_checkpoint_statistics()["history"]) > 2)
        wait_until(lambda: bool(os.listdir(tmp_path / "cp")))
        # Every state is in one file that depends on no other.
        manifest = newest(tmp_path / "cp")
        chains = [c for v in manifest.snapshot.vertices.values() for s in v.subtasks for c in s.states.values()]
        assert chains and all(len(chain) == 1 for chain in chains)
    job.get_job_execution_result().result()
    assert (tmp_path / "failed").exists()
    assert sorted(sink.results()) == counted(3000)


def test_savepoint_restores_with_other_backend(config: Configuration, tmp_path: Path) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: v)

    def program(env: Env, sink: CollectSink, count: int | None) -> None:
        values = env.from_source(DataGeneratorSource(lambda i: i, count, 1000), strategy).uid("values")
        pairs = values.map(lambda v: (v % KEYS, 1)).key_by(lambda v: v[0])
        windows = pairs.window(TumblingEventTimeWindows.of(700)).reduce(lambda a, b: (a[0], a[1] + b[1]))
        windows.uid("windows").sink_to(sink).uid("sink")

    before, results = None, []
    for backend in ("hashmap", "lmdb", "hashmap"):
        env, sink = checkpointed(Configuration(config), tmp_path / "cp"), CollectSink()
        env.get_configuration().set_string("state.backend.type", backend)
        if before is not None:
            env.get_configuration().set_string("execution.state-recovery.path", before)
        program(env, sink, None)
        job = env.execute_async()
        wait_until(lambda sink=sink: bool(sink.results()))  # type: ignore[misc]
        before = job.stop_with_savepoint(False, str(tmp_path / "sp")).result()
        job.get_job_execution_result().result()
        results += sink.results()
    assert Counter(results) == Counter({(k, 100): len(results) // KEYS for k in range(KEYS)})


class Deleting(FailingOnce):
    """Deletes a directory when it fails."""

    def __init__(self, marker: Path, trigger: int, directory: Path) -> None:
        super().__init__(marker, trigger)
        self.directory = str(directory)

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        if value == self.trigger and not os.path.exists(self.marker):
            for name in os.listdir(self.directory):
                shutil.rmtree(os.path.join(self.directory, name))
        yield from super().process_element(value, ctx)


@pytest.mark.parametrize("exchange", ["resident", "spark"])
def test_deleted_temporary_directory_is_recreated(
    config: Configuration, tmp_path: Path, exchange: str, caplog: pytest.LogCaptureFixture
) -> None:
    temporary, checkpoints = tmp_path / "tmp", tmp_path / "checkpoints"
    temporary.mkdir()
    config.set_string("io.tmp.dirs", str(temporary)).set_string("millstream.exchange", exchange)
    env, sink = checkpointed(config, checkpoints, 50), CollectSink()
    counting(env, sink, 400, Deleting(tmp_path / "once", 200, temporary))
    env.execute()
    assert sorted(sink.results()) == counted(400)
    assert "was deleted: creating it again" in caplog.text
    assert list(temporary.iterdir()) == []
