"""Parameters of plan nodes that operators use too: windows, OVER frames, join kinds, patterns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from millstream.common.fast_dataclass import fast_dataclass
from millstream.graph.transformations import UpstreamEdge
from millstream.sql.expressions import AggregateCall, Expression
from millstream.sql.types import DataType


class JoinKind(Enum):
    """The type of a join; the value is Flink's name."""

    INNER = "InnerJoin"
    LEFT = "LeftOuterJoin"
    RIGHT = "RightOuterJoin"
    FULL = "FullOuterJoin"
    SEMI = "LeftSemiJoin"
    ANTI = "LeftAntiJoin"


class WindowKind(Enum):
    """The type of a time window."""

    TUMBLE = "TUMBLE"
    HOP = "HOP"
    CUMULATE = "CUMULATE"
    SESSION = "SESSION"


@fast_dataclass
class WindowSpec:
    """Time windows; durations in milliseconds.

    Attributes:
        kind: the type.
        time: the time attribute's column.
        is_event_time: whether the time attribute is a rowtime.
        size: the size of TUMBLE and HOP, the maximum size of CUMULATE, the gap of SESSION.
        step: the slide of HOP, the step of CUMULATE; else 0.
        offset: the offset of window starts.
        partition: the partition columns of SESSION.
        are_points: whether times are TIMESTAMP_LTZ and windows align with the session time zone; set only where
            windows are already assigned.
    """

    kind: WindowKind
    time: int
    is_event_time: bool
    size: int
    step: int = 0
    offset: int = 0
    partition: tuple[int, ...] = ()
    are_points: bool = False


@fast_dataclass
class Fires:
    """When windows fire besides at their end.

    Attributes:
        early: whether every row before the end fires.
        lateness: the allowed lateness in milliseconds; each late row fires again.
    """

    early: bool
    lateness: int


@fast_dataclass
class PeriodicFires(Fires):
    """When windows fire periodically. A separate class, so that uids of jobs without a delay stay the same.

    Attributes:
        early_delay: the delay after the window's first row, and the period from then on, in milliseconds; 0 for none:
            then `early` applies.
        late_delay: the same for late rows; 0 if each late row fires.
    """

    early_delay: int
    late_delay: int


@fast_dataclass
class OverSpec:
    """An OVER window: its frame and its aggregates.

    Attributes:
        partition: the partition columns.
        order: (column, descending, nulls first).
        rows: whether it is a ROWS frame, not RANGE.
        start, end: the bounds relative to the row, in rows or milliseconds, negative for preceding; None is unbounded.
        calls: the aggregates, ROW_NUMBER, RANK, LAG and so on.
    """

    partition: tuple[int, ...]
    order: tuple[tuple[int, bool, bool], ...]
    rows: bool
    start: int | None
    end: int | None
    calls: tuple[AggregateCall, ...]


@fast_dataclass
class MatchStep:
    """A pattern variable with its quantifier; `max_times` None is unbounded."""

    variable: str
    min_times: int
    max_times: int | None
    reluctant: bool


@fast_dataclass
class Reference:
    """A value of matched rows that an expression of MATCH_RECOGNIZE uses.

    Attributes:
        function: FIRST, LAST, AGGREGATE, or ROWTIME for the time of the match.
        variable: the variable whose rows it refers to; None for all.
        column: the column for FIRST and LAST.
        offset: the number of rows from the first or last.
        type: the type of the value.
        call: the aggregate over columns of the row.
    """

    function: str
    variable: str | None
    column: int
    offset: int
    type: DataType
    call: AggregateCall | None = None


@fast_dataclass
class Definition:
    """The condition of a pattern variable; its columns are references."""

    variable: str
    condition: Expression
    references: tuple[Reference, ...]


class JoinStrategy(Enum):
    """The join algorithm in BATCH; the value is Flink's name of the operator."""

    HASH = "HashJoin"
    MERGE = "SortMergeJoin"
    LOOP = "NestedLoopJoin"


@fast_dataclass
class MatchSpec:
    """A MATCH_RECOGNIZE pattern without its plan node; see `logical.Match` for the attributes."""

    partition: tuple[int, ...]
    order: tuple[tuple[int, bool, bool], ...]
    is_event_time: bool
    steps: tuple[MatchStep, ...]
    skip: tuple[str, ...]
    within: int | None
    definitions: tuple[Definition, ...]
    references: tuple[Reference, ...]
    measures: tuple[Expression, ...]


@fast_dataclass
class Retry:
    """The retry strategy of a lookup without result: attempts and the delay between them in seconds."""

    attempts: int
    seconds: float


@dataclass(frozen=True, eq=False)
class StreamInput:
    """The stream that a table reads.

    Attributes:
        ends: the transformations that emit its records.
        fields: the record fields that are the table's columns; None if the record is the only column.
    """

    ends: tuple[UpstreamEdge, ...]
    fields: tuple[str, ...] | None
