"""Stateful operators give the changelogs recorded from Apache Flink (`tests/sql/stateful.py`)."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from millstream.table import EnvironmentSettings, TableEnvironment
from tests.sql.stateful import CASES, FINAL_ROWS, ORDERED, RECORDED, changes, declare

_FLINKS: dict[str, list[str]] = json.loads(RECORDED.read_text())


def _left(changelog: list[str]) -> Counter[str]:
    rows = Counter[str]()
    for change in changelog:
        rows[change[3:]] += 1 if change[:2] in ("+I", "+U") else -1
    return Counter({row: count for row, count in rows.items() if count})


@pytest.mark.parametrize("name", _FLINKS)
def test_stateful_changelog_matches_recorded_flink(name: str) -> None:
    case, expected = CASES[name], _FLINKS[name]
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.get_config().set("parallelism.default", "1").set("millstream.engine", "local")
    t_env.get_config().set("table.local-time-zone", "UTC")
    declare(t_env, case, 1_000_000)
    results = changes(t_env, case.query)
    if case.compared == ORDERED:
        assert results == expected
    elif case.compared == FINAL_ROWS:
        assert _left(results) == _left(expected)
    else:
        assert sorted(results) == sorted(expected)


def test_temporal_join_is_rejected_in_batch() -> None:
    t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    t_env.get_config().set("millstream.engine", "local")
    case = CASES["temporal join with a view"]
    declare(t_env, case, 1_000_000)
    assert changes(t_env, case.query)[0].startswith("error: Event-time temporal joins are for streaming mode")


def test_stateful_cases_are_all_recorded() -> None:
    assert set(_FLINKS) == set(CASES)
