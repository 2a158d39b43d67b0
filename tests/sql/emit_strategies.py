"""Windows that fire by processing time (`table.exec.emit.*`), and all changes that Apache Flink emits for each.

    python emit_strategies.py    on a Python with apache-flink 2.3: runs Flink, and writes emit_strategies.json

Each query is a job over a slow source: one row per second. The delays are chosen such that a window never fires in the
same second as one of its rows arrives.
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
RECORDED = HERE / "emit_strategies.json"
# The key, the value and the event time in seconds of each row, in order of arrival; None for a missing row.
ROWS: list[tuple[str, int | None, int] | None] = [
    *[("w", 0, 0), None, ("a", 1, 1), ("b", 5, 2), ("a", 2, 3), None, ("a", None, 4), ("b", 1, 5), ("a", 4, 6), None],
    # The first windows end with c. Their later rows are late, and d's window did not exist before.
    *[("a", 7, 9), ("c", 1, 12), ("a", 3, 5), ("d", 9, 8), None, None, ("d", 1, 9), ("a", 2, 2), None, ("c", 2, 13)],
    # The second row of these passes the allowed lateness, so the last row of all is dropped.
    *[None, None, None, ("a", 8, 1), ("c", 4, 23), ("a", 1, 25), ("a", 5, 3), None, None, None],
]


def _column(column: int, kind: str, otherwise: str) -> str:
    values = ((n, row[column]) for n, row in enumerate(ROWS, 1) if row and row[column] is not None)
    cases = " ".join(f"WHEN {n} THEN {value!r}" for n, value in values)
    return f"CAST(CASE id {cases} ELSE {otherwise} END AS {kind})"


# The columns as expressions over the row number.
COLUMNS = {
    "k": _column(0, "STRING", "CAST(NULL AS STRING)"),
    "v": _column(1, "INT", "CAST(NULL AS INT)"),
    "ts": f"TO_TIMESTAMP_LTZ({_column(2, 'BIGINT', '0')} * 1000, 3)",
}
SOURCE = (
    f"CREATE TABLE ids (id BIGINT, {', '.join(f'{name} AS {expression}' for name, expression in COLUMNS.items())}, "
    "WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen', 'fields.id.kind' = 'sequence', 'fields.id.start' = '1', "
    f"'fields.id.end' = '{len(ROWS)}', 'rows-per-second' = '1')"
)
_TUMBLE, _HOP = "TUMBLE(ts, INTERVAL '10' SECOND)", "HOP(ts, INTERVAL '5' SECOND, INTERVAL '10' SECOND)"
_LATENESS = "12 s"

# By name: the window, and the delays in milliseconds before and after its end; None if it does not fire then.
QUERIES: dict[str, tuple[str, int | None, int | None]] = {
    "early": (_TUMBLE, 2400, None),
    "early_hop": (_HOP, 2400, None),
    "late": (_TUMBLE, None, 3400),
    "early_at_once": (_TUMBLE, 0, 3400),
    "late_at_once": (_TUMBLE, 2400, 0),
    "both": (_TUMBLE, 2400, 3400),
    "both_alike": (_TUMBLE, 2400, 2400),
}


def declare(t_env: Any, name: str) -> str:
    """Declare the sink of a query over the existing table `ids`, configure when windows fire, and return its INSERT."""
    window, *delays = QUERIES[name]
    config = t_env.get_config()
    config.set("parallelism.default", "1").set("table.local-time-zone", "UTC")
    config.set("table.exec.emit.allow-lateness", _LATENESS)
    for side, delay in zip(("early", "late"), delays, strict=True):
        config.set(f"table.exec.emit.{side}-fire.enabled", str(delay is not None).lower())
        config.set(f"table.exec.emit.{side}-fire.delay", f"{delay or 0} ms")
    t_env.execute_sql(
        f"CREATE TABLE `{name}` (k STRING, at_time TIMESTAMP(3), s INT, m INT, d BIGINT) "
        f"WITH ('connector' = 'print', 'print-identifier' = '{name}')"
    )
    start = window.replace("(", "_START(", 1)
    return (
        f"INSERT INTO `{name}` SELECT k, {start}, SUM(v), MAX(v), COUNT(DISTINCT v) FROM ids WHERE k IS NOT NULL "
        f"GROUP BY k, {window}"
    )


def changes_by_query(lines: Iterable[str]) -> dict[str, dict[str, list[str]]]:
    """Return the changes of each query by key and window; the order of windows that fire at once is undefined."""
    changes: dict[str, dict[str, list[str]]] = {}
    for line in lines:
        if match := re.fullmatch(r"(\w+)(?::\d+)?> ([-+][IUD])\[(\w), \S+T(\S+), (.*)\]", line.strip()):
            name, kind, key, start, values = match.groups()
            changes.setdefault(name, {}).setdefault(f"{key} {start}", []).append(f"{kind} {values}")
    return changes


def _run() -> None:
    from pyflink.table import EnvironmentSettings, TableEnvironment

    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.execute_sql(SOURCE)
    for job in [t_env.execute_sql(declare(t_env, name)) for name in QUERIES]:
        job.wait()


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        _run()
    else:
        done = subprocess.run(
            [sys.executable, __file__, "run"], capture_output=True, text=True, check=True, timeout=300
        )
        RECORDED.write_text(json.dumps(changes_by_query(done.stdout.splitlines()), indent=1, sort_keys=True) + "\n")
