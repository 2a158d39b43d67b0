"""Test cases of Flink's function and planner tests, as recorded: function_tests.py, planner_tests.py."""

from __future__ import annotations

from tests.sql import function_tests, planner_tests
from tests.support.sql_planning import Session


def test_functions_match_flink_tests_except_exclusions() -> None:
    binder = Session(batch=True).binder
    differing = function_tests.differences(lambda: binder)
    excluded = function_tests.exclusions()
    assert {k: v for k, v in differing.items() if k not in excluded} == {}
    assert sorted(set(excluded) - set(differing)) == [], "these pass now: take them out of function_exclusions.tsv"
    assert len(differing) < 0.02 * len(function_tests.cases())


def test_planner_matches_flink_tests_except_exclusions() -> None:
    differing = {
        p["id"]: difference for p in planner_tests.programs() if (difference := planner_tests.difference(p)) is not None
    }
    excluded = planner_tests.exclusions()
    assert {k: v for k, v in differing.items() if k not in excluded} == {}
    assert sorted(set(excluded) - set(differing)) == [], "these pass now: take them out of planner_exclusions.tsv"
    missing = [p for p in excluded if not p.startswith(("DeltaJoinTestPrograms/", "VectorSearchTestPrograms/"))]
    assert len(missing) <= 5, "98 % of the programs without delta joins and VECTOR_SEARCH pass"
