"""Early and late fires of windows match those recorded from Apache Flink (`tests/sql/emit_strategies.py`)."""

from __future__ import annotations

import contextlib
import io
import json

import pyarrow as pa
import pytest

from millstream.common import Row, RowKind, Types
from millstream.common.watermark_strategy import MAX_WATERMARK
from millstream.datastream import StreamExecutionEnvironment
from millstream.sql.columns.batch import Batch
from millstream.sql.errors import TableException
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.window.early_late_fire import PeriodicWindowOperator
from millstream.sql.operators.window.window_aggregate import WindowTimes
from millstream.sql.operators.window.windowing import Windowing
from millstream.sql.plan.nodes import PeriodicFires, WindowKind
from millstream.sql.types import DataTypes
from millstream.table import Schema, StreamTableEnvironment
from millstream.testing import CollectSink, LocalJob, ManualClock
from tests.sql.emit_strategies import COLUMNS, QUERIES, RECORDED, ROWS, changes_by_query, declare
from tests.support.sql_runs import Bare
from tests.support.sql_transcript import shown

_FLINKS: dict[str, dict[str, list[str]]] = json.loads(RECORDED.read_text())


def _program(name: str, parallelism: int) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    t_env = StreamTableEnvironment.create(env)
    numbers = env.from_collection([Row(i + 1) for i in range(len(ROWS))], Types.ROW_NAMED(["id"], [Types.LONG()]))
    schema = Schema.new_builder().column("id", "BIGINT")
    for column, definition in COLUMNS.items():
        schema.column_by_expression(column, definition)
    t_env.create_temporary_view("ids", t_env.from_data_stream(numbers, schema.watermark("ts", "ts").build()))
    statements = t_env.create_statement_set()
    insert = declare(t_env, name)
    t_env.get_config().set("parallelism.default", str(parallelism))
    statements.add_insert_sql(insert)
    statements.attach_as_datastream()
    return env


def _changes(name: str, restarts: bool = False, parallelism: int = 1) -> dict[str, list[str]]:
    clock, out = ManualClock(), io.StringIO()
    job = LocalJob(_program(name, parallelism), clock=clock, epoch_sizes=lambda: 1)
    with contextlib.redirect_stdout(out):
        while not job.is_finished:
            clock.advance(1000)
            job.run_epoch()
            if restarts:
                job.restart_slots()
    return changes_by_query(out.getvalue().splitlines())[name]


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("mode", ["without restarts", "two subtasks, with restarts"])
def test_emit_strategy_changelog_matches_recorded_flink(name: str, mode: str) -> None:
    results = _changes(name, restarts="with restarts" in mode, parallelism=2 if "two" in mode else 1)
    assert results == _FLINKS[name]


_KINDS = [pa.string(), pa.int64(), pa.timestamp("ms")]
_CALLS = [AggregateCall("SUM", (1,), DataTypes.BIGINT()), AggregateCall("COUNT", (1,), DataTypes.BIGINT(), True)]


class _Windows:
    """Windows of ten milliseconds, without a job around them."""

    def __init__(self, fires: PeriodicFires, pairs: bool = True) -> None:
        self.clock = ManualClock(1000)
        windowing, times = Windowing(WindowKind.TUMBLE, 10, 10), WindowTimes(2, True, "UTC")
        self.operator = PeriodicWindowOperator(windowing, times, [0], _CALLS, _KINDS, [], fires, pairs=pairs)
        self.bare = Bare(self.operator, self.clock)

    def _out(self) -> str:
        out, self.bare.out = self.bare.out, []
        return shown(out)

    def take(self, *rows: tuple[str, int, int]) -> str:
        columns = [pa.array([r[i] for r in rows], kind) for i, kind in enumerate(_KINDS)]
        self.bare.take(Batch(columns, None, len(rows)))
        return self._out()

    def advance_to(self, millis: int) -> str:
        self.clock.set(millis)
        self.operator.on_processing_time()
        return self._out()

    def reach(self, watermark: int) -> str:
        self.operator.on_watermark(watermark)
        return self._out()

    def n_states(self) -> int:
        """Return the number of rows in all state tables."""
        assert self.operator.setup.state is not None
        return sum(1 for table in self.operator.setup.state.tables.values() for _ in table.rows())


def test_early_fire_interval_is_per_window() -> None:
    windows = _Windows(PeriodicFires(False, 0, 100, 0))
    assert windows.operator.next_wake() is None
    assert windows.take(("a", 1, 1), ("a", 2, 2)) == ""
    windows.clock.set(1040)
    assert windows.take(("b", 5, 3), ("a", 3, 11)) == ""
    assert windows.operator.next_wake() == 1100
    assert windows.advance_to(1099) == ""
    assert windows.advance_to(1100) == "+I a 3 2"
    assert windows.advance_to(1140) == "+I b 5 1, +I a 3 1"
    # Nothing has changed, or no emitted column has.
    assert windows.take(("a", 0, 4), ("a", 0, 4)) == ""
    assert windows.take(("a", 4, 5)) == ""
    assert windows.advance_to(1199) == ""
    assert windows.advance_to(1200) == "-U a 3 2, +U a 7 4"
    # Several missed intervals fire once, and the next fire time is unchanged.
    assert windows.take(("a", 1, 5)) == ""
    assert windows.advance_to(1555) == "-U a 7 4, +U a 8 4"
    assert windows.operator.next_wake() == 1600
    assert windows.take(("b", 1, 5)) == ""
    # At the end of the window all changes are emitted.
    assert windows.reach(9) == "-U b 5 1, +U b 6 2"
    assert windows.operator.next_wake() == 1640
    assert windows.reach(MAX_WATERMARK) == ""
    assert windows.operator.next_wake() is None
    assert windows.n_states() == 0


def test_emit_strategy_discards_unemitted_changes_with_expired_window() -> None:
    windows = _Windows(PeriodicFires(False, 20, 0, 100))
    assert windows.take(("a", 1, 1)) == ""
    assert windows.reach(9) == "+I a 1 1"
    assert windows.take(("a", 2, 1), ("b", 3, 1), ("c", 1, 11)) == "+I b 3 1"
    assert windows.reach(19) == "+I c 1 1"
    # A window first created after its end has no interval: every row fires it.
    assert windows.take(("b", 4, 1)) == "-U b 3 1, +U b 7 2"
    assert windows.advance_to(1099) == ""
    windows.bare.restart()
    assert windows.advance_to(1100) == "-U a 1 1, +U a 3 2"
    assert windows.take(("a", 4, 1)) == ""
    assert windows.reach(28) == ""
    windows.bare.restart()
    assert windows.n_states() > 0
    assert windows.reach(29) == ""
    assert windows.advance_to(1200) == ""
    assert windows.reach(MAX_WATERMARK) == ""
    assert windows.n_states() == 0


@pytest.mark.parametrize("late_delay", [100, 60])
def test_late_fire_continues_early_interval_if_delays_are_equal(late_delay: int) -> None:
    windows = _Windows(PeriodicFires(False, 20, 100, late_delay))
    windows.take(("a", 1, 1))
    windows.clock.set(1010)
    assert windows.reach(9) == "+I a 1 1"
    windows.bare.restart()
    windows.take(("a", 2, 1))
    first, then = (1100, 1200) if late_delay == 100 else (1070, 1130)
    assert windows.operator.next_wake() == first
    assert windows.advance_to(first) == "-U a 1 1, +U a 3 2"
    windows.take(("a", 1, 1))
    windows.bare.restart()
    assert windows.operator.next_wake() == then
    assert windows.advance_to(then) == "-U a 3 2, +U a 4 2"


def test_emit_strategy_without_update_before() -> None:
    windows = _Windows(PeriodicFires(False, 0, 100, 0), pairs=False)
    windows.take(("a", 1, 1))
    assert windows.advance_to(1100) == "+I a 1 1"
    windows.take(("a", 2, 1))
    assert windows.advance_to(1200) == "+U a 3 2"
    windows.take(("a", 0, 1))
    windows.take(("a", 0, 1))
    assert windows.advance_to(1300) == "+U a 3 3"


def test_emit_strategy_discards_state_of_many_windows() -> None:
    windows = _Windows(PeriodicFires(False, 0, 100, 0))
    for n in range(6):
        rows = [(f"{i}", i, 10 * n) for i in range(2000)]
        assert windows.take(*rows) == ""
        assert windows.advance_to(2000 + 1000 * n).count("+I") == 2000
        assert windows.take(*((k, v + 1, time) for k, v, time in rows)) == ""
        assert windows.advance_to(2500 + 1000 * n).count("+U") == 2000
        assert windows.take(*((k, v + 2, time) for k, v, time in rows[::2])) == ""
        assert windows.reach(10 * n + 9).count("+U") == 1000
    assert windows.n_states() == 0


def _explained(settings: dict[str, str], window: str = "TUMBLE(ts, INTERVAL '10' SECOND)") -> str:
    t_env = StreamTableEnvironment.create(StreamExecutionEnvironment.get_execution_environment())
    t_env.execute_sql(
        "CREATE TABLE t (k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen')"
    )
    for option, value in settings.items():
        t_env.get_config().set(f"table.exec.emit.{option}", value)
    return t_env.explain_sql(f"SELECT k, COUNT(*) FROM t GROUP BY k, {window}")


_EARLY, _LATE = {"early-fire.enabled": "true"}, {"late-fire.enabled": "true"}


def test_explain_shows_emit_delays() -> None:
    early, late = {**_EARLY, "early-fire.delay": "2 s"}, {**_LATE, "late-fire.delay": "5 s", "allow-lateness": "5 s"}
    assert "emit=[early delay 2000 millisecond]" in _explained(early)
    assert "emit=[late delay 5000 millisecond]" in _explained(late)
    assert "emit=[early delay 2000 millisecond, late no delay]" in _explained({**early, **late, "late-fire.delay": "0"})
    assert "emit=[early no delay, late delay 5000 millisecond]" in _explained(
        {**early, **late, "early-fire.delay": "0"}
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (_EARLY, "early-fire.delay is not set"),
        ({**_LATE, "allow-lateness": "5 s"}, "late-fire.delay is not set"),
        ({**_LATE, "late-fire.delay": "0 s"}, "emit strategy requires set 'table.exec.emit.allow-lateness'"),
        (
            {**_LATE, "late-fire.delay": "15 s", "allow-lateness": "5 s"},
            r"Allow-lateness \[5000ms\] should not be smaller than Late-fire delay \[15000ms\]",
        ),
    ],
)
def test_emit_strategy_rejects_settings_as_flink_does(settings: dict[str, str], message: str) -> None:
    with pytest.raises(TableException, match=message):
        _explained(settings)


_I, _D = RowKind.INSERT, RowKind.DELETE
_RETRACTIONS = [
    *[(_I, "a", 1, 1000), (_D, "a", 1, 1000), (_I, "b", 2, 2000), (_I, "a", 5, 3000), (_D, "b", 2, 2000)],
    *[(_I, "b", 7, 2000), (_D, "a", 5, 3000), (_I, "c", 1, 4000), (_D, "c", 1, 4000), (_I, "b", 1, 12000)],
    *[(_D, "b", 7, 2000), (_I, "a", 9, 13000), (_D, "a", 9, 13000)],
]


def _retracted(delay: str, strategy: str, restarts: bool) -> list[str]:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    t_env = StreamTableEnvironment.create(env)
    settings = {f"{strategy}-fire.enabled": "true", f"{strategy}-fire.delay": delay}
    for option, value in (settings | ({"allow-lateness": "1 h"} if strategy == "late" else {})).items():
        t_env.get_config().set(f"table.exec.emit.{option}", value)
    rows = []
    for kind, *values in _RETRACTIONS:
        rows.append(Row(*values))
        rows[-1].set_row_kind(kind)
    changes = env.from_collection(rows, Types.ROW_NAMED(["k", "v", "ms"], [Types.STRING(), Types.LONG(), Types.LONG()]))
    schema = Schema.new_builder().column("k", "STRING").column("v", "BIGINT").column("ms", "BIGINT")
    schema = schema.column_by_expression("ts", "TO_TIMESTAMP_LTZ(ms, 3)").watermark("ts", "ts")
    t_env.create_temporary_view("c", t_env.from_changelog_stream(changes, schema.build()))
    table = t_env.sql_query("SELECT k, SUM(v), COUNT(*) FROM c GROUP BY k, TUMBLE(ts, INTERVAL '10' SECOND)")
    sink = CollectSink()
    t_env.to_changelog_stream(table).sink_to(sink)
    clock = ManualClock()
    job = LocalJob(env, clock=clock, epoch_sizes=lambda: 1)
    while not job.is_finished:
        clock.advance(600)
        job.run_epoch()
        if restarts:
            job.restart_slots()
    return [f"{r.get_row_kind()} {r[0]} {r[1]}" for r in sink.results()]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("strategy", "delay", "changes"),
    [
        # Without a delay: the output of Flink 2.3.
        (
            "early",
            "0 ms",
            "+I a 1, -D a 1, +I b 2, +I a 5, -D b 2, +I b 7, -D a 5, +I c 1, -D c 1, +I b 1, +I a 9, -D a 9",
        ),
        ("late", "0 ms", "+I b 7, -D b 7, +I b 1"),
        ("early", "1 s", "+I a 5, +I b 2, -U b 2, +U b 7, -D a 5, +I b 1"),
        ("late", "1 s", "+I b 7, -D b 7, +I b 1"),
    ],
)
def test_emit_strategy_retracts_window_without_rows(strategy: str, delay: str, changes: str, restarts: bool) -> None:
    assert ", ".join(_retracted(delay, strategy, restarts)) == changes
