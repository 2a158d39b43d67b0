"""The programs of the pages on concepts print the documented output, and those of the screenshots run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import DOCS, TESTS

CONCEPTS = DOCS / "concepts"
PROGRAMS = TESTS / "documentation" / "programs"
PROGRAM = re.compile(r"```python\n# (\S+)\n(.*?)```\n+    millstream (run --local .*?)\n\n```\n(.*?)```", re.DOTALL)
PAGES = [page for page in sorted(CONCEPTS.glob("*.md")) if PROGRAM.search(page.read_text())]


def run_program(page: Path, folder: Path) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run the program of a page in a folder; return the finished process and the documented output."""
    match = PROGRAM.search(page.read_text())
    assert match is not None
    name, program, command, output = match.groups()
    (folder / name).write_text(f"# {name}\n{program}")
    line = [sys.executable, "-m", "millstream.cli.main", *command.split()]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=60), output


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_concept_program_prints_documented_output(page: Path, tmp_path: Path) -> None:
    done, output = run_program(page, tmp_path)
    assert done.stdout == output, done.stderr
    if page.stem == "exactly-once":
        shown = re.findall(r"```\n\$ millstream run --local once.py out\n(.*?)```", _text("fault-tolerance"), re.DOTALL)
        failure = done.stderr[done.stderr.index("job 'once'") :]
        assert [_without_times(text) for text in shown] == [_without_times(failure)]


def test_concept_pages_with_programs_are_found() -> None:
    assert [page.stem for page in PAGES] == ["changelogs", "exactly-once", "index", "state", "time"]


@pytest.mark.parametrize("program", sorted(PROGRAMS.glob("*.py")), ids=lambda program: program.stem)
def test_screenshot_program_has_a_plan(program: Path) -> None:
    line = [sys.executable, "-m", "millstream.cli.main", "info", str(program)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and '"nodes"' in done.stdout, done.stderr


def _text(page: str) -> str:
    return (CONCEPTS / f"{page}.md").read_text()


def _without_times(text: str) -> str:
    """Mask the epoch of the failure and the random part of the delay."""
    return re.sub(r"(epoch|restarts in) [\d.]+", r"\1 n", text)
