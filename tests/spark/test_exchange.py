"""Resident slots: failure detection, shutdown, and cleanup of all their resources."""

from __future__ import annotations

import ast
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark import SparkContext

from millstream.common import Configuration
from millstream.common.errors import InvalidProgramError, JobExecutionError
from millstream.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.exchange import driver
from millstream.exchange.connection import Connection
from millstream.jobmaster.machine.view import JobView
from millstream.service.responses.metrics import of_job
from millstream.spark.cores import executions_that_hold
from millstream.spark.session import stop_context
from millstream.testing import CollectSink
from tests.faults import job as survivor
from tests.support.helpers import CountWithPid, PushedReader, job_of, restart_at_once, slot_processes, wait_until
from tests.support.paths import ROOT

Env = StreamExecutionEnvironment
pytestmark = pytest.mark.spark


@pytest.fixture
def config(config: Configuration) -> Configuration:
    return config.set_string("millstream.exchange", "resident")


def spins(started: Path) -> Callable[[int], int]:
    def spin(value: int) -> int:
        started.touch()
        while True:
            pass

    return spin


def ignore_termination(started: Path) -> Callable[[int], int]:
    def ignore(value: int) -> int:
        started.touch()
        while True:
            try:
                while True:
                    pass
            except BaseException:
                continue

    return ignore


def start_spinning(env: Env, started: Path, function: Callable[[Path], Callable[[int], int]] = spins) -> Any:
    env.from_source(NumberSequenceSource(0, 9)).map(function(started)).add_sink(lambda v: None)
    client = env.execute_async()
    wait_until(started.exists)
    wait_until(lambda: len(slot_processes()) == 2)
    return client


def test_killed_slot_is_detected_within_second(env: Env, tmp_path: Path) -> None:
    client = start_spinning(env, tmp_path / "started")
    begun = time.monotonic()
    slot_processes()[0].kill()
    with pytest.raises(JobExecutionError, match="worker process died"):
        client.get_job_execution_result().result(30)
    assert time.monotonic() - begun < 1
    assert slot_processes() == []


def test_slots_end_with_executor_process(env: Env, tmp_path: Path) -> None:
    client = start_spinning(env, tmp_path / "started")
    begun = time.monotonic()
    host = slot_processes()[0].parent()
    assert host is not None
    assert Path(f"/proc/{host.pid}/comm").read_text().strip() == "millstream-host"
    host.kill()
    with pytest.raises(JobExecutionError, match="worker process died"):
        client.get_job_execution_result().result(30)
    assert time.monotonic() - begun < 2
    assert slot_processes() == []


def start_waiting(env: Env) -> tuple[Any, PushedReader, CollectSink]:
    """Start a job that has counted two keys twice, in two slots, and waits for input."""
    reader, sink = PushedReader(), CollectSink()
    env.from_source(reader).key_by(lambda row: row[0] % 2).process(CountWithPid()).sink_to(sink)
    client = env.execute_async()
    reader.push(4)
    wait_until(lambda: len(sink.results()) == 4)
    return client, reader, sink


def test_killed_idle_slot_is_detected_at_once(env: Env) -> None:
    client, _, _ = start_waiting(env)
    time.sleep(0.3)
    begun = time.monotonic()
    slot_processes()[1].kill()
    with pytest.raises(JobExecutionError, match="worker process died"):
        client.get_job_execution_result().result(30)
    assert time.monotonic() - begun < 1
    assert slot_processes() == []


def test_killed_idle_slot_is_replaced_at_once(env: Env) -> None:
    restart_at_once(env)
    client, reader, sink = start_waiting(env)
    wait_until(lambda: 4 in reader.committed)
    before = {p.pid for p in slot_processes()}
    slot_processes()[1].kill()
    wait_until(lambda: len({p.pid for p in slot_processes()} - before) == 2, 5)
    reader.push(2)
    wait_until(lambda: len(sink.results()) == 6)
    assert sorted((key, n) for key, n, _ in sink.results()) == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3)]
    client.cancel().result(10)


@pytest.mark.parametrize(("exchange", "replaced"), [("resident", 2), ("spark", 1)])
def test_epochs_find_state_locally_unless_process_died(config: Configuration, exchange: str, replaced: int) -> None:
    env = Env.get_execution_environment(config.set_string("millstream.exchange", exchange))
    restart_at_once(env)
    client, reader, sink = start_waiting(env)
    for _ in range(3):
        reader.push(2)
        wait_until(lambda: len(sink.results()) == reader.available)
    # From here on no epoch is due.
    wait_until(lambda: reader.available in reader.committed)
    local, read = job_of(client).view.progress.state_epochs()
    # Each slot has read its state in memory at least three times.
    assert (local >= 6, read) == (True, 0)
    slot_processes()[0].kill()
    reader.push(2)
    wait_until(lambda: len(sink.results()) == reader.available)
    # All resident slots are replaced, with Spark's shuffle only the lost one; each reads its state once.
    assert job_of(client).view.progress.state_epochs()[1] == replaced
    reported: dict[str, Any] = of_job(job_of(client).view, time.time())
    assert (
        reported["stateLocalShare"]
        == reported["numEpochsStateLocal"] / (reported["numEpochsStateLocal"] + replaced)
        < 1
    )
    counts = sorted((key, n) for key, n, _ in sink.results())
    assert counts == [(key, n) for key in (0, 1) for n in range(1, reader.available // 2 + 1)]
    client.cancel().result(30)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_state_is_written_on_checkpoint_only(config: Configuration, backend: str, tmp_path: Path) -> None:
    config.set_string("execution.checkpointing.dir", str(tmp_path)).set_string("state.backend.type", backend)
    env = Env.get_execution_environment(config).set_buffer_timeout(0)
    restart_at_once(env)
    env.enable_checkpointing(400)
    client, reader, sink = start_waiting(env)
    n_batches, begun = reader.n_batches, time.monotonic()
    files: set[str] = set()
    while reader.n_batches - n_batches < 100 and time.monotonic() < begun + 20:
        reader.push(2)
        time.sleep(0.005)
        files |= {str(file.relative_to(tmp_path)) for file in tmp_path.glob("*/shared/*")}
    checkpoints = (time.monotonic() - begun) / 0.4
    assert 2 <= len(files) <= 2 * (checkpoints + 2)
    slot_processes()[0].kill()
    reader.push(2)
    wait_until(lambda: len(sink.results()) == reader.available)
    counts = sorted((key, n) for key, n, _ in sink.results())
    assert counts == [(key, n) for key in (0, 1) for n in range(1, reader.available // 2 + 1)]
    client.cancel().result(10)


@pytest.mark.parametrize(
    ("exchange", "function", "seconds"),
    [("resident", spins, 1), ("resident", ignore_termination, 2), ("spark", spins, 2)],
)
def test_busy_job_is_cancelled(
    config: Configuration, tmp_path: Path, exchange: str, function: Any, seconds: float
) -> None:
    env = Env.get_execution_environment(config.set_string("millstream.exchange", exchange))
    client = start_spinning(env, tmp_path / "started", function)
    begun = time.monotonic()
    client.cancel().result(20)
    assert time.monotonic() - begun < seconds
    assert slot_processes() == []
    assert executions_that_hold() == 0


DRIVER = """
import sys
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource

if __name__ == "__main__":
    settings = {"spark.master": "local[2]", "millstream.exchange": "resident", "millstream.quiet": "true"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings)).set_parallelism(3)
    started = sys.argv[1]
    def spin(value):
        open(started, "w").close()
        while True:
            pass
    env.from_source(NumberSequenceSource(0, 9)).map(spin).add_sink(print)
    env.execute()
"""


def test_slots_end_when_driver_is_killed(tmp_path: Path) -> None:
    """Java is stopped meanwhile, so that the slots do not end because of it."""
    program, started = tmp_path / "driver.py", tmp_path / "started"
    program.write_text(DRIVER)
    driver = subprocess.Popen([sys.executable, str(program), str(started)])
    wait_until(started.exists, 60)
    below = psutil.Process(driver.pid).children(recursive=True)
    slots = [p for p in below if Path(f"/proc/{p.pid}/comm").read_text().startswith("millstream-s")]
    assert len(slots) == 3
    java = next(p for p in below if p.name() == "java")
    java.suspend()
    try:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        wait_until(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in slots), 3)
    finally:
        java.kill()


def test_jobs_do_not_wait_for_slots_of_others(config: Configuration) -> None:
    """On two cores: five endless jobs at once, and one of Spark's own, in a restarted Spark."""

    def start() -> tuple[Any, PushedReader, CollectSink]:
        env, reader, sink = Env.get_execution_environment(config), PushedReader(), CollectSink()
        env.from_source(reader).key_by(lambda row: row[0]).map(lambda row: row[0]).sink_to(sink)
        client = env.execute_async()
        reader.push(10)
        return client, reader, sink

    def has_all(sink: CollectSink) -> bool:
        return sorted(sink.results()) == list(range(10))

    client, _, sink = start()
    wait_until(lambda: has_all(sink))
    stop_context()
    # The end of its processes may be visible first.
    with pytest.raises(JobExecutionError, match="SparkContext was shut down|A Python worker process died"):
        client.get_job_execution_result().result()
    started = [start() for _ in range(5)]
    wait_until(lambda: all(has_all(sink) for _, _, sink in started))
    assert executions_that_hold() == 5
    context = SparkContext._active_spark_context
    assert context is not None
    assert context.parallelize(range(100), 4).map(lambda x: x + 1).sum() == 5050
    for client, _, _ in started:
        client.cancel().result(10)
    assert executions_that_hold() == 0


def spark_jobs() -> int:
    context = SparkContext._active_spark_context
    return int(context._jsc.sc().dagScheduler().numTotalJobs()) if context is not None else 0


@pytest.mark.parametrize(
    ("exchange", "mode", "resident_slots"),
    [
        ("auto", RuntimeExecutionMode.STREAMING, True),
        ("auto", RuntimeExecutionMode.BATCH, False),
        ("resident", RuntimeExecutionMode.BATCH, True),
        ("spark", RuntimeExecutionMode.STREAMING, False),
        ("Spark", RuntimeExecutionMode.STREAMING, False),
    ],
)
def test_exchange_mode_is_selected(
    config: Configuration, exchange: str, mode: RuntimeExecutionMode, resident_slots: bool
) -> None:
    config.set_string("millstream.exchange", exchange).set_integer("millstream.epoch.max-records", 10)
    env = Env.get_execution_environment(config)
    env.set_runtime_mode(mode)
    before = spark_jobs()
    held = CollectSink()
    env.from_source(NumberSequenceSource(0, 99)).map(lambda x: is_held()).sink_to(held)
    env.execute()
    assert set(held.results()) == {resident_slots}
    if resident_slots:
        assert spark_jobs() == before + 1


def is_held() -> bool:
    """Return whether a slot host forked this process."""
    return Path(f"/proc/{os.getppid()}/comm").read_text().strip() == "millstream-host"


def test_exchange_mode_rejects_invalid_value(config: Configuration) -> None:
    env = Env.get_execution_environment(config.set_string("millstream.exchange", "pigeons"))
    env.from_collection([1]).add_sink(lambda v: None)
    with pytest.raises(InvalidProgramError, match="exchange is 'pigeons': it must be one of resident, spark, auto"):
        env.execute()


# --- backpressure


def test_skewed_records_backpressure_slow_slot(config: Configuration) -> None:
    """Memory is bounded, the sources wait for the slow subtask, and the job's view shows the backpressure."""
    env = Env.get_execution_environment(config).set_parallelism(4)

    def slow(record: tuple[int, bytes]) -> int:
        time.sleep(0.0002)
        return record[0]

    numbers = env.from_source(DataGeneratorSource(lambda i: (i, b"x" * 1000), count=50_000_000))
    numbers.key_by(lambda t: 0).map(slow).add_sink(lambda v: None)
    client = env.execute_async()
    wait_until(lambda: len(slot_processes()) == 4)
    source, sink = (v.id for v in job_of(client).view.plan.vertices)

    def is_held_back(view: JobView, subtask: int) -> bool:
        reported = view.traffic(source, subtask)
        return reported is not None and reported.back_pressured > max(1.0, reported.busy, reported.idle)

    peak, began = 0, time.monotonic()
    while True:
        peak = max(peak, *(p.memory_info().rss for p in slot_processes()))
        view, seconds = job_of(client).view, time.monotonic() - began
        if seconds > 3 and all(is_held_back(view, i) for i in range(4)):
            break
        assert seconds < 30, [view.traffic(source, i) for i in range(4)]
        time.sleep(0.05)
    client.cancel().result(20)
    # The slow slot processes at most 5,000 per second.
    assert sum(view.progress.subtasks[source, i].records_in for i in range(4)) < 10_000 * (seconds + 2)
    assert peak < 250 << 20, peak >> 20
    traffic = {
        (v, i): reported for v in (source, sink) for i in range(4) if (reported := view.traffic(v, i)) is not None
    }
    assert len(traffic) == 8
    busy = [i for i in range(4) if traffic[sink, i].busy > 1]
    assert len(busy) == 1
    for address, reported in traffic.items():
        assert len(reported.channels) == 3
        if address == (sink, busy[0]):
            assert reported.busy > 2 * reported.idle
            assert sum(c.received for c in reported.channels) > 1_000_000
        elif address[0] == sink:
            assert reported.idle > 2 * reported.busy


def streams_here() -> set[str]:
    """Return the stream types of this process's connections within the job."""
    return {type(o._stream).__name__ + o.socket.family.name for o in gc.get_objects() if isinstance(o, Connection)}


@pytest.mark.parametrize(("is_encrypted", "stream"), [("false", "PlainStreamAF_INET"), ("true", "TlsStreamAF_INET")])
def test_exchange_runs_epochs_over_tcp(config: Configuration, is_encrypted: str, stream: str) -> None:
    config.set_string("millstream.exchange.transport", "tcp").set_integer("millstream.epoch.max-records", 50)
    config.set_string("security.ssl.internal.enabled", is_encrypted)
    env = Env.get_execution_environment(config).set_parallelism(3)
    ones = env.from_source(NumberSequenceSource(0, 999)).map(lambda x: (x % 7, 1))
    counts = ones.key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    results = list(counts.map(lambda t: (t, streams_here())).execute_and_collect())
    assert sorted(max(t for t, _ in results if t[0] == k) for k in range(7)) == [
        (k, len(range(k, 1000, 7))) for k in range(7)
    ]
    assert len(results) == 1000
    assert {name for _, names in results for name in names} == {stream}


@pytest.mark.parametrize(
    ("settings", "error_text"),
    [
        ({"millstream.exchange.transport": "udp"}, "transport is 'udp': it must be one of unix, tcp, auto"),
        (
            {"millstream.exchange.tls.certificate": "a.crt"},
            "tls.certificate and millstream.exchange.tls.key is set: set both or neither",
        ),
        (
            {"millstream.exchange.tls.certificate": "a.crt", "millstream.exchange.tls.key": "a.key"},
            r"'a.crt' \(certificate\) cannot be read on host",
        ),
        (
            {"security.ssl.internal.keystore": "a.jks"},
            "names a Java keystore, which millstream does not read",
        ),
    ],
)
def test_exchange_rejects_invalid_settings(config: Configuration, settings: dict[str, str], error_text: str) -> None:
    config.add_all(Configuration.from_dict({"security.ssl.internal.enabled": "true", **settings}))
    env = Env.get_execution_environment(config)
    env.from_collection([1]).add_sink(lambda v: None)
    with pytest.raises(InvalidProgramError, match=error_text):
        env.execute()


def test_job_falls_back_to_spark_shuffle_without_slots(
    config: Configuration, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As with hosts that cannot reach each other: the start timeout is too short here."""
    monkeypatch.setattr(driver, "START_SECONDS", 0.0)
    env = Env.get_execution_environment(config.set_string("millstream.exchange", "auto"))
    held = CollectSink()
    env.from_source(NumberSequenceSource(0, 99)).map(lambda x: (x, is_held())).sink_to(held)
    env.execute()
    assert sorted(held.results()) == [(x, False) for x in range(100)]
    assert "The job falls back to Spark's shuffle" in caplog.text
    assert executions_that_hold() == 0


FOREIGN = """
from pyspark import SparkConf, SparkContext
context = SparkContext(conf=SparkConf().setMaster("local[2]").set("spark.ui.enabled", "false"))
context.setLogLevel("OFF")
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
settings = {"millstream.epoch.max-records": "50", "millstream.exchange": "resident"}
env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings)).set_parallelism(3)
pairs = env.from_source(NumberSequenceSource(0, 999)).map(lambda x: (x % 7, 1))
counts = list(pairs.key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).execute_and_collect())
print(len(counts), sorted(dict(sorted(counts)).items()))
"""


def test_exchange_runs_on_existing_spark_session(tmp_path: Path) -> None:
    """Spark's stock daemon is sufficient."""
    program = tmp_path / "foreign.py"
    program.write_text(FOREIGN)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=300)
    expected = sorted((k, len(range(k, 1000, 7))) for k in range(7))
    assert done.stdout.splitlines()[-1:] == [f"1000 {expected}"], done.stderr


CLUSTER = """
import sys
from pathlib import Path
from millstream.common import Configuration
from millstream.common.faults import SETTING
from millstream.spark import resident_epochs
from millstream.spark.executors import executors, read_log, threads_of
from tests.faults import job

hosts, real = [], resident_epochs.HostFunction
def record(*args):
    hosts.append(real(*args))
    return hosts[-1]
resident_epochs.HostFunction = record
directory = Path(sys.argv[1])
settings = {
    "spark.master": "local-cluster[2,2,1024]",
    "parallelism.default": "5",
    "millstream.exchange": "auto",
    "security.ssl.internal.enabled": "true",
    SETTING: f"task.after-stage|kill-executor|2|{directory / 'killed'}",
}
client = job.build(directory, Configuration.from_dict(settings)).execute_async()
client.get_job_execution_result().result(250)
ids = {p.executor for p in client.job.view.progress.locations.values()}
listed = executors()
logs = {name: bool(read_log(url)) for name, url in listed[0].logs.items()}
print([{e.id for e in listed} >= ids, len(ids), logs, bool(threads_of(listed[0].id))])
print([(h.tasks, h.credentials.identity is not None, isinstance(h.driver, tuple)) for h in hosts])
"""


def test_exchange_recovers_from_killed_executor(tmp_path: Path) -> None:
    """Driver and executors are separate processes: five slots in three tasks over TLS; one core is unused."""
    program = tmp_path / "cluster.py"
    program.write_text(CLUSTER)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr
    *_, workers, executions = map(ast.literal_eval, done.stdout.splitlines()[-2:])
    # The page and REST show the executors of the slots, with their logs and thread dumps.
    are_known, places, logs, has_threads = workers
    assert are_known and 1 <= places <= 2 and logs == {"stdout": False, "stderr": True} and has_threads
    assert executions[0] == (3, True, True)
    # If the executor is not replaced in time, fewer executors host the slots.
    assert len(executions) > 1
    assert all(execution[1:] == (True, True) for execution in executions)
    assert (tmp_path / "killed").exists()
    assert survivor.results(tmp_path) == survivor.expected()
