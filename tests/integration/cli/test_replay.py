"""`millstream replay`: runs the record of a stored failure report again, alone; the file is never sent to a server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from starlette.testclient import TestClient

from millstream.cli.replay import replay
from millstream.common import Time, Types, WatermarkStrategy
from millstream.common.configuration import Configuration
from millstream.common.errors import JobExecutionError
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.datastream import (
    AggregateFunction,
    AsyncDataStream,
    AsyncFunction,
    CoMapFunction,
    DataStream,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.state import ValueStateDescriptor
from millstream.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from millstream.service.app import Service, make_app
from millstream.service.registry import Registry
from tests.support.helpers import job_of

Numbers = DataStream[int]


class Stamp(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value) * 100


def stamped(numbers: Numbers) -> Numbers:
    return numbers.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamp())
    )


class StatefulFunction(KeyedProcessFunction[int, int, int]):
    def open(self, runtime_context: Any) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.INT()))

    def process_element(self, value: int, ctx: Any) -> Any:
        before = self.sum.value() or 0
        yield 100 // (value - 7) + before
        self.sum.update(before + value)


class Timed(StatefulFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        self.sum.update((self.sum.value() or 0) + value)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield timestamp
        yield 1 // (timestamp - 701) + self.sum.value()


class Changes(StatefulFunction):
    """Changes its state before it fails."""

    def process_element(self, value: int, ctx: Any) -> Any:
        self.sum.update((self.sum.value() or 0) + value)
        yield 1 // (self.sum.value() - 16)


class ChangesInTimer(Timed):
    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        self.sum.update((self.sum.value() or 0) + 1000)
        if timestamp == 701:
            # All records arrive before the first timer; this is the fourth timer of its key.
            yield 1 // (self.sum.value() - 4025)


class Tagged(ProcessFunction[int, Any]):
    def process_element(self, value: int, ctx: Any) -> Any:
        yield OutputTag("odd", Types.INT()), value
        yield 1 // (value - 7)


class Windowed(ProcessWindowFunction[int, int, int, Any]):
    def process(self, key: int, context: Any, elements: Any) -> Any:
        yield 1 // (sum(elements) - 7)


class Average(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0, 0

    def add(self, value: int, accumulator: Any) -> Any:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: Any) -> Any:
        return 1 // (accumulator[0] - 7)

    def merge(self, a: Any, b: Any) -> Any:
        return a[0] + b[0], a[1] + b[1]


class Second(CoMapFunction[int, int, int]):
    def map1(self, value: int) -> int:
        return value

    def map2(self, value: int) -> int:
        return 1 // (value - 7)


class Asks(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(0)
        return [1 // (value - 7)]


def windows(numbers: Numbers) -> Any:
    return stamped(numbers).key_by(lambda x: x % 2).window(TumblingEventTimeWindows.of(Time.milliseconds(100)))


# Functions that fail on 7 of the numbers 0 to 9, in the user's own line; and the expected report of record and state.
CASES: dict[str, tuple[Callable[[Numbers], DataStream[Any]], str, list[str]]] = {
    "map": (lambda s: s.map(lambda x: 1 // (x - 7)), "lambda s: s.map", ["record: 7\n"]),
    "filter": (lambda s: s.filter(lambda x: bool(1 // (x - 7))), "s.filter(", ["record: 7\n"]),
    "flat map": (lambda s: s.flat_map(lambda x: [1 // (x - 7)]), "s.flat_map", ["record: 7\n"]),
    "process": (lambda s: s.process(Tagged()), "yield 1 // (value - 7)", ["record: 7\n"]),
    "behind others": (
        lambda s: s.map(lambda x: x + 1).map(lambda x: 1 // (x - 8)).map(str),
        "1 // (x - 8)",
        ["record: 8\n"],
    ),
    "keyed process": (
        lambda s: s.key_by(lambda x: x % 2).process(StatefulFunction()),
        "100 // (value - 7)",
        ["record: 7\n", "key: 1\n", "state: sum = 9\n"],
    ),
    "reduce": (
        lambda s: s.key_by(lambda x: x % 2).reduce(lambda a, b: a + 1 // (b - 7) * 0 + b),
        "1 // (b - 7)",
        ["record: 7\n", "key: 1\n", "state: _reduce = 9\n"],
    ),
    "timer": (
        lambda s: stamped(s).key_by(lambda x: x % 2).process(Timed()),
        "1 // (timestamp - 701)",
        ["fired: 701\n", "key: 1\n", "state: sum = "],
    ),
    "state that it had changed": (
        lambda s: s.key_by(lambda x: x % 2).process(Changes()),
        "1 // (self.sum.value() - 16)",
        ["record: 7\n", "key: 1\n", "state: sum = 9\n"],
    ),
    "state that a timer had changed": (
        lambda s: stamped(s).key_by(lambda x: x % 2).process(ChangesInTimer()),
        "1 // (self.sum.value() - 4025)",
        ["fired: 701\n", "key: 1\n"],
    ),
    "count window": (
        lambda s: s.key_by(lambda x: x % 2).count_window(2).reduce(lambda a, b: a + 1 // (b - 7)),
        "1 // (b - 7)",
        ["record: 7\n", "key: 1\n", "state: _window_contents = 5\n", "state: _trigger.count = 1\n"],
    ),
    "record of a window": (
        lambda s: (
            stamped(s)
            .key_by(lambda x: x % 2)
            .window(TumblingEventTimeWindows.of(Time.seconds(10)))
            .reduce(lambda a, b: a + b + 1 // (b - 7))
        ),
        "1 // (b - 7)",
        ["record: 7\n", "timestamp: 700\n", "key: 1\n", "state: _panes = {1: 7}\n"],
    ),
    "window": (lambda s: windows(s).process(Windowed()), "sum(elements) - 7", ["fired: 799", "key: 1\n", "= [7]\n"]),
    "window of a reduce": (
        lambda s: windows(s).reduce(lambda a, b: a + b, Windowed()),
        "sum(elements) - 7",
        ["fired:", "7\n", "key: 1\n"],
    ),
    "result of an aggregate": (
        lambda s: windows(s).aggregate(Average()),
        "accumulator[0] - 7",
        ["(7, 1)\n", "key: 1\n"],
    ),
    "session": (
        lambda s: (
            stamped(s.filter(lambda x: x == 7))
            .key_by(lambda x: x % 2)
            .window(EventTimeSessionWindows.with_gap(Time.milliseconds(10)))
            .process(Windowed())
        ),
        "sum(elements) - 7",
        ["fired: 709", "key: 1\n"],
    ),
    "second input": (lambda s: s.connect(s).map(Second()), "1 // (value - 7)", ["record: 7\n"]),
    "async": (
        lambda s: AsyncDataStream.unordered_wait(s, Asks(), Time.seconds(5), 2, Types.INT()),
        "1 // (value - 7)",
        ["record: 7\n"],
    ),
    "sink function": (lambda s: s.add_sink(lambda x: 1 // (x - 7)), "1 // (x - 7)", ["record: 7\n"]),  # type: ignore[dict-item, return-value]
}


def environment(directory: Path, **more: str) -> StreamExecutionEnvironment:
    settings = {
        "millstream.engine": "local",
        "millstream.quiet": "true",
        "millstream.failures.dir": str(directory),
        "parallelism.default": "1",
    }
    return StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({**settings, **more}))


def fail(env: StreamExecutionEnvironment, name: str = "job") -> str:
    with pytest.raises(JobExecutionError) as raised:
        env.execute(name)
    return str(raised.value)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(replay, list(arguments), catch_exceptions=False)


def report_files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


@pytest.mark.parametrize("name", CASES)
def test_replay_reproduces_failure_of_operator(name: str, tmp_path: Path) -> None:
    build, line, reported = CASES[name]
    env = environment(tmp_path)
    stream = build(env.from_collection(list(range(10)), Types.INT()))
    if isinstance(stream, DataStream):
        stream.add_sink(lambda x: None)
    message = fail(env)
    (file,) = report_files(tmp_path)
    assert file.stat().st_mode & 0o777 == 0o600
    done = run(str(file))
    assert done.exit_code == 1
    # The user's own traceback is first, and equals that of the job.
    assert done.stdout.startswith("Traceback (most recent call last):\n"), done.output
    assert line in done.stdout and "ZeroDivisionError" in done.stdout
    assert done.stdout.splitlines()[-1] in message
    for text in reported:
        assert text in done.stderr, done.stderr
    assert f"failure 1 of job 'job' ({file.name[:32]})" in done.stderr


def test_replay_restores_state_of_earlier_epochs(tmp_path: Path) -> None:
    env = environment(tmp_path, **{"millstream.epoch.max-records": "2"})
    env.from_collection(list(range(10)), Types.INT()).key_by(lambda x: x % 2).process(Changes()).print()
    message = fail(env)
    assert "epoch 1\n" not in message
    done = run(str(report_files(tmp_path)[0]))
    assert done.exit_code == 1 and "state: sum = 9\n" in done.stderr, done.output


# The functions of the next tests read it: set while the job runs, cleared before the replay.
broken = threading.Event()


class Mended(KeyedProcessFunction[int, Any, Any]):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.INT()))
        self.unit = runtime_context.get_job_parameter("unit", "?")
        self.secret = runtime_context.get_job_parameter("db.password", "?")

    def process_element(self, value: int, ctx: Any) -> Any:
        seen = self.seen.value() or 0
        if seen == 3 and broken.is_set():
            raise ValueError("broken")
        self.seen.update(seen + 1)
        yield OutputTag("side", Types.INT()), value
        yield ctx.get_current_key(), seen, self.unit, self.secret, ctx.timestamp()


def test_replay_prints_emitted_records_after_fix(tmp_path: Path) -> None:
    broken.set()
    env = environment(tmp_path, **{"unit": "kg", "db.password": "hush"})
    mended = stamped(env.from_collection(list(range(10)), Types.INT())).key_by(lambda x: x % 2).process(Mended())
    mended.get_side_output(OutputTag("side", Types.INT())).print()
    fail(env, "mended")
    broken.clear()
    done = run("mended", "-D", f"millstream.failures.dir={tmp_path}", "-D", "db.password=given")
    assert done.exit_code == 0, done.output
    assert done.stdout == "side output 'side': 6  (timestamp 600)\n(0, 3, 'kg', 'given', 600)  (timestamp 600)\n"
    assert "The operator did not fail this time, and emitted 2 records." in done.stderr
    assert "hush" not in report_files(tmp_path)[0].read_text()


def test_replay_selects_failure_of_job_by_number(tmp_path: Path) -> None:
    broken.set()
    settings = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "2"}
    env = environment(tmp_path, **settings, **{"restart-strategy.fixed-delay.delay": "1 ms"})
    env.from_collection([1, 2]).map(lambda x: 1 // 0).print()
    job = env.execute_async("thrice")
    registry = Registry()
    registry.add(job_of(job), {})
    with pytest.raises(JobExecutionError):
        job.get_job_execution_result().result(20)
    job_id = str(job.get_job_id())
    client = TestClient(make_app(Service(registry)))
    entries = client.get(f"/jobs/{job_id}/exceptions").json()["exceptionHistory"]["entries"]
    assert [e["replay"]["failure"] for e in entries] == [3, 2, 1]
    assert entries[0]["replay"] == {
        "failure": 3, "kept": True, "note": "", "command": f"millstream replay {job_id} --failure 3",
    }  # fmt: skip
    options = ("-D", f"millstream.failures.dir={tmp_path}")
    assert "failure 2 of job" in run(job_id[:8], "--failure", "2", *options).stderr
    assert "failure 3 of job" in run("thrice", *options).stderr
    assert "Job thrice has no failure 4: there are 1, 2, 3." in run("thrice", "--failure", "4", *options).stderr
    assert "has no failure of job another" in run("another", *options).stderr


def test_replay_reads_failures_of_archived_job(tmp_path: Path) -> None:
    env = environment(tmp_path / "kept", **{"jobmanager.archive.fs.dir": str(tmp_path / "archive")})
    env.from_collection([1]).map(lambda x: 1 // 0).print()
    fail(env)
    end = time.monotonic() + 20
    while not (tmp_path / "archive").exists() or len(list((tmp_path / "archive").glob("*.failure-1"))) < 1:
        assert time.monotonic() < end
        time.sleep(0.02)
    archive, failure = sorted((tmp_path / "archive").iterdir())
    assert failure.name == f"{archive.name}.failure-1" and failure.stat().st_mode & 0o777 == 0o600
    os.remove(report_files(tmp_path / "kept")[0])
    done = run(str(archive), "--failure", "1")
    assert done.exit_code == 1 and "ZeroDivisionError" in done.stdout
    refused = run("s3://bucket/archive/" + archive.name)
    assert "is on the network, and a replay runs the code in the file" in refused.stderr


def test_failure_report_names_oversized_or_unpicklable_parts(tmp_path: Path) -> None:
    env = environment(tmp_path, **{"millstream.failures.keep-bytes": "300", "millstream.epoch.max-records": "1"})
    env.from_collection([1, 1, 0]).key_by(lambda x: 5).process(LargeStateFunction()).print()
    fail(env)
    done = run(str(report_files(tmp_path)[0]))
    assert "the state of its key was not captured: pickled it exceeds the 300 bytes" in done.stderr

    env = environment(tmp_path / "large", **{"millstream.failures.keep-bytes": "300"})
    env.from_collection(["x" * 1000]).map(lambda x: 1 // 0).print()
    job = env.execute_async("large")
    with pytest.raises(JobExecutionError):
        job.get_job_execution_result().result(20)
    (failure,) = job_of(job).view.failures
    assert not failure.can_replay and failure.note.startswith("the record was not captured: pickled it exceeds the 300")
    assert not (tmp_path / "large").exists()

    env = environment(tmp_path / "locked")
    env.from_collection([1]).map(lambda x: threading.Lock()).map(lambda x: 1 // 0).print()
    job = env.execute_async("locked")
    with pytest.raises(JobExecutionError):
        job.get_job_execution_result().result(20)
    (failure,) = job_of(job).view.failures
    assert "the record was not captured: it cannot be pickled (TypeError: cannot pickle '_thread.lock'" in failure.note


class LargeStateFunction(KeyedProcessFunction[int, int, int]):
    def open(self, runtime_context: Any) -> None:
        self.hoard = runtime_context.get_state(ValueStateDescriptor("hoard", Types.STRING()))

    def process_element(self, value: int, ctx: Any) -> Any:
        self.hoard.update("x" * 1000)
        yield 1 // value


def test_failure_report_is_not_written_with_keep_bytes_zero(tmp_path: Path) -> None:
    env = environment(tmp_path, **{"millstream.failures.keep-bytes": "0"})
    env.from_collection([1]).map(lambda x: 1 // 0).print()
    fail(env)
    assert report_files(tmp_path) == []


def test_replay_rejects_file_of_another_user_or_format(tmp_path: Path) -> None:
    env = environment(tmp_path)
    env.from_collection([1]).map(lambda x: 1 // 0).print()
    fail(env)
    (file,) = report_files(tmp_path)
    file.chmod(0o666)
    done = run(str(file))
    assert done.exit_code == 1 and "Other users can write to" in done.stderr and "Zero" not in done.output
    file.chmod(0o600)
    answer = json.loads(file.read_bytes())
    file.write_text(json.dumps({**answer, "millstream-failure": 9}))
    assert "has format 9" in run(str(file)).stderr
    file.write_text("[]")
    assert "is not a failure report of millstream" in run(str(file)).stderr


def test_replay_with_pdb_stops_in_frame_of_user(tmp_path: Path) -> None:
    env = environment(tmp_path)
    env.from_collection(["{"]).map(parsed).print()
    fail(env)
    command = [sys.executable, "-m", "millstream.cli.main", "replay", str(report_files(tmp_path)[0]), "--pdb"]
    commands = "p 'it is ' + mine\nq\n"
    done = subprocess.run(command, input=commands, capture_output=True, text=True, timeout=60, env=worker_environment())
    assert "'it is {'" in done.stdout and done.returncode == 1, done


def worker_environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def parsed(text: str) -> Any:
    mine = text
    return json.loads(mine)


def test_failure_reports_are_limited_in_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from millstream.jobmaster import failure_reports

    monkeypatch.setattr(failure_reports, "_MAX_REPORTS", 3)
    for _ in range(5):
        env = environment(tmp_path)
        env.from_collection([1]).map(lambda x: 1 // 0).print()
        fail(env)
    assert len(report_files(tmp_path)) == 3


def test_replay_reproduces_failure_of_sql_function(tmp_path: Path) -> None:
    from millstream.table import EnvironmentSettings, StreamTableEnvironment
    from millstream.table.udf import udf

    env = environment(tmp_path)
    tables = StreamTableEnvironment.create(env, EnvironmentSettings.in_streaming_mode())
    tables.create_temporary_function("inverse", udf(lambda x: 1 // (x - 7), result_type="INT"))
    numbers = tables.from_elements([(i,) for i in range(10)], ["n"])
    tables.create_temporary_view("numbers", numbers)
    with pytest.raises(JobExecutionError):
        list(tables.execute_sql("SELECT inverse(CAST(n AS INT)) FROM numbers").collect())
    done = run(str(report_files(tmp_path)[0]))
    assert done.exit_code == 1 and "1 // (x - 7)" in done.stdout and "ZeroDivisionError" in done.stdout
