"""Queries give the changelogs recorded from Apache Flink (`tests/sql/changelogs.py`)."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from millstream.table import EnvironmentSettings, TableEnvironment
from tests.sql.changelogs import QUERIES, RECORDED, SELF, SIDED, changes, declare

_FLINKS: dict[str, list[str]] = json.loads(RECORDED.read_text())

# The same rows at the same watermark, in another order: Flink's order is that of its hash table.
_IN_ANY_ORDER = {"hop"}


def _left(changelog: list[str]) -> Counter[str]:
    rows = Counter[str]()
    for change in changelog:
        rows[change[3:]] += 1 if change[:2] in ("+I", "+U") else -1
    return Counter({row: count for row, count in rows.items() if count})


@pytest.mark.parametrize("name", _FLINKS)
def test_changelog_matches_recorded_flink(name: str) -> None:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.get_config().set("parallelism.default", "1").set("millstream.engine", "local")
    declare(t_env, name, 1_000_000)
    results = changes(t_env, QUERIES[name])
    if name in SIDED or name in SELF:
        assert _left(results) == _left(_FLINKS[name])
    elif name in _IN_ANY_ORDER:
        assert sorted(results) == sorted(_FLINKS[name])
    else:
        assert results == _FLINKS[name]


def test_changelog_queries_are_all_recorded() -> None:
    assert set(_FLINKS) == set(QUERIES)
