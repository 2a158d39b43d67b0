"""Every transcript on Spark, with 1 and with 3 subtasks: the output equals the local one."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.stream_execution_environment import builder_of
from tests.support import sql_runs
from tests.support.sql_planned import QUERIES
from tests.support.sql_transcript import shown
from tests.support.transcripts_runner import FOLDER, Case, FileClock, build, cases
from tests.unit.sql.operators.test_transcripts import in_jobs, written

pytestmark = pytest.mark.spark
FILES = sorted(p.stem for p in FOLDER.glob("*.yaml"))
TIMED = [c for c in cases() if c.uses_clock]


def of_file(name: str) -> list[Case]:
    matching = [c for c in cases() if c.name.startswith(f"{name}: ") and not c.uses_clock]
    return [c for c in matching if not c.has_sides_in_order]


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("name", FILES)
def test_event_time_transcripts_equal_local_output(name: str, parallelism: int, config: Configuration) -> None:
    """All cases of a file run in one job, each with its own source and sink."""
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
def test_processing_time_transcript_equals_local_output(
    case: Case, parallelism: int, config: Configuration, tmp_path: Path
) -> None:
    clock = FileClock(str(tmp_path / "clock"))
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(parallelism)
    builder_of(env).clock = clock
    sink = build(env, case, clock)
    env.execute()
    assert sorted(sink.results()) == case.expected()


@pytest.mark.parametrize("parallelism", [1, 3])
def test_sql_transcripts_equal_local_result(parallelism: int, config: Configuration, tmp_path: Path) -> None:
    """All queries run in one job; their final results equal those of a local job."""
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(parallelism)
    # The clock does not advance, so that no idle timeout emits a watermark.
    builder_of(env).clock = FileClock(str(tmp_path / "clock"))
    tables = {name: make() for name, make in QUERIES.items()}
    sinks = {name: sql_runs.add(env, query, inputs) for name, (query, inputs) in tables.items()}
    env.execute("sql")
    results = {name: sql_runs.final(sql_runs.changes_of(sink.results())) for name, sink in sinks.items()}
    assert results == {name: sql_runs.final(sql_runs.run(*one)) for name, one in tables.items()}


def test_sql_operator_transcripts_equal_local_changelog(config: Configuration, tmp_path: Path) -> None:
    """All transcripts of SQL operators run in one job; every change is emitted, in order."""
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(1)
    builder_of(env).clock = FileClock(str(tmp_path / "clock"))
    sinks = in_jobs(env)
    env.execute("operators of SQL")
    assert {name: shown(sink.results()) for name, sink in sinks.items()} == {name: written(name) for name in sinks}
