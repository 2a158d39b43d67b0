"""Every transcript on real Spark, with 1 and with 3 subtasks: the same outputs as without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from tests.support import sql_runs
from tests.support.sql_planned import QUERIES
from tests.support.sql_transcript import shown
from tests.support.transcripts_runner import FOLDER, Case, FileClock, build, cases
from tests.unit.sql.operators.test_transcripts import in_jobs, written

pytestmark = pytest.mark.spark
FILES = sorted(p.stem for p in FOLDER.glob("*.yaml"))
TIMED = [c for c in cases() if c.uses_clock]


def of_file(name: str) -> list[Case]:
    found = [c for c in cases() if c.name.startswith(f"{name}: ") and not c.uses_clock]
    return [c for c in found if not c.has_sides_in_order]


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("name", FILES)
def test_event_time(name: str, parallelism: int, config: Configuration) -> None:
    """All cases of a file are parts of one job, each with a source and a sink of its own."""
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(parallelism)
    sinks = {case.name: (case, build(env, case)) for case in of_file(name)}
    if not sinks:
        return
    env.execute(name)
    wrong = {
        n: (sorted(s.results()), c.expected()) for n, (c, s) in sinks.items() if sorted(s.results()) != c.expected()
    }
    assert not wrong


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("case", TIMED, ids=lambda c: c.name)
def test_processing_time(case: Case, parallelism: int, config: Configuration, tmp_path: Path) -> None:
    clock = FileClock(str(tmp_path / "clock"))
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(parallelism)
    env._clock = clock
    sink = build(env, case, clock)
    env.execute()
    assert sorted(sink.results()) == case.expected()


@pytest.mark.parametrize("parallelism", [1, 3])
def test_sql(parallelism: int, config: Configuration, tmp_path: Path) -> None:
    """All queries are parts of one job; what is left of their changelogs is what a job in one process leaves."""
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(parallelism)
    # It stands still, so that no watermark is sent because nothing has come for a while.
    env._clock = FileClock(str(tmp_path / "clock"))
    made = {name: make() for name, make in QUERIES.items()}
    sinks = {name: sql_runs.add(env, query, inputs) for name, (query, inputs) in made.items()}
    env.execute("sql")
    found = {name: sql_runs.final(sql_runs.changes_of(sink.results())) for name, sink in sinks.items()}
    assert found == {name: sql_runs.final(sql_runs.run(*one)) for name, one in made.items()}


def test_operators_of_sql(config: Configuration, tmp_path: Path) -> None:
    """All transcripts of SQL's operators are parts of one job; every change comes, in order."""
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(1)
    env._clock = FileClock(str(tmp_path / "clock"))
    sinks = in_jobs(env)
    env.execute("operators of SQL")
    assert {name: shown(sink.results()) for name, sink in sinks.items()} == {name: written(name) for name in sinks}
