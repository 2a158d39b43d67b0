"""Fault injection for SQL operators that order rows: OVER, Top-N, deduplication, window ranks, sessions and patterns.

    python -m tests.faults.sql_ranks_job <directory> [--fault SETTING] [--latest]

This command runs the job once, as a separate driver; `directory` holds its files and its checkpoints.
"""

from __future__ import annotations

from tests.faults.job import NAME as NAME
from tests.faults.job import main
from tests.faults.sql_statements import SqlJob, Statement

_TUMBLE = "TABLE(TUMBLE(TABLE ns, DESCRIPTOR(at_time), INTERVAL '0.200' SECOND))"
_TUMBLED = "(SELECT *, n / 200 AS window_start, n / 200 AS window_end FROM ns)"
_SESSION = "TABLE(SESSION(TABLE bursts PARTITION BY k, DESCRIPTOR(at_time), INTERVAL '0.030' SECOND))"
_SESSIONS = "(SELECT *, n / 100 AS window_start, n / 100 AS window_end FROM bursts)"

# Groups of different sizes, so that no two have the same count at the end.
_GROUPS = """(SELECT k, h, COUNT(*) AS c FROM (
    SELECT k, CASE WHEN n / 11 % 2 = 0 THEN 0 WHEN n / 11 % 3 = 0 THEN 1 WHEN n / 11 % 5 = 0 THEN 2 ELSE 3 END AS h
    FROM ns) AS t GROUP BY k, h)"""


def _over(function: str, frame: str, table: str = "ns") -> str:
    return f"SELECT n, {function} OVER (PARTITION BY k ORDER BY {frame}) FROM {table}"


def _first(rows: str, order: str, columns: str, condition: str = "rn <= 2", partition: str = "k") -> str:
    numbers = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {partition} ORDER BY {order}) AS rn FROM {rows}"
    return f"SELECT {columns} FROM ({numbers}) WHERE {condition}"


def _in_windows(rows: str, order: str, columns: str, condition: str = "rn <= 2") -> str:
    return _first(rows, order, columns, condition, "window_start, window_end, k")


_RANGE = _over("SUM(v)", "at_time RANGE BETWEEN {} PRECEDING AND CURRENT ROW")
_SUM = "SELECT k, COUNT(*), SUM(v), MIN(n) FROM {} GROUP BY k, window_start, window_end"
_LEADS = """SELECT k, n, LEAD(n) OVER w AS b, LEAD(n, 2) OVER w AS c, v AS av, LEAD(v) OVER w AS bv,
    LEAD(v, 2) OVER w AS cv FROM ns WINDOW w AS (PARTITION BY k ORDER BY n)"""

JOB = SqlJob(
    {
        "over_rows": Statement(_over("SUM(v)", "at_time ROWS BETWEEN 5 PRECEDING AND CURRENT ROW"), "OverAggregate"),
        "over_range": Statement(
            _RANGE.format("INTERVAL '0.100' SECOND"), "OverAggregate", _RANGE.format("100").replace("at_time", "n")
        ),
        "over_all_before": Statement(_over("MAX(v)", "at_time ROWS UNBOUNDED PRECEDING"), "OverAggregate"),
        "over_lag": Statement(_over("LAG(v, 2)", "at_time"), "OverAggregate"),
        "over_clock": Statement(_over("SUM(v)", "p ROWS BETWEEN 3 PRECEDING AND CURRENT ROW", "ones"), "OverAggregate"),
        # A new row in the middle changes the results of the following rows.
        "over_columns": Statement(
            _over("SUM(n)", "v ROWS UNBOUNDED PRECEDING", "(SELECT * FROM ns WHERE n % 8 = 0) AS t"), "OverAggregate"
        ),
        "over_columns_range": Statement(
            _over("COUNT(*)", "g", "(SELECT * FROM ns WHERE n % 12 = 0) AS t"), "OverAggregate"
        ),
        "top_of_inserts": Statement(_first("ns", "v DESC, n", "k, n, v, rn"), "AppendFastStrategy"),
        "top_of_updates": Statement(_first(_GROUPS, "c DESC", "k, h, c, rn"), "UpdateFastStrategy"),
        "top_of_retractions": Statement(_first(_GROUPS, "c", "k, h, c, rn"), "RetractStrategy"),
        "first_by_clock": Statement(_first("ones", "p", "k, n", "rn = 1"), "Deduplicate(keep=[FirstRow]"),
        "last_by_clock": Statement(_first("ones", "p DESC", "k, n", "rn = 1"), "Deduplicate(keep=[LastRow]"),
        "first_by_time": Statement(_first("ns", "at_time", "g, n", "rn = 1", "g"), "Deduplicate(keep=[FirstRow]"),
        "last_by_time": Statement(_first("ns", "at_time DESC", "k, n", "rn = 1"), "Deduplicate(keep=[LastRow]"),
        "smallest": Statement("SELECT n, v FROM ns ORDER BY v, n LIMIT 10", "SortLimit"),
        "in_order": Statement("SELECT n FROM ns WHERE n % 3 = 0 ORDER BY at_time", "TemporalSort"),
        "window_top": Statement(
            _in_windows(_TUMBLE, "v DESC, n", "k, n, v, rn"),
            "WindowRank",
            _in_windows(_TUMBLED, "v DESC, n", "k, n, v, rn"),
        ),
        "window_first": Statement(
            _in_windows(_TUMBLE, "at_time", "k, n", "rn = 1"),
            "WindowDeduplicate",
            _in_windows(_TUMBLED, "at_time", "k, n", "rn = 1"),
        ),
        "window_last": Statement(
            _in_windows(_TUMBLE, "at_time DESC", "k, n", "rn <= 1"),
            "WindowDeduplicate",
            _in_windows(_TUMBLED, "at_time DESC", "k, n", "rn = 1"),
        ),
        "session_sums": Statement(_SUM.format(_SESSION), "WindowAggregate", _SUM.format(_SESSIONS)),
        "session_top": Statement(
            _in_windows(_SESSION, "v DESC", "k, n, rn"), "WindowRank", _in_windows(_SESSIONS, "v DESC", "k, n, rn")
        ),
        "matched": Statement(
            """SELECT k, a, b, c FROM ns MATCH_RECOGNIZE (PARTITION BY k ORDER BY at_time
                MEASURES A.n AS a, B.n AS b, C.n AS c ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW PATTERN (A B C)
                DEFINE A AS A.v % 2 = 0, B AS B.v > A.v, C AS C.v < B.v)""",
            "Match",
            f"SELECT k, n, b, c FROM ({_LEADS}) WHERE av % 2 = 0 AND bv > av AND cv < bv",
        ),
        # A low value, some in between, and a high one at most 100 ms later.
        "matched_within": Statement(
            """SELECT k, a, bs, c FROM ns MATCH_RECOGNIZE (PARTITION BY k ORDER BY at_time
                MEASURES A.n AS a, COUNT(B.n) AS bs, C.n AS c ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW
                PATTERN (A B+ C) WITHIN INTERVAL '0.100' SECOND
                DEFINE A AS A.v < 300, B AS B.v BETWEEN 300 AND 700, C AS C.v > 700)""",
            "Match",
            """SELECT k, n, (o - n) / 11 - 1, o FROM (SELECT k, n, (SELECT MIN(n) FROM ns AS s WHERE s.k = t.k AND
                s.n > t.n AND s.v NOT BETWEEN 300 AND 700) AS o FROM ns AS t WHERE v < 300)
                WHERE o - n BETWEEN 22 AND 100 AND o * 7919 % 1009 > 700""",
        ),
    }
)
build, expected, results = JOB.build, JOB.expected, JOB.results

if __name__ == "__main__":
    main(build, __doc__)
