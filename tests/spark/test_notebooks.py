"""Headless notebooks: graphs render, results appear in their cell, an interrupt cancels only the current job."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_notebook

from tests.support.paths import ROOT

# Warnings of Jupyter's own packages are ignored.
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

IMPORTS = """
import os
from millstream.common import Configuration
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.state import ValueStateDescriptor

config = Configuration.from_dict({"spark.master": "local[2]", "parallelism.default": "2", "millstream.quiet": "true"})
env = StreamExecutionEnvironment.get_execution_environment(config)
print(os.getpid())
"""

LARGEST = """
class Point:
    def __init__(self, name, x):
        self.name, self.x = name, x

    def __repr__(self):
        return f"{self.name}={self.x}"


class Largest(KeyedProcessFunction):
    def open(self, runtime_context):
        self.largest = runtime_context.get_state(ValueStateDescriptor("largest"))

    def process_element(self, value, ctx):
        before = self.largest.value()
        if before is None or value.x > before.x:
            self.largest.update(value)
        yield self.largest.value()
"""

COLLECT = """
points = env.from_collection([Point("a", 1), Point("b", 9), Point("a", 5), Point("a", 3)])
largest = points.key_by(lambda p: p.name).process(Largest()).name("largest")
results = []
for point in largest.execute_and_collect():
    assert isinstance(point, Point)
    results.append(repr(point))
print(sorted(results))
"""

TABLE = """
from millstream.table import StreamTableEnvironment
from millstream.table.expressions import col

t_env = StreamTableEnvironment.create(env)
t_env.execute_sql("CREATE TABLE endless (number_of BIGINT) WITH ('connector' = 'datagen')")
words = t_env.from_elements([("to", 1), ("be", 2)], ["word", "n"])
words
"""

ENDLESS = """
ticks = env.from_source(DataGeneratorSource(lambda i: (i % 3, i), rate_per_second=200))
for tick in ticks.key_by(lambda t: t[0]).reduce(lambda a, b: b).execute_and_collect():
    print("tick", tick)
"""

ENDLESS_PRINT = """
env.from_source(DataGeneratorSource(lambda i: i, rate_per_second=200)).map(lambda i: f"tick {i}").print()
env.execute()
"""


def text(cell: Any) -> str:
    return "".join(o["text"] for o in cell.outputs if o.output_type == "stream" and o.name == "stdout")


def pictures(cell: Any) -> list[str]:
    shown = [o for o in cell.outputs if o.output_type in ("display_data", "execute_result")]
    return [o.data["image/svg+xml"] for o in shown if "image/svg+xml" in o.data]


def tables(cell: Any) -> list[str]:
    shown = [o for o in cell.outputs if o.output_type in ("display_data", "execute_result")]
    return [o.data["text/html"] for o in shown if "text/html" in o.data]


def slots(kernel: int) -> list[psutil.Process]:
    def is_slot(process: psutil.Process) -> bool:
        try:
            return Path(f"/proc/{process.pid}/comm").read_text().startswith("millstream-s")
        except OSError:
            return False

    return [p for p in psutil.Process(kernel).children(recursive=True) if is_slot(p)]


async def until(condition: Callable[[], bool], label: str) -> None:
    for _ in range(2400):
        if condition():
            return
        await asyncio.sleep(0.025)
    raise AssertionError(f"{label} did not come true within 60 s")


class Notebook:
    """A running kernel and the cells it executed."""

    def __init__(self, client: NotebookClient) -> None:
        self._client = client

    async def run(self, source: str) -> Any:
        cell = self._add(source)
        await self._execute(cell)
        return cell

    async def interrupt(self, source: str, when: Callable[[Any], bool]) -> Any:
        """Run a cell and interrupt it once it has made progress."""
        cell = self._add(source)
        running = asyncio.ensure_future(self._execute(cell))
        await until(lambda: when(cell) or running.done(), "what the cell was to print")
        assert not running.done(), cell.outputs
        await self._client.km.interrupt_kernel()  # type: ignore[misc, union-attr]
        with pytest.raises(CellExecutionError, match="KeyboardInterrupt"):
            await running
        return cell

    def _add(self, source: str) -> Any:
        cell = new_code_cell(source)
        self._client.nb.cells.append(cell)
        return cell

    async def _execute(self, cell: Any) -> None:
        await self._client.async_execute_cell(cell, len(self._client.nb.cells) - 1)


def with_kernel(directory: Path, steps: Callable[[Notebook], Awaitable[None]]) -> None:
    async def main() -> None:
        resources = {"metadata": {"path": str(directory)}}
        client = NotebookClient(new_notebook(), timeout=90, kernel_name="python3", resources=resources)
        async with client.async_setup_kernel():
            await steps(Notebook(client))

    asyncio.run(main())


def test_notebook_cells_show_results_and_continue_after_interrupt(tmp_path: Path) -> None:
    async def steps(notebook: Notebook) -> None:
        kernel = int(text(await notebook.run(IMPORTS)))
        await notebook.run(LARGEST)
        expected = "['a=1', 'a=5', 'a=5', 'b=9']\n"
        assert text(await notebook.run(COLLECT)) == expected

        # A bounded table shows its first rows, an unbounded one its columns; a query prints its rows.
        (shown,) = tables(await notebook.run(TABLE))
        assert "<td>to</td>" in shown
        assert "<td>TO</td>" in tables(await notebook.run("words.select(col('word').upper_case)"))[0]
        (shown,) = tables(await notebook.run("t_env.from_path('endless')"))
        assert "number_of" in shown
        assert "| +I |" in text(await notebook.run("words.execute().print()"))

        # Workers import a module next to the notebook.
        (tmp_path / "helper.py").write_text("def double(x):\n    return 2 * x\n")
        doubled = "import helper\nprint(env.from_collection([1, 2]).map(helper.double).execute_and_collect(limit=2))"
        assert text(await notebook.run(doubled)) == "[2, 4]\n"

        (picture,) = pictures(await notebook.run("largest"))
        assert picture.startswith("<svg")
        assert "largest" in picture
        assert pictures(await notebook.run("env")) == []
        (picture,) = pictures(await notebook.run("sink = largest.print()\nenv"))
        assert "Print to Std. Out" in picture
        assert sorted(text(await notebook.run("_ = env.execute()")).split()[1::2]) == ["a=1", "a=5", "a=5", "b=9"]

        # A live result is one output, which the interrupt leaves in the cell.
        cell = await notebook.interrupt(
            "t_env.from_path('endless').execute()", lambda cell: "the last 20 rows" in "".join(tables(cell))
        )
        (shown,) = tables(cell)
        assert "CANCELED | " in shown
        assert slots(kernel) == []

        # Results appear while the job runs; the interrupt stops the job and its processes.
        await notebook.interrupt(ENDLESS, lambda cell: text(cell).count("tick") > 50)
        assert slots(kernel) == []
        await notebook.interrupt(ENDLESS_PRINT, lambda cell: text(cell).count("tick") > 50)
        assert slots(kernel) == []
        await notebook.run(ENDLESS + "    break")
        await until(lambda: slots(kernel) == [], "the end of a job whose loop was left")

        # An error shows the lines of the cells, which workers do not have, and no internal lines.
        with pytest.raises(CellExecutionError) as caught:
            await notebook.run("def share(x):\n    return 1 // x\n")
            await notebook.run("list(env.from_collection([0]).map(share).execute_and_collect())")
        message = str(caught.value)
        assert "line 2, in share\n    return 1 // x\n" in message
        assert "in operator 'Map' (no uid), made at a notebook cell:1" in message
        assert "/millstream/" not in message

        # Functions and classes may change between two jobs.
        await notebook.run(LARGEST.replace("value.x > before.x", "value.x < before.x"))
        assert text(await notebook.run(COLLECT)) == "['a=1', 'a=1', 'a=1', 'b=9']\n"

    with_kernel(tmp_path, steps)


def test_notebook_job_restores_state_of_redefined_class(tmp_path: Path) -> None:
    first = """
client = None
points = env.from_source(DataGeneratorSource(lambda i: Point("p", i), rate_per_second=100)).uid("points")
points.key_by(lambda p: p.name).process(Largest()).uid("largest").print()
client = env.execute_async("points")
import time
time.sleep(2)
savepoint = client.stop_with_savepoint(False, "file://" + os.getcwd() + "/savepoints").result()
print("saved")
"""
    second = """
env.get_configuration().set_string("execution.state-recovery.path", savepoint)
points = env.from_source(DataGeneratorSource(lambda i: Point("p", i), rate_per_second=100)).uid("points")
largest = points.key_by(lambda p: p.name).process(Largest()).uid("largest")
print([p.x for p in largest.execute_and_collect(limit=1)])
"""

    async def steps(notebook: Notebook) -> None:
        await notebook.run(IMPORTS)
        await notebook.run(LARGEST)
        printed = text(await notebook.run(first))
        assert printed.endswith("saved\n")
        last = int(printed.splitlines()[-2].partition("p=")[2])
        # The class is a different object of the same name.
        await notebook.run(LARGEST)
        assert text(await notebook.run(second)) == f"[{last + 1}]\n"

    with_kernel(tmp_path, steps)


def test_example_notebook_runs() -> None:
    path = ROOT / "examples" / "notebook.ipynb"
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code")
    NotebookClient(notebook, timeout=90, resources={"metadata": {"path": str(path.parent)}}).execute()
    _, _, stream, collected, limited, live, _, environment, executed = [
        c for c in notebook.cells if c.cell_type == "code"
    ]
    assert "highest so far" in pictures(stream)[0]
    assert text(collected).splitlines() == [
        "Reading(sensor='roof', degrees=18.5)",
        "Reading(sensor='cellar', degrees=11.0)",
        "Reading(sensor='roof', degrees=21.0)",
    ]
    assert limited.outputs[-1].data["text/plain"] == "['tick 0', 'tick 1', 'tick 2']"
    assert "received" in tables(live)[0]
    assert "Print to Std. Out" in pictures(environment)[0]
    assert text(executed).splitlines() == ["roof: 18.5", "cellar: 11.0", "roof: 21.0", "True"]
