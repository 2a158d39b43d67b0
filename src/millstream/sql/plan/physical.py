"""Physical plan nodes: replacements that optimizer rules choose for logical nodes, and planned nodes with traits."""

from __future__ import annotations

from dataclasses import field

from millstream.common.fast_dataclass import record
from millstream.sql.expressions import AggregateCall, Expression
from millstream.sql.plan.logical import Aggregate, Join, Node, Scan, Single, WindowAggregate
from millstream.sql.plan.specs import JoinKind, Retry, WindowSpec
from millstream.sql.schema import Changes


@record
class Calc(Single):
    """Filter, then project: what several of both become. A condition of None leaves all rows."""

    expressions: tuple[Expression, ...]
    condition: Expression | None = None


@record
class MiniBatch(Single):
    """Rows as they come: those that come at once are taken at once, where mini-batch is on.

    Attributes:
        interval: how long rows may wait for each other, in milliseconds.
        by_event_time: whether those behind go by event time.
    """

    interval: int
    by_event_time: bool


@record
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


@record
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


@record
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


@record
class GlobalWindowAggregate(WindowAggregate):
    """The second of two phases over windows; see `GlobalAggregate`."""

    retracts: bool = False

    @property
    def local(self) -> LocalWindowAggregate:
        """The first phase."""
        assert isinstance(self.input, LocalWindowAggregate)
        return self.input


@record
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


@record
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


@record
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


@record
class WindowJoin(Join):
    """A join of rows in the same window, told when that ends; its start and end are among the keys.

    Attributes:
        window: how windows follow each other, on both sides.
        left_window, right_window: the columns of the window's start and end.
    """

    window: WindowSpec = field(kw_only=True)
    left_window: tuple[int, int] = field(kw_only=True)
    right_window: tuple[int, int] = field(kw_only=True)


@record
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


@record
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


@record
class MaterializedLookupJoin(LookupJoin):
    """A lookup join that keeps what it has emitted, so that a retraction equals it.

    Attributes:
        state_key: the input's columns by which it is kept: an upsert key, or all of them.
        replaces: whether those are an upsert key, so that a row replaces the one before.
    """

    state_key: tuple[int, ...] = field(kw_only=True)
    replaces: bool = field(kw_only=True)


@record
class ChangelogNormalize(Single):
    """Makes all kinds of changes of upserts: the last row of each key is known.

    Attributes:
        keys: the columns of the key.
        condition: a row that fails it takes its key's row away, as one that is deleted; None for all.
    """

    keys: tuple[int, ...]
    condition: Expression | None = None


@record
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


@record
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
