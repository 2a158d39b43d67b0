"""Jobs restore from checkpoints and savepoints of earlier versions, on real Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from golden.cases import CASES, HERE, Case, location, output
from golden.programs import PROGRAMS, Env
from golden.workdir import locked_workdir

from millstream.common import Configuration
from millstream.testing import CollectSink

pytestmark = pytest.mark.spark

# The cases whose output does not depend on epoch boundaries or the clock.
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
    with locked_workdir(golden / "place"):
        PROGRAMS[case.program](env, sink)
        env.execute(case.program)
        results = output(sink.results())
    expected = json.loads((golden / "expected.json").read_text())
    assert results == {name: expected[name] for name in results}
