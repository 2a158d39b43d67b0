"""Transcripts of SQL operators: input rows, watermarks, and the expected changes.

Each runs with its batches as written, row by row, and with a restart from files after every batch.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from millstream.datastream import StreamExecutionEnvironment
from millstream.sql.columns.batch import Batch
from millstream.sql.errors import TableException
from millstream.sql.expressions import AggregateCall, Call, Column, Constant
from millstream.sql.operators.aggregate.group_aggregate import GroupAggregateOperator
from millstream.sql.operators.io.calc import CalcOperator, ExpandOperator
from millstream.sql.operators.io.constraints import ConstraintOperator, NotNull
from millstream.sql.operators.io.upsert_materializer import MaterializeOperator
from millstream.sql.operators.io.watermark_assigner import OnEventWatermarkOperator, RowWatermarkOperator
from millstream.sql.operators.join.correlate import CorrelateOperator
from millstream.sql.operators.join.regular_join import JoinOperator, JoinSide
from millstream.sql.operators.join.set_operation import SetOperationOperator
from millstream.sql.operators.query_context import Session
from millstream.sql.operators.rank.deduplicate import (
    EarliestRowOperator,
    FirstRowOperator,
    LastRowOperator,
    TopOneOperator,
)
from millstream.sql.operators.rank.sort import LimitOperator, SortOperator
from millstream.sql.operators.rank.top_n import AppendOnlyTopNOperator, TopNOperator
from millstream.sql.operators.row_kinds import FromChangelogOperator, ToChangelogOperator
from millstream.sql.operators.window.count_session_windows import (
    CountWindowOperator,
    SessionTableOperator,
    SessionWindowOperator,
)
from millstream.sql.operators.window.window_aggregate import WindowAggregateOperator, WindowTableOperator, WindowTimes
from millstream.sql.operators.window.windowing import Windowing
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import JoinKind, Planned, Traits, WindowKind
from millstream.sql.schema import ALL_CHANGES
from millstream.sql.types import DataTypes
from millstream.testing import CollectSink, LocalJob, ManualClock
from tests.support import sql_scripted
from tests.support.sql_runs import Bare, batch_of, changes_of, collecting, fields, input_node
from tests.support.sql_transcript import END, WAYS, Transcript, check, shown, steps_of

_INT, _TEXT, _TIME = pa.int64(), pa.string(), pa.timestamp("ms")
_BIGINT = DataTypes.BIGINT()
_COUNT, _SUM = AggregateCall("COUNT", (), _BIGINT), AggregateCall("SUM", (1,), _BIGINT)
_WINDOW = [("start", _TIME), ("end", _TIME)]


def _times(column: int = 0) -> WindowTimes:
    return WindowTimes(column, True, "UTC")


_is_above_2 = Call(DataTypes.BOOLEAN(), ">", (Column(_BIGINT, 0), Constant(_BIGINT, 2)))


def _joining(kind: JoinKind) -> JoinOperator:
    side = JoinSide((_INT, _TEXT), (0,))
    return JoinOperator(kind, side, side, (False,), None, Session())


TRANSCRIPTS = [
    Transcript(
        "a group restarts after its last row is retracted",
        lambda: GroupAggregateOperator(
            [0], [_COUNT, AggregateCall("SUM", (1,), DataTypes.DOUBLE())], [_TEXT, pa.float64()], retracts=True
        ),
        [_TEXT, pa.float64()],
        [
            (
                "+I a 1e16, +I a 1, -D a 1e16, -D a 1, +I a 2",
                "+I a 1 1e+16, -U a 1 1e+16, +U a 2 1e+16, -U a 2 1e+16, +U a 1 0.0, -D a 1 0.0, +I a 1 2.0",
            ),
        ],
    ),
    Transcript(
        "a calculation",
        lambda: CalcOperator([Column(_BIGINT, 1), Column(_BIGINT, 0)], _is_above_2, Session()),
        [_INT, _INT],
        [("+I 1 5, -U 2 5, +U 3 5, -D 9 -", "+U 5 3, -D - 9")],
    ),
    Transcript(
        "sums and counts by key",
        lambda: GroupAggregateOperator([0], [_COUNT, _SUM], [_TEXT, _INT]),
        [_TEXT, _INT],
        [
            ("+I a 1, +I b 2, +I a 3", "+I a 1 1, +I b 1 2, -U a 1 1, +U a 2 4"),
            ("+I - -, +I - 7, +I a 0", "+I - 1 -, -U - 1 -, +U - 2 7, -U a 2 4, +U a 3 4"),
        ],
    ),
    Transcript(
        "inner join",
        lambda: _joining(JoinKind.INNER),
        [_INT, _TEXT],
        [
            ("1+I 1 a, +I - b", ""),
            ("2+I 1 x, +I - y, +I 1 z", "+I 1 a 1 x, +I 1 a 1 z"),
            ("1-D 1 a, +I 1 c", "-D 1 a 1 x, -D 1 a 1 z, +I 1 c 1 x, +I 1 c 1 z"),
        ],
    ),
    Transcript(
        "left join",
        lambda: _joining(JoinKind.LEFT),
        [_INT, _TEXT],
        [
            ("1+I 1 a, +I - b", "+I 1 a - -, +I - b - -"),
            ("2+I 1 x, +I 1 y", "-D 1 a - -, +I 1 a 1 x, +I 1 a 1 y"),
            ("2-D 1 x", "-D 1 a 1 x"),
            ("2-D 1 y", "-D 1 a 1 y, +I 1 a - -"),
        ],
    ),
    Transcript(
        "full join",
        lambda: _joining(JoinKind.FULL),
        [_INT, _TEXT],
        [
            ("1+I 1 a", "+I 1 a - -"),
            ("2+I 2 x", "+I - - 2 x"),
            ("2+I 1 y", "-D 1 a - -, +I 1 a 1 y"),
            ("1+I 2 b, -D 1 a", "-D - - 2 x, +I 2 b 2 x, -D 1 a 1 y, +I - - 1 y"),
        ],
    ),
    Transcript(
        "semi join",
        lambda: _joining(JoinKind.SEMI),
        [_INT, _TEXT],
        [("1+I 1 a, +I 2 b", ""), ("2+I 1 x, +I 1 y", "+I 1 a"), ("2-D 1 x", ""), ("2-D 1 y", "-D 1 a")],
    ),
    Transcript(
        "anti join",
        lambda: _joining(JoinKind.ANTI),
        [_INT, _TEXT],
        [("1+I 1 a, +I 2 b", "+I 1 a, +I 2 b"), ("2+I 1 x, +I 1 y", "-D 1 a"), ("2-D 1 x, -D 1 y", "+I 1 a")],
    ),
    *(
        Transcript(
            name,
            lambda windowing=windowing: WindowAggregateOperator(  # type: ignore[misc]
                windowing, _times(2), [0], [_COUNT, _SUM], [_TEXT, _INT, _TIME], _WINDOW
            ),
            [_TEXT, _INT, _TIME],
            [("+I a 1 1, +I b 2 12, +I a 4 3", ""), (9, first), ("+I a 8 7, +I a 16 11", ""), (END, rest)],
        )
        for name, windowing, first, rest in (
            (
                "tumbling windows",
                Windowing(WindowKind.TUMBLE, 10, 10),
                "+I a 2 5 0 10",
                "+I b 1 2 10 20, +I a 1 16 10 20",
            ),
            (
                "cumulating windows",
                Windowing(WindowKind.CUMULATE, 10, 5),
                "+I a 2 5 0 5, +I a 2 5 0 10",
                "+I b 1 2 10 15, +I a 1 16 10 15, +I b 1 2 10 20, +I a 1 16 10 20",
            ),
        )
    ),
    *(
        Transcript(
            f"top 2 with rank, {way.__name__}",
            lambda way=way: way([0], [(1, True, False)], [_TEXT, _INT], 1, 2, True),  # type: ignore[misc]
            [_TEXT, _INT],
            [
                ("+I a 1, +I b 5, +I a 3", "+I a 1 1, +I b 5 1, -U a 1 1, +U a 3 1, +I a 1 2"),
                ("+I a 2, +I a 0", "-U a 1 2, +U a 2 2"),
                ("+I a 3", "-U a 2 2, +U a 3 2"),
            ],
        )
        for way in (TopNOperator, AppendOnlyTopNOperator)
    ),
    Transcript(
        "top 2 of inserts without rank",
        lambda: AppendOnlyTopNOperator([0], [(1, True, False)], [_TEXT, _INT], 1, 2, False),
        [_TEXT, _INT],
        [("+I a 1, +I a 3, +I a 2, +I a 0", "+I a 1, +I a 3, -D a 1, +I a 2"), ("+I a 9", "-D a 2, +I a 9")],
    ),
    Transcript(
        "top 2 without rank",
        lambda: TopNOperator([0], [(1, True, False)], [_TEXT, _INT], 1, 2, False),
        [_TEXT, _INT],
        [("+I a 1, +I a 3, +I a 2, +I a 0", "+I a 1, +I a 3, -D a 1, +I a 2"), ("+I a 9", "-D a 2, +I a 9")],
    ),
    Transcript(
        "second and third place",
        lambda: TopNOperator([], [(0, False, True)], [_INT], 2, 3, False),
        [_INT],
        [("+I 5, +I 4, +I 3, +I 9", "+I 5, -U 5, +U 4, +I 5"), ("+I 1", "-U 4, +U 3, -U 5, +U 4")],
    ),
    Transcript(
        "top 2 of retracted rows, with rank",
        lambda: TopNOperator([], [(0, False, True)], [_INT], 1, 2, True, retracts=True),
        [_INT],
        [
            ("+I 1, +I 2, +I 3", "+I 1 1, +I 2 2"),
            ("-D 1", "-U 1 1, +U 2 1, -U 2 2, +U 3 2"),
            ("-D 2, -D 3, -D 7", "-U 2 1, +U 3 1, -D 3 2, -D 3 1"),
        ],
    ),
    Transcript(
        "top 2 of retracted rows",
        lambda: TopNOperator([], [(0, False, True)], [_INT], 1, 2, False, retracts=True),
        [_INT],
        [("+I 1, +I 2, +I 3", "+I 1, +I 2"), ("-D 1, +I 0", "-D 1, +I 3, -D 3, +I 0")],
    ),
    Transcript(
        "top 1 of updating rows",
        lambda: TopNOperator([], [(1, True, False)], [_TEXT, _INT], 1, 1, False, retracts=True, unique=[0]),
        [_TEXT, _INT],
        [("+I a 1, +U b 2, +U a 1, +U b 3, +U a 4", "+I a 1, -D a 1, +I b 2, -U b 2, +U b 3, -D b 3, +I a 4")],
    ),
    Transcript(
        "top 1 of inserts",
        lambda: TopOneOperator([0], [(1, True, False)], [_TEXT, _INT, _INT]),
        [_TEXT, _INT, _INT],
        [
            ("+I a 1 0, +I a 3 1, +I a 3 2, +I b - 3", "+I a 1 0, -U a 1 0, +U a 3 1, +I b - 3"),
            ("+I a 3 4, +I b 1 5, +I b 0 6, +I a 4 7", "-U b - 3, +U b 1 5, -U a 3 1, +U a 4 7"),
        ],
    ),
    Transcript(
        "top 2 of updates that never lower the rank",
        lambda: TopNOperator([], [(1, True, False)], [_TEXT, _INT], 1, 2, True, unique=[0]),
        [_TEXT, _INT],
        [
            ("+I a 1, +I b 2, +I c 1", "+I a 1 1, -U a 1 1, +U b 2 1, +I a 1 2"),
            ("+U b 2, +U c 2", "-U b 2 1, +U b 2 1, -U a 1 2, +U c 2 2"),
            ("+U c 3", "-U b 2 1, -U c 2 2, +U c 3 1, +U b 2 2"),
        ],
    ),
    Transcript(
        "top 2 in batch",
        lambda: TopNOperator([0], [(1, True, False)], [_TEXT, _INT], 1, 2, True, final_only=True),
        [_TEXT, _INT],
        [("+I a 1, +I a 3, +I a 2, +I b 0", ""), ("end", "+I a 3 1, +I a 2 2, +I b 0 1")],
    ),
    Transcript(
        "sort at the end",
        lambda: SortOperator([(0, True, False), (1, False, True)], [_INT, _TEXT], 1, 3),
        [_INT, _TEXT],
        [("+I 1 b, +I 2 x, +I - y, +I 1 -, +I 1 a", ""), ("end", "+I 1 -, +I 1 a, +I 1 b")],
    ),
    Transcript(
        "sort by rowtime",
        lambda: SortOperator([(0, False, True), (1, True, False)], [_TIME, _INT], rowtime=0),
        [_TIME, _INT],
        [
            ("+I 5 1, +I 3 1, +I 3 2, +I 9 9", ""),
            (7, "+I 3 2, +I 3 1, +I 5 1"),
            # A row is late if it is not after the last emitted row, regardless of the watermark.
            ("+I 5 7, +I 6 7", ""),
            (END, "+I 6 7, +I 9 9"),
        ],
    ),
    Transcript("limit", lambda: LimitOperator(1, 2), [_INT], [("+I 1, +I 2", "+I 2"), ("+I 3, +I 4", "+I 3")]),
    Transcript(
        "upserts become changes",
        lambda: LastRowOperator([0], [_TEXT, _INT]),
        [_TEXT, _INT],
        [
            ("+I a 1, +U a 2, +U a 2, -D b -", "+I a 1, -U a 1, +U a 2"),
            ("+U b 5, -D a -, +U a 3", "+I b 5, -D a 2, +I a 3"),
            ("-D a -, -D a -, -D b -", "-D a 3, -D b 5"),
        ],
    ),
    Transcript(
        "last row of each key",
        lambda: LastRowOperator([0], [_TEXT, _INT], emits_equal=True),
        [_TEXT, _INT],
        [("+I a 1, +I - 1, +I a 1", "+I a 1, +I - 1, -U a 1, +U a 1")],
    ),
    Transcript(
        "last row of each key by rowtime",
        lambda: LastRowOperator([0], [_TEXT, _TIME], emits_equal=True, rowtime=1),
        [_TEXT, _TIME],
        [
            ("+I a 5, +I a 3, +I a 5, +I b 1", "+I a 5, -U a 5, +U a 5, +I b 1"),
            ("+I a 4, +I a 6", "-U a 5, +U a 6"),
        ],
    ),
    Transcript(
        "first row of each key",
        lambda: FirstRowOperator([0], [_TEXT, _INT]),
        [_TEXT, _INT],
        [("+I a 1, +I b 2, +I a 3", "+I a 1, +I b 2"), ("+I b 1, +I - 4", "+I - 4")],
    ),
    Transcript(
        "first row of each key by rowtime",
        lambda: EarliestRowOperator([0], [_TEXT, _TIME, _INT], 1),
        [_TEXT, _TIME, _INT],
        [
            ("+I a 5 1, +I b 9 2, +I a 3 3", ""),
            ("+I a 4 4, +I a 3 5", ""),
            (4, "+I a 3 3"),
            ("+I a 6 6, +I b 7 7, +I c 2 8", ""),
            (END, "+I b 7 7"),
        ],
    ),
    Transcript(
        "materialized row of each primary key",
        lambda: MaterializeOperator([0], [_TEXT, _INT]),
        [_TEXT, _INT],
        [
            ("+I a 1, +I a 2, -D a 1", "+I a 1, +U a 2"),
            ("+I a 3, -D a 3, -D a 2, -D a 9", "+U a 3, +U a 2, -D a 2"),
        ],
    ),
    Transcript(
        "intersect",
        lambda: SetOperationOperator("INTERSECT", False, [_INT]),
        [_INT],
        [("1+I 1, +I 2, +I -", ""), ("2+I 1, +I 1, +I -", "+I 1, +I -"), ("1-D 1, +I 1", "-D 1, +I 1"), ("2-D 1", "")],
    ),
    Transcript(
        "intersect all",
        lambda: SetOperationOperator("INTERSECT", True, [_INT]),
        [_INT],
        [("1+I 1, +I 1", ""), ("2+I 1, +I 1, +I 1", "+I 1, +I 1"), ("2-D 1, -D 1", "-D 1")],
    ),
    Transcript(
        "except",
        lambda: SetOperationOperator("EXCEPT", False, [_INT]),
        [_INT],
        [("1+I 1, +I 1, +I 2", "+I 1, +I 2"), ("2+I 1", "-D 1"), ("2-D 1", "+I 1")],
    ),
    Transcript(
        "except all",
        lambda: SetOperationOperator("EXCEPT", True, [_INT]),
        [_INT],
        [("1+I 1, +I 1", "+I 1, +I 1"), ("2+I 1", "-D 1"), ("1-D 1", "-D 1")],
    ),
    Transcript(
        "grouping sets",
        lambda: ExpandOperator(
            [
                (Column(_BIGINT, 0), Constant(_BIGINT, None), Constant(_BIGINT, 1)),
                (Constant(_BIGINT, None), Column(_BIGINT, 1), Constant(_BIGINT, 2)),
            ],
            [_INT, _INT, _INT],
            Session(),
        ),
        [_INT, _INT],
        [("+I 1 2, -D 3 4", "+I 1 - 1, +I - 2 2, -D 3 - 1, -D - 4 2")],
    ),
    Transcript(
        "sessions",
        lambda: SessionWindowOperator(5, _times(2), [0], [0], [_COUNT, _SUM], [_TEXT, _INT, _TIME], _WINDOW),
        [_TEXT, _INT, _TIME],
        [
            ("+I a 1 1, +I b 2 3, +I a 4 6, +I a 8 20", ""),
            (9, "+I b 1 2 3 8"),
            # The second row is late by itself, but its session is open.
            ("+I b 7 3, +I a 16 2", ""),
            (12, "+I a 3 21 1 11"),
            (END, "+I a 1 8 20 25"),
        ],
    ),
    Transcript(
        "a row merges two sessions",
        lambda: SessionWindowOperator(5, _times(2), [0], [0], [_COUNT], [_TEXT, _INT, _TIME], _WINDOW),
        [_TEXT, _INT, _TIME],
        [("+I a 1 0, +I a 1 10", ""), ("+I a 1 5", ""), (13, ""), (14, "+I a 3 0 15")],
    ),
    Transcript(
        "rows with their sessions",
        lambda: SessionTableOperator(5, _times(2), [0], [], [], [_TEXT, _INT, _TIME], _WINDOW),
        [_TEXT, _INT, _TIME],
        [
            ("+I a 1 1, +I b 2 3, +I a 4 6, +I a 8 20, +I b 3 1", ""),
            # A row retracted before its session ends is not emitted.
            ("-U a 4 6, +U a 5 6, -D b 3 1", ""),
            (9, "+I b 2 3 3 8"),
            ("+I b 7 3, +I a 16 2", ""),
            (12, "+I a 1 1 1 11, +I a 5 6 1 11, +I a 16 2 1 11"),
            (END, "+I a 8 20 20 25"),
        ],
    ),
    Transcript(
        "changes as rows",
        lambda: ToChangelogOperator([("INSERT", "i"), ("UPDATE_AFTER", "u"), ("DELETE", "d")]),
        [_TEXT, _INT],
        [("+I a 1, -U a 1, +U a 2", "+I i a 1, +I u a 2"), ("-U a 2", ""), ("-D a 2", "+I d a 2")],
    ),
    Transcript(
        "rows as changes",
        lambda: FromChangelogOperator(
            1, [("c", "INSERT"), ("r", "INSERT"), ("b", "UPDATE_BEFORE"), ("u", "UPDATE_AFTER")]
        ),
        [_INT, _TEXT, _INT],
        [("+I 1 c 2, +I 2 r 3", "+I 1 2, +I 2 3"), ("+I 1 b 2, +I 1 u 4", "-U 1 2, +U 1 4")],
    ),
    Transcript(
        "windows of two rows",
        lambda: CountWindowOperator(2, 2, WindowTimes(0, False, "UTC"), [0], [_COUNT, _SUM], [_TEXT, _INT]),
        [_TEXT, _INT],
        [("+I a 1, +I b 2, +I a 3, +I a 4", "+I a 2 4"), ("+I a 5, +I b 6, +I b 7", "+I a 2 9, +I b 2 8")],
    ),
    Transcript(
        "windows of three rows, every two",
        lambda: CountWindowOperator(3, 2, WindowTimes(0, False, "UTC"), [0], [_SUM], [_TEXT, _INT]),
        [_TEXT, _INT],
        [("+I a 1, +I a 2, +I a 3, +I a 4", "+I a 6"), ("+I a 5, +I a 6, +I a 7", "+I a 12, +I a 18")],
    ),
    Transcript(
        "rows with their windows",
        lambda: WindowTableOperator(Windowing(WindowKind.HOP, 10, 5), _times(0), [_TIME, _TIME, _TIME]),
        [_TIME],
        [("+I 7, +I 10", "+I 7 5 15 14, +I 7 0 10 9, +I 10 10 20 19, +I 10 5 15 14")],
    ),
    Transcript(
        "a window of retracted rows",
        lambda: WindowAggregateOperator(
            Windowing(WindowKind.TUMBLE, 10, 10),
            _times(2),
            [0],
            [_COUNT, _SUM],
            [_TEXT, _INT, _TIME],
            _WINDOW,
            retracts=True,
        ),
        [_TEXT, _INT, _TIME],
        [("+I a 1 1, +I b 2 2, -U a 1 1, +U a 5 1, -D b 2 2", ""), (9, "+I a 1 5 0 10")],
    ),
    Transcript(
        "hopping windows of retracted rows",
        lambda: WindowAggregateOperator(
            Windowing(WindowKind.HOP, 10, 5),
            _times(2),
            [0],
            [_COUNT, _SUM],
            [_TEXT, _INT, _TIME],
            _WINDOW,
            retracts=True,
        ),
        [_TEXT, _INT, _TIME],
        [("+I a 1 1, +I a 3 6, -U a 1 1, +U a 5 7", ""), (9, "+I a 2 8 0 10"), (END, "+I a 2 8 5 15")],
    ),
    Transcript(
        "rows with existing window columns",
        lambda: WindowAggregateOperator(
            Windowing(WindowKind.HOP, 10, 5),
            WindowTimes(2, True, "UTC", (1, 2)),
            [0],
            [_COUNT],
            [_TEXT, _TIME, _TIME],
            _WINDOW,
        ),
        [_TEXT, _TIME, _TIME],
        [("+I a 0 10, +I a 5 15, +I b 0 10, +I a 0 10", ""), (9, "+I a 2 0 10, +I b 1 0 10"), (END, "+I a 1 5 15")],
    ),
    Transcript(
        "rows without nulls",
        lambda: ConstraintOperator([NotNull([(0, "a")], drops=True)]),
        [_INT],
        [("+I 1, +I -, -D 2", "+I 1, -D 2")],
    ),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda t: t.name)
def test_operator_transcript(transcript: Transcript, way: str) -> None:
    check(transcript, way)


@pytest.mark.parametrize("mini_batch", [False, True])
def test_distinct_aggregate_with_a_filter_no_row_of_a_batch_passes(mini_batch: bool) -> None:
    kinds = [_TEXT, _INT, pa.bool_()]
    call = AggregateCall("COUNT", (1,), _BIGINT, True, 2)
    bare = Bare(GroupAggregateOperator([0], [call], kinds, mini_batch=mini_batch))
    bare.take(batch_of([("+I", "a", 1, False), ("+I", "a", 1, None)], kinds))
    bare.take(batch_of([("+I", "a", 1, True), ("+I", "a", 2, False)], kinds))
    assert bare.changes() == [("+I", "a", 0), ("-U", "a", 0), ("+U", "a", 1)]


def in_jobs(env: StreamExecutionEnvironment) -> dict[str, CollectSink]:
    """Add all transcripts to a program, each with its own source and sink."""
    return {
        t.name: sql_scripted.add(env, t.name, t.operator, t.kinds, [s for s in steps_of(t) if s != "end"])
        for t in TRANSCRIPTS
    }


def written(name: str) -> str:
    """Return all changes of a transcript, over all its steps."""
    (transcript,) = (t for t in TRANSCRIPTS if t.name == name)
    return ", ".join(out for _, out in transcript.steps if out)


def test_operator_transcripts_as_jobs() -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    sinks = in_jobs(env)
    LocalJob(env).run()
    assert {name: shown(sink.results()) for name, sink in sinks.items()} == {name: written(name) for name in sinks}


def test_not_null_constraint_error_names_the_column() -> None:
    bare = Bare(ConstraintOperator([NotNull([(0, "a")], drops=False)]))
    with pytest.raises(TableException, match="Column 'a' is NOT NULL, however, a null value is being written into it"):
        bare.take(batch_of([("+I", None)], [_INT]))


# --- watermarks


def _watermarks() -> Bare:
    stamp = DataTypes.TIMESTAMP(3)
    delayed = Call(stamp, "-", (Column(stamp, 0), Constant(DataTypes.INTERVAL(DataTypes.SECOND(3)), 1000)))
    return Bare(RowWatermarkOperator(0, delayed, Session()))


def _run_times(bare: Bare, times: list[int], batch_rows: int) -> list[Any]:
    """Return the output: times of rows, and watermarks in lists."""
    log: list[Any] = []
    assert isinstance(bare.operator, RowWatermarkOperator)
    bare.operator.advance = lambda w: log.append([w])
    operator: Any = bare.operator
    for start in range(0, len(times), batch_rows):
        for batch in operator.process(batch_of([("+I", t) for t in times[start : start + batch_rows]], [_TIME])):
            log += batch.columns[0].view(pa.int64()).to_pylist()
    return log


def test_row_watermark_precedes_a_late_row() -> None:
    assert _run_times(_watermarks(), [5000, 6000, 4000, 9000], 10) == [5000, 6000, [5000], 4000, 9000, [8000]]


@pytest.mark.parametrize("batch_rows", [1, 2, 3, 100])
def test_row_watermark_lateness_is_independent_of_batches(batch_rows: int) -> None:
    times = [5000, 5100, 5150, 5250, 4099, 4101, 4240, 7000, 5999, 6000, 6001, 20000, 100]
    late, watermark = [], 0
    for one in _run_times(_watermarks(), times, batch_rows):
        if isinstance(one, list):
            watermark = one[0]
        elif one <= watermark:
            late.append(one)
    # Watermarks advance when time has advanced by more than 200 ms: 4000, 4250 after 5250, 6000, 19000.
    assert late == [4099, 4101, 4240, 5999, 6000, 100]


def test_row_watermark_rejects_a_null_rowtime() -> None:
    with pytest.raises(TableException, match="RowTime field should not be null"):
        _run_times(_watermarks(), [None], 1)  # type: ignore[list-item]


def test_row_watermark_delayed_is_emitted_without_rows() -> None:
    now = [0]
    stamp = DataTypes.TIMESTAMP(3)
    bare = Bare(RowWatermarkOperator(0, Column(stamp, 0), Session()), clock=lambda: now[0])
    log: list[Any] = []
    assert isinstance(bare.operator, RowWatermarkOperator)
    bare.operator.advance = log.append
    bare.take(batch_of([("+I", 5000), ("+I", 5150)], [_TIME]))
    assert log == [5000]
    # Regardless of the length of the epoch.
    now[0] = 1000
    bare.operator.on_processing_time()
    bare.operator.runtime_snapshot()
    bare.operator.on_processing_time()
    assert log == [5000]
    bare.operator.runtime_snapshot()
    bare.operator.on_processing_time()
    assert log == [5000, 5150]


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_on_event_watermark_follows_every_row(batch_rows: int) -> None:
    stamp = DataTypes.TIMESTAMP(3)
    bare = Bare(OnEventWatermarkOperator(0, Column(stamp, 0), Session()))
    assert _run_times(bare, [-5, 0, 3, 2, 4], batch_rows) == [-5, [-5], 0, [0], 3, [3], 2, 4, [4]]
    # Downstream operators in another process receive it again.
    other = Bare(OnEventWatermarkOperator(0, Column(stamp, 0), Session()))
    other.operator.restore(bare.operator.runtime_snapshot())
    assert _run_times(other, [4, 1, 7], batch_rows) == [4, 1, 7, [7]]


# --- table functions


def _unnest(types: list[Any], kind: Any, **more: Any) -> Bare:
    return Bare(CorrelateOperator("UNNEST", [Column(kind, 1)], types, Session(), **more))


def test_unnest_of_arrays() -> None:
    kinds = [_INT, pa.list_(pa.string())]
    rows = [("+I", 1, ["a", None]), ("-D", 2, []), ("+I", 3, None), ("-D", 4, ["b"])]
    bare = _unnest([DataTypes.STRING(), DataTypes.INT()], DataTypes.ARRAY(DataTypes.STRING()), ordinality=True)
    bare.take(batch_of(rows, kinds))
    assert [(c[0], c[1], *c[3:]) for c in bare.changes()] == [
        ("+I", 1, "a", 1),
        ("+I", 1, None, 2),
        ("-D", 4, "b", 1),
    ]
    bare = _unnest([DataTypes.STRING()], DataTypes.ARRAY(DataTypes.STRING()), is_outer=True)
    bare.take(batch_of(rows, kinds))
    assert [(c[0], c[1], c[3]) for c in bare.changes()] == [
        ("+I", 1, "a"),
        ("+I", 1, None),
        ("-D", 2, None),
        ("+I", 3, None),
        ("-D", 4, "b"),
    ]


def test_unnest_of_maps_multisets_and_rows() -> None:
    bare = _unnest([DataTypes.STRING(), DataTypes.INT()], DataTypes.MAP(DataTypes.STRING(), DataTypes.INT()))
    bare.take(batch_of([("+I", 1, [("a", 2), ("b", None)])], [_INT, pa.map_(pa.string(), pa.int32())]))
    assert [c[3:] for c in bare.changes()] == [("a", 2), ("b", None)]
    bare = _unnest([DataTypes.STRING()], DataTypes.MULTISET(DataTypes.STRING()))
    bare.take(
        batch_of([("+I", 1, [("a", 2), ("b", 1)]), ("+I", 2, [("c", 1)])], [_INT, pa.map_(pa.string(), pa.int32())])
    )
    assert [(c[1], *c[3:]) for c in bare.changes()] == [(1, "a"), (1, "a"), (1, "b"), (2, "c")]
    row = DataTypes.ROW([DataTypes.FIELD("x", _BIGINT), DataTypes.FIELD("y", DataTypes.STRING())])
    bare = _unnest([_BIGINT, DataTypes.STRING()], DataTypes.ARRAY(row))
    kind = pa.list_(pa.struct([("x", pa.int64()), ("y", pa.string())]))
    bare.take(batch_of([("+I", 1, [{"x": 1, "y": "a"}, {"x": None, "y": "b"}])], [_INT, kind]))
    assert [c[3:] for c in bare.changes()] == [(1, "a"), (None, "b")]


# --- processing time


def test_group_aggregate_state_expires_when_untouched() -> None:
    now = [1000]
    kinds = [_TEXT, _INT]
    operator = GroupAggregateOperator(
        [0], [_COUNT, AggregateCall("COUNT", (1,), _BIGINT, distinct=True)], kinds, ttl=50
    )
    bare = Bare(operator, clock=lambda: now[0])
    bare.take(batch_of([("+I", "a", 1), ("+I", "b", 1)], kinds))
    now[0] = 1040
    bare.take(batch_of([("+I", "a", 1)], kinds))
    bare.restart()
    now[0] = 1060
    bare.take(batch_of([("+I", "a", 1), ("+I", "b", 1)], kinds))
    assert bare.changes() == [
        ("+I", "a", 1, 1),
        ("+I", "b", 1, 1),
        ("-U", "a", 1, 1),
        ("+U", "a", 2, 1),
        ("-U", "a", 2, 1),
        ("+U", "a", 3, 1),
        ("+I", "b", 1, 1),
    ]


def test_first_row_state_expires_from_its_arrival() -> None:
    now = [0]
    bare = Bare(FirstRowOperator([0], [_TEXT, _INT], ttl=50), clock=lambda: now[0])
    for time in (0, 40, 50, 60):
        now[0] = time
        bare.take(batch_of([("+I", "a", time)], [_TEXT, _INT]))
        bare.restart()
    assert [c[2] for c in bare.changes()] == [0, 50]


def test_upsert_materializer_state_expires() -> None:
    now = [0]
    bare = Bare(MaterializeOperator([0], [_TEXT, _INT], ttl=50), clock=lambda: now[0])
    for time, kind, value in ((0, "+I", 1), (40, "+I", 2), (80, "-D", 2), (140, "-D", 1)):
        now[0] = time
        bare.take(batch_of([(kind, "a", value)], [_TEXT, _INT]))
    assert bare.changes() == [("+I", "a", 1), ("+U", "a", 2), ("+U", "a", 1)]


def test_top_n_partition_state_expires() -> None:
    now = [0]
    operator = TopNOperator([0], [(1, True, False)], [_TEXT, _INT], 1, 2, True, ttl=50)
    bare = Bare(operator, clock=lambda: now[0])
    for time, key in ((0, "a"), (40, "b"), (49, "a"), (90, "b"), (98, "a")):
        now[0] = time
        bare.take(batch_of([("+I", key, time)], [_TEXT, _INT]))
    assert [c[3] for c in bare.changes() if c[0] == "+I"] == [1, 1, 2, 1]


def test_join_state_expires() -> None:
    now = [0]
    side = JoinSide((_INT,), (0,))
    bare = Bare(JoinOperator(JoinKind.INNER, side, side, (False,), None, Session(), ttl=50), clock=lambda: now[0])
    bare.take(batch_of([("+I", 1)], [_INT]), 0)
    now[0] = 30
    bare.take(batch_of([("+I", 2)], [_INT]), 0)
    bare.restart()
    now[0] = 50
    bare.take(batch_of([("+I", 1), ("+I", 2)], [_INT]), 1)
    assert bare.changes() == [("+I", 2, 2)]


def test_join_sides_have_separate_ttl() -> None:
    now = [0]
    sides = JoinSide((_INT,), (0,), ttl=20), JoinSide((_INT,), (0,))
    bare = Bare(JoinOperator(JoinKind.INNER, *sides, (False,), None, Session(), ttl=50), clock=lambda: now[0])
    for side in (0, 1):
        bare.take(batch_of([("+I", 1 + side)], [_INT]), side)
    bare.restart()
    now[0] = 30
    bare.take(batch_of([("+I", 2)], [_INT]), 0)
    bare.take(batch_of([("+I", 1)], [_INT]), 1)
    assert bare.changes() == [("+I", 2, 2)]


def test_set_operation_counts_expire() -> None:
    now = [0]
    bare = Bare(SetOperationOperator("INTERSECT", True, [_INT], ttl=50), clock=lambda: now[0])
    for time, side, row in ((0, 0, 1), (0, 0, 2), (30, 0, 2), (40, 0, 3)):
        now[0] = time
        bare.take(batch_of([("+I", row)], [_INT]), side)
    bare.restart()
    now[0] = 60
    # 1 has expired; all rows of the count of 2 live as long as its last row.
    bare.take(batch_of([("+I", 1), ("+I", 2), ("+I", 2), ("+I", 3)], [_INT]), 1)
    assert bare.changes() == [("+I", 2), ("+I", 2), ("+I", 3)]


@pytest.mark.parametrize(
    ("operator", "ttl", "expected"),
    [
        ("INTERSECT", 50, ["+I 1"]),
        ("INTERSECT", 0, ["+I 1", "+I 2"]),
        ("EXCEPT", 50, ["+I 1", "+I 2"]),
        ("EXCEPT", 0, ["+I 1", "+I 2", "-D 1", "-D 2"]),
    ],
)
def test_set_operation_sides_expire_separately(operator: str, ttl: int, expected: list[str]) -> None:
    """As in Flink's joins and set operations: an expired left row does not match a later right row."""
    clock, columns = ManualClock(), fields(x=DataTypes.INT())
    left, right = input_node(columns, uid="left"), input_node(columns, uid="right")
    query = Planned(
        nodes.SetOperation(columns, left.node, right.node, operator, False),
        (left, right),
        Traits(ALL_CHANGES, state_ttl=ttl),
        "set",
        "set",
    )

    def rows(*values: int) -> list[Batch]:
        return [batch_of([("+I", v)], [pa.int32()]) if v else Batch([pa.array([], pa.int32())]) for v in values]

    env, sink = collecting(query, [(left, rows(1, 2, 0, 1)), (right, rows(0, 0, 1, 2))])
    job = LocalJob(env, clock, epoch_sizes=lambda: 1)
    for _ in range(4):
        job.run_epoch()
        clock.advance(30)
    job.run()
    reported = [" ".join(map(str, change)) for change in changes_of(sink.results())]
    assert reported == expected


def test_processing_time_window_fires_by_the_clock() -> None:
    now = [3]
    times = WindowTimes(1, False, "UTC")
    operator = WindowAggregateOperator(
        Windowing(WindowKind.TUMBLE, 10, 10), times, [0], [_COUNT], [_TEXT, pa.timestamp("ms", "UTC")], _WINDOW
    )
    bare = Bare(operator, clock=lambda: now[0])
    batch = batch_of([("+I", "a", None)], [_TEXT, pa.timestamp("ms", "UTC")])
    bare.take(batch)
    assert operator.next_wake() == 9
    now[0] = 8
    operator.on_processing_time()
    bare.take(batch)
    assert bare.out == []
    now[0] = 9
    operator.on_processing_time()
    assert shown(bare.out) == "+I a 2 0 10"
    assert operator.next_wake() is None


def test_window_over_timestamp_ltz_uses_the_session_time_zone() -> None:
    stamp = pa.timestamp("ms", "UTC")
    hour = 3_600_000
    operator = WindowAggregateOperator(
        Windowing(WindowKind.TUMBLE, 24 * hour, 24 * hour),
        WindowTimes(1, True, "Europe/Berlin"),
        [],
        [_COUNT],
        [_TEXT, stamp],
        [("start", pa.timestamp("ms")), ("end", pa.timestamp("ms")), ("rowtime", stamp)],
    )
    bare = Bare(operator)
    # 2024-03-31, when the day has 23 hours: from 23:00 of the day before to 22:00.
    first = 19812 * 24 * hour + 23 * hour
    rows = [("+I", "a", t) for t in (first - 1, first, first + 23 * hour - 1, first + 23 * hour)]
    bare.take(batch_of(rows, [_TEXT, stamp]))
    operator.on_watermark(first + 23 * hour - 1)
    day = 24 * hour
    assert shown(bare.out) == (
        f"+I 1 {19812 * day} {19813 * day} {first - 1}, +I 2 {19813 * day} {19814 * day} {first + 23 * hour - 1}"
    )
