"""Savepoints of real jobs: read, compared, changed, rewritten and restored."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.spark.session import get_context
from millstream.state_processor import Savepoint
from millstream.testing import CollectSink
from tests.support.helpers import PushedReader, job_of, wait_until

Env = StreamExecutionEnvironment
MILLSTREAM = Path(sys.executable).with_name("millstream")
pytestmark = pytest.mark.spark

# A separate module, so that workers and commands with it on their path import its classes by name.
PROGRAM = """
import sys
from dataclasses import dataclass

from millstream.common import Time, Types, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.functions import KeyedBroadcastProcessFunction
from millstream.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.testing import CollectSink

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


@dataclass(frozen=True)
class Order:
    number: int


class Totals(KeyedProcessFunction):
    def __init__(self, kind):
        self.kind = kind

    def open(self, context):
        self.total = context.get_state(ValueStateDescriptor("total", self.kind))
        self.seen = context.get_list_state(ListStateDescriptor("seen", Types.INT()))
        self.by_rest = context.get_map_state(MapStateDescriptor("by rest", Types.INT(), Types.INT()))
        self.last = context.get_state(ValueStateDescriptor("last order"))

    def process_element(self, value, ctx):
        self.total.update((self.total.value() or 0) + value)
        self.seen.add(value)
        self.by_rest.put(value % 3, value)
        self.last.update(Order(value))
        ctx.timer_service().register_event_time_timer(value + 1000)
        yield "total", ctx.get_current_key(), self.total.value()

    def on_timer(self, timestamp, ctx):
        yield "timer", ctx.get_current_key(), timestamp, self.total.value(), self.seen.get()


class Ruled(KeyedBroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield "ruled", value, dict(ctx.get_broadcast_state(RULES).items())

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(*value)
        return iter(())


def build(env, source, sink, source_uid="numbers", uid="totals", kind=Types.INT()):
    marks = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value)
    read = env.from_source(source).uid(source_uid).set_parallelism(1)
    numbers = read.map(lambda r: r[0] if isinstance(r, tuple) else r).uid("ints").set_parallelism(1)
    keyed = numbers.assign_timestamps_and_watermarks(marks).uid("marks").set_parallelism(1).key_by(lambda i: i % 4)
    keyed.process(Totals(kind)).uid(uid).sink_to(sink).uid("totals out")
    windows = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(100)))
    windows.reduce(lambda a, b: a + b).uid("windows").map(lambda s: ("window", s)).sink_to(sink).uid("windows out")
    rules = env.from_collection([("factor", 2)]).uid("rules in").broadcast(RULES)
    keyed.connect(rules).process(Ruled()).uid("rules").sink_to(sink).uid("rules out")


if __name__ == "__main__":
    source_uid, uid, kind = sys.argv[1:4]
    environment, collected = StreamExecutionEnvironment.get_execution_environment(), CollectSink()
    build(environment, NumberSequenceSource(60, 67), collected, source_uid, uid, getattr(Types, kind)())
    environment.execute("orders")
    print(sorted(r for r in collected.results() if r[0] == "total"))
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("program")
    path = directory / "orders_of_a_test.py"
    path.write_text(PROGRAM)
    sys.path.insert(0, str(directory))
    yield path
    sys.path.remove(str(directory))


@pytest.fixture
def orders(program: Path) -> Any:
    return importlib.import_module(program.stem)


def millstream(*arguments: Any, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    if path is not None:
        environment["PYTHONPATH"] = f"{environment.get('PYTHONPATH', '')}:{path}"
    command = [str(MILLSTREAM), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)


def totals(sink: CollectSink) -> list[Any]:
    return [r for r in sink.results() if r[0] == "total"]


def numbers_read(client: Any) -> int:
    """Return how many numbers the job has processed; output only counts with a checkpoint."""
    job = job_of(client)
    return int(job.view.progress.records_in(v.id for v in job.view.plan.vertices if v.head.uid == "numbers"))


@pytest.fixture(scope="module")
def snapshots(program: Path, tmp_path_factory: pytest.TempPathFactory, spark_files: Path) -> dict[str, str]:
    """Run the job; return a savepoint and a copy of a checkpoint after 60 records, and a savepoint after 90."""
    directory = tmp_path_factory.mktemp("taken")
    settings = {
        "spark.master": "local[2]",
        "spark.local.dir": str(spark_files),
        "millstream.quiet": "true",
        "parallelism.default": "2",
        "execution.checkpointing.interval": "1 h",
        "execution.checkpointing.dir": str(directory / "checkpoints"),
    }
    env, reader, sink = Env.get_execution_environment(Configuration.from_dict(settings)), PushedReader(), CollectSink()
    importlib.import_module(program.stem).build(env, reader, sink)
    client = env.execute_async("orders")
    locations: dict[str, str] = {}
    reader.push(60)
    wait_until(lambda: numbers_read(client) == 60)
    locations["first"] = client.trigger_savepoint(str(directory / "savepoints")).result()
    # While the job runs.
    checkpoint = Savepoint.load(client.trigger_checkpoint().result())
    assert checkpoint.kind == "checkpoint"
    locations["checkpoint"] = checkpoint.write(directory / "from-checkpoint")
    reader.push(30)
    wait_until(lambda: numbers_read(client) == 90)
    locations["second"] = client.stop_with_savepoint(savepoint_directory=str(directory / "savepoints")).result()
    client.get_job_execution_result().result()
    return locations


def start(env: Env, orders: Any, location: str, numbers: int, **about: Any) -> list[Any]:
    """Restore a savepoint, push `numbers` numbers, and return the results."""
    env.get_configuration().set_string("execution.state-recovery.path", location)
    reader, sink = PushedReader(), CollectSink()
    orders.build(env, reader, sink, **about)
    client = env.execute_async("orders")
    reader.push(numbers)
    wait_until(lambda: len(totals(sink)) == numbers - 60)
    client.stop_with_savepoint(True, str(Path(location).parent / "end")).result()
    client.get_job_execution_result().result()
    return sink.results()


def expected(key: int, upto: int) -> int:
    return sum(range(key, upto, 4))


def test_savepoint_lists_state_of_job(snapshots: dict[str, str]) -> None:
    for name in ("first", "checkpoint"):
        savepoint = Savepoint.load(snapshots[name])
        assert (savepoint.kind, savepoint.job_name) == ("savepoint", "orders")
        operators = {o.uid: o for o in savepoint.operators()}
        assert {s.name: (s.kind, s.type, s.rows) for s in operators["totals"].states} == {
            "total": ("value", "Integer", 4),
            "seen": ("list", "Integer", 4),
            "by rest": ("map", "Integer -> Integer", 4),
            "last order": ("value", "", 4),
            "event-timers": ("timers", "", 60),
        }
        assert (operators["totals"].parallelism, operators["marks"].parallelism) == (2, 1)
        assert {r.key: r.value for r in savepoint.keyed_state("totals", "total")} == {
            k: expected(k, 60) for k in range(4)
        }
        assert {(r.key, r.namespace): r.value for r in savepoint.keyed_state("windows", "window-panes")} == {
            (k, 0): expected(k, 60) for k in range(4)
        }
        assert [(r.key, r.value) for r in savepoint.operator_state("rules", "rules")] == [("factor", 2)]
        assert {s.uid: s.position for s in savepoint.sources()}["numbers"] == {"at": 60}


def test_state_commands_list_show_and_compare(snapshots: dict[str, str], program: Path) -> None:
    # Listing needs no class of the program.
    listed = json.loads(millstream("state", "ls", "--json", snapshots["first"]).stdout)
    assert [s["rows"] for o in listed["operators"] if o["uid"] == "totals" for s in o["states"]].count(4) == 4
    arguments = [snapshots["first"], "-o", "totals", "-s", "last order", "-k", 3]
    shown = millstream("state", "show", *arguments)
    assert shown.stdout.splitlines()[-1].split(maxsplit=1) == ["3", "orders_of_a_test.Order(number=59)"]
    # Objects of the program's classes are created only for a trusted file.
    shown = millstream("state", "show", "--trust", *arguments)
    assert shown.returncode == 1
    assert "No module named 'orders_of_a_test'): run this with the program's directory on PYTHONPATH." in shown.stderr
    shown = millstream("state", "show", "--trust", *arguments, path=program.parent)
    assert shown.stdout.splitlines()[-1].split(maxsplit=1) == ["3", "Order(number=59)"]

    def diff(*locations: str) -> dict[tuple[str, str], tuple[int, ...]]:
        result = json.loads(millstream("state", "diff", "--json", *locations, path=program.parent).stdout)
        counts = ("added", "removed", "changed", "same")
        return {(d["operator"], d["state"]): tuple(d[c] for c in counts) for d in result}

    same = diff(snapshots["first"], snapshots["checkpoint"])
    assert len(same) == 7
    assert all(counts[:3] == (0, 0, 0) for counts in same.values())
    by_name = diff(snapshots["first"], snapshots["second"])
    assert by_name["totals", "total"] == (0, 0, 4, 0)
    assert by_name["totals", "event-timers"] == (30, 0, 0, 60)
    assert by_name["rules", "rules"] == (0, 0, 0, 1)


def test_savepoint_state_reads_as_dataframe(snapshots: dict[str, str], config: Configuration) -> None:
    savepoint = Savepoint.load(snapshots["first"], config)
    frame = savepoint.as_dataframe("totals", "total")
    assert frame.schema.simpleString() == "struct<key:bigint,namespace:string,value:bigint>"
    assert {r.key: r.value for r in frame.where("value > 420").collect()} == {
        k: expected(k, 60) for k in range(4) if expected(k, 60) > 420
    }
    spark = SparkSession(get_context(config))
    orders = savepoint.as_dataframe("totals", "last order", spark)
    assert orders.schema["value"].dataType.simpleString() == "struct<number:bigint>"
    by_rest = savepoint.as_dataframe("totals", "by rest").selectExpr("key", "value[0] as third").collect()
    assert {r.key: r.third for r in by_rest} == {0: 48, 1: 57, 2: 54, 3: 51}
    assert savepoint.as_dataframe("rules", "rules").collect()[0].asDict() == {
        "key": "factor",
        "namespace": None,
        "value": 2,
    }
    # The raw files, as text.
    parts = spark.read.parquet(f"{snapshots['first']}/*.parquet")
    (total,) = parts.where("state = 'total'").selectExpr("sum(int(value))").collect()
    assert total[0] == sum(range(60))


@pytest.mark.parametrize("origin", ["first", "checkpoint"])
def test_job_restores_changed_savepoint(origin: str, env: Env, orders: Any, snapshots: Any, tmp_path: Path) -> None:
    savepoint = Savepoint.load(snapshots[origin])
    savepoint.put("totals", "total", 0, 1_000_000)
    savepoint.update("totals", "seen", lambda row: [-1, *row.value])
    savepoint.update("windows", "window-panes", lambda row: row.value + (5000 if row.key == 1 else 0))
    savepoint.update("rules", "rules", lambda row: row.value * 10)
    savepoint.remove("totals", "event-timers", 2)
    savepoint.put("totals", "event-timers", 2, True, namespace=70)
    savepoint.put("totals", "total", "nobody", 7).put("totals", "event-timers", "nobody", True, namespace=70)
    # With another uid and another parallelism.
    written = savepoint.rename("totals", "sums").write(tmp_path / "changed")
    results = start(env.set_parallelism(3 if origin == "first" else 2), orders, written, 90, uid="sums")
    last = {r[1]: r[2] for r in results if r[0] == "total"}
    assert last == {0: 1_000_000 + sum(range(60, 90, 4)), **{k: expected(k, 90) for k in range(1, 4)}}
    timers = {(r[1], r[2]): r for r in results if r[0] == "timer"}
    assert (2, 70) in timers
    assert {t for k, t in timers if k == 2} == {70, *range(1062, 1090, 4)}
    assert timers["nobody", 70][3] == 7
    assert timers[3, 1003][4][:3] == [-1, 3, 7]
    windows = sorted(r[1] for r in results if r[0] == "window")
    assert windows == sorted(expected(k, 90) + (5000 if k == 1 else 0) for k in range(4))
    assert all(r[2] == {"factor": 20} for r in results if r[0] == "ruled")


def test_savepoint_check_compares_program(snapshots: dict[str, str], program: Path) -> None:
    fits = millstream("savepoint", "check", "-p", 3, program, snapshots["first"], "numbers", "totals", "INT")
    assert fits.returncode == 0, fits.stdout + fits.stderr
    line = next(line for line in fits.stdout.splitlines() if " totals " in line)
    assert "2 -> 3" in line
    assert "total (value, 4 rows)" in line
    assert fits.stdout.splitlines()[-1] == f"{program} is compatible."
    lost = millstream("savepoint", "check", program, snapshots["first"], "numbers", "renamed", "INT")
    assert lost.returncode == 1
    assert "the program has no operator with uid 'totals'" in lost.stdout
    assert (
        millstream("savepoint", "check", "-n", program, snapshots["first"], "numbers", "renamed", "INT").returncode == 0
    )
    changed = millstream("savepoint", "check", "-n", program, snapshots["first"], "numbers", "totals", "STRING")
    assert changed.returncode == 1
    assert "state 'total': was declared as Integer and is declared as String now" in changed.stdout


def test_run_restores_savepoint(snapshots: dict[str, str], program: Path) -> None:
    options = ["-p", 2, "-m", "local[2]", "-D", "millstream.quiet=true", "--from-savepoint", snapshots["first"]]
    refused = millstream("run", *options, program, "other numbers", "totals", "INT")
    assert refused.returncode == 1
    assert "(uid 'numbers') matches no operator of the program" in refused.stderr
    done = millstream("run", *options, "--allow-non-restored-state", program, "other numbers", "totals", "INT")
    assert done.returncode == 0, done.stderr
    printed = eval(done.stdout)
    assert printed[-1] == ("total", 3, expected(3, 60) + 63 + 67)
