"""Slots that stay: how soon they are missed, how soon they go, and that nothing of them is left."""

from __future__ import annotations

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
from helpers import CountWithPid, PushedReader, restart_at_once, slot_processes, wait_until
from pyspark import SparkContext

from millstream.common import Configuration
from millstream.common.errors import InvalidProgramError, JobExecutionError
from millstream.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.spark.exchange_epochs import executions_that_hold
from millstream.testing import CollectSink

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


def resists(started: Path) -> Callable[[int], int]:
    def resist(value: int) -> int:
        started.touch()
        while True:
            try:
                while True:
                    pass
            except BaseException:
                continue

    return resist


def start_spinning(env: Env, started: Path, how: Callable[[Path], Callable[[int], int]] = spins) -> Any:
    env.from_source(NumberSequenceSource(0, 9)).map(how(started)).add_sink(lambda v: None)
    client = env.execute_async()
    wait_until(started.exists)
    wait_until(lambda: len(slot_processes()) == 2)
    return client


def test_a_slot_that_is_killed_is_missed_within_a_second(env: Env, tmp_path: Path) -> None:
    client = start_spinning(env, tmp_path / "started")
    begun = time.monotonic()
    slot_processes()[0].kill()
    with pytest.raises(JobExecutionError, match="worker process died"):
        client.get_job_execution_result().result(30)
    assert time.monotonic() - begun < 1
    assert slot_processes() == []


def start_waiting(env: Env) -> tuple[Any, PushedReader, CollectSink]:
    """Start a job that has counted two keys twice, in two slots, and waits for input."""
    reader, sink = PushedReader(), CollectSink()
    env.from_source(reader).key_by(lambda row: row[0] % 2).process(CountWithPid()).sink_to(sink)
    client = env.execute_async()
    reader.push(4)
    wait_until(lambda: len(sink.results()) == 4)
    return client, reader, sink


def test_a_slot_that_is_killed_while_nothing_happens_is_missed_at_once(env: Env) -> None:
    client, _, _ = start_waiting(env)
    time.sleep(0.3)
    begun = time.monotonic()
    slot_processes()[1].kill()
    with pytest.raises(JobExecutionError, match="worker process died"):
        client.get_job_execution_result().result(30)
    assert time.monotonic() - begun < 1
    assert slot_processes() == []


def test_a_slot_that_is_killed_while_nothing_happens_is_replaced_at_once(env: Env) -> None:
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


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_state_is_written_with_checkpoints_not_with_epochs(config: Configuration, backend: str, tmp_path: Path) -> None:
    config.set_string("execution.checkpointing.dir", str(tmp_path)).set_string("state.backend.type", backend)
    env = Env.get_execution_environment(config).set_buffer_timeout(0)
    restart_at_once(env)
    env.enable_checkpointing(400)
    client, reader, sink = start_waiting(env)
    cuts, begun = reader.cuts, time.monotonic()
    files: set[str] = set()
    while reader.cuts - cuts < 100 and time.monotonic() < begun + 20:
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


@pytest.mark.parametrize(("how", "seconds"), [(spins, 1), (resists, 2)])
def test_a_job_that_spins_is_cancelled(env: Env, tmp_path: Path, how: Any, seconds: float) -> None:
    client = start_spinning(env, tmp_path / "started", how)
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


def test_slots_end_by_themselves_when_the_driver_is_killed(tmp_path: Path) -> None:
    """Java is stopped meanwhile, so that it cannot be what ends them."""
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


def test_jobs_do_not_wait_for_each_others_slots(config: Configuration) -> None:
    """On two cores: five jobs at once, none of which ends, and a job of Spark's own."""
    started = []
    for _ in range(5):
        env, reader, sink = Env.get_execution_environment(config), PushedReader(), CollectSink()
        env.from_source(reader).key_by(lambda row: row[0]).map(lambda row: row[0]).sink_to(sink)
        started.append((env.execute_async(), reader, sink))
        reader.push(10)
    for _, _, sink in started:
        wait_until(lambda sink=sink: sorted(sink.results()) == list(range(10)))  # type: ignore[misc]
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
    ("exchange", "mode", "slots_stay"),
    [
        ("auto", RuntimeExecutionMode.STREAMING, True),
        ("auto", RuntimeExecutionMode.BATCH, False),
        ("resident", RuntimeExecutionMode.BATCH, True),
        ("spark", RuntimeExecutionMode.STREAMING, False),
        ("Spark", RuntimeExecutionMode.STREAMING, False),
    ],
)
def test_the_choice(config: Configuration, exchange: str, mode: RuntimeExecutionMode, slots_stay: bool) -> None:
    config.set_string("millstream.exchange", exchange).set_integer("millstream.epoch.max-records", 10)
    env = Env.get_execution_environment(config)
    env.set_runtime_mode(mode)
    before = spark_jobs()
    held = CollectSink()
    env.from_source(NumberSequenceSource(0, 99)).map(lambda x: is_held()).sink_to(held)
    env.execute()
    assert set(held.results()) == {slots_stay}
    if slots_stay:
        assert spark_jobs() == before + 1


def is_held() -> bool:
    """Tell whether this process was forked by one that holds slots."""
    return Path(f"/proc/{os.getppid()}/comm").read_text().strip() == "millstream-host"


def test_a_wrong_choice_is_refused(config: Configuration) -> None:
    env = Env.get_execution_environment(config.set_string("millstream.exchange", "pigeons"))
    env.from_collection([1]).add_sink(lambda v: None)
    with pytest.raises(InvalidProgramError, match="millstream.exchange='pigeons' is none of resident, spark, auto"):
        env.execute()


FOREIGN = """
from pyspark import SparkConf, SparkContext
context = SparkContext(conf=SparkConf().setMaster("{master}").set("spark.ui.enabled", "false"))
context.setLogLevel("OFF")
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
settings = {{"millstream.epoch.max-records": "50", "millstream.exchange": "resident"}}
env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings)).set_parallelism(3)
pairs = env.from_source(NumberSequenceSource(0, 999)).map(lambda x: (x % 7, 1))
found = list(pairs.key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).execute_and_collect())
print(len(found), sorted(dict(sorted(found)).items()))
"""


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_a_spark_of_somebody_elses(tmp_path: Path, master: str) -> None:
    """The stock daemon will do; and where executors are processes of their own, slots talk over TCP."""
    program = tmp_path / "foreign.py"
    program.write_text(FOREIGN.format(master=master))
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=100)
    expected = sorted((k, len(range(k, 1000, 7))) for k in range(7))
    assert done.stdout.splitlines()[-1:] == [f"1000 {expected}"], done.stderr
