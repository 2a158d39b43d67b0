"""Patterns compared with recorded results of Flink CEP: matches, rejections, restarts and remaining state."""

from __future__ import annotations

import json
import random

import pytest

from millstream.cep import MalformedPatternError
from millstream.cep.compiler import compile_pattern
from tests.support.cep_cases import answer, by_key, pattern_of, recorded
from tests.support.cep_on_operator import answer as operator_answer
from tests.support.cep_on_operator import expected, rows_left

ALL = recorded()
NO_EMPTY_GROUP = "Specifying a pattern with an optional path"


def test_patterns_match_recorded_flink_cases() -> None:
    assert len(ALL) > 2_000
    differ = []
    for case, theirs in ALL:
        ours = json.loads(json.dumps(answer(case)))
        if ("error" in ours, by_key(ours)) != ("error" in theirs, by_key(theirs)):
            differ.append((case, theirs, ours))
    # Patterns that Flink accepts but fails on at run time are rejected.
    refused = [d for d in differ if d[2].get("error", "").startswith(NO_EMPTY_GROUP)]
    assert differ == refused
    assert len(refused) <= 2


@pytest.mark.parametrize("part", range(4))
def test_cep_operator_matches_recorded_cases_after_every_restart(part: int) -> None:
    # With another parallelism each time; a case's number is the first part of its name.
    for index, (case, theirs) in enumerate(ALL[part::80]):
        if "error" in theirs:
            continue
        restarts = None if index % 3 == 0 else random.Random(index)
        ours = operator_answer(case, restarts)
        assert (ours.get("error"), json.loads(json.dumps(ours["by_key"]))) == (None, expected(theirs)), case


def test_cep_operator_within_clears_state_of_recorded_patterns() -> None:
    left, n_cases = 0, 0
    for case, theirs in ALL[::12]:
        # Flink sets no timer for runs that begin before 1970, so they remain.
        by_time = not case["processing"] and all(item[-1] > 0 for item in case["input"])
        if not by_time or "error" in theirs or compile_pattern(pattern_of(case)).window <= 0:
            continue
        n_cases += 1
        left += rows_left(case)
    assert left == 0
    assert n_cases > 20


def test_patterns_reject_recorded_cases_with_messages_of_flink() -> None:
    rejected = 0
    for case, theirs in ALL:
        error = theirs.get("error", "")
        if not error.startswith(("MalformedPattern", "UnsupportedOperation", "IllegalArgument")):
            continue
        with pytest.raises(MalformedPatternError) as refused:
            compile_pattern(pattern_of(case))
        assert error.partition(": ")[2].rstrip(".!")[:60] in str(refused.value)
        rejected += 1
    assert rejected > 200
