"""Logical plan nodes: a query as the binder describes it, with names and types resolved.

Nodes are immutable. Expressions refer to columns by index, see `sql/expressions.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.catalog.tables import CatalogTable
from millstream.sql.connector_contract import TableSink, TableSource
from millstream.sql.expressions import AggregateCall, Constant, Expression, UserFunction
from millstream.sql.plan.specs import (
    Definition,
    Fires,
    JoinKind,
    JoinStrategy,
    MatchSpec,
    MatchStep,
    OverSpec,
    Reference,
    StreamInput,
    WindowKind,
    WindowSpec,
)
from millstream.sql.schema import ALL_CHANGES, Changes, Fields


@fast_dataclass
class Node:
    """A relation: a tree of nodes that produces rows.

    Attributes:
        fields: the columns of its rows.
    """

    fields: Fields

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The input nodes."""
        return ()

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        """Return a copy with other inputs, which must have the same columns."""
        assert not inputs
        return self


@fast_dataclass
class Single(Node):
    """A node with one input."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        (one,) = inputs
        return replace(self, input=one)


@fast_dataclass
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


@fast_dataclass
class Scan(Node):
    """Reads a table.

    Its columns are the physical and metadata ones that are read; computed columns and the watermark of the table's
    declaration are a Calc and a Watermark above it, which the binder adds.

    Attributes:
        table: the catalog's entry (`catalog/tables.py`).
        source: the connector's source (`sql/connector_contract.py`).
        name: the full name in three parts.
        columns: the columns to read: names of physical columns, keys of metadata columns.
        filters: conditions pushed down into the source, which may skip rows that fail them.
        limit: the maximum number of rows needed; None for all.
        options: options from a hint, which override the declaration.
    """

    table: CatalogTable
    source: TableSource
    name: tuple[str, ...]
    columns: tuple[str, ...] = ()
    filters: tuple[Expression, ...] = ()
    limit: int | None = None
    options: tuple[tuple[str, str], ...] = ()


@fast_dataclass
class StreamScan(Node):
    """Reads a DataStream of the program: `from_data_stream`, `from_changelog_stream`.

    Attributes:
        stream: the DataStream.
        changelog: whether its rows have row kinds.
        event_time: the column with the record's timestamp; None without one.
        follows_watermarks: whether the stream's own watermarks are the table's (SOURCE_WATERMARK()).
        changes: the row kinds that occur in a changelog.
        key: the upsert key of a changelog without UPDATE_BEFORE.
    """

    stream: StreamInput
    changelog: bool = False
    event_time: int | None = None
    follows_watermarks: bool = False
    changes: frozenset[Changes] = ALL_CHANGES
    key: tuple[int, ...] = ()


@fast_dataclass
class Values(Node):
    """Literal rows (VALUES)."""

    rows: tuple[tuple[Constant, ...], ...]


@fast_dataclass
class Project(Single):
    """Computes columns from columns."""

    expressions: tuple[Expression, ...]


@fast_dataclass
class Filter(Single):
    """Drops rows for which the condition is not true."""

    condition: Expression


@fast_dataclass
class Watermark(Single):
    """Emits watermarks; `column` becomes a rowtime attribute."""

    column: int
    strategy: Expression


@fast_dataclass
class Correlate(Single):
    """Joins each row with the rows that a table function returns for it.

    Its columns are those of the input, then those of the function.

    Attributes:
        function: UNNEST, or the user's table function (`functions/function.py`).
        arguments: expressions over the input row.
        kind: INNER, or LEFT to keep rows without a result.
        condition: a condition over input and function columns; None for none.
        ordinality: whether the last column numbers the rows from 1.
    """

    function: UserFunction
    arguments: tuple[Expression, ...]
    kind: JoinKind = JoinKind.INNER
    condition: Expression | None = None
    ordinality: bool = False


@fast_dataclass
class Expand(Single):
    """Repeats each row for every grouping set, with null for keys outside the set and the set's id as last column.

    Attributes:
        sets: per set the expressions of all columns; the last is the constant of GROUPING_ID.
    """

    sets: tuple[tuple[Expression, ...], ...]


@fast_dataclass
class Aggregate(Single):
    """Aggregates groups: one row of keys and aggregates per group. Without aggregates it is DISTINCT.

    Attributes:
        keys: the grouping columns; empty for one global group.
        calls: the aggregates.
        state_ttl: the TTL of its state in milliseconds from a STATE_TTL hint; None for the configured TTL.
        part: PARTIAL or FINAL where a distinct aggregate is split (`rules/aggregate_phases.py`).
    """

    keys: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    state_ttl: int | None = None
    part: str | None = None


@fast_dataclass
class TableAggregate(Single):
    """Emits the rows of a table aggregate function per group: keys, then the function's columns (`flat_aggregate`).

    Attributes:
        keys: the grouping columns; empty for one global group.
        call: the function.
        state_ttl: the TTL of its state in milliseconds; None for the configured TTL.
    """

    keys: tuple[int, ...]
    call: AggregateCall
    state_ttl: int | None = None


@fast_dataclass
class WindowTable(Single):
    """Assigns rows to windows: appends window_start, window_end and window_time, one row per window."""

    window: WindowSpec

    @property
    def is_session(self) -> bool:
        """Whether a row's window is final only when it ends, so that rows are buffered until then."""
        return self.window.kind is WindowKind.SESSION


@fast_dataclass
class WindowAggregate(Single):
    """Aggregates windows: one row of keys, aggregates and window properties per group when the window ends.

    It replaces an Aggregate that groups by the window of a WindowTable, and represents group windows of SQL (TUMBLE(..)
    in GROUP BY) and of the Table API.

    Attributes:
        window: the windows, over the input's columns.
        keys: the grouping columns without those of the window.
        calls: the aggregates.
        properties: the last columns in order: "start", "end", "rowtime", "proctime".
        counts: (size, slide) of count windows; None for time windows.
        has_window: the columns window_start and window_end if a node below has assigned the windows; None otherwise.
        of_function: whether the windows come from a window TVF, not from GROUP BY.
        fires: early and late firing; None to fire only at the window's end.
    """

    window: WindowSpec
    keys: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    properties: tuple[str, ...] = ()
    counts: tuple[int, int] | None = None
    has_window: tuple[int, int] | None = None
    of_function: bool = False
    fires: Fires | None = None


@fast_dataclass
class Over(Single):
    """Appends aggregates over each row's frame."""

    over: OverSpec


@fast_dataclass
class Match(Single):
    """Finds the matches of a pattern in each partition in time order (MATCH_RECOGNIZE).

    Its columns are the partition columns, then the measures.

    Attributes:
        partition: the partition columns.
        order: (column, descending, nulls first); the first is a time attribute.
        is_event_time: whether the time attribute is a rowtime.
        steps: the pattern.
        skip: the AFTER MATCH strategy: ("PAST LAST ROW",), ("TO NEXT ROW",), ("TO FIRST", v) or ("TO LAST", v).
        within: the maximum duration of a match in milliseconds; None for no bound.
        definitions: conditions of variables; a variable without one matches every row.
        references: values of matched rows that measures use.
        measures: expressions whose columns are those references.
        text: the clause as text, for the node's name.
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
        """The part of the node that its operator needs."""
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


@fast_dataclass
class Join(Double):
    """Joins rows for which the condition is true. SEMI and ANTI have only the left columns.

    Attributes:
        kind: the join type.
        left_keys, right_keys: pairs of columns that must be equal; null is equal to nothing.
        null_safe: per pair whether nulls are equal (IS NOT DISTINCT FROM).
        condition: a further condition over both sides' columns; None for none.
        state_ttl: the larger TTL of both sides in milliseconds from STATE_TTL hints; None for the configured TTL.
        side_ttls: the TTL of each side.
        hints: join hints that name one of its sides; in BATCH the first applicable one wins.
        join_strategy: the algorithm in BATCH.
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


@fast_dataclass
class TemporalJoin(Join):
    """Joins each left row with the version of the right side at its time (FOR SYSTEM_TIME AS OF).

    Attributes:
        left_time, right_time: the time attributes.
        is_event_time: whether the time attributes are rowtimes.
        hint: the options of a LOOKUP hint.
    """

    left_time: int = 0
    right_time: int = 0
    is_event_time: bool = True
    hint: tuple[tuple[str, str], ...] = ()


@fast_dataclass
class Apply(Double):
    """Evaluates a correlated query for each left row (LATERAL); a rule replaces it by a join.

    Attributes:
        kind: INNER or LEFT.
        condition: a condition over both sides' columns; None for none.
    """

    kind: JoinKind
    condition: Expression | None = None


@fast_dataclass
class Union(Node):
    """Concatenates its inputs in arrival order (UNION ALL)."""

    parts: tuple[Node, ...] = ()

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        return replace(self, parts=tuple(inputs))


@fast_dataclass
class SetOperation(Double):
    """INTERSECT or EXCEPT; ALL counts duplicates. (UNION is an Aggregate over a Union.)"""

    operator: str
    all: bool


@fast_dataclass
class Sort(Single):
    """Sorts rows by (column, descending, nulls first) and applies offset and limit; `limit` None for all.

    With a limit it uses the same strategies as Rank.
    """

    order: tuple[tuple[int, bool, bool], ...] = ()
    offset: int = 0
    limit: int | None = None
    strategy: str = "AppendFastStrategy"


@fast_dataclass
class ToChangelog(Single):
    """Converts a changelog to append-only rows whose first column is the row kind.

    Attributes:
        codes: pairs of row kind (INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE) and its text; other kinds are dropped.
    """

    codes: tuple[tuple[str, str], ...]


@fast_dataclass
class FromChangelog(Single):
    """Converts append-only rows with an operation column to a changelog.

    Attributes:
        op: the operation column, which the result does not have.
        codes: pairs of operation text and row kind.
    """

    op: int
    codes: tuple[tuple[str, str], ...]


@fast_dataclass
class Sink(Single):
    """Writes to a table.

    Attributes:
        table: the catalog's entry.
        sink: the connector's sink.
        name: the full name in three parts.
        overwrite: whether it is INSERT OVERWRITE.
        partition: the values of the PARTITION (..) clause.
        options: options from a hint, which override the declaration.
        materialize: the primary key for an upsert materializer in front of the sink; None if not needed.
        conflict: the ON CONFLICT strategy NOTHING, ERROR or DEDUPLICATE; None without the clause.
        upsert_key: the input's upsert key for NOTHING and ERROR; empty for all columns.
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


@fast_dataclass
class Collected(Single):
    """Returns rows to the program: `collect()`, `print()`, `to_pandas()`."""


@fast_dataclass
class ToStream(Single):
    """Converts rows to a DataStream: `to_data_stream` (append-only) and `to_changelog_stream`."""

    changelog: bool = False
    upsert: bool = False
    # The column that becomes the record's timestamp; None without one.
    event_time: int | None = None
