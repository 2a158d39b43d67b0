"""Transcripts of operators that depend on time: window rows, interval joins and temporal joins."""

from __future__ import annotations

import pyarrow as pa
import pytest

from millstream.sql.expressions import AggregateCall, Call, Column
from millstream.sql.operators.join.interval_join import IntervalJoinOperator
from millstream.sql.operators.join.regular_join import JoinSide
from millstream.sql.operators.join.temporal_join import TemporalJoinOperator
from millstream.sql.operators.query_context import Session
from millstream.sql.operators.window.buffered_window import BufferedInput, WindowJoinOperator, WindowRankOperator
from millstream.sql.operators.window.early_late_fire import FiringWindowOperator
from millstream.sql.operators.window.window_aggregate import WindowTimes
from millstream.sql.operators.window.windowing import Windowing
from millstream.sql.plan.nodes import Fires, JoinKind, WindowKind
from millstream.sql.types import DataTypes
from tests.support.sql_runs import Bare, batch_of
from tests.support.sql_transcript import END, WAYS, Transcript, check, shown

_INT, _TEXT, _TIME = pa.int64(), pa.string(), pa.timestamp("ms")
_ENDS = WindowTimes(2, True, "UTC", (2, 2))


def _rank(
    order: list[tuple[int, bool, bool]], first: int, last: int, shows: bool, last_wins: bool = False
) -> Transcript:
    kinds = [_TEXT, _INT, _TIME]
    return Transcript(
        "", lambda: WindowRankOperator(_ENDS, 2, [0, 2], order, kinds, first, last, shows, last_wins), kinds
    )


def _steps(transcript: Transcript, name: str, *steps: tuple[str | int, str]) -> Transcript:
    transcript.name, transcript.steps = name, list(steps)
    return transcript


def _window_join(kind: JoinKind, name: str, *steps: tuple[str | int, str]) -> Transcript:
    kinds = [_INT, _INT, _TIME]

    def operator() -> WindowJoinOperator:
        side = BufferedInput(kinds, [0, 2], 2)
        return WindowJoinOperator(kind, _ENDS, side, side, (False, False), None, Session())

    return Transcript(name, operator, kinds, list(steps))


def _interval(
    kind: JoinKind, lower: int, upper: int, name: str, *steps: tuple[str | int, str], condition: bool = False
) -> Transcript:
    kinds = (_INT, _INT, _TIME)
    bigint = DataTypes.BIGINT()
    less = Call(DataTypes.BOOLEAN(), "<", (Column(bigint, 1), Column(bigint, 4))) if condition else None

    def operator() -> IntervalJoinOperator:
        side = JoinSide(kinds, (0,))
        return IntervalJoinOperator(kind, side, side, (2, 2), lower, upper, (False,), less, Session())

    return Transcript(name, operator, list(kinds), list(steps))


def _temporal(keeps_all: bool, name: str, *steps: tuple[str | int, str]) -> Transcript:
    kinds = (_INT, _INT, _TIME)

    def operator() -> TemporalJoinOperator:
        side = JoinSide(kinds, (0,))
        return TemporalJoinOperator(side, side, (2, 2), keeps_all, (False,), None, Session())

    return Transcript(name, operator, list(kinds), list(steps))


def _firing(fires: Fires, name: str, *steps: tuple[str | int, str]) -> Transcript:
    kinds = [_TEXT, _INT, _TIME]
    calls = [AggregateCall("SUM", (1,), DataTypes.BIGINT()), AggregateCall("COUNT", (1,), DataTypes.BIGINT(), True)]
    windowing, properties = Windowing(WindowKind.TUMBLE, 10, 10), [("end", _TIME)]
    return Transcript(
        name,
        lambda: FiringWindowOperator(windowing, WindowTimes(2, True, "UTC"), [0], calls, kinds, properties, fires),
        kinds,
        list(steps),
    )


TRANSCRIPTS = [
    _firing(
        Fires(True, 0),
        "a window fires with every row before its end",
        ("+I a 1 1, +I b 2 3, +I a 1 2, +I a 0 12", "+I a 1 1 10, +I b 2 1 10, -U a 1 1 10, +U a 2 1 10, +I a 0 1 20"),
        (9, ""),
        ("+I a 5 9, +I a - 13", ""),
        (END, ""),
    ),
    _firing(
        Fires(False, 5),
        "a window fires at its end, and then for late rows",
        ("+I a 1 1, +I a 2 3, +I b 7 12", ""),
        (9, "+I a 3 2 10"),
        ("+I a 2 4, +I c 1 9, +I c 1 11", "-U a 3 2 10, +U a 5 2 10, +I c 1 1 10"),
        (14, ""),
        ("+I a 2 4", ""),
        (END, "+I b 7 1 20, +I c 1 1 20"),
    ),
    _steps(
        _rank([(1, True, False)], 1, 2, True),
        "the first two rows of each window at its end",
        ("+I a 1 10, +I a 3 10, +I b 5 10, +I a 2 10, +I a 9 20", ""),
        (8, ""),
        (9, "+I a 3 10 1, +I a 2 10 2, +I b 5 10 1"),
        ("+I a 7 10, +I a 9 20", ""),
        (END, "+I a 9 20 1, +I a 9 20 2"),
    ),
    _steps(
        _rank([(1, False, True)], 2, 2, False),
        "the second row of each window",
        ("+I a 4 10, +I a - 10, +I a 6 10, +I b 1 10", ""),
        (END, "+I a 4 10"),
    ),
    _steps(
        _rank([(1, True, False)], 1, 1, False, last_wins=True),
        "the last of rows with equal times is the last row",
        ("+I a 4 10, +I a 3 10, +I a 4 10, +I b 1 20", ""),
        (9, "+I a 4 10"),
        (19, "+I b 1 20"),
    ),
    _window_join(
        JoinKind.FULL,
        "rows of the same window and key join at its end",
        ("1+I 1 10 10, +I 2 11 10, +I - 12 10, +I 1 13 20", ""),
        ("2+I 1 20 10, +I 1 21 10, +I - 22 10, +I 1 23 30", ""),
        (9, "+I 1 10 10 1 20 10, +I 1 10 10 1 21 10, +I 2 11 10 - - -, +I - 12 10 - - -, +I - - - - 22 10"),
        ("1+I 1 14 10", ""),
        (19, "+I 1 13 20 - - -"),
        (END, "+I - - - 1 23 30"),
    ),
    _window_join(
        JoinKind.SEMI,
        "rows with a partner in their window",
        ("1+I 1 10 10, +I 2 11 10, +I 1 12 10", ""),
        ("2+I 1 20 10, +I 1 21 10, +I 2 20 20", ""),
        (END, "+I 1 10 10, +I 1 12 10"),
    ),
    _window_join(
        JoinKind.ANTI,
        "rows without a partner in their window",
        ("1+I 1 10 10, +I 2 11 10, +I - 12 10", ""),
        ("2+I 1 20 10, +I 2 20 20", ""),
        (END, "+I 2 11 10, +I - 12 10"),
    ),
    _interval(
        JoinKind.INNER,
        -2,
        3,
        "rows whose times are within the bounds",
        ("1+I 1 10 100, +I 2 11 100", ""),
        ("2+I 1 20 97, +I 1 21 98, +I 1 22 103, +I 1 23 104", "+I 1 10 100 1 21 98, +I 1 10 100 1 22 103"),
        # A row is retained for its bound plus half the distance of the bounds.
        (105, ""),
        ("2+I 1 24 101", "+I 1 10 100 1 24 101"),
        (106, ""),
        ("2+I 1 25 101", ""),
    ),
    _interval(
        JoinKind.FULL,
        -2,
        3,
        "rows without a match are emitted when they expire",
        ("1+I 1 10 100, +I - 11 100", ""),
        ("2+I 1 20 110, +I - 21 101", ""),
        (105, ""),
        (106, "+I 1 10 100 - - -, +I - 11 100 - - -, +I - - - - 21 101"),
        ("1+I 1 12 90", "+I 1 12 90 - - -"),
        ("1+I 1 13 108", "+I 1 13 108 1 20 110"),
        (END, ""),
    ),
    _interval(
        JoinKind.LEFT,
        0,
        10,
        "a partner must also satisfy the condition",
        ("1+I 1 10 100, +I 1 30 100", ""),
        ("2+I 1 20 105", "+I 1 10 100 1 20 105"),
        (END, "+I 1 30 100 - - -"),
        condition=True,
    ),
    _temporal(
        True,
        "the version at the time of the row",
        ("2+I 1 10 100, +I 1 11 105, +I 2 20 100", ""),
        ("1+I 1 1 104, +I 1 2 105, +I 1 3 99, +I 3 4 100, +I 2 5 120, +I - 6 101", ""),
        (
            110,
            "+I 1 1 104 1 10 100, +I 1 2 105 1 11 105, +I 1 3 99 - - -, +I 3 4 100 - - -, +I - 6 101 - - -",
        ),
        ("2-D 2 20 115, +U 1 12 108, +U 2 21 130", ""),
        # The version valid at that time is expired; the last one before the watermark is retained.
        ("1+I 1 7 104, +I 1 8 109, +I 2 9 114", ""),
        (125, "+I 2 5 120 - - -, +I 1 7 104 - - -, +I 1 8 109 1 12 108, +I 2 9 114 2 20 100"),
    ),
    _temporal(
        False,
        "rows without a version are dropped, and changes retain their kinds",
        ("1+I 1 1 100, -U 1 2 100, +U 1 3 101, -D 1 4 90", ""),
        ("2+I 1 10 100, +U 1 11 100", ""),
        (END, "+I 1 1 100 1 11 100, -U 1 2 100 1 11 100, +U 1 3 101 1 11 100"),
    ),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda t: t.name)
def test_window_operator_transcript(transcript: Transcript, way: str) -> None:
    check(transcript, way)


def test_interval_join_watermark_waits_for_older_pairs() -> None:
    operator = _interval(JoinKind.INNER, -2, 3, "").operator()
    bare = Bare(operator)
    assert [bare.operator.on_watermark(w) for w in (100, END)] == [95, END]


def test_window_rank_discards_rows_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.sql.operators.window.buffered_window._TRIM_ROWS", 4)
    kinds = [_TEXT, _INT, _TIME]
    operator = WindowRankOperator(_ENDS, 2, [0, 2], [(1, True, False)], kinds, 1, 2, True)
    bare = Bare(operator)
    for start in range(0, 40, 5):
        bare.take(batch_of([("+I", "a", v, 10) for v in range(start, start + 5)], kinds))
    assert len(operator._rows[0]) < 9
    bare.restart()
    operator.on_watermark(9)
    assert [c[2] for c in bare.changes()] == [39, 38]


def test_interval_join_in_processing_time_follows_the_clock() -> None:
    now = [100]
    side = JoinSide((_INT, _INT), (0,))
    operator = IntervalJoinOperator(JoinKind.LEFT, side, side, None, -5, 5, (False,), None, Session())
    bare = Bare(operator, clock=lambda: now[0])
    bare.take(batch_of([("+I", 1, 10), ("+I", 2, 11)], [_INT, _INT]), 0)
    now[0] = 105
    bare.take(batch_of([("+I", 1, 20)], [_INT, _INT]), 1)
    assert shown(bare.out) == "+I 1 10 1 20" and operator.next_wake() == 111
    bare.out = []
    now[0] = 111
    operator.on_processing_time()
    assert shown(bare.out) == "+I 2 11 - -"


def test_temporal_join_discards_outdated_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.sql.operators.join.temporal_join._TRIM_ROWS", 8)
    side = JoinSide((_INT, _INT, _TIME), (0,))
    operator = TemporalJoinOperator(side, side, (2, 2), False, (False,), None, Session())
    bare = Bare(operator)
    for time in range(40):
        bare.take(batch_of([("+I", 1, time, time)], [_INT, _INT, _TIME]), 1)
        operator.on_watermark(time)
    assert len(operator._versions) < 10
    bare.take(batch_of([("+I", 1, 7, 45)], [_INT, _INT, _TIME]), 0)
    operator.on_watermark(50)
    assert shown(bare.out) == "+I 1 7 45 1 39 39"
