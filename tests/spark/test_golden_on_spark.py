"""Checkpoints and savepoints that earlier versions have written are gone on from, on real Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from golden.cases import CASES, HERE, Case, location, output
from golden.place import placed
from golden.programs import PROGRAMS, Env

from millstream.common import Configuration
from millstream.testing import CollectSink

pytestmark = pytest.mark.spark

# Those whose output does not tell how epochs were cut, nor what the clock said.
NAMES = ["windows", "windows-savepoint", "connected-rescaled", "files", "requests", "tables"]


FILES = [(v.name, c) for v in sorted(HERE.glob("v*")) for c in CASES if c.name in NAMES and (v / c.name).exists()]


@pytest.mark.parametrize("parallelism", [2, 3])
@pytest.mark.parametrize(("version", "case"), FILES, ids=lambda x: x.name if isinstance(x, Case) else x)
def test_golden_checkpoint_restores_on_spark(
    version: str, case: Case, parallelism: int, config: Configuration, tmp_path: Path
) -> None:
    golden = HERE / version / case.name
    shutil.copytree(golden / "saved", tmp_path / "saved")
    config.set_string("execution.state-recovery.path", location(tmp_path / "saved"))
    env, sink = Env.get_execution_environment(config).set_parallelism(parallelism), CollectSink()
    with placed(golden / "place"):
        PROGRAMS[case.program](env, sink)
        env.execute(case.program)
        found = output(sink.results())
    expected = json.loads((golden / "expected.json").read_text())
    assert found == {name: expected[name] for name in found}
