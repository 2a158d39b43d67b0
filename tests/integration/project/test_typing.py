"""mypy on sample programs: those of tests/typing/right.py pass, wrong.py fails at the marked lines."""

from __future__ import annotations

import copy
import pickle
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import millstream
from millstream.datastream import (
    CloseableIterator,
    ConnectedStreams,
    DataStream,
    KeyedStream,
    MapFunction,
    OutputTag,
    WindowedStream,
)
from millstream.datastream.launch_context import ProgramPlanned, plan_only
from tests.support.paths import ROOT

SAMPLES = ROOT / "tests" / "typing"
EXAMPLES = sorted(ROOT.glob("examples/*.py"))

Errors = dict[Path, dict[int, list[str]]]


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> Errors:
    """The errors by line of every file, from one mypy run."""
    files = [*sorted(SAMPLES.glob("*.py")), *EXAMPLES]
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-pretty", "--hide-error-context"]
    command += ["--cache-dir", str(tmp_path_factory.mktemp("mypy")), *(str(f.relative_to(ROOT)) for f in files)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert run.returncode in (0, 1) and not run.stderr, run.stdout + run.stderr
    results: Errors = {}
    for path, line, message in re.findall(r"^(.+?):(\d+): error: (.*)$", run.stdout, re.M):
        results.setdefault(ROOT / path, {}).setdefault(int(line), []).append(message)
    return results


def expected(path: Path) -> dict[int, str]:
    """Return the errors that the marks of a file expect."""
    lines = enumerate(path.read_text().splitlines(), 1)
    return {number: line.split("# error: ")[1] for number, line in lines if "# error: " in line}


@pytest.mark.parametrize("path", [SAMPLES / "right.py", *EXAMPLES], ids=lambda p: p.name)
def test_mypy_accepts_right_programs(errors: Errors, path: Path) -> None:
    assert errors.get(path, {}) == {}


def test_mypy_rejects_wrong_programs_at_marked_lines(errors: Errors) -> None:
    path = SAMPLES / "wrong.py"
    marked, reported = expected(path), errors.get(path, {})
    assert marked and sorted(reported) == sorted(marked)
    assert {n: m for n, m in marked.items() if not any(m in message for message in reported[n])} == {}


def test_mypy_finds_no_errors_in_package(errors: Errors) -> None:
    assert {p: e for p, e in errors.items() if p.is_relative_to(ROOT / "src")} == {}


def test_typing_samples_are_valid_programs() -> None:
    with plan_only(), pytest.raises(ProgramPlanned):
        runpy.run_path(str(SAMPLES / "right.py"))


def test_package_contains_py_typed() -> None:
    assert (Path(millstream.__file__).parent / "py.typed").exists()


@pytest.mark.parametrize("name", [DataStream[int], KeyedStream[int, str], WindowedStream[int, str, object]])
def test_streams_are_generic_classes(name: object) -> None:
    assert name.__args__[0] is int  # type: ignore[attr-defined]


def test_type_parameters_have_no_runtime_effect() -> None:
    tag = OutputTag[int]("late")
    assert type(tag) is OutputTag and tag == OutputTag("late")
    assert pickle.loads(pickle.dumps(tag)) == tag == copy.deepcopy(tag)
    assert ConnectedStreams[int, str].__origin__ is ConnectedStreams  # type: ignore[attr-defined]
    assert CloseableIterator[int].__origin__ is CloseableIterator  # type: ignore[attr-defined]
    assert MapFunction[int, str].__origin__ is MapFunction  # type: ignore[attr-defined]
