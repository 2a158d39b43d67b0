"""`millstream demo` without Spark: without a terminal, on a terminal, and interrupted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.demo_output import check_demo_output
from tests.support.sql_terminal import terminal_of


def test_demo_runs_through_without_terminal() -> None:
    command = [sys.executable, "-m", "millstream", "demo", "--local"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, "")
    check_demo_output(done.stdout)
    assert "The job has failed: RuntimeError: the tour lets the function fail at order" in done.stdout
    assert "[Enter]" not in done.stdout


def test_demo_on_terminal_redraws_results_and_advances_on_enter(tmp_path: Path) -> None:
    with terminal_of(tmp_path, "demo", "--local", "--no-open", seconds=60) as terminal:
        # Two drawings: the cursor goes up by the lines of the first.
        terminal.sees(r"orders, EUR.*\[Enter\] let the job fail\r\n\x1b\[[0-9]+A\r\x1b\[Korders, EUR")
        for pattern in (
            r"restored from checkpoint.*\[Enter\] take a savepoint",
            r"stopped with savepoint.*\[Enter\] start the new version",
            r"The new version continues.*orders, largest.*\[Enter\] end the job",
            r"The generator produced.*\[Enter\] leave",
        ):
            terminal.types("\n")
            terminal.sees(pattern)
        terminal.types("\n")
        assert terminal.ends() == 0


def test_demo_ends_with_its_job_on_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with terminal_of(tmp_path, "demo", "--local", "--no-open", seconds=60) as terminal:
        terminal.sees(r"\[Enter\] let the job fail")
        terminal.types("\x03")
        assert terminal.ends() == 130
    # Checkpoints are deleted.
    assert not list(tmp_path.glob("millstream-demo-*"))
