"""Parameters of plan nodes that operators use too: windows, OVER frames, join kinds, patterns."""

from __future__ import annotations

from enum import Enum

from millstream.common.fast_dataclass import record
from millstream.sql.expressions import AggregateCall, Expression
from millstream.sql.types import DataType


class JoinKind(Enum):
    """Which rows a join keeps that have no partner, or whether it is about partners only."""

    INNER = "InnerJoin"
    LEFT = "LeftOuterJoin"
    RIGHT = "RightOuterJoin"
    FULL = "FullOuterJoin"
    SEMI = "LeftSemiJoin"
    ANTI = "LeftAntiJoin"


class WindowKind(Enum):
    """How windows follow each other."""

    TUMBLE = "TUMBLE"
    HOP = "HOP"
    CUMULATE = "CUMULATE"
    SESSION = "SESSION"


@record
class WindowSpec:
    """Windows in time, in milliseconds.

    Attributes:
        kind: how they follow each other.
        time: the time attribute's column.
        is_event_time: whether that is a rowtime, not processing time.
        size: of TUMBLE and HOP, the longest of CUMULATE, the gap of SESSION.
        step: the slide of HOP, the step of CUMULATE; else 0.
        offset: by which windows are shifted.
        partition: of SESSION, the columns it is partitioned by.
        are_points: whether its times are points in time (TIMESTAMP_LTZ), and windows are those of a zone's clock; said
            only where rows have been given their windows already.
    """

    kind: WindowKind
    time: int
    is_event_time: bool
    size: int
    step: int = 0
    offset: int = 0
    partition: tuple[int, ...] = ()
    are_points: bool = False


@record
class Fires:
    """When windows are told besides at their end.

    Attributes:
        early: whether with every row before it.
        lateness: how long behind it rows still count, in milliseconds; each tells the window anew.
    """

    early: bool
    lateness: int


@record
class PeriodicFires(Fires):
    """When windows are told by the clock; apart from `Fires`, by whose form state of jobs without a delay is found.

    Attributes:
        early_delay: how long after a window's first row it is told before its end, and how often from then on, in
            milliseconds; 0 for never: then `early` counts.
        late_delay: the same of rows behind its end; 0 where each of them tells the window anew.
    """

    early_delay: int
    late_delay: int


@record
class OverSpec:
    """An OVER: what a frame is and which aggregates are over it.

    Attributes:
        partition: the columns to partition by.
        order: (column, descending, nulls first).
        rows: whether the frame counts rows, not values.
        start, end: how far from the row, in rows or milliseconds, negative before it; None is unbounded.
        calls: the aggregates, ROW_NUMBER, RANK, LAG and so on.
    """

    partition: tuple[int, ...]
    order: tuple[tuple[int, bool, bool], ...]
    rows: bool
    start: int | None
    end: int | None
    calls: tuple[AggregateCall, ...]


@record
class MatchStep:
    """A variable of a pattern and how often its rows come, one behind the other; `most` None is without end."""

    variable: str
    least: int
    most: int | None
    reluctant: bool


@record
class Reference:
    """What an expression of MATCH_RECOGNIZE asks of rows that variables have taken.

    Attributes:
        function: FIRST, LAST, AGGREGATE, or ROWTIME for the time of the match.
        variable: whose rows; None for those of all.
        column: the column of the row, of FIRST and LAST.
        offset: so many rows from the first, or from the last.
        type: of the value.
        call: the aggregate, over columns of the row.
    """

    function: str
    variable: str | None
    column: int
    offset: int
    type: DataType
    call: AggregateCall | None = None


@record
class Definition:
    """When a variable takes a row: a condition whose columns are references."""

    variable: str
    condition: Expression
    references: tuple[Reference, ...]


class JoinStrategy(Enum):
    """How a join finds its pairs in BATCH; the value is Flink's name of the operator."""

    HASH = "HashJoin"
    MERGE = "SortMergeJoin"
    LOOP = "NestedLoopJoin"


@record
class MatchSpec:
    """The pattern of MATCH_RECOGNIZE as its operator needs it; see `logical.Match` for the attributes."""

    partition: tuple[int, ...]
    order: tuple[tuple[int, bool, bool], ...]
    is_event_time: bool
    steps: tuple[MatchStep, ...]
    skip: tuple[str, ...]
    within: int | None
    definitions: tuple[Definition, ...]
    references: tuple[Reference, ...]
    measures: tuple[Expression, ...]


@record
class Retry:
    """How often a look-up that finds nothing is tried again, and how many seconds later each time."""

    attempts: int
    seconds: float
