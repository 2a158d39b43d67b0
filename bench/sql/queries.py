"""The queries of the benchmark part sql: a number sequence to blackhole, the same SQL for all systems."""

from __future__ import annotations

from dataclasses import dataclass

SINK = "CREATE TABLE {name} ({columns}) WITH ('connector' = 'blackhole')"


@dataclass(frozen=True)
class Query:
    """One query.

    Attributes:
        name: its title.
        insert: reads `seq(n)`, or `seq(n, ts)` for windows, and writes to a table of its own.
        columns: of that table.
        records: how many numbers millstream reads; others read a share of them.
        settings: its settings.
        spark: the same in Spark SQL, over all numbers at once; None where Spark has no equivalent: it emits final
            results, not every change.
    """

    name: str
    insert: str
    columns: str
    records: int
    settings: tuple[tuple[str, str], ...] = ()
    spark: str | None = None


_GROUPED = "SELECT n % {keys} AS k, COUNT(*) AS c, SUM(n) AS s FROM seq GROUP BY n % {keys}"
_MINI_BATCH = (
    ("table.exec.mini-batch.enabled", "true"),
    ("table.exec.mini-batch.allow-latency", "1 s"),
    ("table.exec.mini-batch.size", "50000"),
)
_KCS = "k BIGINT, c BIGINT, s BIGINT"

QUERIES = [
    Query(
        "projection",
        "SELECT n, n * 2 + 1 AS a, n % 10 AS b FROM seq WHERE n % 3 <> 0",
        "n BIGINT, a BIGINT, b BIGINT",
        100_000_000,
        spark="SELECT n, n * 2 + 1 AS a, n % 10 AS b FROM seq WHERE n % 3 <> 0",
    ),
    Query("group aggregate, 10k keys", _GROUPED.format(keys=10_000), _KCS, 20_000_000),
    Query(
        "group aggregate, 10k keys, mini-batch",
        _GROUPED.format(keys=10_000),
        _KCS,
        40_000_000,
        _MINI_BATCH,
        _GROUPED.format(keys=10_000),
    ),
    Query("group aggregate, 1M keys", _GROUPED.format(keys=1_000_000), _KCS, 10_000_000),
    Query(
        "group aggregate, 1M keys, mini-batch",
        _GROUPED.format(keys=1_000_000),
        _KCS,
        10_000_000,
        _MINI_BATCH,
        _GROUPED.format(keys=1_000_000),
    ),
    Query(
        "tumbling window",
        "SELECT n % 10000 AS k, window_start, COUNT(*) AS c, SUM(n) AS s "
        "FROM TABLE(TUMBLE(TABLE seq, DESCRIPTOR(ts), INTERVAL '10' SECOND)) "
        "GROUP BY n % 10000, window_start, window_end",
        "k BIGINT, w TIMESTAMP(3), c BIGINT, s BIGINT",
        20_000_000,
        spark="SELECT n % 10000 AS k, window.start, COUNT(*) AS c, SUM(n) AS s FROM seq "
        "GROUP BY n % 10000, window(ts, '10 seconds')",
    ),
    Query(
        "inner join",
        "SELECT a.n, b.m FROM seq AS a JOIN (SELECT n AS m FROM seq) AS b ON a.n = b.m",
        "n BIGINT, m BIGINT",
        4_000_000,
        spark="SELECT a.n, b.m FROM seq AS a JOIN (SELECT n AS m FROM seq) AS b ON a.n = b.m",
    ),
    Query("scalar UDF", "SELECT plus_one(n) FROM seq", "n BIGINT", 10_000_000),
    Query("pandas UDF", "SELECT plus_one_pandas(n) FROM seq", "n BIGINT", 40_000_000),
]
# Queries that run row by row; they run only if selected by name, see docs/adr/0021-sql-performance.md.
_KEY, _TEN = "n % 100000 AS k", "FROM seq GROUP BY n % 100000"
ROW_BY_ROW = [
    Query(
        "MAX of counts",
        "SELECT k % 100 AS g, MAX(c) AS m FROM (SELECT n % 10000 AS k, COUNT(*) AS c FROM seq GROUP BY n % 10000) "
        "GROUP BY k % 100",
        "g BIGINT, m BIGINT",
        1_000_000,
    ),
    Query(
        "MAX of sums",
        "SELECT k % 10 AS g, MAX(s) AS m FROM (SELECT n % 10000 AS k, SUM(n) AS s FROM seq GROUP BY n % 10000) "
        "GROUP BY k % 10",
        "g BIGINT, m BIGINT",
        1_000_000,
    ),
    Query("LISTAGG", f"SELECT {_KEY}, LISTAGG(CAST(n AS STRING)) AS l {_TEN}", "k BIGINT, l STRING", 1_000_000),
    Query("COLLECT", f"SELECT {_KEY}, COLLECT(n) AS l {_TEN}", "k BIGINT, l MULTISET<BIGINT>", 1_000_000),
    Query("ARRAY_AGG", f"SELECT {_KEY}, ARRAY_AGG(n) AS l {_TEN}", "k BIGINT, l ARRAY<BIGINT>", 1_000_000),
]
BY_NAME = {q.name: q for q in [*QUERIES, *ROW_BY_ROW]}
