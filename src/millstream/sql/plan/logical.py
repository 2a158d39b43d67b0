"""Logical plan nodes: a query as the binder describes it, with names and types resolved.

Nodes are immutable. Expressions refer to columns by index, see `sql/expressions.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

from millstream.common.fast_dataclass import record
from millstream.sql.catalog.tables import CatalogTable
from millstream.sql.connectors import TableSink, TableSource
from millstream.sql.expressions import AggregateCall, Constant, Expression
from millstream.sql.plan.specs import (
    Definition,
    Fires,
    JoinKind,
    JoinStrategy,
    MatchSpec,
    MatchStep,
    OverSpec,
    Reference,
    WindowKind,
    WindowSpec,
)
from millstream.sql.schema import ALL_CHANGES, Changes, Fields


@record
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


@record
class Single(Node):
    """A node with one input."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        (one,) = inputs
        return replace(self, input=one)


@record
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


@record
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


@record
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


@record
class Values(Node):
    """Rows that are written out."""

    rows: tuple[tuple[Constant, ...], ...]


@record
class Project(Single):
    """Makes columns of columns."""

    expressions: tuple[Expression, ...]


@record
class Filter(Single):
    """Leaves rows for which a condition is true."""

    condition: Expression


@record
class Watermark(Single):
    """Says how far event time has come; makes `column` a rowtime attribute."""

    column: int
    strategy: Expression


@record
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


@record
class Expand(Single):
    """Each row once for every grouping set: keys that are not in it are null, and the last column says which it is.

    Attributes:
        sets: for each set the expressions of all columns, the last one the constant of GROUPING_ID.
    """

    sets: tuple[tuple[Expression, ...], ...]


@record
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


@record
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


@record
class WindowTable(Single):
    """Each row once for every window it is in: behind its columns window_start, window_end and window_time."""

    window: WindowSpec

    @property
    def is_session(self) -> bool:
        """Whether a row's window is known only when it has ended: rows are kept until then."""
        return self.window.kind is WindowKind.SESSION


@record
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


@record
class Over(Single):
    """Each row with aggregates over the frame it is in, as columns behind its own."""

    over: OverSpec


@record
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

    @property
    def spec(self) -> MatchSpec:
        """What the operator needs of the node."""
        return MatchSpec(
            self.partition,
            self.order,
            self.is_event_time,
            self.steps,
            self.skip,
            self.within,
            self.definitions,
            self.references,
            self.measures,
        )


@record
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


@record
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


@record
class Apply(Double):
    """Each row of the left with the rows of a query that looks at it (LATERAL); a rule makes a join of it.

    Attributes:
        kind: INNER or LEFT.
        condition: about both sides' columns; None for nothing.
    """

    kind: JoinKind
    condition: Expression | None = None


@record
class Union(Node):
    """The rows of all inputs, as they come (UNION ALL)."""

    parts: tuple[Node, ...] = ()

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        return replace(self, parts=tuple(inputs))


@record
class SetOperation(Double):
    """INTERSECT or EXCEPT, with ALL by counting. (UNION is an Aggregate over a Union.)"""

    operator: str
    all: bool


@record
class Sort(Single):
    """Rows in an order (column, descending, nulls first), and of those some: `limit` None for all.

    With a limit it works as a Rank does, by the same strategies.
    """

    order: tuple[tuple[int, bool, bool], ...] = ()
    offset: int = 0
    limit: int | None = None
    strategy: str = "AppendFastStrategy"


@record
class ToChangelog(Single):
    """Changes as rows that are only inserted: the first column says what happened.

    Attributes:
        codes: what happened (INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE) and the word for it; the rest is left out.
    """

    codes: tuple[tuple[str, str], ...]


@record
class FromChangelog(Single):
    """Rows of which a column says what happened, as the changes that they say.

    Attributes:
        op: the column, which is none of the result's.
        codes: the words that it may have, and what each says.
    """

    op: int
    codes: tuple[tuple[str, str], ...]


@record
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


@record
class Collected(Single):
    """Rows that the program wants back: `collect()`, `print()`, `to_pandas()`."""


@record
class ToStream(Single):
    """Rows as a DataStream: `to_data_stream` (inserts only) and `to_changelog_stream`."""

    changelog: bool = False
    upsert: bool = False
    # The column that becomes the record's timestamp, None without one.
    event_time: int | None = None
