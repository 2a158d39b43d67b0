"""Fault injection for SQL joins: outer, semi, anti, window, interval, temporal and lookup joins.

    python -m tests.faults.sql_joins_job <directory> [--fault SETTING] [--latest]

This command runs the job once, as a separate driver; `directory` holds its files, its tables and its checkpoints.
"""

from __future__ import annotations

from tests.faults.job import NAME as NAME
from tests.faults.job import main
from tests.faults.sql_statements import SqlJob, Statement

_TUMBLE = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(at_time), INTERVAL '0.200' SECOND))"
_TUMBLED = "(SELECT *, n / 200 AS window_start, n / 200 AS window_end FROM {})"
_SAME = "a.g = b.g AND a.window_start = b.window_start AND a.window_end = b.window_end"
# Counts of the other source by the number modulo 200: each changes six times.
_COUNTS = "(SELECT n % 200 AS m, COUNT(*) AS c FROM ms GROUP BY n % 200)"
_VIEW = """SELECT a.n, b.n FROM ns AS a {} JOIN last_thirds FOR SYSTEM_TIME AS OF a.at_time AS b ON a.k = b.k"""
_VERSION = "SELECT a.n, b.w FROM ns AS a {} JOIN versions FOR SYSTEM_TIME AS OF a.at_time AS b ON a.k = b.k"
_BEFORE = "SELECT n, (SELECT MAX(n) FROM thirds AS b WHERE b.k = a.k AND b.n <= a.n) AS o FROM ns AS a"
_VERSION_BEFORE = "SELECT n, (SELECT MAX(w) FROM versions AS b WHERE b.k = a.k AND b.n <= a.n) AS o FROM ns AS a"
_LOOKUP = "SELECT {}a.n, b.w FROM ns AS a {} JOIN lookup_table {}AS b ON a.k = b.k"
_AS_OF = "FOR SYSTEM_TIME AS OF a.p "


def _windows(kind: str) -> Statement:
    query = f"SELECT a.n, b.n FROM (SELECT * FROM {{}}) AS a {kind} JOIN (SELECT * FROM {{}}) AS b ON {_SAME}"
    return _both_windows(query)


def _exists(negated: str) -> Statement:
    return _both_windows(f"SELECT a.n FROM {{}} AS a WHERE {negated} EXISTS (SELECT 1 FROM {{}} AS b WHERE {_SAME})")


def _both_windows(query: str) -> Statement:
    statement = query.format(_TUMBLE.format("evens"), _TUMBLE.format("rare"))
    return Statement(statement, "WindowJoin", query.format(_TUMBLED.format("evens"), _TUMBLED.format("rare")))


def _interval(kind: str) -> Statement:
    query = "SELECT a.n, b.n FROM evens AS a {} JOIN thirds AS b ON a.g = b.g AND a.{} BETWEEN b.{} AND b.{}"
    bounds = ("at_time", "at_time - INTERVAL '0.120' SECOND", "at_time + INTERVAL '0.250' SECOND")
    return Statement(query.format(kind, *bounds), "IntervalJoin", query.format(kind, "n", "n - 120", "n + 250"))


def _plain(query: str) -> Statement:
    return Statement(query, "Join(")


def _lookup(hint: str, kind: str) -> Statement:
    return Statement(_LOOKUP.format(hint, kind, _AS_OF), "LookupJoin", _LOOKUP.format("", kind, ""))


JOB = SqlJob(
    {
        "inner_of_rows": _plain("SELECT a.n, b.n FROM ns AS a JOIN ms AS b ON a.n = b.n / 3"),
        "left_of_rows": _plain("SELECT a.n, b.n FROM evens AS a LEFT JOIN thirds AS b ON a.n = b.n"),
        "right_of_rows": _plain("SELECT a.n, b.n FROM evens AS a RIGHT JOIN thirds AS b ON a.n = b.n"),
        "full_of_rows": _plain("SELECT a.n, b.n FROM evens AS a FULL JOIN thirds AS b ON a.n = b.n AND a.g > 20"),
        "left_of_counts": _plain(f"SELECT a.n, b.c FROM evens AS a LEFT JOIN {_COUNTS} AS b ON a.n % 200 = b.m + 3"),
        "semi": _plain("SELECT n FROM ns WHERE n IN (SELECT n FROM thirds)"),
        "anti": _plain("SELECT n FROM ns AS a WHERE NOT EXISTS (SELECT 1 FROM thirds AS b WHERE a.n = b.n)"),
        "semi_of_counts": _plain(
            f"SELECT n FROM evens AS a WHERE EXISTS (SELECT 1 FROM {_COUNTS} AS b WHERE a.n = b.m + b.c * 100)"
        ),
        "window_inner": _windows("INNER"),
        "window_full": _windows("FULL"),
        "window_semi": _exists(""),
        "window_anti": _exists("NOT"),
        "interval_inner": _interval("INNER"),
        "interval_full": _interval("FULL"),
        "as_of_view": Statement(
            _VIEW.format("INNER"), "TemporalJoin", f"SELECT * FROM ({_BEFORE}) WHERE o IS NOT NULL"
        ),
        "as_of_view_left": Statement(_VIEW.format("LEFT"), "TemporalJoin", _BEFORE),
        "as_of_version": Statement(
            _VERSION.format("INNER"), "TemporalJoin", f"SELECT * FROM ({_VERSION_BEFORE}) WHERE o IS NOT NULL"
        ),
        "as_of_version_left": Statement(_VERSION.format("LEFT"), "TemporalJoin", _VERSION_BEFORE),
        "lookup_inner": _lookup("", "INNER"),
        "lookup_left": _lookup("/*+ LOOKUP('table' = 'b', 'async' = 'true') */ ", "LEFT"),
    }
)
build, expected, results = JOB.build, JOB.expected, JOB.results

if __name__ == "__main__":
    main(build, __doc__)
