"""Every operator with state, as SQL: parallelism, epochs, restarts, failures and rescaling change no answer."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from millstream.common import Row, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.table import ChangelogMode, Schema, StreamTableEnvironment
from millstream.testing import ABORT, CollectSink, LocalJob, TestingSource, save_checkpoint, save_savepoint, start_from

_TYPE = Types.ROW_NAMED(
    ["id", "side", "k", "v", "at"], [Types.LONG(), Types.STRING(), Types.STRING(), Types.LONG(), Types.LONG()]
)
_VIEWS = [
    "CREATE TEMPORARY VIEW l AS SELECT id, k, v, ts FROM t WHERE side = 'L'",
    "CREATE TEMPORARY VIEW r AS SELECT id AS rid, k AS rk, v AS rv, ts AS rts FROM t WHERE side = 'R'",
    "CREATE TEMPORARY VIEW versions AS SELECT rk, rv, rts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY rk ORDER BY "
    "rts DESC) AS rn FROM r) WHERE rn = 1",
]
_TUMBLE = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR({}), INTERVAL '1' SECOND))"
_T, _L, _R = (_TUMBLE.format(*of) for of in (("t", "ts"), ("l", "ts"), ("r", "rts")))
_WINDOW_AND_KEY = "window_start, window_end, k"
_SAME = "a.k = b.rk AND a.window_start = b.window_start AND a.window_end = b.window_end"


def _over(frame: str, calls: str = "SUM(v) OVER w, COUNT(DISTINCT v) OVER w") -> str:
    return f"SELECT id, {calls} FROM t WINDOW w AS (PARTITION BY k ORDER BY {frame})"


def _first(order: str, wanted: str, source: str = "t", columns: str = "id, k, v", by: str = "k") -> str:
    numbered = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY {order}) AS rn FROM {source}"
    return f"SELECT {columns} FROM ({numbered}) WHERE {wanted}"


QUERIES = {
    "over, range": _over("ts"),
    "over, range of a second": _over("ts RANGE BETWEEN INTERVAL '1' SECOND PRECEDING AND CURRENT ROW"),
    "over, rows": _over("ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW"),
    "over, lag": _over("ts", "LAG(v, 2) OVER w"),
    "over, column": _over("id ROWS UNBOUNDED PRECEDING"),
    "top, inserts": _first("v DESC, id", "rn <= 3", columns="id, k, v, rn"),
    "top, one": _first("v, id", "rn = 1"),
    "top, updates": _first("c DESC, k", "rn <= 2", "(SELECT k, v, COUNT(*) AS c FROM t GROUP BY k, v)", "k, v, c", "v"),
    "top, retractions": _first(
        "s, k", "rn <= 2", "(SELECT k, v, SUM(v) AS s FROM t GROUP BY k, v)", "k, v, s, rn", "v"
    ),
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
    "semi join": "SELECT id FROM l WHERE (k, v) IN (SELECT rk, rv FROM r)",
    "match": "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.id AS a, C.id AS c, COUNT(B.id) "
    "AS n ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A B* C) WITHIN INTERVAL '2' SECOND DEFINE B AS "
    "B.v < 4, C AS C.v > A.v)",
    "intersect all": "SELECT k, v FROM l INTERSECT ALL SELECT rk, rv FROM r",
    "except": "SELECT k, v FROM l EXCEPT SELECT rk, rv FROM r",
    "sessions": "SELECT k, window_start, COUNT(*), SUM(v) FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), "
    "INTERVAL '0.3' SECOND)) GROUP BY k, window_start, window_end",
    "windows, fired early": "SELECT k, TUMBLE_START(ts, INTERVAL '1' SECOND), COUNT(*), MAX(v) FROM t GROUP BY k, "
    "TUMBLE(ts, INTERVAL '1' SECOND)",
    "normalize": "SELECT * FROM latest",
}  # fmt: skip


@cache
def _rows() -> tuple[Row, ...]:
    """Rows a little out of order, none of them late."""
    r = Random(7)
    found = [
        Row(i, r.choice("LR"), f"k{r.randrange(7)}", r.randrange(6), i * 90 + r.randrange(4) * 100 + i % 89)
        for i in range(160)
    ]
    return tuple(found)


def _program(name: str, parallelism: int, rows: list[Any]) -> tuple[StreamExecutionEnvironment, CollectSink]:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    t_env = StreamTableEnvironment.create(env)
    t_env.get_config().set("table.local-time-zone", "UTC")
    if name == "windows, fired early":
        t_env.get_config().set("table.exec.emit.early-fire.enabled", "true").set(
            "table.exec.emit.early-fire.delay", "0 s"
        )
    source = env.from_source(TestingSource(rows, 1000), WatermarkStrategy.no_watermarks(), "rows").set_parallelism(1)
    schema = Schema.new_builder()
    for column, kind in (("id", "BIGINT"), ("side", "STRING"), ("k", "STRING"), ("v", "BIGINT"), ("at", "BIGINT")):
        schema.column(column, kind)
    typed = source.map(lambda row: row, _TYPE).set_parallelism(1)
    if name == "normalize":
        # The order of a key's rows is what its rows are about.
        keyed = Schema.new_builder().column("id", "BIGINT").column("side", "STRING").column("k", "STRING NOT NULL")
        keyed = keyed.column("v", "BIGINT").column("at", "BIGINT").primary_key("k")
        latest = t_env.from_changelog_stream(typed, keyed.build(), ChangelogMode.upsert())
        t_env.create_temporary_view("latest", latest)
    else:
        schema.column_by_expression("ts", "TO_TIMESTAMP_LTZ(`at`, 3)").watermark("ts", "ts - INTERVAL '1' SECOND")
        t_env.create_temporary_view("t", t_env.from_data_stream(typed, schema.build()))
        for view in _VIEWS:
            t_env.execute_sql(view)
    sink = CollectSink()
    t_env.to_changelog_stream(t_env.sql_query(QUERIES[name])).sink_to(sink).set_parallelism(1)
    return env, sink


def _left(*sinks: CollectSink) -> Counter[str]:
    """Return the rows that are left: none is taken back that was not there."""
    rows = Counter[str]()
    for sink in sinks:
        for row in sink.results():
            rows[repr(tuple(row))] += 1 if str(row.get_row_kind()) in ("+I", "+U") else -1
    assert min(rows.values()) >= 0
    return +rows


@cache
def _expected(name: str) -> Counter[str]:
    env, sink = _program(name, 1, list(_rows()))
    LocalJob(env).run()
    found = _left(sink)
    assert found.total() >= 4
    return found


@pytest.mark.parametrize("name", QUERIES)
def test_epochs_restarts_failures_and_parallelism(name: str) -> None:
    r = Random(name)
    rows: list[Any] = list(_rows())
    env, sink = _program(name, 1, rows)
    job = LocalJob(env, epoch_sizes=lambda: r.randint(1, 12))
    while not job.is_finished:
        job.run_epoch()
        job.restart_slots()
    assert _left(sink) == _expected(name)
    for place in (40, 101):
        rows.insert(place, ABORT)
    env, sink = _program(name, r.choice((2, 3)), rows)
    LocalJob(env, epoch_sizes=lambda: 10).run(restarts=3)
    assert _left(sink) == _expected(name)


@pytest.mark.parametrize("name", QUERIES)
def test_a_savepoint_and_a_checkpoint_go_on_at_another_parallelism(name: str, tmp_path: Path) -> None:
    r = Random(name)
    before, after = r.choice(((2, 3), (2, 1), (1, 3), (3, 2)))
    env, first = _program(name, before, list(_rows()))
    job = LocalJob(env, epoch_sizes=lambda: r.randint(5, 15))
    for _ in range(6):
        job.run_epoch()
    assert not job.is_finished
    saved = r.choice((save_savepoint, save_checkpoint))(job, tmp_path)
    env, second = _program(name, after, list(_rows()))
    start_from(env, saved, epoch_sizes=lambda: 9).run()
    assert _left(first, second) == _expected(name)
