"""SQL in local jobs: parallelism, epoch boundaries and failures do not change the output."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from millstream.sql.operators.query_context import Session
from millstream.testing import ABORT, LocalJob, save_savepoint, start_from
from tests.support.sql_planned import QUERIES
from tests.support.sql_runs import changes_of, collecting, final, run

# With one input, the output does not depend on the order of inputs.
_IN_ORDER = [name for name in QUERIES if name != "join"]


@pytest.mark.parametrize("name", QUERIES)
def test_sql_result_is_independent_of_parallelism_and_epochs(name: str) -> None:
    query, inputs = QUERIES[name]()
    expected = final(run(query, inputs))
    assert len(expected) >= 20
    for parallelism in (2, 3):
        r = Random(parallelism)
        env, sink = collecting(query, inputs, parallelism)
        LocalJob(env, epoch_sizes=lambda r=r: r.randint(1, 4)).run()  # type: ignore[misc]
        assert final(changes_of(sink.results())) == expected


@pytest.mark.parametrize("name", _IN_ORDER)
def test_sql_changelog_is_independent_of_epochs(name: str) -> None:
    query, inputs = QUERIES[name]()
    expected = run(query, inputs)
    env, sink = collecting(query, inputs)
    job = LocalJob(env, epoch_sizes=lambda: 1)
    while not job.is_finished:
        job.run_epoch()
        # As if another process continued after every epoch.
        job.restart_slots()
    assert changes_of(sink.results()) == expected


@pytest.mark.parametrize("name", QUERIES)
def test_sql_result_is_independent_of_failures(name: str) -> None:
    query, inputs = QUERIES[name]()
    expected = final(run(query, inputs))
    # Never two in one epoch: a local job restarts from the last complete epoch.
    failing = [
        (node, [*b[: 2 + i], ABORT, *b[2 + i : 4 + i], ABORT, *b[4 + i :]]) for i, (node, b) in enumerate(inputs)
    ]
    env, sink = collecting(query, failing, 2)
    LocalJob(env, epoch_sizes=lambda: 1).run(restarts=4)
    assert final(changes_of(sink.results())) == expected


@pytest.mark.parametrize("after", [1, 3])
@pytest.mark.parametrize("name", QUERIES)
def test_sql_savepoint_is_restored_at_another_parallelism(name: str, after: int, tmp_path: Path) -> None:
    query, inputs = QUERIES[name]()
    expected = final(run(query, inputs))
    env, sink = collecting(query, inputs, 2)
    job = LocalJob(env, epoch_sizes=lambda: 1)
    for _ in range(4):
        job.run_epoch()
    assert not job.is_finished
    saved = save_savepoint(job, tmp_path)
    got = changes_of(sink.results())
    env, sink = collecting(query, inputs, after)
    start_from(env, saved).run()
    rest = changes_of(sink.results())
    assert rest
    assert final([*got, *rest]) == expected


@pytest.mark.parametrize("name", QUERIES)
def test_sql_batch_job_emits_only_inserts(name: str) -> None:
    query, inputs = QUERIES[name]()
    results = run(query, inputs, 2, Session(batch=True))
    assert {c[0] for c in results} == {"+I"}
    if name in ("aggregate", "join", "top"):
        assert final(results) == final(run(query, inputs))
