"""`table.optimizer.distinct-agg.split.enabled`: distinct aggregates in two phases, with the same results."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

from millstream.common.types import Row, RowKind
from millstream.sql.errors import TableException
from millstream.table import ChangelogMode, StreamTableEnvironment
from millstream.testing import LocalEnvironment, ValuesTable

_SPLIT = "table.optimizer.distinct-agg.split.enabled"
_BUCKETS = "table.optimizer.distinct-agg.split.bucket-num"
_BACK = (RowKind.UPDATE_BEFORE, RowKind.DELETE)
_COLUMNS = "a INT, b BIGINT, c STRING, x DOUBLE, d DECIMAL(10, 3), f FLOAT"


def _environment(split: bool, mini_batch: bool = False, parallelism: int = 1) -> StreamTableEnvironment:
    env = LocalEnvironment()
    env.set_parallelism(parallelism)
    t_env = StreamTableEnvironment.create(env)
    config = t_env.get_config().set("table.local-time-zone", "UTC")
    if split:
        config.set(_SPLIT, "true").set(_BUCKETS, "3")
    if mini_batch:
        config.set("table.exec.mini-batch.enabled", "true").set("table.exec.mini-batch.allow-latency", "1 s")
        config.set("table.exec.mini-batch.size", "4")
    return t_env


def _row(r: random.Random) -> tuple[Any, ...]:
    def maybe(value: Any) -> Any:
        return None if r.random() < 0.15 else value

    # Halves are exact in any order of summation.
    return (
        maybe(r.randrange(3)),
        maybe(r.randrange(-4, 9)),
        maybe(r.choice("xyz")),
        maybe(r.randrange(8) / 2),
        maybe(Decimal(r.randrange(-5000, 5000)) / 1000),
        maybe(r.randrange(8) / 2),
    )


def _changes(seed: int, retracts: bool) -> list[Row]:
    """Return rows, some of which are deleted or updated later."""
    r = random.Random(seed)
    live: list[Any] = []
    changes: list[Any] = []
    for _ in range(60):
        if retracts and live and r.random() < 0.4:
            removed = live.pop(r.randrange(len(live)))
            changes.append(_of_kind(removed, RowKind.DELETE))
        else:
            live.append(_row(r))
            changes.append(_of_kind(live[-1], RowKind.INSERT))
    return changes


def _of_kind(values: tuple[Any, ...], kind: RowKind) -> Row:
    row = Row(*values)
    row.set_row_kind(kind)
    return row


def _left(t_env: StreamTableEnvironment, query: str) -> Counter[tuple[Any, ...]]:
    left: Counter[tuple[Any, ...]] = Counter()
    with t_env.execute_sql(query).collect() as rows:
        for row in rows:
            left[tuple(row)] += -1 if row.get_row_kind() in _BACK else 1
    return Counter({row: count for row, count in left.items() if count})


_QUERIES = (
    "SELECT a, COUNT(DISTINCT b) FROM s GROUP BY a",
    "SELECT COUNT(DISTINCT b), COUNT(DISTINCT c), COUNT(*) FROM s",
    "SELECT a, COUNT(DISTINCT b), SUM(b), AVG(b), COUNT(*), MAX(c), MIN(x), AVG(DISTINCT x) FROM s GROUP BY a",
    "SELECT a, COUNT(DISTINCT b), COUNT(DISTINCT b) FILTER (WHERE c <> 'x'), SUM(b) FILTER (WHERE c <> 'y') FROM s "
    "GROUP BY a",
    "SELECT a, COUNT(DISTINCT a), SUM(DISTINCT b), MAX(DISTINCT b), AVG(d), AVG(DISTINCT d), AVG(f), SUM(d) FROM s "
    "GROUP BY a",
    "SELECT a, c, COUNT(DISTINCT b), COUNT(*) FROM s GROUP BY GROUPING SETS ((a), (a, c), ())",
    "SELECT a, COUNT(DISTINCT b, c), COUNT(DISTINCT x) FILTER (WHERE b > 2), SUM(b) FILTER (WHERE b > 1) FROM s "
    "GROUP BY a",
    "SELECT a, COUNT(DISTINCT m) FROM (SELECT a, b, MAX(c) AS m FROM s GROUP BY a, b) GROUP BY a",
)


@pytest.mark.parametrize("query", _QUERIES)
@pytest.mark.parametrize("retracts", [False, True])
def test_distinct_split_equals_unsplit_aggregate(query: str, retracts: bool) -> None:
    results = []
    for split, mini_batch, parallelism in ((False, False, 1), (True, True, 1), (True, False, 2)):
        t_env = _environment(split, mini_batch, parallelism)
        mode = ChangelogMode.all() if retracts else ChangelogMode.insert_only()
        source = ValuesTable(_changes(7, retracts), mode, batch_rows=5)
        t_env.execute_sql(f"CREATE TABLE s ({_COLUMNS}) WITH {source.options}")
        assert ("partialFinalType=[FINAL]" in t_env.explain_sql(query)) == split
        results.append(_left(t_env, query))
    assert results[0]
    assert results[1:] == results[:1] * 2


def test_distinct_split_equals_unsplit_aggregate_in_windows() -> None:
    query = (
        "SELECT window_start, window_end, a, COUNT(DISTINCT b), SUM(b), COUNT(DISTINCT c) FROM "
        "TABLE(HOP(TABLE w, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) "
        "GROUP BY window_start, window_end, a"
    )
    results, plans = [], []
    for split in (False, True):
        t_env = _environment(split)
        t_env.execute_sql(
            f"CREATE TABLE w (n BIGINT, a INT, b BIGINT, c STRING, ts AS TO_TIMESTAMP_LTZ(n * 1000, 3), "
            f"WATERMARK FOR ts AS ts) WITH {ValuesTable([(i, *_row(random.Random(i))[:3]) for i in range(60)]).options}"
        )
        plans.append(t_env.explain_sql(query))
        results.append(_left(t_env, query))
    assert results[0]
    assert results[1] == results[0]
    assert [p.count("GlobalWindowAggregate(") for p in (q.split("== Optimized Execution")[1] for q in plans)] == [2, 4]


@pytest.mark.parametrize(
    "query",
    [
        # Session windows and processing-time windows cannot be assigned in two phases.
        "SELECT window_start, window_end, COUNT(DISTINCT a) FROM TABLE(SESSION(TABLE e, DESCRIPTOR(ts), INTERVAL '1' "
        "SECOND)) GROUP BY window_start, window_end",
        "SELECT window_start, window_end, COUNT(DISTINCT a) FROM TABLE(TUMBLE(TABLE e, DESCRIPTOR(p), INTERVAL '1' "
        "SECOND)) GROUP BY window_start, window_end",
        "SELECT a, COUNT(DISTINCT b), STDDEV_POP(b) FROM e GROUP BY a",
        "SELECT a, COUNT(DISTINCT b), COLLECT(b) FROM e GROUP BY a",
        "SELECT a, MAX(DISTINCT b) FROM e GROUP BY a",
        "SELECT a, COUNT(DISTINCT b), LISTAGG(CAST(b AS STRING), ';') FROM e GROUP BY a",
    ],
)
def test_distinct_split_skips_aggregates_that_flink_skips(query: str) -> None:
    split, unsplit = _environment(True), _environment(False)
    for t_env in (split, unsplit):
        t_env.execute_sql(
            "CREATE TABLE e (a INT, b BIGINT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts) "
            "WITH ('connector' = 'datagen')"
        )
    assert split.explain_sql(query) == unsplit.explain_sql(query)


# Flink 2.3's text, except that a source reads only the required columns.
_PLAN = """\
GroupAggregate(groupBy=[a], partialFinalType=[FINAL], select=[a, $SUM0_RETRACT($f3_0) AS $f1, FIRST_VALUE_RETRACT($f4_0) AS $f2])
+- Exchange(distribution=[hash[a]])
   +- GroupAggregate(groupBy=[a, $f3, $f4], partialFinalType=[PARTIAL], select=[a, $f3, $f4, COUNT(DISTINCT b) FILTER $g_1 AS $f3_0, FIRST_VALUE(c) FILTER $g_2 AS $f4_0])
      +- Exchange(distribution=[hash[a, $f3, $f4]])
         +- Calc(select=[a, b, c, $f3, $f4, ($e = 1) AS $g_1, ($e = 2) AS $g_2])
            +- Expand(projects=[{a, b, c, $f3, null AS $f4, 1 AS $e}, {a, b, c, null AS $f3, $f4, 2 AS $e}])
               +- Calc(select=[a, b, c, MOD(HASH_CODE(b), 1024) AS $f3, MOD(HASH_CODE(c), 1024) AS $f4])
                  +- TableSourceScan(table=[[default_catalog, default_database, big]], fields=[a, b, c])
"""  # noqa: E501


def test_distinct_split_explain_matches_flink() -> None:
    t_env = StreamTableEnvironment.create(LocalEnvironment())
    t_env.get_config().set(_SPLIT, "true")
    t_env.execute_sql("CREATE TABLE big (a INT, b BIGINT, c STRING, x DOUBLE) WITH ('connector' = 'datagen')")
    plan = t_env.explain_sql("SELECT a, COUNT(DISTINCT b) AS b, FIRST_VALUE(c) c FROM big GROUP BY a")
    assert plan.split("== Optimized Execution Plan ==\n")[1].startswith(_PLAN)


def test_distinct_split_rejects_invalid_bucket_number() -> None:
    t_env = _environment(True)
    t_env.get_config().set(_BUCKETS, "0")
    with pytest.raises(TableException, match=f"Could not parse value '0' for key '{_BUCKETS}'"):
        t_env.execute_sql("SELECT COUNT(DISTINCT a) FROM (VALUES (1)) AS t(a)")
