"""Flink's own tests of its functions, as recorded facts: tests/sql/function_tests.py."""

from __future__ import annotations

from sql import function_tests
from sql_planning import Session


def test_functions_follow_flinks_tests_but_for_exclusions() -> None:
    binder = Session(batch=True).binder
    differing = function_tests.differences(lambda: binder)
    excluded = function_tests.exclusions()
    assert {k: v for k, v in differing.items() if k not in excluded} == {}
    assert sorted(set(excluded) - set(differing)) == [], "these pass now: take them out of function_exclusions.tsv"
    assert len(differing) < 0.02 * len(function_tests.cases())
