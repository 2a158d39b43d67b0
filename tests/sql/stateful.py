"""Queries over stateful operators, and the whole changelog that Apache Flink emits for each.

    python stateful.py [NAME ...]    on a Python with apache-flink 2.3: runs the cases that are not in stateful.json,
                                     or the given ones

All rows of a case come slowly from one source in sequence, so that the inputs of a join interleave equally in every
run. A second table has its own source only if it needs separate watermarks.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "stateful.json"
# What is compared: all changes in order, all changes in any order, or the final rows.
ORDERED, CHANGES, FINAL_ROWS = "ordered", "changes", "final rows"
_BEFORE = "WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"


@dataclass(frozen=True)
class TableDef:
    """A table: its columns, its rows, and additional parts of its declaration."""

    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Any]]
    more: str = ""
    # Whether it is a file: only a file table can have a primary key of columns.
    is_file: bool = False


@dataclass(frozen=True)
class Case:
    """A query, its tables, and the compared part of the result."""

    query: str
    tables: dict[str, TableDef]
    compared: str = CHANGES
    views: Sequence[str] = ()
    settings: dict[str, str] = field(default_factory=dict)


def _timestamp(second: float) -> str:
    return f"2024-01-01 00:00:{second:06.3f}"


def _timed(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows whose last value is a time, given in seconds."""
    return [(*row[:-1], _timestamp(row[-1])) for row in rows]


_TIMED = [("k", "STRING"), ("v", "INT"), ("d", "DOUBLE"), ("ts", "TIMESTAMP(3)")]
_ROWS = [
    *[("a", 1, 0.1, 1), ("b", 2, 0.2, 2), ("a", 3, 0.3, 4), ("a", None, 0.7, 4), ("a", 5, 1e16, 3), ("b", 6, None, 2)],
    *[("a", 7, 0.1, 9), ("b", 8, 0.5, 8), ("a", 9, 0.2, 2), ("a", 1, 0.3, 9), ("b", 4, 0.4, 16), ("a", 3, 0.5, 15)],
    *[(None, 2, 0.1, 17), ("a", 2, 0.1, 15.5), ("b", 1, 0.9, 3), ("a", 8, 0.1, 21), (None, 3, 0.2, 22)],
]
TIMED = TableDef(_TIMED, _timed(_ROWS), _BEFORE)
_SUMS = "COUNT(*) OVER w, SUM(v) OVER w, AVG(v) OVER w, MIN(v) OVER w, MAX(v) OVER w, SUM(d) OVER w"
_WHOLE = "COUNT(*) OVER w, SUM(v) OVER w, AVG(v) OVER w, MIN(d) OVER w, MAX(v) OVER w"
_EDGES = "FIRST_VALUE(v) OVER w, LAST_VALUE(v) OVER w, COUNT(DISTINCT v) OVER w, LISTAGG(k) OVER w"


def _over(columns: str, window: str, table: str = "t") -> Case:
    return Case(f"SELECT k, v, {columns} FROM {table} WINDOW w AS ({window})", {"t": TIMED})


def _by(frame: str, partition: str = "PARTITION BY k ", order: str = "ts") -> str:
    return f"{partition}ORDER BY {order} {frame}"


_PROC = "(SELECT *, PROCTIME() AS p FROM t)"
OVER = {
    "over: range, unbounded": _over(_SUMS, _by("")),
    "over: rows, unbounded": _over(_SUMS, _by("ROWS UNBOUNDED PRECEDING")),
    "over: range of 5 s": _over(_WHOLE, _by("RANGE BETWEEN INTERVAL '5' SECOND PRECEDING AND CURRENT ROW")),
    "over: 2 rows before": _over(_SUMS, _by("ROWS BETWEEN 2 PRECEDING AND CURRENT ROW")),
    "over: edges, range, unbounded": _over(_EDGES, _by("")),
    "over: edges, range of 5 s": _over(_EDGES, _by("RANGE BETWEEN INTERVAL '5' SECOND PRECEDING AND CURRENT ROW")),
    "over: edges, 1 row before": _over(_EDGES, _by("ROWS BETWEEN 1 PRECEDING AND CURRENT ROW")),
    "over: edges, rows, unbounded": _over(_EDGES, _by("ROWS UNBOUNDED PRECEDING")),
    "over: all rows": _over(_SUMS, _by("ROWS BETWEEN 3 PRECEDING AND CURRENT ROW", partition="")),
    "over: lag": _over("LAG(v) OVER w, LAG(v, 2) OVER w, LAG(v, 1, -1) OVER w", _by("")),
    "over: lead": _over("LEAD(v) OVER w", _by("")),
    "over: row number": _over("ROW_NUMBER() OVER w", _by("")),
    "over: rank": _over("RANK() OVER w, DENSE_RANK() OVER w", _by("")),
    "over: ntile": _over("NTILE(2) OVER w", _by("")),
    "over: variance": _over(
        "STDDEV_POP(v) OVER w, VAR_SAMP(v) OVER w", _by("ROWS BETWEEN 2 PRECEDING AND CURRENT ROW")
    ),
    "over: processing time, rows": _over(_SUMS, _by("ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", order="p"), _PROC),
    "over: processing time, unbounded": _over(_SUMS, _by("ROWS UNBOUNDED PRECEDING", order="p"), _PROC),
    "over: processing time, range": _over(_SUMS, _by("", order="p"), _PROC),
    "over: processing time, lag": _over("LAG(v) OVER w", _by("", order="p"), _PROC),
    "over: by a column": _over("SUM(v) OVER w, COUNT(*) OVER w", _by("", order="v")),
    "over: by a column, rows": _over("SUM(v) OVER w, COUNT(*) OVER w", _by("ROWS UNBOUNDED PRECEDING", order="v")),
    "over: by a column, row number": _over("ROW_NUMBER() OVER w", _by("", order="v")),
    "over: by a column, rank": _over("RANK() OVER w", _by("", order="v")),
    "over: by a column of updates": Case(
        "SELECT k, s, SUM(c) OVER (ORDER BY s ROWS UNBOUNDED PRECEDING) FROM (SELECT k, SUM(v) AS s, COUNT(*) AS c "
        "FROM t GROUP BY k)",
        {"t": TIMED},
    ),
    "over: by a column of updates, range": Case(
        "SELECT k, s, SUM(c) OVER (ORDER BY s) FROM (SELECT k, SUM(v) AS s, COUNT(*) AS c FROM t GROUP BY k)",
        {"t": TIMED},
    ),
}

_TUMBLE = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
_HOP = "TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))"
_SESSION = "TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '2' SECOND))"


def _top(source: str, order: str, condition: str = "rn <= 2", columns: str = "*", partition: str = "k") -> Case:
    by = "window_start, window_end" + (f", {partition}" if partition else "")
    numbers = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY {order}) AS rn FROM {source}"
    return Case(f"SELECT {columns} FROM ({numbers}) WHERE {condition}", {"t": TIMED})


_TOTALS = (
    f"(SELECT k, window_start, window_end, SUM(v) AS s, COUNT(*) AS c FROM {_TUMBLE.format('t')} "
    "GROUP BY k, window_start, window_end)"
)
_SIDED = [("side", "STRING"), ("k", "INT"), ("v", "INT"), ("ts", "TIMESTAMP(3)")]
# No row is late: whether a row right behind a watermark of the other side is late, is undefined.
SIDED = TableDef(
    _SIDED,
    _timed(
        [
            *[("L", 1, 10, 1), ("R", 1, 20, 2), ("R", 1, 21, 3), ("L", 1, 11, 3), ("L", 2, 12, 4), ("R", 2, 22, 13)],
            *[("L", None, 13, 12), ("R", None, 23, 12), ("L", 1, 14, 14), ("R", 3, 30, 15), ("L", 3, 31, 26)],
            *[("R", 3, 32, 28), ("R", 3, 33, 27), ("L", 4, 40, 33), ("R", 5, 50, 34)],
        ]
    ),
    _BEFORE,
)
_VIEWS = [
    "CREATE TEMPORARY VIEW l AS SELECT k, v, ts FROM t WHERE side = 'L'",
    "CREATE TEMPORARY VIEW r AS SELECT k AS rk, v AS rv, ts AS rts FROM t WHERE side = 'R'",
]


def _window_join(kind: str, more: str = "") -> Case:
    right = _TUMBLE.format("r").replace("(ts)", "(rts)")
    return Case(
        f"SELECT a.k, a.v, b.rk, b.rv, a.window_start, b.window_start FROM (SELECT * FROM {_TUMBLE.format('l')}) AS a "
        f"{kind} JOIN (SELECT * FROM {right}) AS b ON a.k = b.rk AND a.window_start = b.window_start AND "
        f"a.window_end = b.window_end{more}",
        {"t": SIDED},
        views=_VIEWS,
    )


def _window_semi(negated: str) -> Case:
    right = _TUMBLE.format("r").replace("(ts)", "(rts)")
    return Case(
        f"SELECT a.k, a.v, a.window_start FROM {_TUMBLE.format('l')} AS a WHERE {negated} EXISTS (SELECT 1 FROM "
        f"{right} AS b WHERE a.k = b.rk AND a.window_start = b.window_start AND a.window_end = b.window_end)",
        {"t": SIDED},
        views=_VIEWS,
    )


def _window_totals(join: Case) -> Case:
    shown = "a.window_start, b.window_start FROM"
    rows = join.query.replace(shown, "a.window_start AS ws, a.window_end AS we FROM")
    return replace(join, query=f"SELECT ws, COUNT(*), SUM(v) FROM ({rows}) GROUP BY ws, we")


def _of_windows(query: str) -> Case:
    """Return a query of sums over five seconds, which have the times of their windows."""
    five = _TUMBLE.format("t").replace("10", "5")
    sums = f"SELECT k, window_time AS rt, SUM(v) AS s FROM {five} GROUP BY k, window_start, window_end, window_time"
    return Case(f"SELECT {query}", {"t": TIMED}, views=[f"CREATE TEMPORARY VIEW w AS {sums}"])


WINDOWS = {
    "window top 2": _top(_TUMBLE.format("t"), "v DESC"),
    "window top 2 without rank": _top(_TUMBLE.format("t"), "v", columns="k, v, window_end"),
    "window second": _top(_TUMBLE.format("t"), "v, d", "rn = 2"),
    "window top 2 of all": _top(_TUMBLE.format("t"), "v DESC", partition=""),
    "window top 1 of a hop": _top(_HOP, "d DESC", "rn <= 1"),
    "window top 1 of totals": _top(_TOTALS, "s DESC, c", "rn <= 1", partition=""),
    "window first row": _top(_TUMBLE.format("t"), "ts", "rn = 1", "k, v, window_start"),
    "window last row": _top(_TUMBLE.format("t"), "ts DESC", "rn = 1", "k, v, window_start"),
    "window last row of a hop": _top(_HOP, "ts DESC", "rn <= 1", "k, v, window_start"),
    "windows of windows": _of_windows(
        "window_start, SUM(s), COUNT(*) FROM TABLE(TUMBLE(TABLE w, DESCRIPTOR(rt), INTERVAL '10' SECOND)) "
        "GROUP BY window_start, window_end"
    ),
    "windows of windows, three times": _of_windows(
        "k, window_start, SUM(s) FROM TABLE(TUMBLE((SELECT k, window_time AS t, SUM(s) AS s FROM TABLE(HOP(TABLE w, "
        "DESCRIPTOR(rt), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) GROUP BY k, window_start, window_end, "
        "window_time), DESCRIPTOR(t), INTERVAL '20' SECOND)) GROUP BY k, window_start, window_end"
    ),
    "frames of windows": _of_windows("k, s, SUM(s) OVER (PARTITION BY k ORDER BY rt) FROM w"),
    "the last of windows": _of_windows(
        "k, s FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY rt DESC) AS rn FROM w) WHERE rn = 1"
    ),
    "session rows": Case(f"SELECT * FROM {_SESSION}", {"t": TIMED}),
    "session rows of all keys": Case(f"SELECT * FROM {_SESSION.replace(' PARTITION BY k', '')}", {"t": TIMED}),
    "session rows that a condition leaves": Case(
        f"SELECT v, window_start, window_end FROM {_SESSION} WHERE v > 3 AND k = 'a'", {"t": TIMED}
    ),
    "session top 1": _top(_SESSION, "v DESC", "rn <= 1"),
    "session aggregate of rows that a condition leaves": Case(
        f"SELECT k, window_start, COUNT(*) FROM {_SESSION} WHERE v > 3 GROUP BY k, window_start, window_end",
        {"t": TIMED},
    ),
    "session aggregate by another key": Case(
        f"SELECT v, window_start, COUNT(*) FROM {_SESSION} GROUP BY v, window_start, window_end", {"t": TIMED}
    ),
    **{f"window {kind.lower()} join": _window_join(kind) for kind in ("INNER", "LEFT", "RIGHT", "FULL")},
    "window left join with a condition": _window_join("LEFT", " AND a.v + 10 < b.rv"),
    "window semi join": _window_semi(""),
    "window anti join": _window_semi("NOT"),
    "window aggregate of a window join": _window_totals(_window_join("INNER")),
}


def _interval(kind: str, bound: str, columns: str = "k, v, rk, rv", more: str = "") -> Case:
    return Case(f"SELECT {columns} FROM l {kind} JOIN r ON k = rk AND {bound}{more}", {"t": SIDED}, views=_VIEWS)


_AROUND = "ts BETWEEN rts - INTERVAL '2' SECOND AND rts + INTERVAL '3' SECOND"
_CLOCKED = [
    "CREATE TEMPORARY VIEW l AS SELECT k, v, PROCTIME() AS p FROM t WHERE side = 'L'",
    "CREATE TEMPORARY VIEW r AS SELECT k AS rk, v AS rv, PROCTIME() AS rp FROM t WHERE side = 'R'",
]
# Currency rates, and orders in these currencies.
_RATES = TableDef(
    [("currency", "STRING"), ("rate", "INT"), ("ts", "TIMESTAMP(3)")],
    _timed([("EUR", 114, 1), ("USD", 100, 1), ("EUR", 115, 5), ("GBP", 130, 6), ("EUR", 116, 7), ("USD", 101, 20)]),
    _BEFORE + ", PRIMARY KEY (currency) NOT ENFORCED",
    is_file=True,
)
_ORDERS = TableDef(
    [("number", "INT"), ("cur", "STRING"), ("ts", "TIMESTAMP(3)")],
    _timed(
        [
            *[(5, "USD", 0.5), (1, "EUR", 2), (3, "GBP", 4), (2, "EUR", 5), (4, "GBP", 8), (6, "EUR", 7.5)],
            *[(7, None, 7.2), (8, "EUR", 9), (9, "USD", 19), (10, "CHF", 20), (11, "USD", 21), (12, "EUR", 30)],
        ]
    ),
    _BEFORE,
)


def _temporal(kind: str, right: str = "rates", more: str = "", views: Sequence[str] = ()) -> Case:
    return Case(
        f"SELECT `number`, cur, rate, o.ts FROM orders AS o {kind} JOIN {right} FOR SYSTEM_TIME AS OF o.ts AS r ON "
        f"o.cur = r.currency{more}",
        {"orders": _ORDERS, "rates": _RATES},
        views=views,
    )


_LAST_RATES = (
    "CREATE TEMPORARY VIEW last_rates AS SELECT currency, rate, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY "
    "currency ORDER BY ts DESC) AS rn FROM rates) WHERE rn = 1"
)
JOINS = {
    **{f"interval {kind.lower()} join": _interval(kind, _AROUND) for kind in ("INNER", "LEFT", "RIGHT", "FULL")},
    "interval join with a condition": _interval("LEFT", _AROUND, more=" AND v + 10 < rv"),
    "interval join backwards": _interval("INNER", "rts BETWEEN ts - INTERVAL '15' SECOND AND ts"),
    "interval join at the same time": _interval("FULL", "ts = rts"),
    "interval join in a window": Case(
        "SELECT window_start, COUNT(*), SUM(rv) FROM TABLE(TUMBLE(TABLE j, DESCRIPTOR(ts), INTERVAL '10' SECOND)) "
        "GROUP BY window_start, window_end",
        {"t": SIDED},
        views=[*_VIEWS, f"CREATE TEMPORARY VIEW j AS SELECT k, rv, ts FROM l JOIN r ON k = rk AND {_AROUND}"],
    ),
    "interval join by processing time": Case(
        "SELECT k, v, rk, rv FROM l JOIN r ON k = rk AND p BETWEEN rp - INTERVAL '1' HOUR AND rp + INTERVAL '1' HOUR",
        {"t": SIDED},
        views=_CLOCKED,
    ),
    "temporal join": _temporal("INNER"),
    "temporal left join": _temporal("LEFT"),
    "temporal left join with a condition": _temporal("LEFT", more=" AND rate > 114"),
    "temporal join with a view": _temporal("INNER", "last_rates", views=[_LAST_RATES]),
    "temporal left join with a view": _temporal("LEFT", "last_rates", views=[_LAST_RATES]),
}


def _first(
    source: str,
    order: str,
    condition: str = "rn <= 2",
    columns: str = "*",
    partition: str = "",
    compared: str = ORDERED,
) -> Case:
    by = f"PARTITION BY {partition} " if partition else ""
    numbers = f"SELECT *, ROW_NUMBER() OVER ({by}ORDER BY {order}) AS rn FROM {source}"
    return Case(f"SELECT {columns} FROM ({numbers}) WHERE {condition}", {"t": TIMED}, compared)


_COUNTS = "(SELECT k, COUNT(*) AS c, MAX(v) AS m FROM t GROUP BY k)"
_NUMBERS = "(SELECT k, SUM(v) AS s FROM t WHERE v > 0 GROUP BY k)"
_CLOCK = "(SELECT k, v, PROCTIME() AS p FROM t)"
FIRST = {
    "top 2": _first("t", "v DESC", "rn <= 2", "k, v, rn", "k"),
    "top 2, without rank": _first("t", "v DESC", "rn <= 2", "k, v", "k"),
    "top 1": _first("t", "v DESC", "rn = 1", "k, v", "k"),
    "top 1, with rank": _first("t", "v DESC", "rn = 1", "k, v, rn", "k"),
    "places 2 and 3": _first("t", "v", "rn BETWEEN 2 AND 3", "k, v", "k"),
    "place 2 of all": _first("t", "v DESC, d", "rn = 2", "k, v"),
    "top 2 of counts": _first(_COUNTS, "c DESC"),
    "top 2 of counts, without rank": _first(_COUNTS, "c DESC", columns="k, c, m"),
    "top 1 of counts": _first(_COUNTS, "c DESC", "rn = 1", columns="k, c"),
    "top 1 of greatest": _first(_COUNTS, "m DESC", "rn <= 1", columns="k, m"),
    "bottom 2 of counts": _first(_COUNTS, "c"),
    "top 2 of sums": _first(_NUMBERS, "s DESC"),
    "top 2 of sums, without rank": _first(_NUMBERS, "s DESC", columns="k, s"),
    "smallest of sums": _first(_NUMBERS, "s", "rn = 1", columns="k, s"),
    "first row by processing time": _first(_CLOCK, "p", "rn = 1", "k, v", "k"),
    "last row by processing time": _first(_CLOCK, "p DESC", "rn = 1", "k, v", "k"),
    "first row by rowtime": _first("t", "ts", "rn = 1", "k, v, ts", "k", CHANGES),
    "last row by rowtime": _first("t", "ts DESC", "rn = 1", "k, v, ts", "k"),
    "last row by rowtime, counted": Case(
        f"SELECT COUNT(*), SUM(v) FROM ({_first('t', 'ts DESC', 'rn = 1', 'k, v', 'k').query})", {"t": TIMED}, ORDERED
    ),
    "first 2 rows by rowtime": _first("t", "ts", "rn <= 2", "k, v", "k"),
}

# Share prices that rise and fall.
_PRICES = TableDef(
    [("symbol", "STRING"), ("price", "INT"), ("tax", "INT"), ("ts", "TIMESTAMP(3)")],
    _timed(
        [
            *[("A", 12, 1, 1), ("A", 17, 2, 2), ("B", 5, 1, 2), ("A", 19, 1, 3), ("A", 21, 3, 4), ("B", 4, 1, 5)],
            *[("A", 25, 2, 5), ("A", 18, 1, 6), ("A", 15, 1, 8), ("A", 14, 2, 7), ("B", 3, 2, 9), ("A", 24, 2, 9)],
            *[("A", 25, 2, 10), ("B", 9, 1, 11), ("A", 19, 1, 11), ("A", 30, 1, 14), ("B", 2, 5, 15), ("A", 8, 1, 16)],
            *[("B", 7, 2, 17), ("A", 7, 1, 18), ("A", 6, None, 19), ("A", 31, 1, 25), ("B", 1, 1, 26)],
        ]
    ),
    _BEFORE,
)


def _matched(body: str, columns: str = "*", table: str = "t", partition: str = "PARTITION BY symbol ") -> Case:
    by = "p" if table != "t" else "ts"
    return Case(f"SELECT {columns} FROM {table} MATCH_RECOGNIZE ({partition}ORDER BY {by} {body})", {"t": _PRICES})


_VALLEY = (
    "MEASURES FIRST(DOWN.price) AS top, LAST(DOWN.price) AS bottom, UP.price AS up, COUNT(DOWN.price) AS n "
    "ONE ROW PER MATCH {} PATTERN (S DOWN+ UP) DEFINE DOWN AS LAST(DOWN.price, 1) IS NULL AND DOWN.price < S.price OR "
    "DOWN.price < LAST(DOWN.price, 1), UP AS UP.price > LAST(DOWN.price)"
)
_AVERAGE = "AVG(A.price) < 20"
MATCHED = {
    "match: a valley": _matched(_VALLEY.format("AFTER MATCH SKIP TO LAST UP")),
    "match: a valley, past the last row": _matched(_VALLEY.format("AFTER MATCH SKIP PAST LAST ROW")),
    "match: a valley, to the next row": _matched(_VALLEY.format("AFTER MATCH SKIP TO NEXT ROW")),
    "match: a valley, default skip strategy": _matched(_VALLEY.format("")),
    "match: to the first of a variable": _matched(
        "MEASURES FIRST(A.price) AS f, C.price AS l ONE ROW PER MATCH AFTER MATCH SKIP TO FIRST B PATTERN (A B C) "
        "DEFINE B AS B.price > A.price, C AS C.price > B.price"
    ),
    "match: an average": _matched(
        "MEASURES FIRST(A.ts) AS s, LAST(A.ts) AS e, AVG(A.price) AS a, SUM(A.tax) AS t, MATCH_ROWTIME() AS r ONE ROW "
        f"PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A+ B) DEFINE A AS {_AVERAGE}"
    ),
    "match: all rows together": _matched(
        "MEASURES A.symbol AS a, B.symbol AS b, COUNT(*) AS n, SUM(price) AS s ONE ROW PER MATCH AFTER MATCH SKIP PAST "
        "LAST ROW PATTERN (A B) DEFINE A AS A.price < 10, B AS price > 10",
        partition="",
    ),
    "match: bounded quantifier": _matched(
        "MEASURES FIRST(A.price) AS f, LAST(A.price) AS l, B.price AS b ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST "
        "ROW PATTERN (A{2,3} B) DEFINE A AS A.price > 15, B AS B.price < 20"
    ),
    "match: reluctant": _matched(
        "MEASURES FIRST(A.price) AS f, LAST(A.price) AS l, B.price AS b ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST "
        "ROW PATTERN (A+? B) DEFINE A AS A.price > 10"
    ),
    "match: an optional one": _matched(
        "MEASURES A.price AS a, B.price AS b, C.price AS c ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A "
        "B? C) DEFINE A AS A.price > 20, B AS B.tax = 1, C AS C.price < 20"
    ),
    "match: any number": _matched(
        "MEASURES A.price AS a, COUNT(B.price) AS n, C.price AS c ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW "
        "PATTERN (A B* C) DEFINE A AS A.price > 20, B AS B.price < 20, C AS C.price > 20"
    ),
    "match: within": _matched(
        "MEASURES A.price AS a, C.price AS c ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A B* C) WITHIN "
        "INTERVAL '4' SECOND DEFINE B AS B.price > A.price - 10, C AS C.price < A.price - 5"
    ),
    "match: counted in windows": Case(
        "SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE m, DESCRIPTOR(r), INTERVAL '10' SECOND)) GROUP BY "
        "window_start, window_end",
        {"t": _PRICES},
        views=[
            "CREATE TEMPORARY VIEW m AS SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts MEASURES "
            "MATCH_ROWTIME() AS r, B.price AS b ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) DEFINE B "
            "AS B.price > A.price)"
        ],
    ),
    "match: by processing time": _matched(
        "MEASURES A.price AS a, B.price AS b ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A B) DEFINE B "
        "AS B.price < A.price",
        table="(SELECT *, PROCTIME() AS p FROM t)",
    ),
    "match: greedy at the end": _matched(
        "MEASURES A.price AS a ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A B+) DEFINE B AS B.price > 1"
    ),
    "match: nothing at all": _matched(
        "MEASURES A.price AS a ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A*?) DEFINE A AS A.price > 1"
    ),
    "match: all rows per match": _matched(
        "MEASURES A.price AS a ALL ROWS PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A B) DEFINE A AS A.price > 1"
    ),
}

_EMIT = "table.exec.emit."
_EARLY = {f"{_EMIT}early-fire.enabled": "true", f"{_EMIT}early-fire.delay": "0 s"}
_LATE = {
    f"{_EMIT}late-fire.enabled": "true",
    f"{_EMIT}late-fire.delay": "0 s",
    f"{_EMIT}allow-lateness": "8 s",
}


def _fired(settings: dict[str, str], window: str = "TUMBLE(ts, INTERVAL '10' SECOND)") -> Case:
    start = window.replace("(", "_START(", 1)
    query = f"SELECT k, {start}, COUNT(*), SUM(v), MAX(v) FROM t GROUP BY k, {window}"
    return Case(query, {"t": TIMED}, settings=settings)


FIRED = {
    "window, fired early": _fired(_EARLY),
    "window, fired late": _fired(_LATE),
    "window, fired early and late": _fired({**_EARLY, **_LATE}),
    "hop, fired early": _fired(_EARLY, "HOP(ts, INTERVAL '5' SECOND, INTERVAL '10' SECOND)"),
    "window function, fired early": Case(
        f"SELECT k, COUNT(*) FROM {_TUMBLE.format('t')} GROUP BY k, window_start, window_end",
        {"t": TIMED},
        settings=_EARLY,
    ),
}

# The watermark equals the maximum timestamp: many rows are late, some only just.
_STRICT = "WATERMARK FOR ts AS ts"
_LATE_SIDED = TableDef(
    _SIDED,
    _timed(
        [
            *[("L", 1, 10, 1), ("R", 1, 20, 4), ("L", 1, 11, 4), ("L", 1, 12, 2), ("R", 2, 22, 3), ("L", 2, 13, 4)],
            *[("R", 1, 23, 12), ("L", 1, 14, 11), ("L", 1, 15, 12), ("R", 1, 24, 5), ("L", 3, 16, 25)],
            *[
                ("R", 3, 25, 12),
                ("R", 4, 26, 25),
                ("L", 3, 17, 24),
                ("L", 1, 18, 9),
                ("R", 1, 27, 30),
                ("L", 1, 19, 30),
            ],
        ]
    ),
    _STRICT,
)
_LATE_VIEWS = [
    "CREATE TEMPORARY VIEW versions AS SELECT rk, rv, rts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY rk ORDER BY "
    "rts DESC) AS rn FROM r) WHERE rn = 1"
]


# A key whose first row has the time of the watermark.
_AT_WATERMARK = TableDef(
    _TIMED,
    _timed([("a", 1, 0.1, 1), ("b", 2, 0.1, 1), ("c", 3, 0.1, 0.5), ("a", 4, 0.1, 5), ("c", 5, 0.1, 5)]),
    _STRICT,
)


def _late(case: Case) -> Case:
    """Return a case with stricter watermarks."""
    tables = {"t": _LATE_SIDED if case.tables["t"] is SIDED else replace(case.tables["t"], more=_STRICT)}
    return replace(case, tables=tables)


LATE = {
    f"late: {name}": _late(case)
    for name, case in {
        **{name: OVER[f"over: {name}"] for name in ("range, unbounded", "rows, unbounded")},
        # Flink's cleanup timers of frames affect which rows are late: these fire after all rows.
        "range of 20 s": _over(_WHOLE, _by("RANGE BETWEEN INTERVAL '20' SECOND PRECEDING AND CURRENT ROW")),
        **{name: OVER[f"over: {name}"] for name in ("2 rows before", "lag")},
        **{name: WINDOWS[name] for name in ("window top 2", "window last row", "session rows", "session top 1")},
        **{name: WINDOWS[name] for name in ("window inner join", "window full join", "windows of windows")},
        "window aggregate": Case(_TOTALS.strip("()"), {"t": TIMED}),
        "session aggregate": Case(
            f"SELECT k, window_start, COUNT(*) FROM {_SESSION} GROUP BY k, window_start, window_end", {"t": TIMED}
        ),
        **{name: FIRST[name] for name in ("first row by rowtime", "last row by rowtime")},
        "sorted by rowtime": Case("SELECT k, v, ts FROM t ORDER BY ts, v", {"t": TIMED}, ORDERED),
        **{name: JOINS[name] for name in ("interval inner join", "interval full join")},
        "temporal join": Case(
            "SELECT l.k, l.v, rv FROM l LEFT JOIN versions FOR SYSTEM_TIME AS OF l.ts AS x ON l.k = x.rk",
            {"t": SIDED},
            views=[*_VIEWS, *_LATE_VIEWS],
        ),
        **{name.removeprefix("match: "): MATCHED[name] for name in ("match: a valley", "match: within")},
        "groups": Case("SELECT k, COUNT(*), SUM(v) FROM t GROUP BY k", {"t": TIMED}, ORDERED),
        "window, fired late": FIRED["window, fired late"],
        "first rows at the watermark": replace(FIRST["first row by rowtime"], tables={"t": _AT_WATERMARK}),
        "frames at the watermark": replace(OVER["over: rows, unbounded"], tables={"t": _AT_WATERMARK}),
        "2 rows before the watermark": replace(OVER["over: 2 rows before"], tables={"t": _AT_WATERMARK}),
    }.items()
}

CASES: dict[str, Case] = {**OVER, **WINDOWS, **JOINS, **FIRST, **MATCHED, **FIRED, **LATE}


def _literal(value: Any, kind: str) -> str:
    return f"CAST(NULL AS {kind})" if value is None else f"CAST('{value}' AS {kind})"


def _declare_file(t_env: Any, name: str, table: TableDef) -> None:
    path = Path(tempfile.mkdtemp()) / "rows.csv"
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in table.rows))
    columns = ", ".join(f"`{column}` {kind}" for column, kind in table.columns)
    t_env.execute_sql(
        f"CREATE TABLE {name} ({columns}, {table.more}) WITH ('connector' = 'filesystem', 'path' = '{path.parent}', "
        "'format' = 'csv')"
    )


def declare(t_env: Any, case: Case, rows_per_second: int) -> None:
    """Declare the tables of a case."""
    for key, value in case.settings.items():
        t_env.get_config().set(key, value)
    for name, table in case.tables.items():
        if table.is_file:
            _declare_file(t_env, name, table)
            continue
        statements = []
        for i, (column, kind) in enumerate(table.columns):
            cases = " ".join(f"WHEN {n} THEN {_literal(row[i], kind)}" for n, row in enumerate(table.rows, 1))
            statements.append(f"`{column}` AS CASE id {cases} END")
        more = f", {table.more}" if table.more else ""
        t_env.execute_sql(
            f"CREATE TABLE {name}_ids (id BIGINT, {', '.join(statements)}{more}) WITH ('connector' = 'datagen', "
            f"'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '{len(table.rows)}', "
            f"'rows-per-second' = '{rows_per_second}')"
        )
        names = ", ".join(f"`{column}`" for column, _ in table.columns)
        t_env.execute_sql(f"CREATE TEMPORARY VIEW {name} AS SELECT {names} FROM {name}_ids")
    for view in case.views:
        t_env.execute_sql(view)


def changes(t_env: Any, text: str) -> list[str]:
    """Return the changes of a query, or its error in one line."""
    try:
        with t_env.execute_sql(text).collect() as rows:
            return [f"{row.get_row_kind()} {', '.join(map(str, row))}" for row in rows]
    except Exception as e:
        lines = [line.strip() for line in str(e).splitlines()]
        errors = [line.split("Exception: ", 1)[1] for line in lines if "Exception: " in line]
        return [f"error: {errors[-1] if errors else lines[0]}"]


def record(names: Sequence[str]) -> None:
    """Run the cases on Flink and record the results."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    results = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    for name in names or [n for n in CASES if n not in results]:
        t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        t_env.get_config().set("parallelism.default", "1").set("table.local-time-zone", "UTC")
        # With late rows in two inputs, each row must be fully processed before the next.
        declare(t_env, CASES[name], 1 if name in LATE else 12)
        results[name] = changes(t_env, CASES[name].query)
        print(name, len(results[name]), results[name][:1], flush=True)
        retained = {n: results[n] for n in CASES if n in results}
        RECORDED.write_text(json.dumps(retained, indent=1) + "\n")


if __name__ == "__main__":
    record(sys.argv[1:])
