"""Rows that change their rank in a Top-N, written by their own key or joined by it."""

from __future__ import annotations

import pytest

from millstream.common.types import Row, RowKind
from millstream.table import ChangelogMode, StreamTableEnvironment
from millstream.testing import LocalEnvironment, ValuesTable

_NUMBERED = "SELECT *, ROW_NUMBER() OVER (ORDER BY v) AS rn FROM t"


def _environment() -> StreamTableEnvironment:
    changes = [("INSERT", 1, 10), ("INSERT", 2, 30), ("INSERT", 3, 20), ("DELETE", 1, 10), ("INSERT", 4, 40)]
    rows = []
    for kind, key, value in changes:
        row = Row(key, value)
        row.set_row_kind(RowKind[kind])
        rows.append(row)
    t_env = StreamTableEnvironment.create(LocalEnvironment())
    source = ValuesTable(rows, ChangelogMode.all(), batch_rows=1)
    t_env.execute_sql(f"CREATE TABLE t (k INT, v INT, PRIMARY KEY (k) NOT ENFORCED) WITH {source.options}")
    return t_env


def _by_key(rows: list[Row]) -> dict[int, tuple[object, ...]]:
    left: dict[int, tuple[object, ...]] = {}
    for row in rows:
        if row.get_row_kind() is RowKind.DELETE:
            del left[row[0]]
        else:
            left[row[0]] = tuple(row)
    return left


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (f"SELECT k, v, 2 FROM ({_NUMBERED}) AS r WHERE rn = 2", {2: (2, 30, 2)}),
        (f"SELECT k, v, rn FROM ({_NUMBERED}) AS r WHERE rn <= 2", {3: (3, 20, 1), 2: (2, 30, 2)}),
        (f"SELECT k, v, rn FROM ({_NUMBERED}) AS r WHERE rn BETWEEN 2 AND 3", {2: (2, 30, 2), 4: (4, 40, 3)}),
        ("SELECT k, v, 0 FROM t ORDER BY v LIMIT 1 OFFSET 1", {2: (2, 30, 0)}),
        ("SELECT k, v, 0 FROM t ORDER BY v LIMIT 2 OFFSET 1", {2: (2, 30, 0), 4: (4, 40, 0)}),
    ],
)
def test_upsert_sink_drops_rows_that_left_their_rank(query: str, expected: dict[int, tuple[object, ...]]) -> None:
    t_env, sink = _environment(), ValuesTable((), ChangelogMode.upsert())
    t_env.execute_sql(f"CREATE TABLE o (k INT, v INT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH {sink.options}")
    t_env.execute_sql(f"INSERT INTO o {query}").wait()
    assert _by_key(sink.results()) == expected


def test_join_retains_ranked_rows_that_moved_up() -> None:
    t_env = _environment()
    query = f"SELECT t.k, r.rn FROM t JOIN (SELECT k, rn FROM ({_NUMBERED}) AS n WHERE rn <= 2) AS r ON t.k = r.k"
    left: list[tuple[object, ...]] = []
    for row in t_env.execute_sql(query).collect():
        if row.get_row_kind() in (RowKind.DELETE, RowKind.UPDATE_BEFORE):
            left.remove(tuple(row))
        else:
            left.append(tuple(row))
    assert sorted(left) == [(2, 2), (3, 1)]
