"""Programs that import pyflink through the alias, on two slots: classes of script and module, windows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

MODULE = """
from pyflink.common import Types
from pyflink.datastream.functions import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.output_tag import OutputTag
from pyflink.datastream.state import ValueState, ValueStateDescriptor

EVEN = OutputTag("even", Types.STRING())

class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.count: ValueState[int] = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value, ctx: KeyedProcessFunction.Context):
        n = (self.count.value() or 0) + 1
        self.count.update(n)
        if n % 2 == 0:
            yield EVEN, f"{value[0]} {n}"
        yield value[0], n
"""

STATE = """
from pyflink.common import Row
from pyflink.datastream import MapFunction, StreamExecutionEnvironment
import pyflink.datastream.functions
from helping_module import EVEN, Count

class Point:
    def __init__(self, name):
        self.name = name

class Name(MapFunction):
    def open(self, runtime_context):
        import pyflink
        import pyflink.common
        assert isinstance(self, pyflink.datastream.functions.MapFunction)
        assert pyflink.common.Row is Row

    def map(self, value):
        assert isinstance(value, Point)
        return value.name, 1

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
points = env.from_collection([Point(c) for c in "abacabad"]).rebalance()
counted = points.map(Name()).key_by(lambda t: t[0]).process(Count())
counted.print()
counted.get_side_output(EVEN).print("even")
env.execute()
"""

WINDOWS = """
from pyflink.common import Duration, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import ProcessWindowFunction, StreamExecutionEnvironment, TimeWindow
from pyflink.datastream.window import TumblingEventTimeWindows

class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]

class Sum(ProcessWindowFunction[tuple, tuple, str, TimeWindow]):
    def process(self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements):
        yield key, context.window().start, sum(e[1] for e in elements)

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1)).with_timestamp_assigner(Second())
env.from_collection([("a", 1), ("b", 2), ("a", 12), ("a", 3)], Types.TUPLE([Types.STRING(), Types.LONG()])) \\
    .assign_timestamps_and_watermarks(strategy) \\
    .key_by(lambda t: t[0]) \\
    .window(TumblingEventTimeWindows.of(Time.milliseconds(10))) \\
    .process(Sum(), Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])).print()
env.execute()
"""

WAYS = {
    "first line": (lambda program: [str(program)], "import millstream.pyflink\n"),
    "python -m": (lambda program: ["-m", "millstream.pyflink", "-m", "local[2]", str(program)], ""),
    "millstream run": (
        lambda program: ["-m", "millstream.cli.main", "run", "--pyflink", "-m", "local[2]", str(program)],
        "",
    ),
}


def printed(way: str, code: str, folder: Path) -> list[str]:
    (folder / "helping_module.py").write_text(MODULE)
    program = folder / "program.py"
    command, first = WAYS[way]
    program.write_text(first + code)
    path = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "PYTHONPATH": path, "MASTER": "local[2]"}
    done = subprocess.run(
        [sys.executable, *command(program)],  # type: ignore[no-untyped-call]
        capture_output=True,
        text=True,
        timeout=100,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    # The subtask prefix of a line is not compared.
    return sorted(re.sub(r":?\d+> ", "", line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("way", WAYS)
def test_pyflink_alias_runs_state_and_side_outputs_with_classes_of_script_and_module(way: str, tmp_path: Path) -> None:
    counts = [("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 1), ("b", 2), ("c", 1), ("d", 1)]
    even = ["evena 2", "evena 4", "evenb 2"]
    assert printed(way, STATE, tmp_path) == sorted([*map(str, counts), *even])


def test_pyflink_alias_runs_windows(tmp_path: Path) -> None:
    assert printed("python -m", WINDOWS, tmp_path) == ["(a,0,4)", "(a,10,12)", "(b,0,2)"]
