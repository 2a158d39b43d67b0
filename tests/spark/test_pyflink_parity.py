"""PyFlink programs with only their imports changed print the output of real PyFlink.

The outputs in tests/pyflink/expected were recorded from apache-flink by tests/pyflink/record.py. Intended differences
are in tests/pyflink/ours, with the reason in the first line.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from tests.support.paths import TESTS

FOLDER = TESTS / "pyflink"
PROGRAMS = sorted(p.stem for p in (FOLDER / "programs").glob("*.py"))
pytestmark = pytest.mark.spark


def load(name: str, folder: Path) -> ModuleType:
    """Load a program with `pyflink` replaced by `millstream`, as a module that workers can import."""
    source = (FOLDER / "programs" / f"{name}.py").read_text()
    path = folder / f"parity_{name}.py"
    path.write_text(re.sub(r"\bpyflink\b", "millstream", source))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def expected(name: str) -> list[str]:
    first, *lines = (FOLDER / "expected" / f"{name}.txt").read_text().splitlines()
    assert first.startswith("# recorded from apache-flink 2.3")
    ours = FOLDER / "ours" / f"{name}.txt"
    if ours.exists():
        reason, *different = ours.read_text().splitlines()
        assert reason.startswith("# differs: ")
        assert different != lines
        return different
    return lines


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_prints_recorded_output(
    name: str,
    config: Configuration,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    # Periodic watermarks are sent per slice, so with Spark's shuffle they need Flink's interval too.
    config.set_string("millstream.epoch.slice", "200 ms")
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(1)
    load(name, tmp_path).main(env)
    assert capsys.readouterr().out.splitlines() == expected(name)
