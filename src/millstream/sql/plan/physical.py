"""Physical plan nodes: replacements that optimizer rules choose for logical nodes, and planned nodes with traits."""

from __future__ import annotations

from dataclasses import field

from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.expressions import AggregateCall, Expression
from millstream.sql.plan.logical import Aggregate, Join, Node, Scan, Single, WindowAggregate
from millstream.sql.plan.specs import JoinKind, Retry, WindowSpec
from millstream.sql.schema import Changes


@fast_dataclass
class Calc(Single):
    """A filter followed by a projection, merged from adjacent ones; a condition of None keeps all rows."""

    expressions: tuple[Expression, ...]
    condition: Expression | None = None


@fast_dataclass
class MiniBatch(Single):
    """Marks where mini-batches begin.

    Attributes:
        interval: the maximum latency of a mini-batch in milliseconds.
        by_event_time: whether operators downstream use event time.
    """

    interval: int
    by_event_time: bool


@fast_dataclass
class LocalAggregate(Single):
    """The local phase of a two-phase aggregate, before the exchange.

    Its columns are the keys and the accumulators, which only the global phase reads.

    Attributes:
        keys, calls, part: of the aggregate.
        retracts: whether its input contains retractions.
    """

    keys: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    retracts: bool
    part: str | None = None


@fast_dataclass
class GlobalAggregate(Aggregate):
    """The global phase of a two-phase aggregate. Its calls' arguments refer to the local phase's input.

    Attributes:
        retracts: whether the local phase's input contains retractions.
    """

    retracts: bool = False

    @property
    def local(self) -> LocalAggregate:
        """The local phase."""
        assert isinstance(self.input, LocalAggregate)
        return self.input


@fast_dataclass
class LocalWindowAggregate(Single):
    """The local phase of a two-phase window aggregate: keys, accumulators, and the end of the slice or window.

    Attributes:
        window, keys, calls, has_window: of the aggregate.
        retracts: whether its input contains retractions.
    """

    window: WindowSpec
    keys: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    retracts: bool
    has_window: tuple[int, int] | None = None


@fast_dataclass
class GlobalWindowAggregate(WindowAggregate):
    """The global phase of a two-phase window aggregate; see `GlobalAggregate`."""

    retracts: bool = False

    @property
    def local(self) -> LocalWindowAggregate:
        """The local phase."""
        assert isinstance(self.input, LocalWindowAggregate)
        return self.input


@fast_dataclass
class Rank(Single):
    """Emits the rows of each partition with ranks `first` to `last` (Top-N).

    Attributes:
        partition: the partition columns.
        order: (column, descending, nulls first).
        function: ROW_NUMBER, RANK or DENSE_RANK.
        first, last: the bounds of the rank, from 1.
        shows_rank: whether the rank is the last column.
        strategy: see `optimizer/changelog.py`: AppendFastStrategy for append-only input, UpdateFastStrategy for
            upserts whose rank only improves, RetractStrategy for all else.
    """

    partition: tuple[int, ...]
    order: tuple[tuple[int, bool, bool], ...]
    function: str
    first: int
    last: int
    shows_rank: bool
    strategy: str = "AppendFastStrategy"


@fast_dataclass
class WindowRank(Rank):
    """A Rank per window, emitted when the window ends.

    Attributes:
        window: the windows.
        has_window: the columns of the window's start and end.
        is_deduplicate: whether it keeps one row by time; ties keep the first row, or the last if the order is
            descending.
    """

    window: WindowSpec = field(kw_only=True)
    has_window: tuple[int, int] = field(kw_only=True)
    is_deduplicate: bool = field(default=False, kw_only=True)


@fast_dataclass
class Deduplicate(Single):
    """Keeps one row per key: the first or last by a time attribute.

    Attributes:
        keys: the key columns.
        time: the time attribute's column.
        is_event_time: whether the time attribute is a rowtime.
        keeps_last: whether it keeps the last row, not the first.
    """

    keys: tuple[int, ...]
    time: int
    is_event_time: bool
    keeps_last: bool


@fast_dataclass
class WindowJoin(Join):
    """A join of rows in the same window, emitted when the window ends; the keys include its start and end.

    Attributes:
        window: the windows of both sides.
        left_window, right_window: the columns of the window's start and end.
    """

    window: WindowSpec = field(kw_only=True)
    left_window: tuple[int, int] = field(kw_only=True)
    right_window: tuple[int, int] = field(kw_only=True)


@fast_dataclass
class IntervalJoin(Join):
    """A join with bounds on the difference of both sides' times.

    Attributes:
        left_time, right_time: the time attributes.
        is_event_time: whether the time attributes are rowtimes.
        lower, upper: the right time must be at least left time + lower, at most left time + upper, in milliseconds.
    """

    left_time: int = 0
    right_time: int = 0
    is_event_time: bool = True
    lower: int = 0
    upper: int = 0


@fast_dataclass
class LookupJoin(Single):
    """Joins each row with the rows that a connector looks up by key at processing time.

    Its columns are the input's, then `expressions`.

    Attributes:
        scan: the lookup table and the columns to read.
        kind: INNER or LEFT.
        left_keys: key columns of the input.
        lookup_keys: the corresponding columns of the scan.
        expressions: computed from the scan's columns.
        filter: a condition over the scan's columns; None for none.
        condition: a condition over input columns and `expressions`; None for none.
        retry: the retry strategy for keys without rows; None for no retry.
        at_once: the maximum number of concurrent lookups.
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


@fast_dataclass
class MaterializedLookupJoin(LookupJoin):
    """A lookup join that stores its results, so that retractions equal the rows emitted before.

    Attributes:
        state_key: the input columns that key the state: an upsert key, or all columns.
        replaces: whether `state_key` is an upsert key, so that a row replaces its predecessor.
    """

    state_key: tuple[int, ...] = field(kw_only=True)
    replaces: bool = field(kw_only=True)


@fast_dataclass
class ChangelogNormalize(Single):
    """Converts upserts to a full changelog by storing the last row per key.

    Attributes:
        keys: the key columns.
        condition: rows that fail it count as deletions of their key; None for none.
    """

    keys: tuple[int, ...]
    condition: Expression | None = None


@fast_dataclass
class Traits:
    """Derived properties of a planned node (`optimizer/changelog.py`).

    Attributes:
        changes: the row kinds it emits.
        upsert_keys: sets of columns that each identify a row.
        state_ttl: the TTL of its state in milliseconds; 0 for no expiry.
    """

    changes: frozenset[Changes]
    upsert_keys: frozenset[frozenset[int]] = frozenset()
    state_ttl: int = 0


@fast_dataclass
class Planned:
    """A node ready for translation, with its traits.

    Attributes:
        node: the node; `inputs` replace its own inputs.
        inputs: the planned inputs.
        traits: its derived properties.
        name: the operator's name, stable for the same query; operator ids derive from it.
    """

    node: Node
    inputs: tuple[Planned, ...]
    traits: Traits
    name: str
    uid: str = field(default="")
