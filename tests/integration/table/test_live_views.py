"""Tables and streams in the cells of a real kernel: updated in place, stopped, failed, and without a notebook."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from millstream.common.errors import InvalidProgramError
from millstream.table import StreamTableEnvironment
from millstream.testing import LocalEnvironment
from tests.support.paths import ROOT

Steps: TypeAlias = Callable[["Notebook"], Awaitable[None]]

# Warnings of Jupyter's own packages are ignored.
pytestmark = pytest.mark.filterwarnings("ignore")

SETUP = """
from typing import NamedTuple
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.table import StreamTableEnvironment

config = Configuration.from_dict({"millstream.engine": "local", "millstream.quiet": "true"})
env = StreamExecutionEnvironment.get_execution_environment(config)
env.set_parallelism(1)
t_env = StreamTableEnvironment.create(env)
t_env.execute_sql('''
  CREATE TABLE ticks (n BIGINT, at_time AS TO_TIMESTAMP_LTZ(n * 1000, 3), WATERMARK FOR at_time AS at_time)
  WITH ('connector' = 'datagen', 'rows-per-second' = '100', 'fields.n.kind' = 'sequence', 'fields.n.start' = '0',
        'fields.n.end' = '1000000')
''')
"""


class Notebook:
    """A kernel and its cells."""

    def __init__(self, client: NotebookClient) -> None:
        self._client = client

    async def run(self, source: str) -> NotebookNode:
        cell: NotebookNode = new_code_cell(source)
        await self._execute(cell)
        return cell

    async def interrupt(self, source: str, when: Callable[[NotebookNode], bool]) -> NotebookNode:
        """Run a cell and interrupt it once it has made progress."""
        cell: NotebookNode = new_code_cell(source)
        running = asyncio.ensure_future(self._execute(cell))
        await until(lambda: when(cell) or running.done())
        assert not running.done(), cell.outputs
        await self._client.km.interrupt_kernel()  # type: ignore[misc, union-attr]
        with pytest.raises(CellExecutionError, match="KeyboardInterrupt"):
            await running
        return cell

    async def sees(self, condition: Callable[[], bool]) -> None:
        """Run cells until the output of an earlier one satisfies a condition."""
        for _ in range(100):
            if condition():
                return
            await self.run("import time\ntime.sleep(0.2)")
        raise AssertionError(self._client.nb.cells)

    async def click(self, model: str) -> None:
        """Click a widget, as a browser does."""
        channel = self._client.kc
        assert channel is not None
        content = {"comm_id": model, "data": {"method": "custom", "content": {"event": "click"}}}
        channel.shell_channel.send(channel.session.msg("comm_msg", content))

    async def _execute(self, cell: NotebookNode) -> None:
        self._client.nb.cells.append(cell)
        await self._client.async_execute_cell(cell, len(self._client.nb.cells) - 1)


def with_kernel(directory: Path, steps: Steps) -> None:
    async def main() -> None:
        resources = {"metadata": {"path": str(directory)}}
        client = NotebookClient(new_notebook(), timeout=90, kernel_name="python3", resources=resources)
        async with client.async_setup_kernel():
            notebook = Notebook(client)
            await notebook.run(SETUP)
            await steps(notebook)

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2400):
        if condition():
            return
        await asyncio.sleep(0.025)
    raise AssertionError("the cell made no progress within 60 s")


def html(cell: NotebookNode) -> str:
    """Return the only table of a cell."""
    (shown,) = [o.data["text/html"] for o in cell.outputs if "text/html" in o.get("data", {})]
    text: str = shown
    return text


def received(cell: NotebookNode) -> int:
    match = re.search(
        r"([\d,]+) rows? received", "".join(o.data.get("text/html", "") for o in cell.outputs if "data" in o)
    )
    return int(match[1].replace(",", "")) if match else 0


# --- in a kernel


def test_displayed_result_updates_in_place_until_interrupt(tmp_path: Path) -> None:
    async def steps(notebook: Notebook) -> None:
        query = "t_env.sql_query('SELECT MOD(n, 3) AS k, COUNT(*) AS c FROM ticks GROUP BY MOD(n, 3)').execute()"
        cell = await notebook.interrupt(query, lambda cell: received(cell) > 50)
        # One output, with the three rows after all changes.
        text = html(cell)
        assert text.count("<tr>") == 4
        assert re.search(r"<td>0</td><td>\d+</td></tr><tr><td>1</td><td>\d+</td></tr><tr><td>2</td><td>\d+</td>", text)
        assert "CANCELED | " in text
        # An append-only query shows its last rows, and the watermark.
        cell = await notebook.interrupt("t_env.from_path('ticks').execute()", lambda cell: received(cell) > 50)
        text = html(cell)
        assert text.count("<tr>") == 21
        assert "showing the last 20 rows" in text
        assert "watermark 1970-01-01 00:0" in text

    with_kernel(tmp_path, steps)


def test_show_live_runs_in_background_until_stop(tmp_path: Path) -> None:
    async def steps(notebook: Notebook) -> None:
        first = await notebook.run("view = t_env.from_path('ticks').show_live(max_rows=5)")
        # Other cells run meanwhile, and the output of the first one is updated.
        await notebook.run("stream = env.from_source(DataGeneratorSource(lambda i: i, rate_per_second=100))")
        second = await notebook.run("numbers = stream.map(lambda i: {'i': i}).show_live()")
        await notebook.sees(lambda: received(first) > 20 and received(second) > 20)
        assert html(first).count("<tr>") == 6
        assert "{&#x27;i&#x27;: " in html(second)
        await notebook.run("view.stop()\nview.wait()\nnumbers.stop()\nnumbers.wait()")
        for cell in (first, second):
            assert "CANCELED | " in html(cell)
            assert "_.stop()" not in html(cell)
        # A bounded query ends by itself; an interrupt of wait() stops a job.
        bounded = await notebook.run(
            "ends = t_env.sql_query('SELECT * FROM (VALUES (1), (2)) AS t(a)').show_live()\nends.wait()"
        )
        assert "FINISHED | 2 rows received" in html(bounded)
        await notebook.interrupt(
            "view = t_env.from_path('ticks').show_live()\nview.wait()", lambda cell: received(cell) > 20
        )
        assert "CANCELED" in str((await notebook.run("view")).outputs[0].data["text/plain"])

    with_kernel(tmp_path, steps)


def test_live_view_of_failed_job_shows_and_raises_error(tmp_path: Path) -> None:
    async def steps(notebook: Notebook) -> None:
        failing = "view = env.from_collection([1, 0]).map(lambda i: 1 // i).show_live()\nview.wait()"
        with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
            await notebook.run(failing)
        last = await notebook.run("view")
        assert "FAILED" in last.outputs[0].data["text/plain"]

    with_kernel(tmp_path, steps)


def test_statements_without_job_are_displayed(tmp_path: Path) -> None:
    async def steps(notebook: Notebook) -> None:
        assert "<td>ticks</td>" in html(await notebook.run("t_env.execute_sql('SHOW TABLES')"))
        explained = html(await notebook.run("t_env.execute_sql('EXPLAIN SELECT n FROM ticks WHERE n < 3')"))
        assert explained.startswith("<pre>== Abstract Syntax Tree ==")
        assert "&lt;" in explained
        await notebook.run("_ = t_env.execute_sql(\"CREATE TABLE endless (n INT) WITH ('connector' = 'datagen')\")")
        unbounded = html(await notebook.run("t_env.from_path('endless')"))
        assert "<code>table.show_live()</code>" in unbounded

    with_kernel(tmp_path, steps)


@pytest.mark.skipif(importlib.util.find_spec("ipywidgets") is None, reason="ipywidgets is not installed")
def test_stop_button_cancels_job(tmp_path: Path) -> None:
    async def steps(notebook: Notebook) -> None:
        cell = await notebook.run("view = t_env.from_path('ticks').show_live()")
        assert "_.stop()" not in html(cell)
        view = "application/vnd.jupyter.widget-view+json"
        (button,) = [o.data[view]["model_id"] for o in cell.outputs if view in o.get("data", {})]
        await notebook.click(button)
        await notebook.run("view.wait()")
        assert "CANCELED | " in html(cell)

    with_kernel(tmp_path, steps)


# --- elsewhere


def test_show_live_outside_notebook_fails() -> None:
    env = LocalEnvironment()
    t_env = StreamTableEnvironment.create(env)
    for show in (env.from_collection([1]).show_live, t_env.from_elements([(1,)]).show_live):
        with pytest.raises(InvalidProgramError, match=r"show_live\(\) needs a notebook"):
            show()


def test_notebook_guide_runs_in_kernel(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "guides" / "notebooks.md").read_text()
    setup, watch, stop, stream, stop_stream = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:5]

    async def steps(notebook: Notebook) -> None:
        await notebook.run(setup)
        watched = await notebook.run(watch)
        await notebook.sees(lambda: "Rome" in html(watched))
        await notebook.run(stop)
        assert re.search(r"<td>Oslo</td><td>\d+</td></tr><tr><td>Rome</td>", html(watched))
        live = await notebook.run(stream)
        await notebook.sees(lambda: "tick 5<" in html(live))
        await notebook.run(f"{stop_stream}\nlive.wait()")
        assert html(live).count("<td>tick ") == 5

    with_kernel(tmp_path, steps)
