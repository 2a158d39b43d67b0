"""Queries with a state TTL, and the whole changelog that Apache Flink emits for each.

    python state_ttl.py    on a Python with apache-flink 2.3: runs Flink, and writes state_ttl.json

All queries are one job over one slow source: a row every three seconds, a TTL of 10.5 s, and keys that receive no row
for longer than that. State that Flink cleans by timers expires within one and a half times the TTL, so rows of a key
are at most 9 s apart or at least 24 s; the margin matters on a busy machine.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "state_ttl.json"
TTL = 10_500
# The source emits a row per second, and every third one has values.
EACH = 3
# The side, the key and the value of each row, in order of arrival; None for a missing row.
ROWS: list[tuple[str, str, int] | None] = [
    *[("L", "a", 1), ("L", "b", 5), ("R", "a", 3), ("R", "b", 4), ("L", "a", 2), None, ("L", "b", 7), ("R", "b", 8)],
    *[None, ("L", "b", 6), ("R", "b", 3), None, ("L", "b", 9), ("R", "a", 6), ("L", "a", 4), ("R", "a", 3)],
    *[None, None, None, None, ("R", "b", 5), ("L", "b", 1)],
]


def _column(column: int, kind: str) -> str:
    cases = " ".join(f"WHEN {n * EACH} THEN '{row[column]}'" for n, row in enumerate(ROWS, 1) if row)
    return f"CAST(CASE id {cases} END AS {kind})"


# The columns as expressions over the row number.
COLUMNS = {
    "side": _column(0, "STRING"),
    "k": _column(1, "STRING"),
    "v": _column(2, "INT"),
    "ts": "TO_TIMESTAMP_LTZ(id * 1000, 3)",
    "p": "PROCTIME()",
}
SOURCE = (
    f"CREATE TABLE ids (id BIGINT, {', '.join(f'{name} AS {expression}' for name, expression in COLUMNS.items())}, "
    "WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen', 'fields.id.kind' = 'sequence', 'fields.id.start' = '1', "
    f"'fields.id.end' = '{len(ROWS) * EACH}', 'rows-per-second' = '1')"
)
VIEWS = [
    "CREATE TEMPORARY VIEW t AS SELECT id, side, k, v, ts, p FROM ids WHERE k IS NOT NULL",
    "CREATE TEMPORARY VIEW l AS SELECT k, v, ts FROM ids WHERE side = 'L'",
    "CREATE TEMPORARY VIEW r AS SELECT k AS rk, v AS rv, ts AS rts FROM ids WHERE side = 'R'",
    "CREATE TEMPORARY VIEW versions AS SELECT rk, rv, rts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY rk ORDER BY "
    "rts DESC) AS rn FROM r) WHERE rn = 1",
    "CREATE TEMPORARY VIEW earlier AS SELECT k, v, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts "
    "DESC) AS rn FROM l) WHERE rn = 1",
]
_NUMBERED = "(SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {}) AS rn FROM t)"
_SUMS = "(SELECT k, side, SUM(v) AS v FROM t GROUP BY k, side)"


def _over(frame: str) -> str:
    return f"SELECT k, v, SUM(v) OVER w, COUNT(*) OVER w FROM t WINDOW w AS (PARTITION BY k ORDER BY {frame})"


# Each with the names and types of its columns.
QUERIES: dict[str, tuple[str, str]] = {
    "groups": (
        "k STRING, c BIGINT, s INT, d BIGINT",
        "SELECT k, COUNT(*), SUM(v), COUNT(DISTINCT v) FROM t GROUP BY k",
    ),
    "distinct": ("k STRING", "SELECT DISTINCT k FROM t"),
    "join": ("k STRING, v INT, rv INT", "SELECT k, v, rv FROM l JOIN r ON k = rk"),
    "left_join": ("k STRING, v INT, rv INT", "SELECT k, v, rv FROM l LEFT JOIN r ON k = rk"),
    "semi_join": ("k STRING, v INT", "SELECT k, v FROM l WHERE k IN (SELECT rk FROM r)"),
    "anti_join": ("k STRING, v INT", "SELECT k, v FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE k = rk)"),
    "first_row": ("k STRING, v INT", f"SELECT k, v FROM {_NUMBERED.format('p')} WHERE rn = 1"),
    "last_row": ("k STRING, v INT", f"SELECT k, v FROM {_NUMBERED.format('p DESC')} WHERE rn = 1"),
    "first_rowtime": ("k STRING, v INT", f"SELECT k, v FROM {_NUMBERED.format('ts')} WHERE rn = 1"),
    "last_rowtime": ("k STRING, v INT", f"SELECT k, v FROM {_NUMBERED.format('ts DESC')} WHERE rn = 1"),
    "top": ("k STRING, v INT, rn BIGINT", f"SELECT k, v, rn FROM {_NUMBERED.format('v DESC')} WHERE rn <= 2"),
    "top_unranked": ("k STRING, v INT", f"SELECT k, v FROM {_NUMBERED.format('v DESC')} WHERE rn <= 2"),
    "top_one": ("k STRING, v INT", f"SELECT k, v FROM {_NUMBERED.format('v')} WHERE rn = 1"),
    "top_retract": (
        "k STRING, side STRING, v INT, rn BIGINT",
        f"SELECT k, side, v, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS rn FROM {_SUMS}) "
        "WHERE rn <= 1",
    ),
    "first_of_all": ("k STRING, v INT", "SELECT k, v FROM t ORDER BY v LIMIT 2"),
    "over_clock": ("k STRING, v INT, s INT, c BIGINT", _over("p ROWS UNBOUNDED PRECEDING")),
    "over_clock_rows": ("k STRING, v INT, s INT, c BIGINT", _over("p ROWS BETWEEN 5 PRECEDING AND CURRENT ROW")),
    "over_rowtime": ("k STRING, v INT, s INT, c BIGINT", _over("ts")),
    "over_rowtime_all_rows": ("k STRING, v INT, s INT, c BIGINT", _over("ts ROWS UNBOUNDED PRECEDING")),
    "over_rowtime_rows": ("k STRING, v INT, s INT, c BIGINT", _over("ts ROWS BETWEEN 5 PRECEDING AND CURRENT ROW")),
    "over_column": ("k STRING, v INT, s INT, c BIGINT", _over("v ROWS UNBOUNDED PRECEDING")),
    "intersect_all": ("k STRING", "SELECT k FROM l INTERSECT ALL SELECT rk FROM r"),
    "except_all": ("k STRING", "SELECT k FROM l EXCEPT ALL SELECT rk FROM r"),
    "intersect": ("k STRING", "SELECT k FROM l INTERSECT SELECT rk FROM r"),
    "except": ("k STRING", "SELECT k FROM l EXCEPT SELECT rk FROM r"),
    "interval_join": (
        "k STRING, v INT, rv INT",
        "SELECT k, v, rv FROM l JOIN r ON k = rk AND ts BETWEEN rts - INTERVAL '36' SECOND AND rts",
    ),
    "temporal_join": (
        "k STRING, v INT, rv INT",
        "SELECT k, v, rv FROM l LEFT JOIN versions FOR SYSTEM_TIME AS OF l.ts AS b ON k = rk",
    ),
    "temporal_join_of_old": (
        "k STRING, v INT, lv INT",
        "SELECT rk, rv, b.v FROM r LEFT JOIN earlier FOR SYSTEM_TIME AS OF r.rts AS b ON rk = b.k",
    ),
    "matches": (
        "k STRING, a INT, b INT",
        "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.v AS a, B.v AS b ONE ROW PER MATCH "
        "AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) DEFINE B AS B.v > A.v)",
    ),
    "by_key": ("k STRING, v INT, PRIMARY KEY (k) NOT ENFORCED", "SELECT k, v FROM t"),
}


def declare(t_env: Any) -> Any:
    """Declare the sinks over the existing table `ids`; return all queries as one statement set."""
    config = t_env.get_config()
    config.set("parallelism.default", "1").set("table.local-time-zone", "UTC").set("table.exec.state.ttl", f"{TTL} ms")
    config.set("table.exec.sink.upsert-materialize", "FORCE")
    for view in VIEWS:
        t_env.execute_sql(view)
    statements = t_env.create_statement_set()
    for name, (columns, query) in QUERIES.items():
        t_env.execute_sql(
            f"CREATE TABLE `{name}` ({columns}) WITH ('connector' = 'print', 'print-identifier' = '{name}')"
        )
        statements.add_insert_sql(f"INSERT INTO `{name}` {query}")
    return statements


def changes_by_query(lines: Iterable[str]) -> dict[str, list[str]]:
    """Return the changes of each query."""
    changes: dict[str, list[str]] = {name: [] for name in QUERIES}
    for line in lines:
        if match := re.fullmatch(r"(\w+)> ([-+][IUD]\[.*\])", line.strip()):
            changes[match[1]].append(match[2])
    return changes


def _run() -> None:
    from pyflink.table import EnvironmentSettings, TableEnvironment

    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.execute_sql(SOURCE)
    declare(t_env).execute().wait()


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        _run()
    else:
        done = subprocess.run(
            [sys.executable, __file__, "run"], capture_output=True, text=True, check=True, timeout=300
        )
        RECORDED.write_text(json.dumps(changes_by_query(done.stdout.splitlines()), indent=1) + "\n")
