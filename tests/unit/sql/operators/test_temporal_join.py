"""Temporal joins over changelog sources: the versions that rows join, as recorded from Flink 2.3."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pytest

from millstream.common.types import Row, RowKind
from millstream.sql.errors import TableException, ValidationException
from millstream.table import ChangelogMode, EnvironmentSettings, TableEnvironment
from millstream.testing import ValuesTable

_COLUMNS = "id BIGINT NOT NULL, s STRING, ts TIMESTAMP(3) NOT NULL"
_WATERMARK = "WATERMARK FOR ts AS ts - INTERVAL '4' SECOND"
_ORDERS = [
    *[(5, "f20", 20), (4, "e38", 38), (5, "f45", 45), (6, "g45", 45)],
    *[(4, "e58", 58), (4, "e59", 59), (6, "g65", 65)],
]
_UPSERTS: list[tuple[RowKind, int, str, int]] = [
    (RowKind.INSERT, 5, "a", 10),
    (RowKind.INSERT, 4, "y", 31),
    (RowKind.UPDATE_AFTER, 5, "b", 40),
    (RowKind.INSERT, 6, "p", 40),
    (RowKind.DELETE, 6, "p", 50),
    (RowKind.DELETE, 5, "b", 55),
    (RowKind.DELETE, 4, "y", 59),
    (RowKind.INSERT, 6, "q", 60),
]
_SEEN = [
    *[(4, "e38", "y"), (4, "e58", "y"), (4, "e59", None)],
    *[(5, "f20", "a"), (5, "f45", "b"), (6, "g45", "p"), (6, "g65", "q")],
]


def _time(second: int) -> dt.datetime:
    return dt.datetime(2024, 2, 29) + dt.timedelta(seconds=second)


def _changes(changes: Sequence[tuple[RowKind, int, str, int]]) -> list[Row]:
    rows = []
    for kind, key, text, second in changes:
        row = Row(key, text, _time(second))
        row.set_row_kind(kind)
        rows.append(row)
    return rows


def _with_update_before(changes: Sequence[tuple[RowKind, int, str, int]]) -> list[tuple[RowKind, int, str, int]]:
    completed: list[tuple[RowKind, int, str, int]] = []
    last: dict[int, tuple[RowKind, int, str, int]] = {}
    for change in changes:
        if change[0] is RowKind.UPDATE_AFTER:
            completed.append((RowKind.UPDATE_BEFORE, *last[change[1]][1:]))
        completed.append(change)
        last[change[1]] = change
    return completed


def _environment(mode: str = "upsert") -> TableEnvironment:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.get_config().set("millstream.engine", "local").set("parallelism.default", "1")
    orders = ValuesTable([(key, text, _time(second)) for key, text, second in _ORDERS])
    if mode == "upsert":
        versions = ValuesTable(_changes(_UPSERTS), ChangelogMode.upsert())
    else:
        versions = ValuesTable(_changes(_with_update_before(_UPSERTS)), ChangelogMode.all())
    key = "PRIMARY KEY (id) NOT ENFORCED"
    t_env.execute_sql(f"CREATE TABLE e ({_COLUMNS}, {_WATERMARK}) WITH {orders.options}")
    t_env.execute_sql(f"CREATE TABLE v ({_COLUMNS}, {key}, {_WATERMARK}) WITH {versions.options}")
    return t_env


def _query(versions: str = "v", more: str = "") -> str:
    return (
        f"SELECT e.id, e.s, r.s AS rs FROM e LEFT JOIN {versions} FOR SYSTEM_TIME AS OF e.ts AS r ON e.id = r.id{more}"
    )


def _rows(t_env: TableEnvironment, query: str) -> list[tuple[Any, ...]]:
    with t_env.execute_sql(query).collect() as rows:
        return sorted(map(tuple, rows), key=str)


@pytest.mark.parametrize("mode", ["upsert", "all", "twice"])
def test_temporal_join_sees_a_version_until_deleted(mode: str) -> None:
    t_env = _environment(mode)
    if mode == "twice":
        t_env.get_config().set("table.exec.source.cdc-events-duplicate", "true")
    assert _rows(t_env, _query()) == _SEEN


def test_temporal_join_reads_upserts_unchanged_below_a_projection() -> None:
    t_env = _environment()
    t_env.execute_sql("CREATE TEMPORARY VIEW p AS SELECT id, UPPER(s) AS s, ts FROM v")
    assert "ChangelogNormalize" not in t_env.explain_sql(_query("p"))
    expected = [(key, text, version and version.upper()) for key, text, version in _SEEN]
    assert _rows(t_env, _query("p")) == expected


def test_temporal_join_keeps_changelog_normalize_of_other_queries() -> None:
    query = f"SELECT s, COUNT(*) FROM v GROUP BY s UNION ALL SELECT rs, id FROM ({_query()}) AS j"
    _, plan = _environment().explain_sql(query).split("== Optimized Execution Plan ==\n")
    assert plan.split("\n\n")[0].count("ChangelogNormalize(") == 1


@pytest.mark.parametrize("mode", ["upsert", "all"])
@pytest.mark.parametrize("where", ["s <> 'y'", "id > 4"])
def test_temporal_join_rejects_a_filter_below_its_versions(mode: str, where: str) -> None:
    t_env = _environment(mode)
    t_env.execute_sql(f"CREATE TEMPORARY VIEW w AS SELECT id, s, ts FROM v WHERE {where}")
    with pytest.raises(TableException, match="Filter is not allowed for right changelog input of event time temporal"):
        t_env.explain_sql(_query("w"))


def test_temporal_join_accepts_a_condition_on_versions_in_on() -> None:
    expected = [(key, text, None if version == "y" else version) for key, text, version in _SEEN]
    assert _rows(_environment(), _query(more=" AND r.s <> 'y'")) == expected


def test_temporal_join_rejects_a_condition_without_the_primary_key() -> None:
    query = "SELECT e.id, r.id FROM e LEFT JOIN v FOR SYSTEM_TIME AS OF e.ts AS r ON e.s = r.s"
    with pytest.raises(ValidationException, match=r"primary key \[id\] must be included in the equivalence condition"):
        _environment().explain_sql(query)
