"""INSERT .. ON CONFLICT: rows of different upsert keys that have one primary key."""

from __future__ import annotations

import datetime as dt

import pytest

from millstream.common.types import Row, RowKind
from millstream.sql.errors import ValidationException
from millstream.table import ChangelogMode, EnvironmentSettings, StreamTableEnvironment
from millstream.testing import LocalEnvironment, ValuesTable

_COLUMNS = "order_id INT, name STRING, ts TIMESTAMP(3), PRIMARY KEY (order_id) NOT ENFORCED"


def _change(kind: RowKind, order: int, name: str, second: int) -> Row:
    row = Row(order, name, dt.datetime(2024, 1, 1, 0, 0, second))
    row.set_row_kind(kind)
    return row


def _added(order: int, name: str, second: int) -> Row:
    return _change(RowKind.INSERT, order, name, second)


def _tables(rows: list[Row], watermark: str = ", WATERMARK FOR ts AS ts") -> tuple[StreamTableEnvironment, ValuesTable]:
    t_env = StreamTableEnvironment.create(LocalEnvironment())
    source, sink = ValuesTable(rows, ChangelogMode.all()), ValuesTable((), ChangelogMode.upsert())
    t_env.execute_sql(f"CREATE TABLE orders ({_COLUMNS}{watermark}) WITH {source.options}")
    columns = "name STRING PRIMARY KEY NOT ENFORCED, order_id INT"
    t_env.execute_sql(f"CREATE TABLE last_orders ({columns}) WITH {sink.options}")
    return t_env, sink


def _written(rows: list[Row], action: str) -> list[tuple[str, str, int]]:
    t_env, sink = _tables(rows)
    t_env.execute_sql(f"INSERT INTO last_orders SELECT name, order_id FROM orders ON CONFLICT DO {action}").wait()
    return [(str(r.get_row_kind()), *r) for r in sink.results()]


# Order 1 gets another name; its retraction arrives after the order that takes its name.
_MOVED = [
    _added(1, "Laptop", 1),
    _added(9, "Desk", 5),
    _added(3, "Laptop", 4),
    _change(RowKind.UPDATE_BEFORE, 1, "Laptop", 4),
    _change(RowKind.UPDATE_AFTER, 1, "Phone", 4),
]


@pytest.mark.parametrize("action", ["ERROR", "NOTHING"])
def test_on_conflict_ignores_conflicts_caused_by_change_order(action: str) -> None:
    written = _written(_MOVED, action)
    assert written == [("+I", "Laptop", 1), ("+I", "Desk", 9), ("+U", "Laptop", 3), ("+I", "Phone", 1)]


def test_on_conflict_do_nothing_keeps_the_first_row_until_deleted() -> None:
    rows = [
        _added(1, "Laptop", 1),
        _added(2, "Laptop", 3),
        _change(RowKind.DELETE, 1, "Laptop", 5),
        _added(4, "Desk", 7),
    ]
    assert _written(rows, "NOTHING") == [("+I", "Laptop", 1), ("-D", "Laptop", 1), ("+I", "Desk", 4)]


def test_on_conflict_do_error_fails_on_a_duplicate_primary_key() -> None:
    with pytest.raises(Exception, match=r"constraint violation.*Conflicting key: \[name=Laptop\]"):
        _written([_added(1, "Laptop", 1), _added(2, "Laptop", 3), _added(4, "Desk", 7)], "ERROR")


def test_on_conflict_do_deduplicate_restores_the_previous_row() -> None:
    rows = [_added(1, "Laptop", 1), _added(2, "Laptop", 3), _change(RowKind.DELETE, 2, "Laptop", 5)]
    assert _written(rows, "DEDUPLICATE") == [("+I", "Laptop", 1), ("+U", "Laptop", 2), ("+U", "Laptop", 1)]


def test_on_conflict_is_part_of_the_compiled_plan() -> None:
    t_env, _ = _tables([])
    text = "INSERT INTO last_orders SELECT name, order_id FROM orders ON CONFLICT DO NOTHING"
    assert "upsertMaterialize=[true], conflictStrategy=[NOTHING])" in t_env.explain_sql(text)
    assert "conflictStrategy=[NOTHING]" in t_env.compile_plan_sql(text).explain()


def test_on_conflict_do_nothing_keeps_one_row_in_batch_mode() -> None:
    t_env = StreamTableEnvironment.create(LocalEnvironment(), EnvironmentSettings.in_batch_mode())
    source, sink = ValuesTable([(1, "a"), (2, "a"), (3, "b")]), ValuesTable((), ChangelogMode.upsert())
    t_env.execute_sql(f"CREATE TABLE s (id INT, name STRING) WITH {source.options}")
    t_env.execute_sql(f"CREATE TABLE k (name STRING PRIMARY KEY NOT ENFORCED, id INT) WITH {sink.options}")
    t_env.execute_sql("INSERT INTO k SELECT name, id FROM s ON CONFLICT DO NOTHING").wait()
    assert sorted(map(tuple, sink.results())) == [("a", 1), ("b", 3)]


@pytest.mark.parametrize("action", ["ERROR", "NOTHING"])
def test_on_conflict_requires_watermarks(action: str) -> None:
    t_env, _ = _tables([], watermark="")
    with pytest.raises(ValidationException, match="requires all source tables to define watermarks.*orders"):
        t_env.execute_sql(f"INSERT INTO last_orders SELECT name, order_id FROM orders ON CONFLICT DO {action}")
