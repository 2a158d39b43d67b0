"""Stateful SQL operators: parallelism, epochs, restarts, failures and rescaling do not change the result."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections import Counter
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from millstream.common import Row
from millstream.table import DataTypes, StreamTableEnvironment, Table
from millstream.table.expressions import col, row_interval
from millstream.table.udf import udaf, udf, udtaf, udtf
from millstream.table.window import Slide, Tumble
from millstream.testing import ABORT, save_checkpoint, save_savepoint, start_from
from tests.sql.user_functions import CountAndSum, CountAndSumOf, Doubled, Joined, Top2, WeightedAverage
from tests.support.sql_proof import Case, Played, program, result_of, rows_of

_TUMBLE = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR({}), INTERVAL '1' SECOND))"
_T, _L, _R = (_TUMBLE.format(*of) for of in (("t", "ts"), ("l", "ts"), ("r", "rts")))
_WINDOW_AND_KEY = "window_start, window_end, k"
_SAME = "a.k = b.rk AND a.window_start = b.window_start AND a.window_end = b.window_end"
_SUMS = "(SELECT k, v, SUM(v) AS s FROM t GROUP BY k, v)"
_EMIT = "table.exec.emit"
_EARLY = {f"{_EMIT}.early-fire.enabled": "true", f"{_EMIT}.early-fire.delay": "0 s"}
_LATE = {
    f"{_EMIT}.late-fire.enabled": "true",
    f"{_EMIT}.late-fire.delay": "0 s",
    f"{_EMIT}.allow-lateness": "4 s",
}
_EARLY_BY_CLOCK = {**_EARLY, f"{_EMIT}.early-fire.delay": "250 ms"}
_LATE_BY_CLOCK = {**_LATE, f"{_EMIT}.late-fire.delay": "350 ms"}
_TTL = {"table.exec.state.ttl": "1300 ms"}
_MINI = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "6",
}


# `make proof` runs more.
SEEDS = range(int(os.environ.get("MILLSTREAM_TEST_SEEDS", "1")))


def _over(frame: str, calls: str = "SUM(v) OVER w, COUNT(DISTINCT v) OVER w") -> str:
    return f"SELECT id, {calls} FROM t WINDOW w AS (PARTITION BY k ORDER BY {frame})"


def _first(order: str, condition: str, source: str = "t", columns: str = "id, k, v", by: str = "k") -> str:
    numbered = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY {order}) AS rn FROM {source}"
    return f"SELECT {columns} FROM ({numbered}) WHERE {condition}"


def _windows(window: str, calls: str = "COUNT(*), MAX(v), COUNT(DISTINCT v)") -> str:
    """Return windows of a GROUP BY."""
    return f"SELECT k, {window.replace('(', '_START(', 1)}, {calls} FROM t GROUP BY k, {window}"


def _functions(window: str, calls: str = "COUNT(*), MAX(v), COUNT(DISTINCT v)") -> str:
    """Return windows of a function."""
    return f"SELECT k, window_start, {calls} FROM TABLE({window}) GROUP BY k, window_start, window_end"


_OVER_ROWS = "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW"
_OVER_SECOND = "RANGE BETWEEN INTERVAL '1' SECOND PRECEDING AND CURRENT ROW"
_SECOND = "INTERVAL '1' SECOND"

SQL = {
    "groups": "SELECT k, COUNT(*), SUM(v), MIN(v), COUNT(DISTINCT v), LAST_VALUE(id), LISTAGG(side) FROM t GROUP BY k",
    "groups of updates": f"SELECT s, COUNT(*), MAX(v), MIN(k) FROM {_SUMS} GROUP BY s",
    "distinct": "SELECT DISTINCT k, v FROM t",
    "over, range": _over("ts"),
    "over, range of a second": _over(f"ts {_OVER_SECOND}"),
    "over, rows": _over(f"ts {_OVER_ROWS}"),
    "over, lag": _over("ts", "LAG(v, 2) OVER w"),
    "over, column": _over("id ROWS UNBOUNDED PRECEDING"),
    "over, column of updates": "SELECT k, v, s, SUM(s) OVER w FROM (SELECT k, v, SUM(id) AS s FROM t GROUP BY k, v) "
    "WINDOW w AS (PARTITION BY k ORDER BY v ROWS UNBOUNDED PRECEDING)",
    "top, inserts": _first("v DESC, id", "rn <= 3", columns="id, k, v, rn"),
    "top, one": _first("v, id", "rn = 1"),
    "top, updates": _first("c DESC, k", "rn <= 2", "(SELECT k, v, COUNT(*) AS c FROM t GROUP BY k, v)", "k, v, c", "v"),
    "top, retractions": _first("s, k", "rn <= 2", _SUMS, "k, v, s, rn", "v"),
    "first row": _first("ts", "rn = 1"),
    "last row": _first("ts DESC", "rn = 1"),
    "window top": _first("v DESC, id", "rn <= 2", _T, "id, window_end, rn", _WINDOW_AND_KEY),
    "window last row": _first("ts DESC", "rn = 1", _T, "id, window_end", _WINDOW_AND_KEY),
    "window join": f"SELECT a.id, b.rid, a.window_start FROM {_L} AS a FULL JOIN {_R} AS b ON {_SAME}",
    "window anti join": f"SELECT id, window_start FROM {_L} AS a WHERE NOT EXISTS (SELECT 1 FROM {_R} AS b WHERE "
    f"{_SAME})",
    "interval join": "SELECT id, rid FROM l FULL JOIN r ON k = rk AND ts BETWEEN rts - INTERVAL '1' SECOND AND rts",
    "temporal join": "SELECT id, rv FROM l LEFT JOIN versions FOR SYSTEM_TIME AS OF l.ts AS b ON k = rk",
    "join of updates": "SELECT k, c, rv FROM (SELECT k, COUNT(*) AS c FROM l GROUP BY k) LEFT JOIN versions ON k = rk",
    "join": "SELECT id, rid FROM l JOIN r ON k = rk AND v > rv",
    "left join": "SELECT id, rid FROM l LEFT JOIN r ON k = rk AND v = rv",
    "right join": "SELECT id, rid FROM l RIGHT JOIN r ON k = rk AND v < rv",
    "full join": "SELECT id, rid FROM l FULL JOIN r ON k = rk AND v = rv",
    "semi join": "SELECT id FROM l WHERE (k, v) IN (SELECT rk, rv FROM r)",
    "anti join": "SELECT id FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE k = rk AND v = rv)",
    "match": "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.id AS a, C.id AS c, COUNT(B.id) "
    "AS n ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A B* C) WITHIN INTERVAL '2' SECOND DEFINE B AS "
    "B.v < 4, C AS C.v > A.v)",
    "intersect all": "SELECT k, v FROM l INTERSECT ALL SELECT rk, rv FROM r",
    "except": "SELECT k, v FROM l EXCEPT SELECT rk, rv FROM r",
    "sort": "SELECT id, ts FROM t ORDER BY ts",
    "windows": _functions(f"TUMBLE(TABLE t, DESCRIPTOR(ts), {_SECOND})"),
    "windows that overlap": _functions(f"HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '0.5' SECOND, {_SECOND})"),
    "windows that cumulate": _functions(f"CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '0.5' SECOND, {_SECOND})"),
    "sessions": _functions("SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '0.3' SECOND)"),
    "windows of a group": _windows(f"TUMBLE(ts, {_SECOND})"),
    "windows of a group, longer": _windows("TUMBLE(ts, INTERVAL '3' SECOND)"),
    "sessions of a group": _windows("SESSION(ts, INTERVAL '0.3' SECOND)"),
    # By the wall clock.
    "over, clock": _over("p ROWS UNBOUNDED PRECEDING"),
    "over, clock, range": _over("p"),
    "over, clock, range of a second": _over(f"p {_OVER_SECOND}"),
    "over, clock, rows": _over(f"p {_OVER_ROWS}"),
    "first row, clock": _first("p", "rn = 1"),
    "last row, clock": _first("p DESC", "rn = 1"),
    "windows, clock": _functions(f"TUMBLE(TABLE t, DESCRIPTOR(p), {_SECOND})"),
    "windows that overlap, clock": _functions(f"HOP(TABLE t, DESCRIPTOR(p), INTERVAL '0.5' SECOND, {_SECOND})"),
    "windows that cumulate, clock": _functions(f"CUMULATE(TABLE t, DESCRIPTOR(p), INTERVAL '0.5' SECOND, {_SECOND})"),
    "sessions, clock": _functions("SESSION(TABLE t PARTITION BY k, DESCRIPTOR(p), INTERVAL '0.5' SECOND)"),
    "windows of a group, clock": _windows(f"TUMBLE(p, {_SECOND})"),
    "sessions of a group, clock": _windows("SESSION(p, INTERVAL '0.5' SECOND)"),
    "interval join, clock": "SELECT id, rid FROM l JOIN (SELECT *, PROCTIME() AS rp FROM r) ON k = rk AND p BETWEEN rp "
    "- INTERVAL '0.5' SECOND AND rp + INTERVAL '0.5' SECOND",
    "match, clock": "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY p MEASURES A.id AS a, B.id AS b ONE ROW "
    "PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A B) DEFINE B AS B.v > A.v)",
}  # fmt: skip
# Rows of two inputs, or of several subtasks, arrive in any order: intermediate changes are not defined.
_ANY_ORDER = (
    *("groups of updates", "over, column of updates", "top, updates", "top, retractions", "join of updates"),
    *("left join", "right join", "full join", "semi join", "anti join", "intersect all", "except"),
)


def _counted(window: Any) -> Any:
    def build(t_env: StreamTableEnvironment) -> Table:
        rows = t_env.from_path("t").window(window.on(col("p")).alias("w")).group_by(col("w"), col("k"))
        return rows.select(col("k"), col("v").sum, col("id").max)

    return build


@cache
def _names() -> tempfile.TemporaryDirectory[str]:
    """Return the path of a database with names of keys: two of one key and none of another."""
    directory = tempfile.TemporaryDirectory()
    with closing(sqlite3.connect(f"{directory.name}/names.db")) as database:
        database.execute("CREATE TABLE names (key TEXT, name TEXT)")
        rows = [(f"k{i}", f"name {i}") for i in (0, 1, 2, 2, 3, 4, 5)]
        database.executemany("INSERT INTO names VALUES (?, ?)", rows)
        database.commit()
    return directory


def _lookup_join(hint: str = "", options: str = "") -> Any:
    def build(t_env: StreamTableEnvironment) -> Table:
        url = f"jdbc:sqlite:{_names().name}/names.db"
        t_env.execute_sql(
            "CREATE TEMPORARY TABLE names (key STRING, name STRING) WITH ('connector' = 'jdbc', 'table-name' = "
            f"'names', 'url' = '{url}'{options})"
        )
        return t_env.sql_query(
            f"SELECT {hint} id, name FROM t LEFT JOIN names FOR SYSTEM_TIME AS OF t.p AS n ON k = n.key"
        )

    return build


def _mean() -> Any:
    @udaf(result_type=DataTypes.DOUBLE(), func_type="pandas")
    def mean(values: Any) -> Any:
        return values.mean()

    return mean


def _api(make: Any) -> Any:
    def build(t_env: StreamTableEnvironment) -> Table:
        table: Table = make(t_env.from_path("t").select(col("k"), col("v"), col("id"), col("ts")))
        return table

    return build


_FIRST_TWO = udtaf(Top2())
_WAVG = {"wavg": udaf(WeightedAverage())}
_ASYNC = "/*+ LOOKUP('table'='n', 'async'='true', 'output-mode'='allow_unordered') */"
FUNCTIONS = {
    "udaf": Case("SELECT k, wavg(v, id) FROM t GROUP BY k", functions=_WAVG),
    "udaf of updates": Case(f"SELECT v, wavg(s, v) FROM {_SUMS} GROUP BY v", functions=_WAVG, whole=False),
    "udaf in windows": Case(
        _functions(f"HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '0.5' SECOND, {_SECOND})", "wavg(v, id)"),
        functions=_WAVG,
    ),
    "udaf with views": Case("SELECT k, joined(v) FROM t GROUP BY k", functions={"joined": udaf(Joined())}),
    "distinct udaf": Case("SELECT k, total(DISTINCT v) FROM t GROUP BY k", functions={"total": udaf(CountAndSumOf())}),
    "pandas in windows": Case(_windows(f"TUMBLE(ts, {_SECOND})", "mean(v)"), functions={"mean": _mean()}),
    "pandas in windows of a function": Case(
        _functions(f"TUMBLE(TABLE t, DESCRIPTOR(ts), {_SECOND})", "mean(v)"), functions={"mean": _mean()}
    ),
    "pandas over": Case(_over(f"ts {_OVER_ROWS}", "mean(v) OVER w"), functions={"mean": _mean()}),
    "async": Case(
        "SELECT k, SUM(doubled(v)) FROM t GROUP BY k",
        functions={"doubled": udf(Doubled(), result_type="BIGINT")},
        whole=False,
    ),
    "map": Case(
        _api(lambda t: t.map(udf(lambda row: Row(row[0], row[1] + row[2]), result_type="ROW<k STRING, s BIGINT>")))
    ),
    "flat map": Case(
        _api(
            lambda t: t.flat_map(
                udtf(
                    lambda row: [(row[0], i) for i in range(row[1])],
                    result_types=[DataTypes.STRING(), DataTypes.BIGINT()],
                )
            )
        )
    ),
    "aggregate of rows": Case(
        _api(
            lambda t: (
                t.group_by(col("k")).aggregate(udaf(CountAndSum()).alias("n", "s")).select(col("k"), col("n"), col("s"))
            )
        )
    ),
    "aggregate of a table": Case(
        _api(lambda t: t.aggregate(udaf(CountAndSum()).alias("n", "s")).select(col("n"), col("s")))
    ),
    "flat aggregate": Case(
        _api(
            lambda t: (
                t.group_by(col("k"))
                .flat_aggregate(_FIRST_TWO(col("v")).alias("best", "place"))
                .select(col("k"), col("best"), col("place"))
            )
        )
    ),
    "flat aggregate of a table": Case(
        _api(lambda t: t.flat_aggregate(_FIRST_TWO(col("id"))).select(col("v"), col("place")))
    ),
    "count windows": Case(_counted(Tumble.over(row_interval(3)))),
    "count windows that overlap": Case(_counted(Slide.over(row_interval(4)).every(row_interval(2)))),
    "lookup join": Case(_lookup_join()),
    "lookup join, from a cache": Case(
        _lookup_join(options=", 'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '3'")
    ),
    "lookup join, async": Case(_lookup_join(_ASYNC)),
    "normalize": Case("SELECT * FROM latest", upserts=True),
    "materialize": Case(
        "SELECT MAX(id), k FROM t GROUP BY k, v",
        into="id BIGINT, k STRING, PRIMARY KEY (k) NOT ENFORCED",
    ),
    "materialize, forced": Case(
        "SELECT id, k FROM t",
        {"table.exec.sink.upsert-materialize": "FORCE"},
        into="id BIGINT, k STRING, PRIMARY KEY (k) NOT ENFORCED",
    ),
    "windows, fired early": Case(_windows(f"TUMBLE(ts, {_SECOND})"), _EARLY),
    "windows that overlap, fired early": Case(_windows(f"HOP(ts, INTERVAL '0.5' SECOND, {_SECOND})"), _EARLY),
    "windows, fired late": Case(_windows(f"TUMBLE(ts, {_SECOND})"), _LATE, late=True),
    "windows that overlap, fired early and late": Case(
        _windows(f"HOP(ts, INTERVAL '0.5' SECOND, {_SECOND})"), {**_EARLY, **_LATE}, late=True
    ),
    "windows, fired early by the clock": Case(
        _windows("TUMBLE(ts, INTERVAL '3' SECOND)"), _EARLY_BY_CLOCK, clock=True, unlike="windows of a group, longer"
    ),
    "windows, fired late by the clock": Case(
        _windows(f"TUMBLE(ts, {_SECOND})"),
        _LATE_BY_CLOCK,
        clock=True,
        late=True,
        unlike="windows of a group, rows late",
    ),
    "windows that overlap, fired early and late by the clock": Case(
        _windows(f"HOP(ts, INTERVAL '0.5' SECOND, {_SECOND})"),
        {**_EARLY_BY_CLOCK, **_LATE_BY_CLOCK},
        clock=True,
        late=True,
        unlike="windows that overlap, fired early and late",
    ),
}  # fmt: skip


def _case(name: str, **about: Any) -> Case:
    return Case(SQL[name], whole=name not in _ANY_ORDER, clock="clock" in name, **about)


_LATE_FOR = (
    *("over, range", "over, range of a second", "over, rows", "over, lag", "first row", "last row", "window top"),
    *("match", "sort", "windows", "windows that overlap", "windows that cumulate", "sessions", "windows of a group"),
    *("sessions of a group",),
)
QUERIES: dict[str, Case] = {
    **{name: _case(name) for name in SQL},
    **FUNCTIONS,
    **{f"{name}, rows late": _case(name, late=True) for name in _LATE_FOR},
}
_NOT_FOR_A_TIME = (
    # Their timers follow windows and bounds, or they have no state.
    *("window", "sessions", "of a second", "interval", "match", "sort", "map", "lookup"),
    # One key receives rows continuously.
    "of a table",
    # After expiry, the first input to arrive determines whether a retracted row has join partners; and counts that
    # restart decrease, although the plan declares to a Top-N of updates that they never do.
    *("join of updates", "top, updates"),
)
QUERIES |= {
    f"{name}, for a time": replace(case, settings={**case.settings, **_TTL}, clock=True, unlike=name)
    for name, case in QUERIES.items()
    if not case.late and not any(w in name for w in _NOT_FOR_A_TIME)
}
QUERIES |= {
    "join, sides for their times": Case(
        "SELECT /*+ STATE_TTL('l' = '1 s', 'r' = '3 s') */ id, rid FROM l JOIN r ON k = rk AND v > rv",
        clock=True,
        unlike="join",
    ),
    "groups, for their time": Case(
        SQL["groups"].replace("SELECT", "SELECT /*+ STATE_TTL('t' = '1 s') */"), clock=True, unlike="groups"
    ),
}
_TOGETHER = (
    *("groups", "groups of updates", "distinct", "join of updates", "full join", "top, retractions", "last row"),
    *("windows", "windows that overlap"),
)
QUERIES |= {f"{name}, by mini-batch": Case(SQL[name], _MINI, whole=False, like=name) for name in _TOGETHER}


@cache
def _expected(name: str) -> Counter[str]:
    """Return the result of a query without interruption."""
    case = QUERIES[name]
    run = QUERIES[case.like or name]
    rows = rows_of(case.late)
    env, sink = program(run, 1, rows)
    Played(env, rows, lambda: 1 << 20, run.clock).run()
    results = result_of(case, sink)
    assert results.total() >= 4
    if case.unlike:
        assert results != _expected(case.unlike)
    return results


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", QUERIES)
def test_stateful_query_is_exactly_once_for_random_schedules(name: str, seed: int, tmp_path: Path) -> None:
    r, case = Random(f"{name} {seed}"), QUERIES[name]
    rows: list[Any] = list(rows_of(case.late))
    for index in (40, 101):
        rows.insert(index, ABORT)
    before, after = r.choice(((2, 3), (2, 1), (1, 3), (3, 2), (1, 1)))
    env, first = program(case, before, rows)
    played = Played(env, rows, lambda: r.randint(1, 14), case.clock)
    played.run(restarts=1, until=r.randint(50, 90), dies=lambda: r.random() < 0.4)
    saved = r.choice((save_savepoint, save_checkpoint))(played.job, tmp_path)
    env, second = program(case, after, rows)
    played = Played(env, rows, lambda: r.randint(1, 30), case.clock, partial(start_from, location=saved), played.read)
    played.run(restarts=1, dies=lambda: r.random() < 0.2)
    assert result_of(case, first, second) == _expected(name)
