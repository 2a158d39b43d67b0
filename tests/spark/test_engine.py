"""Slots, epochs, job ends and process deaths in the engine."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark import SparkContext

from millstream.common import JobStatus
from millstream.common.errors import JobCancelledError, JobExecutionError
from millstream.datastream import DataStream, MapFunction, RuntimeContext, SinkFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.spark import control
from millstream.testing import CollectSink
from tests.support.helpers import CountWithPid, PushedReader, daemon_processes, slot_processes, wait_until

Env = StreamExecutionEnvironment
Collect = Callable[[DataStream], list[Any]]
pytestmark = pytest.mark.spark


def small_epochs(env: Env, records: int = 50) -> Env:
    env.get_configuration().set_integer("millstream.epoch.max-records", records)
    return env


class CallCounter(MapFunction[int, Any]):
    """Counts its calls in an attribute."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.calls = 0
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value: int) -> Any:
        self.calls += 1
        return self.subtask, self.calls, os.getpid()


def test_function_stays_in_one_process_across_epochs(env: Env, collect: Collect) -> None:
    small_epochs(env)
    results = collect(env.from_source(NumberSequenceSource(0, 999)).map(CallCounter()))
    by_subtask: dict[int, list[Any]] = defaultdict(list)
    for subtask, calls, pid in results:
        by_subtask[subtask].append((calls, pid))
    assert set(by_subtask) == {0, 1}
    for seen in by_subtask.values():
        assert [calls for calls, _ in seen] == list(range(1, 501))
        assert len({pid for _, pid in seen}) == 1


def test_levels_of_slot_share_process(env: Env, collect: Collect) -> None:
    stream = env.from_source(NumberSequenceSource(0, 99)).map(lambda x: (x, os.getpid())).key_by(lambda t: t[0])
    assert len({p for pair in collect(stream.map(lambda t: (t[1], os.getpid()))) for p in pair}) == 2


def test_parallelism_may_exceed_cores(env: Env, collect: Collect) -> None:
    env.set_parallelism(5)
    small_epochs(env, 10)
    pids = Counter(pid for _, _, pid in collect(env.from_source(NumberSequenceSource(0, 249)).map(CallCounter())))
    assert sorted(pids.values()) == [50] * 5


class Life(MapFunction[int, int]):
    """Records open and close in files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def open(self, runtime_context: RuntimeContext) -> None:
        self.log("open", runtime_context.get_task_name_with_subtasks())

    def map(self, value: int) -> int:
        return value

    def close(self) -> None:
        self.log("close", "")

    def log(self, event: str, text: str) -> None:
        (self.directory / f"{event}-{os.getpid()}-{time.time_ns()}").write_text(text)

    def __str__(self) -> str:
        return "Life"


def test_functions_open_and_close_once(env: Env, tmp_path: Path) -> None:
    small_epochs(env)
    env.from_source(NumberSequenceSource(0, 499)).map(Life(tmp_path)).name("life").add_sink(lambda v: None)
    env.execute()
    events = Counter(p.name.split("-")[0] for p in tmp_path.iterdir())
    assert events == {"open": 2, "close": 2}
    assert {p.read_text() for p in tmp_path.glob("open-*")} == {"life (1/2)", "life (2/2)"}


def test_functions_close_on_cancel(env: Env, tmp_path: Path) -> None:
    env.from_source(DataGeneratorSource(lambda i: i, rate_per_second=100)).map(Life(tmp_path)).add_sink(lambda v: None)
    client = env.execute_async()
    wait_until(lambda: len(list(tmp_path.glob("open-*"))) == 2)
    client.cancel().result(10)
    assert len(list(tmp_path.glob("close-*"))) == 2


# --- cancelling


def test_cancel_of_idle_job_is_prompt_and_leaves_no_process(env: Env) -> None:
    reader, sink = PushedReader(), CollectSink()
    env.from_source(reader).map(lambda v: v).sink_to(sink)
    client = env.execute_async("idle")
    reader.push(10)
    wait_until(lambda: len(sink.results()) == 10)
    assert client.get_job_status().result() is JobStatus.RUNNING
    assert slot_processes()
    started = time.monotonic()
    client.cancel().result(10)
    assert time.monotonic() - started < 2
    assert client.get_job_status().result() is JobStatus.CANCELED
    with pytest.raises(JobCancelledError, match="'idle'.*was cancelled"):
        client.get_job_execution_result().result()
    assert slot_processes() == []
    assert reader.stopped
    assert reader.committed[-1] == 10


def test_cancel_does_not_wait_for_user_code(env: Env, tmp_path: Path) -> None:
    started = tmp_path / "started"

    def stuck(value: int) -> int:
        started.touch()
        time.sleep(600)
        return value

    env.from_source(NumberSequenceSource(0, 9)).map(stuck).add_sink(lambda v: None)
    client = env.execute_async()
    wait_until(started.exists)
    begun = time.monotonic()
    client.cancel().result(20)
    assert time.monotonic() - begun < 5
    wait_until(lambda: slot_processes() == [], 5)


def test_cancel_succeeds_at_any_time(env: Env) -> None:
    for delay in (0.0, 0.05, 0.3, 1.0):
        env.from_source(DataGeneratorSource(lambda i: i)).key_by(lambda i: i % 3).sum().add_sink(lambda v: None)
        client = env.execute_async()
        time.sleep(delay)
        client.cancel().result(20)
        assert client.get_job_status().result() is JobStatus.CANCELED
    wait_until(lambda: slot_processes() == [], 5)


# --- deaths


def running_counts(env: Env) -> tuple[PushedReader, CollectSink, Any]:
    reader, sink = PushedReader(), CollectSink()
    env.from_source(reader).key_by(lambda row: row[0] % 10).process(CountWithPid()).sink_to(sink)
    return reader, sink, env.execute_async()


def check_counts(results: list[Any], each: int) -> None:
    by_key: dict[int, list[int]] = defaultdict(list)
    for key, n, _ in results:
        by_key[key].append(n)
    assert by_key == {key: list(range(1, each + 1)) for key in range(10)}


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def kill(victims: list[psutil.Process]) -> None:
    assert victims
    children = [child for process in victims for child in process.children(recursive=True)]
    for process in victims:
        process.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, [*victims, *children])))


@pytest.mark.parametrize("n_killed", [1, 2])
def test_idle_slot_death_restores_state_or_fails_execution(env: Env, n_killed: int, resident_slots: bool) -> None:
    """With one Spark job per epoch, new slots restore the state; resident slots fail the execution."""
    reader, sink, client = running_counts(env)
    reader.push(100)
    wait_until(lambda: len(sink.results()) == 100)
    before = {pid for _, _, pid in sink.results()}
    kill(slot_processes()[:n_killed])
    reader.push(100)
    if resident_slots:
        with pytest.raises(JobExecutionError, match="worker process died"):
            client.get_job_execution_result().result(30)
        assert slot_processes() == []
        return
    wait_until(lambda: len(sink.results()) == 200)
    client.cancel().result(10)
    check_counts(sink.results(), 20)
    assert len({pid for _, _, pid in sink.results()} - before) == n_killed


def test_daemon_death_replaces_slots_or_fails_job(env: Env) -> None:
    """Whether Spark notices the death of its idle workers before it reuses one depends on which process reaps them."""
    reader, sink, client = running_counts(env)
    reader.push(100)
    wait_until(lambda: len(sink.results()) == 100)
    kill(daemon_processes())
    reader.push(100)
    result = client.get_job_execution_result()
    wait_until(lambda: len(sink.results()) == 200 or result.done())
    if result.done():
        with pytest.raises(JobExecutionError, match="worker process died"):
            result.result()
    else:
        client.cancel().result(10)
        check_counts(sink.results(), 20)
    assert env.from_collection([1]).execute_and_collect(limit=1) == [1]


@pytest.mark.parametrize("victim", ["slot", "daemon"])
def test_slot_death_during_epoch_is_reported(env: Env, tmp_path: Path, victim: str) -> None:
    started = tmp_path / "started"

    def slow(value: int) -> int:
        started.touch()
        time.sleep(0.5)
        return value

    env.from_source(NumberSequenceSource(0, 99)).map(slow).add_sink(lambda v: None)
    client = env.execute_async()
    wait_until(started.exists)
    for process in slot_processes() if victim == "slot" else daemon_processes():
        process.kill()
    with pytest.raises(JobExecutionError, match="worker process died"):
        client.get_job_execution_result().result(30)
    assert client.get_job_status().result() is JobStatus.FAILED


def test_daemon_starts_no_slot_for_released_job(env: Env) -> None:
    """A late task must not start a process that nothing stops."""
    assert env.from_collection([1]).execute_and_collect(limit=1) == [1]
    job = uuid.uuid4().hex
    control.release(job)
    directory = control.directory()
    assert directory is not None
    answers = []
    for name in os.listdir(directory):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
            daemon.connect(os.path.join(directory, name))
            request = {"job": f"{job}-run-1", "slot": 0, "loads": None, "heartbeat": [10.0, 50.0]}
            daemon.sendall(json.dumps(request).encode())
            answers.append(daemon.recv(4096))
    assert answers == [b""]


def test_user_code_exit_is_reported(env: Env) -> None:
    env.from_collection([1]).map(lambda x: os._exit(3)).add_sink(lambda v: None)
    with pytest.raises(JobExecutionError, match="worker process died"):
        env.execute()
    assert env.from_collection([1]).execute_and_collect(limit=1) == [1]


# --- several jobs, no input, memory


def test_concurrent_jobs_do_not_mix_records(env: Env, config: Any) -> None:
    other = Env.get_execution_environment(config)
    sinks = []
    clients = []
    for n, e in enumerate((env, other)):
        sink = CollectSink()
        small_epochs(e, 20)
        source = e.from_source(NumberSequenceSource(0, 999)).map(CallCounter()).map(lambda t, n=n: (n, *t))  # type: ignore[misc]
        source.key_by(lambda t: t[1]).map(lambda t: t).sink_to(sink)
        sinks.append(sink)
        clients.append(e.execute_async(f"job {n}"))
    for client in clients:
        client.get_job_execution_result().result(60)
    pids = []
    for n, sink in enumerate(sinks):
        assert {r[0] for r in sink.results()} == {n}
        assert sorted((s, c) for _, s, c, _ in sink.results()) == [(s, c) for s in (0, 1) for c in range(1, 501)]
        pids.append({r[3] for r in sink.results()})
    assert not pids[0] & pids[1]


def test_idle_job_runs_no_spark_jobs(env: Env, resident_slots: bool) -> None:
    reader, sink, client = running_counts(env)
    reader.push(10)
    wait_until(lambda: len(sink.results()) == 10)
    context = SparkContext._active_spark_context
    assert context is not None
    jobs = context._jsc.sc().dagScheduler().numTotalJobs
    before = jobs()
    time.sleep(1.5)
    assert jobs() == before
    reader.push(10)
    wait_until(lambda: len(sink.results()) == 20)
    # Resident slots need no further Spark job.
    assert (jobs() == before) is resident_slots
    client.cancel().result(10)


class SlowSink(SinkFunction[Any]):
    def invoke(self, value: Any, context: Any) -> None:
        time.sleep(0.0005)


def test_memory_is_bounded_by_epoch_size(env: Env) -> None:
    """The source has 50 million records of 100 bytes; the sink takes 2,000 per second."""
    source = env.from_source(DataGeneratorSource(lambda i: (i, "x" * 100), count=50_000_000))
    source.key_by(lambda t: t[0]).map(lambda t: t).add_sink(SlowSink())
    client = env.execute_async()
    wait_until(lambda: len(slot_processes()) == 2)
    own = psutil.Process()
    before = own.memory_info().rss
    jvm = next(p for p in own.children() if "java" in p.name())
    peak = Counter[str]()
    end = time.monotonic() + 12
    while time.monotonic() < end:
        peak["slots"] = max(peak["slots"], *(p.memory_info().rss for p in slot_processes()))
        peak["driver"] = max(peak["driver"], own.memory_info().rss - before)
        peak["jvm"] = max(peak["jvm"], jvm.memory_info().rss)
        time.sleep(0.1)
    status = client.get_job_status().result()
    client.cancel().result(20)
    assert status is JobStatus.RUNNING
    megabytes = {k: v >> 20 for k, v in peak.items()}
    assert megabytes["slots"] < 250, megabytes
    assert megabytes["driver"] < 50, megabytes
    # -Xmx1g plus the JVM's own memory.
    assert megabytes["jvm"] < 1500, megabytes


def test_shuffle_files_of_past_epochs_are_deleted(env: Env, collect: Collect, spark_files: Path) -> None:
    small_epochs(env, 20)
    stream = env.from_source(NumberSequenceSource(0, 1999)).key_by(lambda x: x).map(lambda x: x)
    assert len(collect(stream)) == 2000
    assert list(spark_files.iterdir())
    # 50 epochs with 2 map tasks each; deletion is asynchronous, so the newest files may still exist.
    wait_until(lambda: len(list(spark_files.rglob("shuffle_*"))) < 30, 10, "shuffle files of past epochs are deleted")


def test_collect_iterator_backpressures_source(env: Env) -> None:
    results = env.from_source(DataGeneratorSource(lambda i: i)).execute_and_collect()
    first = next(results)
    wait_until(lambda: results._mailbox._batches.full(), 60)
    time.sleep(1)
    full = results._job.view.progress.epochs
    time.sleep(1)
    assert results._job.view.progress.epochs == full
    assert first == 0
    results.close()


def test_jobs_run_from_several_threads(config: Any) -> None:
    answers: dict[int, Any] = {}

    def work(n: int) -> None:
        env = Env.get_execution_environment(config)
        answers[n] = sorted(env.from_source(NumberSequenceSource(0, 99)).map(lambda x: x * n).execute_and_collect())

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert answers == {n: sorted(x * n for x in range(100)) for n in range(3)}


def test_sources_finish_at_different_times(env: Env) -> None:
    small_epochs(env, 10)
    sink = CollectSink()
    short, long = env.from_collection([-1]), env.from_source(NumberSequenceSource(0, 99))
    short.union(long.map(lambda x: x)).key_by(lambda x: 0).sum().sink_to(sink)
    result = env.execute()
    assert max(sink.results()) == sum(range(100)) or max(sink.results()) == sum(range(100)) - 1
    assert len(sink.results()) == 101
    assert result.epochs > 1


def test_empty_source_finishes(env: Env, collect: Collect) -> None:
    assert collect(env.from_collection([]).key_by(lambda x: x).sum()) == []


def test_short_job_runs_without_sleeps(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    asleep: list[str] = []
    sleep = time.sleep

    def record_sleep(seconds: float) -> None:
        asleep.append(threading.current_thread().name)
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", record_sleep)
    env.from_collection([1, 2]).key_by(lambda x: x).map(lambda x: x).print()
    env.execute()
    assert [name for name in asleep if name.startswith(("MainThread", "job-", "slots-"))] == []


def test_generator_source_respects_rate(env: Env) -> None:
    sink = CollectSink()
    env.from_source(DataGeneratorSource(lambda i: i, count=300, rate_per_second=150)).sink_to(sink)
    result = env.execute()
    assert sorted(sink.results()) == list(range(300))
    assert 1900 < result.get_net_runtime() < 15_000


def test_function_metrics_reach_driver(env: Env) -> None:
    env.from_source(NumberSequenceSource(1, 10)).map(Counting()).name("counting").add_sink(lambda v: None)
    assert env.execute().get_accumulator_result("counting.seen") == 10


class Counting(MapFunction[int, int]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_metrics_group().counter("seen")

    def map(self, value: int) -> int:
        self.seen.inc()
        return value


class Lines:
    """PySpark's simple stream reader."""

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
        end = min(start["at"] + 3, 9)
        return iter([(i,) for i in range(start["at"], end)]), {"at": end}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int]]:
        return iter([(i,) for i in range(start["at"], end["at"])])


def test_simple_stream_reader_emits_rows(env1: Env) -> None:
    assert env1.from_source(Lines()).map(lambda row: row[0]).execute_and_collect(limit=9) == list(range(9))
