"""Small programs print PyFlink's output (`tests/sql/programs.py`) through the `pyflink` alias."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.sql.programs import HERE, PROGRAMS, RECORDED

_FLINKS: dict[str, list[str]] = json.loads(RECORDED.read_text())
_RUN = """
import json, sys
import millstream.pyflink
sys.path.insert(0, sys.argv[1])
from programs import PROGRAMS, environment, printed
print(json.dumps({n: printed(n, lambda m: environment(m, millstream__engine="local")) for n in PROGRAMS}))
"""


@pytest.fixture(scope="module")
def results() -> dict[str, list[str]]:
    command = [sys.executable, "-W", "ignore", "-c", _RUN, str(HERE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    lines: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return lines


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_prints_recorded_output(name: str, results: dict[str, list[str]]) -> None:
    assert results[name] == _FLINKS[name]
