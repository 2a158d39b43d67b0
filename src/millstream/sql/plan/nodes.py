"""Relational nodes: what a query is once its names and types are known.

The binder makes them, rules replace them by others that are worth more, and `sql/translate` makes operators of what
is left. A node is never changed. Columns are known by their place, see `sql/expressions.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from enum import Enum
from typing import Any

from millstream.common.fast_dataclass import record
from millstream.sql.catalog.tables import CatalogTable
from millstream.sql.connectors import TableSink, TableSource
from millstream.sql.expressions import AggregateCall, Constant, Expression
from millstream.sql.row_kinds import ALL_CHANGES, Changes
from millstream.sql.schema import Fields
from millstream.sql.types import DataType


@record(frozen=True)
class Node:
    """What has rows.

    Attributes:
        fields: the columns of its rows.
    """

    fields: Fields

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes that its rows come from."""
        return ()

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        """Return the same over other inputs, which have the same columns."""
        assert not inputs
        return self


@record(frozen=True)
class Single(Node):
    """A node with one input."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        (one,) = inputs
        return replace(self, input=one)


@record(frozen=True)
class Double(Node):
    """A node with two inputs."""

    left: Node
    right: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.left, self.right

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        left, right = inputs
        return replace(self, left=left, right=right)


# --- where rows come from


@record(frozen=True)
class Scan(Node):
    """Reads a table.

    Its columns are the physical and metadata ones that are read; computed columns and the watermark of the table's
    declaration are a Calc and a Watermark above it, which the binder adds.

    Attributes:
        table: what the catalog knows of it (`catalog/tables.py`).
        source: what its connector reads it with (`sql/connectors.py`).
        name: its full name, in three parts.
        columns: which of the table's columns are read: names of physical columns, keys of metadata.
        filters: conditions on those columns that the source was asked to apply, for it may skip rows that fail them.
        limit: at most so many rows are wanted of it; None for all.
        options: what a hint says beyond the declaration.
    """

    table: CatalogTable
    source: TableSource
    name: tuple[str, ...]
    columns: tuple[str, ...] = ()
    filters: tuple[Expression, ...] = ()
    limit: int | None = None
    options: tuple[tuple[str, str], ...] = ()


@record(frozen=True)
class StreamScan(Node):
    """Reads a DataStream of the program's: `from_data_stream`, `from_changelog_stream`.

    Attributes:
        stream: the DataStream.
        changelog: whether its rows have kinds.
        event_time: the column that is the record's timestamp, None without one.
        follows_watermarks: whether the stream's own watermarks are the table's (SOURCE_WATERMARK()).
        changes: what its rows can say, where they have kinds.
        key: the columns by which its rows replace each other, where updates have no first half.
    """

    stream: Any
    changelog: bool = False
    event_time: int | None = None
    follows_watermarks: bool = False
    changes: frozenset[Changes] = ALL_CHANGES
    key: tuple[int, ...] = ()


@record(frozen=True)
class Values(Node):
    """Rows that are written out."""

    rows: tuple[tuple[Constant, ...], ...]


# --- row by row


@record(frozen=True)
class Project(Single):
    """Makes columns of columns."""

    expressions: tuple[Expression, ...]


@record(frozen=True)
class Filter(Single):
    """Leaves rows for which a condition is true."""

    condition: Expression


@record(frozen=True)
class Calc(Single):
    """Filter, then project: what several of both become. A condition of None leaves all rows."""

    expressions: tuple[Expression, ...]
    condition: Expression | None = None


@record(frozen=True)
class Watermark(Single):
    """Says how far event time has come; makes `column` a rowtime attribute."""

    column: int
    strategy: Expression


class JoinKind(Enum):
    """Which rows a join keeps that have no partner, or whether it is about partners only."""

    INNER = "InnerJoin"
    LEFT = "LeftOuterJoin"
    RIGHT = "RightOuterJoin"
    FULL = "FullOuterJoin"
    SEMI = "LeftSemiJoin"
    ANTI = "LeftAntiJoin"


@record(frozen=True)
class Correlate(Single):
    """Each row with the rows that a table function makes of it; with LEFT also those for which it makes none.

    Its columns are the input's, and behind them the function's.

    Attributes:
        function: UNNEST, or the user's table function (`functions/user.py`).
        arguments: about the input's row.
        kind: INNER or LEFT.
        condition: about input and function columns together; None for none.
        ordinality: whether the last column counts the rows from 1.
    """

    function: Any
    arguments: tuple[Expression, ...]
    kind: JoinKind = JoinKind.INNER
    condition: Expression | None = None
    ordinality: bool = False


@record(frozen=True)
class Expand(Single):
    """Each row once for every grouping set: keys that are not in it are null, and the last column says which it is.

    Attributes:
        sets: for each set the expressions of all columns, the last one the constant of GROUPING_ID.
    """

    sets: tuple[tuple[Expression, ...], ...]


# --- groups


@record(frozen=True)
class Aggregate(Single):
    """One row a group: the keys, then the aggregates. Without aggregates it is DISTINCT.

    Attributes:
        keys: the columns to group by; none for one group of all.
        calls: the aggregates.
        state_ttl: how long what it keeps lives, in milliseconds, as a STATE_TTL hint says; None as the setting says.
        part: PARTIAL or FINAL where an aggregate over distinct values is split in two (`rules/distinct_split.py`).
    """

    keys: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    state_ttl: int | None = None
    part: str | None = None


@record(frozen=True)
class TableAggregate(Single):
    """The rows that a user's function makes of each group: the keys, then the function's columns (`flat_aggregate`).

    Attributes:
        keys: the columns to group by; none for one group of all.
        call: the function.
        state_ttl: how long what it keeps lives, in milliseconds; None as the setting says.
    """

    keys: tuple[int, ...]
    call: AggregateCall
    state_ttl: int | None = None


@record(frozen=True)
class MiniBatch(Single):
    """Rows as they come: those that come at once are taken at once, where mini-batch is on.

    Attributes:
        interval: how long rows may wait for each other, in milliseconds.
        by_event_time: whether those behind go by event time.
    """

    interval: int
    by_event_time: bool


@record(frozen=True)
class LocalAggregate(Single):
    """The first of two phases: what the aggregates keep of some rows of each group, before rows are exchanged.

    Its columns are the keys and what the second phase puts together; nobody else reads it.

    Attributes:
        keys, calls, part: of the aggregate.
        retracts: whether its input may take rows back.
    """

    keys: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    retracts: bool
    part: str | None = None


@record(frozen=True)
class GlobalAggregate(Aggregate):
    """The second of two phases; its input is the first, and the arguments of its calls are columns of that one's input.

    Attributes:
        retracts: whether the input of the first phase may take rows back.
    """

    retracts: bool = False

    @property
    def local(self) -> LocalAggregate:
        """The first phase."""
        assert isinstance(self.input, LocalAggregate)
        return self.input


class WindowKind(Enum):
    """How windows follow each other."""

    TUMBLE = "TUMBLE"
    HOP = "HOP"
    CUMULATE = "CUMULATE"
    SESSION = "SESSION"


@record(frozen=True)
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


@record(frozen=True)
class WindowTable(Single):
    """Each row once for every window it is in: behind its columns window_start, window_end and window_time."""

    window: WindowSpec

    @property
    def is_session(self) -> bool:
        """Whether a row's window is known only when it has ended: rows are kept until then."""
        return self.window.kind is WindowKind.SESSION


@record(frozen=True)
class Fires:
    """When windows are told besides at their end.

    Attributes:
        early: whether with every row before it.
        lateness: how long behind it rows still count, in milliseconds; each tells the window anew.
    """

    early: bool
    lateness: int


@record(frozen=True)
class PeriodicFires(Fires):
    """When windows are told by the clock; apart from `Fires`, by whose form state of jobs without a delay is found.

    Attributes:
        early_delay: how long after a window's first row it is told before its end, and how often from then on, in
            milliseconds; 0 for never: then `early` counts.
        late_delay: the same of rows behind its end; 0 where each of them tells the window anew.
    """

    early_delay: int
    late_delay: int


@record(frozen=True)
class WindowAggregate(Single):
    """One row a group and window, when the window ends: keys, aggregates, then the window's properties.

    What an Aggregate over a WindowTable becomes that groups by its window; and the group windows of SQL (TUMBLE(..) in
    GROUP BY) and of the Table API.

    Attributes:
        window: about the input's columns.
        keys: without those of the window.
        calls: the aggregates.
        properties: which of "start", "end", "rowtime", "proctime" the last columns are, in order.
        counts: for windows of so many rows instead: (size, slide); None for windows in time.
        has_window: whether the input's rows have been given their windows already (window_start, window_end, the places
            of which these are), by a window node further below; None when they have not.
        of_function: whether the windows are those of a window function, not of a GROUP BY.
        fires: when windows are told besides at their end; None for never.
    """

    window: WindowSpec
    keys: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    properties: tuple[str, ...] = ()
    counts: tuple[int, int] | None = None
    has_window: tuple[int, int] | None = None
    of_function: bool = False
    fires: Fires | None = None


@record(frozen=True)
class LocalWindowAggregate(Single):
    """The first of two phases over windows: the keys, what the second puts together, and the end of slice or window.

    Attributes:
        window, keys, calls, has_window: of the aggregate.
        retracts: whether its input may take rows back.
    """

    window: WindowSpec
    keys: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    retracts: bool
    has_window: tuple[int, int] | None = None


@record(frozen=True)
class GlobalWindowAggregate(WindowAggregate):
    """The second of two phases over windows; see `GlobalAggregate`."""

    retracts: bool = False

    @property
    def local(self) -> LocalWindowAggregate:
        """The first phase."""
        assert isinstance(self.input, LocalWindowAggregate)
        return self.input


@record(frozen=True)
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


@record(frozen=True)
class Over(Single):
    """Each row with aggregates over the frame it is in, as columns behind its own."""

    over: OverSpec


@record(frozen=True)
class Rank(Single):
    """The rows of each partition that are at some places of an order; with the place as last column if it is wanted.

    Attributes:
        partition: the columns to partition by.
        order: (column, descending, nulls first).
        function: ROW_NUMBER, RANK or DENSE_RANK.
        first, last: the places, from 1.
        shows_rank: whether the place is the last column.
        strategy: how it works, see `plan/changelog.py`: AppendFastStrategy for inserts alone, UpdateFastStrategy for
            rows that are updated by key and only move up, RetractStrategy for all else.
    """

    partition: tuple[int, ...]
    order: tuple[tuple[int, bool, bool], ...]
    function: str
    first: int
    last: int
    shows_rank: bool
    strategy: str = "AppendFastStrategy"


@record(frozen=True)
class WindowRank(Rank):
    """A Rank whose partition has a window, told when that ends.

    Attributes:
        window: how windows follow each other.
        has_window: the columns of the window's start and end.
        is_deduplicate: whether it keeps one row by time; of rows of the same time it keeps the first, or the last if
            the order is descending.
    """

    window: WindowSpec = field(kw_only=True)
    has_window: tuple[int, int] = field(kw_only=True)
    is_deduplicate: bool = field(default=False, kw_only=True)


@record(frozen=True)
class Deduplicate(Single):
    """One row of each key: the first or last by a time attribute.

    Attributes:
        keys: the columns of the key.
        time: the time attribute's column.
        is_event_time: whether that is a rowtime.
        keeps_last: whether the last row is kept, not the first.
    """

    keys: tuple[int, ...]
    time: int
    is_event_time: bool
    keeps_last: bool


@record(frozen=True)
class MatchStep:
    """A variable of a pattern and how often its rows come, one behind the other; `most` None is without end."""

    variable: str
    least: int
    most: int | None
    reluctant: bool


@record(frozen=True)
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


@record(frozen=True)
class Definition:
    """When a variable takes a row: a condition whose columns are references."""

    variable: str
    condition: Expression
    references: tuple[Reference, ...]


@record(frozen=True)
class Match(Single):
    """The matches of a pattern among the rows of each partition, in the order of time (MATCH_RECOGNIZE).

    Its columns are those of the partition, then the measures.

    Attributes:
        partition: the columns to partition by.
        order: (column, descending, nulls first); the first is a time attribute.
        is_event_time: whether that is a rowtime.
        steps: the pattern.
        skip: where the next match may begin: ("PAST LAST ROW",), ("TO NEXT ROW",), ("TO FIRST", v) or ("TO LAST", v).
        within: how long a match may take, in milliseconds; None for no bound.
        definitions: of variables; one without takes every row.
        references: what measures ask of rows.
        measures: expressions whose columns are those references.
        text: all of it, for its name.
    """

    partition: tuple[int, ...]
    order: tuple[tuple[int, bool, bool], ...]
    is_event_time: bool
    steps: tuple[MatchStep, ...]
    skip: tuple[str, ...]
    within: int | None
    definitions: tuple[Definition, ...]
    references: tuple[Reference, ...]
    measures: tuple[Expression, ...]
    text: str


# --- several inputs


class JoinStrategy(Enum):
    """How a join finds its pairs in BATCH; the value is Flink's name of the operator."""

    HASH = "HashJoin"
    MERGE = "SortMergeJoin"
    LOOP = "NestedLoopJoin"


@record(frozen=True)
class Join(Double):
    """Pairs of rows for which a condition is true. SEMI and ANTI have the left columns only.

    Attributes:
        kind: which rows without a partner are kept.
        left_keys, right_keys: columns that must be equal, pair by pair; a null equals nothing.
        null_safe: for each pair whether nulls are equal after all (IS NOT DISTINCT FROM).
        condition: what else must hold, over both sides' columns; None for nothing.
        state_ttl: how long what it keeps lives at most, in milliseconds, by STATE_TTL hints; None as the setting says.
        side_ttls: the same of each side.
        hints: the hints that name a side of it, of which the first one that can be followed counts, in BATCH.
        join_strategy: how it is done, in BATCH.
    """

    kind: JoinKind
    left_keys: tuple[int, ...] = ()
    right_keys: tuple[int, ...] = ()
    null_safe: tuple[bool, ...] = ()
    condition: Expression | None = None
    state_ttl: int | None = field(default=None, kw_only=True)
    side_ttls: tuple[int | None, int | None] = field(default=(None, None), kw_only=True)
    hints: tuple[str, ...] = field(default=(), kw_only=True)
    join_strategy: JoinStrategy | None = field(default=None, kw_only=True)


@record(frozen=True)
class WindowJoin(Join):
    """A join of rows in the same window, told when that ends; its start and end are among the keys.

    Attributes:
        window: how windows follow each other, on both sides.
        left_window, right_window: the columns of the window's start and end.
    """

    window: WindowSpec = field(kw_only=True)
    left_window: tuple[int, int] = field(kw_only=True)
    right_window: tuple[int, int] = field(kw_only=True)


@record(frozen=True)
class IntervalJoin(Join):
    """A join whose rows must also be within bounds of each other's time.

    Attributes:
        left_time, right_time: the time attributes.
        is_event_time: whether they are rowtimes.
        lower, upper: the right time must be at least left time + lower, at most left time + upper, in milliseconds.
    """

    left_time: int = 0
    right_time: int = 0
    is_event_time: bool = True
    lower: int = 0
    upper: int = 0


@record(frozen=True)
class TemporalJoin(Join):
    """A join with the version of the right side at the time of the left row (FOR SYSTEM_TIME AS OF).

    Attributes:
        left_time, right_time: the time attributes.
        is_event_time: whether they are rowtimes.
        hint: what a LOOKUP hint says.
    """

    left_time: int = 0
    right_time: int = 0
    is_event_time: bool = True
    hint: tuple[tuple[str, str], ...] = ()


@record(frozen=True)
class Retry:
    """How often a look-up that finds nothing is tried again, and how many seconds later each time."""

    attempts: int
    seconds: float


@record(frozen=True)
class LookupJoin(Single):
    """Each row with those that a connector finds by its values, as they are when it is asked.

    Its columns are the input's, and behind them those that are made of what is found.

    Attributes:
        scan: the table that is looked up, and which of its columns are read.
        kind: INNER or LEFT.
        left_keys: columns of the input.
        lookup_keys: for each of them the column of the scan that must be equal.
        expressions: made of the scan's columns.
        filter: about the scan's columns; None for nothing.
        condition: about input and made columns together; None for nothing.
        retry: what is done where nothing is found; None for nothing.
        at_once: so many questions are asked at the same time.
    """

    scan: Scan
    kind: JoinKind
    left_keys: tuple[int, ...]
    lookup_keys: tuple[int, ...]
    expressions: tuple[Expression, ...]
    filter: Expression | None = None
    condition: Expression | None = None
    retry: Retry | None = None
    at_once: int = 1


@record(frozen=True)
class MaterializedLookupJoin(LookupJoin):
    """A lookup join that keeps what it has emitted, so that a retraction equals it.

    Attributes:
        state_key: the input's columns by which it is kept: an upsert key, or all of them.
        replaces: whether those are an upsert key, so that a row replaces the one before.
    """

    state_key: tuple[int, ...] = field(kw_only=True)
    replaces: bool = field(kw_only=True)


@record(frozen=True)
class Apply(Double):
    """Each row of the left with the rows of a query that looks at it (LATERAL); a rule makes a join of it.

    Attributes:
        kind: INNER or LEFT.
        condition: about both sides' columns; None for nothing.
    """

    kind: JoinKind
    condition: Expression | None = None


@record(frozen=True)
class Union(Node):
    """The rows of all inputs, as they come (UNION ALL)."""

    parts: tuple[Node, ...] = ()

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        return replace(self, parts=tuple(inputs))


@record(frozen=True)
class SetOperation(Double):
    """INTERSECT or EXCEPT, with ALL by counting. (UNION is an Aggregate over a Union.)"""

    operator: str
    all: bool


# --- order


@record(frozen=True)
class Sort(Single):
    """Rows in an order (column, descending, nulls first), and of those some: `limit` None for all.

    With a limit it works as a Rank does, by the same strategies.
    """

    order: tuple[tuple[int, bool, bool], ...] = ()
    offset: int = 0
    limit: int | None = None
    strategy: str = "AppendFastStrategy"


# --- between


@record(frozen=True)
class ChangelogNormalize(Single):
    """Makes all kinds of changes of upserts: the last row of each key is known.

    Attributes:
        keys: the columns of the key.
        condition: a row that fails it takes its key's row away, as one that is deleted; None for all.
    """

    keys: tuple[int, ...]
    condition: Expression | None = None


@record(frozen=True)
class ToChangelog(Single):
    """Changes as rows that are only inserted: the first column says what happened.

    Attributes:
        codes: what happened (INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE) and the word for it; the rest is left out.
    """

    codes: tuple[tuple[str, str], ...]


@record(frozen=True)
class FromChangelog(Single):
    """Rows of which a column says what happened, as the changes that they say.

    Attributes:
        op: the column, which is none of the result's.
        codes: the words that it may have, and what each says.
    """

    op: int
    codes: tuple[tuple[str, str], ...]


# --- where rows go


@record(frozen=True)
class Sink(Single):
    """Writes to a table.

    Attributes:
        table: what the catalog knows of it.
        sink: what its connector writes it with.
        name: its full name, in three parts.
        overwrite: INSERT OVERWRITE.
        partition: the values of a PARTITION (..) clause.
        options: what a hint says beyond the declaration.
        materialize: the primary key for which the last row must be known before it is written; None when need not be.
        conflict: what ON CONFLICT does: NOTHING, ERROR or DEDUPLICATE; None without it.
        upsert_key: where it does NOTHING or ERROR, the columns that tell the input's rows apart; none where all do.
    """

    table: CatalogTable
    sink: TableSink
    name: tuple[str, ...]
    overwrite: bool = False
    partition: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    materialize: tuple[int, ...] | None = None
    conflict: str | None = None
    upsert_key: tuple[int, ...] = ()


@record(frozen=True)
class Collected(Single):
    """Rows that the program wants back: `collect()`, `print()`, `to_pandas()`."""


@record(frozen=True)
class ToStream(Single):
    """Rows as a DataStream: `to_data_stream` (inserts only) and `to_changelog_stream`."""

    changelog: bool = False
    upsert: bool = False
    # The column that becomes the record's timestamp, None without one.
    event_time: int | None = None


@record(frozen=True)
class Traits:
    """What is known of a node beside what it says, by the rules of changelogs (`plan/changelog.py`).

    Attributes:
        changes: what its rows can say.
        upsert_keys: sets of columns of which each tells a row from all others.
        state_ttl: how long what it keeps lives, in milliseconds; 0 for ever.
    """

    changes: frozenset[Changes]
    upsert_keys: frozenset[frozenset[int]] = frozenset()
    state_ttl: int = 0


@record(frozen=True)
class Planned:
    """A node that is ready to be run, and its traits.

    Attributes:
        node: what it is; its own inputs are not looked at.
        inputs: what it reads.
        traits: what it gives.
        name: of its operator, the same for the same query, from which the operator's id is made.
    """

    node: Node
    inputs: tuple[Planned, ...]
    traits: Traits
    name: str
    uid: str = field(default="")
