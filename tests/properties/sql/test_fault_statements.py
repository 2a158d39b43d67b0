"""The statements of fault injection: each plan contains its operator, and results without faults match SQLite."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from millstream.common.faults import arm
from millstream.testing import LocalEnvironment
from tests.faults import sql_changes_job, sql_joins_job, sql_keys_job, sql_ranks_job
from tests.faults.cases import Case, run
from tests.faults.sql_statements import SqlJob

JOBS = {
    "ranks": sql_ranks_job.JOB,
    "joins": sql_joins_job.JOB,
    "changes": sql_changes_job.JOB,
    "keys": sql_keys_job.JOB,
}


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_fault_statement_plan_contains_its_operator(job: SqlJob, tmp_path: Path) -> None:
    plans = job.plans(LocalEnvironment(), tmp_path)
    assert {n for n, s in job.statements.items() if s.operator not in plans[n]} == set()


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_fault_statement_results_match_sqlite(job: SqlJob, tmp_path: Path) -> None:
    env = LocalEnvironment()
    job.add_to(env, tmp_path)
    env.execute()
    expected, results = job.expected(), job.results(tmp_path)
    differences = Counter(name for name, *_ in ((expected - results) + (results - expected)))
    assert not differences
    # Each statement has results.
    assert {name for name, *_ in expected} == set(job.statements)


# On Spark: tests/spark/test_faults.py; all cases: `make chaos`.
CASES = [
    Case("driver.after-commit", "raise", 0, job="sql-joins", local=True),
    Case("restart.from-savepoint", "to-3", 0, job="sql-ranks", local=True),
    Case("restart.from-savepoint", "to-1", 0, job="sql-changes", local=True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_fault_statements_are_exactly_once(case: Case) -> None:
    try:
        outcome = run(case)
    finally:
        arm(None)
    assert outcome.injected
    assert outcome.verdict() == "exactly once"
