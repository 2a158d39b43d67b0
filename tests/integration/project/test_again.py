"""A test that fails once is rerun and reported; tests that fail twice, or many failures, fail the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.paths import TESTS

AGAIN = TESTS / "again.py"
ONCE = """
from pathlib import Path

def test_{0}():
    mark = Path("mark{0}")
    seen = mark.exists()
    mark.touch()
    assert seen
"""


def outcome(folder: Path, *tests: str) -> tuple[int, str]:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_sample.py").write_text("\n".join(tests))
    done = subprocess.run(
        [sys.executable, AGAIN, "."], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )
    return done.returncode, done.stdout


def test_again_reports_a_test_that_passes_on_rerun(tmp_path: Path) -> None:
    code, output = outcome(tmp_path, ONCE.format(1), "def test_good():\n    pass")
    assert code == 0
    assert output.rstrip().endswith("UNSTABLE test_sample.py::test_1: failed, then passed on retry")


def test_again_fails_when_a_test_fails_twice(tmp_path: Path) -> None:
    code, output = outcome(tmp_path, ONCE.format(1), "def test_bad():\n    assert False")
    assert code == 1
    assert "UNSTABLE" not in output


def test_again_fails_without_rerun_when_many_fail(tmp_path: Path) -> None:
    code, output = outcome(tmp_path, *(ONCE.format(n) for n in range(4)))
    assert code == 1
    assert "Once more" not in output


def test_again_fails_without_rerun_on_collection_errors(tmp_path: Path) -> None:
    code, output = outcome(tmp_path, "import nothing_of_that_name")
    assert code == 2
    assert "Once more" not in output
