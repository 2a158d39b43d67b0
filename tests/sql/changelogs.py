"""Queries whose changelogs were recorded from Apache Flink.

    python changelogs.py [NAME ...]    on a Python with apache-flink 2.3: writes changelogs.json next to this file

Names select the queries to record again.

A source emits its rows slowly in sequence, so that the inputs of a join interleave equally in every run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "changelogs.json"

_KEYED = [("k", "STRING"), ("v", "INT")]
_KEYED_ROWS = [("a", 1), ("b", 2), ("a", 3), ("a", None), ("b", 2), ("c", 5), ("a", 1), (None, 7), (None, 8), ("b", -2)]
_SIDED = [("side", "STRING"), ("k", "INT"), ("v", "INT")]
_SIDED_ROWS = [
    *[("L", 1, 10), ("R", 1, 20), ("R", 1, 21), ("L", 1, 11), ("L", 2, 12), ("R", 2, 22)],
    *[("L", None, 13), ("R", None, 23), ("L", 1, 10), ("R", 3, 30), ("L", 3, 31)],
]
_TIMED = [("k", "STRING"), ("v", "INT"), ("ts", "TIMESTAMP(3)")]
_SECONDS = [1, 2, 12, 8, 14, 25, 11, 24, 40, 9]
_TIMED_ROWS = [
    (k, i + 1, f"2024-01-01 00:00:{s:02}") for i, (k, s) in enumerate(zip("abaacabbaa", _SECONDS, strict=True))
]

_UPDATED = "(SELECT k, SUM(v) AS s, COUNT(*) AS c FROM t GROUP BY k)"
_LEFT = "(SELECT k, v FROM t WHERE side = 'L')"
_RIGHT = "(SELECT k AS rk, v AS rv FROM t WHERE side = 'R')"
_LEFT_SUMS = "(SELECT k, SUM(v) AS v FROM t WHERE side = 'L' GROUP BY k)"
_RIGHT_SUMS = "(SELECT k AS rk, SUM(v) AS rv FROM t WHERE side = 'R' GROUP BY k)"


def _numbered(
    order: str, condition: str, columns: str = "*", source: str = "t", partition: str = "PARTITION BY k "
) -> str:
    numbers = f"SELECT *, ROW_NUMBER() OVER ({partition}ORDER BY {order}) AS rn FROM {source}"
    return f"SELECT {columns} FROM ({numbers}) WHERE {condition}"


def _windowed(function: str, aggregates: str = "COUNT(*), SUM(v)") -> str:
    return (
        f"SELECT k, window_start, window_end, {aggregates} FROM TABLE({function}) GROUP BY k, window_start, window_end"
    )


def _over(frame: str) -> str:
    return f"OVER (PARTITION BY k ORDER BY v {frame} BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"


_DISTINCT = "COUNT(*), SUM(v), COUNT(DISTINCT v)"
_TUMBLED = (
    "(SELECT k, v, window_start AS ws, window_end AS we FROM "
    "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) WHERE MOD(v, 2) = {} AND v NOT IN (4, 7, 10))"
)
_HOP = "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)"

_SELF = f"{_UPDATED} AS a {{}} JOIN {_UPDATED} AS b ON a.k = b.k"
# Over one table, but the order of the join's inputs is undefined: only the final rows are compared.
SELF = {
    "self join of updates": f"SELECT a.k, a.s, b.c FROM {_SELF.format('INNER')}",
    "left self join of updates": f"SELECT a.k, a.s, b.c FROM {_SELF.format('LEFT')}",
    "full self join of filtered updates": (
        f"SELECT a.k, a.s, b.k, b.c FROM (SELECT * FROM {_UPDATED} WHERE s > 3) AS a FULL JOIN "
        f"(SELECT * FROM {_UPDATED} WHERE c < 3) AS b ON a.k = b.k"
    ),
}
# With one input the whole changelog is compared.
KEYED = {
    **SELF,
    # The filter leaves a +U without a +I, and a -U without a +U, as in Flink.
    "filtered updates": f"SELECT k, s FROM {_UPDATED} WHERE s > 3",
    "aggregates": "SELECT k, COUNT(*), SUM(v), AVG(v), MIN(v), MAX(v), COUNT(DISTINCT v) FROM t GROUP BY k",
    "aggregates of updates": (
        f"SELECT c, COUNT(*), SUM(s), MIN(s), MAX(s), COUNT(DISTINCT k) FROM {_UPDATED} GROUP BY c"
    ),
    "aggregates of all": "SELECT COUNT(*), SUM(v), COUNT(v) FILTER (WHERE v > 1) FROM t",
    "first, last and list": "SELECT k, FIRST_VALUE(v), LAST_VALUE(v), LISTAGG(CAST(v AS STRING)) FROM t GROUP BY k",
    "first, last and list of updates": (
        f"SELECT c, FIRST_VALUE(s), LAST_VALUE(s), LISTAGG(k) FROM {_UPDATED} GROUP BY c"
    ),
    "distinct": "SELECT DISTINCT v FROM t",
    "distinct of updates": f"SELECT DISTINCT c FROM {_UPDATED}",
    "variance": "SELECT k, STDDEV_POP(v), VAR_SAMP(v) FROM t GROUP BY k",
    "top 2": _numbered("v DESC", "rn <= 2"),
    "top 2 without rank": _numbered("v DESC", "rn <= 2", "k, v"),
    "top 2 of updates": _numbered("s DESC, c DESC", "rn <= 2", source=_UPDATED, partition=""),
    "limit": "SELECT * FROM t LIMIT 3",
    "order and limit": "SELECT * FROM t ORDER BY v LIMIT 3",
    "order, limit and offset": "SELECT * FROM t ORDER BY v LIMIT 3 OFFSET 1",
    "last row": _numbered("PROCTIME() DESC", "rn = 1", "k, v"),
    "first row": _numbered("PROCTIME()", "rn = 1", "k, v"),
    **{
        f"over {frame.lower()} by a column: {name}": f"SELECT k, v, {call} {_over(frame)} FROM t"
        for frame in ("ROWS", "RANGE")
        for name, call in {
            "average": "AVG(v)",
            "sum of zeros": "SUM(v - v)",
            "count": "COUNT(*)",
            "minimum and maximum": f"MAX(v) {_over(frame)}, MIN(v)",
            "variance": "VAR_POP(v)",
        }.items()
    },
}
# Without late rows: in Flink, the input whose watermark arrives first determines whether a row is late. With 2 and with
# 12 rows per second, the same row was late in one run only.
WINDOW_JOINS = {
    f"{kind.lower()} window join": (
        f"SELECT l.k, l.v, r.k, r.v, l.ws, r.ws FROM {_TUMBLED.format(0)} AS l {kind} JOIN {_TUMBLED.format(1)} AS r "
        "ON l.ws = r.ws AND l.we = r.we"
    )
    for kind in ("INNER", "LEFT", "RIGHT", "FULL")
}
TIMED = {
    **WINDOW_JOINS,
    "tumble": _windowed("TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)", _DISTINCT),
    "hop": _windowed(_HOP),
    "cumulate": _windowed("CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)"),
    "session": _windowed("SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' SECOND)", _DISTINCT),
    "old tumble": (
        "SELECT k, TUMBLE_START(ts, INTERVAL '10' SECOND), COUNT(*) FROM t GROUP BY k, TUMBLE(ts, INTERVAL '10' SECOND)"
    ),
    "window function": f"SELECT k, v, window_start, window_end, window_time FROM TABLE({_HOP})",
    "order by rowtime": "SELECT k, v, ts FROM t ORDER BY ts, v DESC",
    "last row by rowtime": _numbered("ts DESC", "rn = 1", "k, v"),
    "first row by rowtime": _numbered("ts", "rn = 1", "k, v"),
}
# The order of the inputs is undefined: only the final rows are compared.
SIDED = {
    **{
        f"{kind.lower()} join": f"SELECT * FROM {_LEFT} {kind} JOIN {_RIGHT} ON k = rk"
        for kind in ("INNER", "LEFT", "RIGHT", "FULL")
    },
    "left join with a condition": f"SELECT * FROM {_LEFT} LEFT JOIN {_RIGHT} ON k = rk AND v + 10 < rv",
    "semi join": f"SELECT * FROM {_LEFT} WHERE k IN (SELECT rk FROM {_RIGHT})",
    "anti join": f"SELECT * FROM {_LEFT} AS l WHERE NOT EXISTS (SELECT 1 FROM {_RIGHT} AS r WHERE r.rk = l.k)",
    **{
        f"{kind.lower()} join of updates": f"SELECT * FROM {_LEFT_SUMS} {kind} JOIN {_RIGHT_SUMS} ON v = rv - 10"
        for kind in ("INNER", "LEFT", "FULL")
    },
    "semi join of updates": f"SELECT * FROM {_LEFT_SUMS} WHERE v IN (SELECT rv - 10 FROM {_RIGHT_SUMS})",
    "intersect": f"SELECT k FROM {_LEFT} INTERSECT SELECT rk FROM {_RIGHT}",
    "except": f"SELECT k FROM {_LEFT} EXCEPT SELECT rk FROM {_RIGHT}",
    "intersect all": f"SELECT k FROM {_LEFT} INTERSECT ALL SELECT rk FROM {_RIGHT}",
    "except all": f"SELECT k FROM {_LEFT} EXCEPT ALL SELECT rk FROM {_RIGHT}",
    "grouping sets": "SELECT k, side, COUNT(*) FROM t GROUP BY GROUPING SETS ((k), (side), ())",
}
QUERIES = {**KEYED, **TIMED, **SIDED}


def _literal(value: Any, kind: str) -> str:
    return f"CAST(NULL AS {kind})" if value is None else f"CAST('{value}' AS {kind})"


def declare(t_env: Any, name: str, rows_per_second: int) -> None:
    """Declare the table `t` that a query reads."""
    columns, rows = (
        (_KEYED, _KEYED_ROWS) if name in KEYED else (_TIMED, _TIMED_ROWS) if name in TIMED else (_SIDED, _SIDED_ROWS)
    )
    statements = []
    for i, (column, kind) in enumerate(columns):
        cases = " ".join(f"WHEN {n} THEN {_literal(row[i], kind)}" for n, row in enumerate(rows, 1))
        statements.append(f"`{column}` AS CASE id {cases} END")
    watermark = ", WATERMARK FOR ts AS ts - INTERVAL '1' SECOND" if name in TIMED else ""
    t_env.execute_sql(
        f"CREATE TABLE ids (id BIGINT, {', '.join(statements)}{watermark}) WITH ('connector' = 'datagen', "
        f"'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '{len(rows)}', "
        f"'rows-per-second' = '{rows_per_second}')"
    )
    names = ", ".join(f"`{column}`" for column, _ in columns)
    t_env.execute_sql(f"CREATE TEMPORARY VIEW t AS SELECT {names} FROM ids")


def changes(t_env: Any, text: str) -> list[str]:
    """Return the changes of a query."""
    with t_env.execute_sql(text).collect() as rows:
        return [f"{row.get_row_kind()} {', '.join(map(str, row))}" for row in rows]


def record(names: Sequence[str] = ()) -> None:
    """Run the queries, or those with these names, on Flink and record the results."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    results = json.loads(RECORDED.read_text()) if names else {}
    for name in names or QUERIES:
        t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        t_env.get_config().set("parallelism.default", "1")
        declare(t_env, name, 12)
        results[name] = changes(t_env, QUERIES[name])
        print(name, len(results[name]), flush=True)
    RECORDED.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    record(sys.argv[1:])
