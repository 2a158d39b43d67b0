"""The order of inner joins in BATCH: as written, unless file statistics show an order with far fewer rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.table import EnvironmentSettings, StreamTableEnvironment
from millstream.testing import LocalEnvironment

_ROWS = 600
_TABLES = {
    # An item has 60 rows in each table, so that their join has 36,000 rows.
    "sales": {"item": [i % 10 for i in range(_ROWS)], "on_day": [i % 50 for i in range(_ROWS)]},
    "stock": {"s_item": [i % 10 for i in range(_ROWS)], "s_day": [i // 10 for i in range(_ROWS)]},
    "days": {"d_day": list(range(50)), "in_year": [2000 + i // 25 for i in range(50)]},
}
_QUERY = (
    "SELECT item, COUNT(*) AS n FROM sales JOIN stock ON item = s_item JOIN days ON on_day = d_day "
    "WHERE in_year = 2001 AND s_day = d_day GROUP BY item"
)


def _environment(folder: Path) -> StreamTableEnvironment:
    t_env = StreamTableEnvironment.create(LocalEnvironment(), EnvironmentSettings.in_batch_mode())
    for name, columns in _TABLES.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet", row_group_size=100)
        declared = ", ".join(f"`{c}` BIGINT" for c in columns)
        options = f"'connector' = 'filesystem', 'path' = '{folder / name}.parquet', 'format' = 'parquet'"
        t_env.execute_sql(f"CREATE TABLE {name} ({declared}) WITH ({options})")
    return t_env


def _scans(t_env: StreamTableEnvironment, query: str) -> list[str]:
    """Return the tables of a plan in the order of their joins."""
    plan = t_env.explain_sql(query).split("== Optimized Physical Plan ==")[1].split("== Optimized Execution")[0]
    return [part.split("]")[0].split(", ")[2] for part in plan.split("TableSourceScan(table=[[")[1:]]


def test_join_order_defers_a_join_that_multiplies_rows(tmp_path: Path) -> None:
    t_env = _environment(tmp_path)

    assert _scans(t_env, _QUERY) == ["sales", "days", "stock"]
    actual = {row[0]: row[1] for row in t_env.execute_sql(_QUERY).collect()}
    expected: dict[int, int] = {}
    for item, day in zip(*_TABLES["sales"].values(), strict=True):
        matching = [1 for i, d in zip(*_TABLES["stock"].values(), strict=True) if (i, d) == (item, day) and d >= 25]
        expected[item] = expected.get(item, 0) + len(matching)
    assert actual == {item: n for item, n in expected.items() if n}


@pytest.mark.parametrize(
    "query",
    [
        # No order is much better.
        "SELECT * FROM sales JOIN days ON on_day = d_day JOIN stock ON item = s_item AND s_day = d_day",
        # A query has no statistics.
        "SELECT * FROM sales JOIN stock ON item = s_item JOIN (SELECT DISTINCT d_day FROM days) AS d ON on_day = d_day",
    ],
)
def test_join_order_stays_as_written_without_gain(tmp_path: Path, query: str) -> None:
    written = [name for name in query.replace(")", " ").split() if name in _TABLES]
    assert _scans(_environment(tmp_path), query) == written


def test_join_order_ignores_statistics_of_a_damaged_file(tmp_path: Path) -> None:
    t_env = _environment(tmp_path)
    (tmp_path / "days.parquet").write_bytes(b"no footer")
    assert _scans(t_env, _QUERY) == ["sales", "stock", "days"]
