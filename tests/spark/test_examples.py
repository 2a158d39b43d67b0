"""The cookbook: every example, run in a separate process, prints its documented output."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"
# This example starts its own servers; test_sql_kafka.py runs it with existing ones.
SERVED = "customers_and_orders"
NAMES = sorted(p.stem for p in EXAMPLES.glob("*.py") if p.stem != SERVED)
pytestmark = pytest.mark.spark


def documentation(name: str) -> str:
    return ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text())) or ""


def expected_output(name: str) -> str:
    """Return the documented output of an example."""
    return "\n".join(re.findall(r"^ {4}(\S.*)$", documentation(name).partition("Expected output")[2], re.MULTILINE))


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=100)


Runs = dict[str, Future[subprocess.CompletedProcess[str]]]


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest) -> Iterator[Runs]:
    """Run the selected examples, two at a time."""
    names = [i.callspec.params.get("name") for i in request.session.items if hasattr(i, "callspec")]
    with ThreadPoolExecutor(2) as pool:
        yield {n: pool.submit(run, sys.executable, EXAMPLES / f"{n}.py") for n in NAMES if n in names}


@pytest.mark.parametrize("name", NAMES)
def test_example_prints_documented_output(name: str, runs: Runs) -> None:
    done = runs[name].result()
    assert done.stdout.splitlines() == expected_output(name).splitlines(), done.stderr
    assert done.returncode == 0
    # MLlib warns on machines without native algebra.
    assert len([line for line in done.stderr.splitlines() if not line.startswith("netlib-")]) == 1, done.stderr


@pytest.mark.parametrize("name", [*NAMES, SERVED])
def test_example_docstring_has_all_sections(name: str) -> None:
    assert re.findall(r"^(\w+): ", documentation(name), re.MULTILINE)[-3:] == ["Shows", "Change", "Run"]
    assert expected_output(name)
    assert f"[{name}.py]({name}.py)" in (EXAMPLES / "README.md").read_text()
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= 100


def lines_in(directory: Path) -> list[str]:
    return [line for file in directory.glob("part-*") for line in file.read_text().splitlines()]


def test_example_files_hold_each_record_once_after_kill(tmp_path: Path) -> None:
    program, out = EXAMPLES / "exactly_once_files.py", tmp_path / "out"
    command = [sys.executable, "-m", "millstream.cli.main", "run"]
    # Enough records that the kill happens in the middle on a loaded machine too.
    records = 8_000
    killed = subprocess.Popen([*command, program, out, str(records)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not lines_in(out):
            assert killed.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        os.kill(killed.pid, 9)
        assert killed.communicate()[0] == b""
    before = lines_in(out)
    assert 0 < len(before) < records
    done = run(*command, "-D", "execution.state-recovery.path=latest", program, out, str(records))
    assert done.stdout.strip() == expected_output("exactly_once_files").replace("4000", str(records)), done.stderr
    after = lines_in(out)
    assert sorted(after) == sorted(f"record {i}" for i in range(records))
    # Files that a reader has seen before the kill are unchanged.
    assert set(before) <= set(after)
