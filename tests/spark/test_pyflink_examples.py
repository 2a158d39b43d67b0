"""The example programs of apache-flink, unmodified, through the alias: the output equals the recorded one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.apache_flink import SKIP_REASON, flink_folder
from tests.support.paths import TESTS

RECORDINGS = TESTS / "pyflink" / "examples"
# Programs with several subtasks or hash order: the lines are compared without their order.
UNORDERED = {"event_time_timer", "process_json_data", "state_access", "word_count"}

pytestmark = pytest.mark.spark


def example(name: str) -> Path:
    folder = flink_folder()
    if folder is None:
        pytest.skip(SKIP_REASON)
    paths = list((folder / "examples" / "datastream").rglob(f"{name}.py"))
    assert len(paths) == 1, f"this apache-flink has no example {name}"
    return paths[0]


def run(program: Path, *arguments: str) -> list[str]:
    command = [sys.executable, "-m", "millstream.pyflink", "-m", "local[2]", str(program), *arguments]
    # The real pyflink lies next to the program; the alias must take precedence.
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def results(name: str, lines: list[str]) -> list[str]:
    """Return the comparable part of the output, without subtask indexes."""
    bare = [re.sub(r"^\d+> ", "", line) for line in lines]
    return sorted(bare) if name in UNORDERED else bare


@pytest.mark.parametrize("name", sorted(p.stem for p in RECORDINGS.glob("*.txt")))
def test_example_prints_recorded_output(name: str) -> None:
    expected = (RECORDINGS / f"{name}.txt").read_text().splitlines()[1:]
    assert results(name, run(example(name))) == results(name, expected)


@pytest.mark.parametrize("name", ["tumbling_count_window", "session_with_gap_window"])
def test_example_writes_printed_results_to_files(name: str, tmp_path: Path) -> None:
    run(example(name), "--output", str(tmp_path / "out"))
    parts = [p for p in (tmp_path / "out").rglob("prefix-*.ext") if p.is_file()]
    written = [line for part in parts for line in part.read_text().splitlines()]
    expected = (RECORDINGS / f"{name}.txt").read_text().splitlines()[2:]
    assert sorted(written) == sorted(expected)
