"""Changelog modes: the row kinds each node emits, whether its updates have UPDATE_BEFORE, and what sinks require."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from enum import Enum

from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Call, Column, Constant, Expression, columns_of, conjuncts
from millstream.sql.optimizer.upsert_keys import Keys, finds_one
from millstream.sql.plan import nodes as n
from millstream.sql.plan.nodes import Node, Scan, Single, Sink, StreamScan, ToStream
from millstream.sql.schema import ALL_CHANGES, INSERTS, Changes, Fields, TimeAttribute

Kinds = frozenset[Changes]
# Flink's Top-N strategies: for append-only input, for upserts whose rank only improves, for all else.
APPEND_FAST, UPDATE_FAST, RETRACT = "AppendFastStrategy", "UpdateFastStrategy", "RetractStrategy"
_UPDATE = frozenset([Changes.UPDATE_BEFORE, Changes.UPDATE_AFTER])
_ROW_BY_ROW = (
    n.MiniBatch,
    n.Calc,
    n.Project,
    n.Filter,
    n.Watermark,
    n.Correlate,
    n.Expand,
    n.WindowTable,
    n.LookupJoin,
)


class Updates(Enum):
    """The update kind that a consumer requires."""

    PAIRS = "pairs"
    AFTER = "after"


def changelog_of(node: n.Node, inputs: Sequence[Kinds], has_ttl: bool = False) -> Kinds:
    """Return the row kinds that a node emits, with UPDATE_BEFORE and UPDATE_AFTER for updates.

    Args:
        node: the node.
        inputs: the row kinds of its inputs.
        has_ttl: whether its state has a TTL: then it emits unchanged rows again, which extends their TTL downstream.
    """
    if isinstance(node, n.Scan):
        return full(node.source.changes)
    if isinstance(node, n.StreamScan):
        return full(node.changes) if node.changelog else INSERTS
    if isinstance(node, n.FromChangelog):
        return frozenset(Changes[kind] for _, kind in node.codes)
    if isinstance(node, (n.Values, n.ToChangelog)) or (isinstance(node, n.WindowTable) and node.is_session):
        return INSERTS
    if isinstance(node, n.MaterializedLookupJoin):
        # As in Flink, a retraction becomes a DELETE.
        return inputs[0] | {Changes.DELETE}
    if isinstance(node, (*_ROW_BY_ROW, n.Union)):
        return frozenset().union(*inputs) if inputs else INSERTS
    if isinstance(node, n.Aggregate):
        return _of_aggregate(node, inputs[0], has_ttl)
    if isinstance(node, n.TableAggregate):
        return INSERTS | {Changes.DELETE}
    if isinstance(node, n.WindowAggregate) and node.fires is not None:
        return INSERTS | _UPDATE
    if isinstance(node, (n.LocalAggregate, n.LocalWindowAggregate)):
        return INSERTS
    if isinstance(node, (n.WindowAggregate, n.IntervalJoin, n.WindowRank, n.WindowJoin, n.Match)):
        return INSERTS
    if isinstance(node, n.TemporalJoin):
        return inputs[0]
    if isinstance(node, n.Over):
        return INSERTS if is_over_time(node) else ALL_CHANGES
    if isinstance(node, n.Deduplicate):
        return _of_deduplicate(node, inputs[0])
    if isinstance(node, n.Rank):
        return ALL_CHANGES
    if isinstance(node, n.Sort):
        return _of_sort(node, inputs[0])
    if isinstance(node, n.Join):
        if node.kind in (n.JoinKind.INNER, n.JoinKind.SEMI):
            return inputs[0] | inputs[1]
        return ALL_CHANGES
    if isinstance(node, n.SetOperation):
        return ALL_CHANGES
    if isinstance(node, n.ChangelogNormalize):
        return ALL_CHANGES
    assert isinstance(node, (n.Sink, n.Collected, n.ToStream))
    return inputs[0]


def requires_inserts(node: n.Node) -> bool:
    """Return whether a node accepts only inserts."""
    if isinstance(node, n.Over):
        return is_over_time(node)
    if isinstance(node, n.Sort):
        return bool(node.order) and node.limit is None and not node.offset
    return isinstance(node, (n.IntervalJoin, n.WindowRank, n.WindowJoin, n.Match, n.FromChangelog))


def full(kinds: Kinds) -> Kinds:
    """Return row kinds with UPDATE_BEFORE added to UPDATE_AFTER."""
    return kinds | _UPDATE if kinds & _UPDATE else kinds


def is_over_time(node: n.Over) -> bool:
    """Return whether an OVER is ordered by time, so that its results are final."""
    order = node.over.order
    return len(order) == 1 and not order[0][1] and node.fields[order[0][0]].time is not None


def _of_deduplicate(node: n.Deduplicate, below: Kinds) -> Kinds:
    if below != INSERTS:
        return ALL_CHANGES
    return INSERTS | _UPDATE if node.keeps_last else INSERTS


def _of_aggregate(node: n.Aggregate, below: Kinds, has_ttl: bool) -> Kinds:
    updates = _UPDATE if node.calls or has_ttl else frozenset()
    retracts = node.retracts if isinstance(node, n.GlobalAggregate) else below != INSERTS
    deletes = {Changes.DELETE} if retracts else set()
    return frozenset({Changes.INSERT, *updates, *deletes})


def _of_sort(node: n.Sort, below: Kinds) -> Kinds:
    if not node.order:
        return INSERTS if below == INSERTS else ALL_CHANGES
    if node.limit is None and not node.offset:
        first = node.fields[node.order[0][0]]
        return INSERTS if first.time is TimeAttribute.ROWTIME or first.time is TimeAttribute.PROCTIME else below
    return ALL_CHANGES


def required_updates(
    node: n.Node, required: Updates, inputs: Sequence[Kinds], keys: Sequence[Keys]
) -> list[Updates] | None:
    """Return the update kind that a node requires of its inputs to emit the required one; None if impossible.

    Args:
        node: the node.
        required: the update kind.
        inputs: the row kinds of its inputs.
        keys: the upsert keys of its inputs.
    """
    if isinstance(node, n.ChangelogNormalize):
        return [Updates.AFTER]
    if isinstance(node, (n.Calc, n.Filter)):
        if required is Updates.AFTER and node.condition is not None and not _filters_by_key(node, keys[0]):
            return None
        return [required]
    if isinstance(node, n.FromChangelog):
        # It converts UPDATE_BEFORE and UPDATE_AFTER to rows.
        return [required] if required is Updates.PAIRS else None
    if isinstance(node, n.WindowTable) and node.is_session:
        # A retraction before the session ends is not emitted.
        return [Updates.PAIRS]
    if isinstance(node, n.LookupJoin) and required is Updates.AFTER and not _keeps_rows(node):
        return None
    if isinstance(node, (*_ROW_BY_ROW, n.Union)):
        return [required] * len(inputs)
    if isinstance(node, n.TemporalJoin):
        return [required, Updates.AFTER]
    if isinstance(node, n.Join) and not isinstance(node, (n.IntervalJoin, n.WindowJoin)):
        return [required] * 2 if required is Updates.PAIRS or _joins_by_key(node, inputs, keys) else None
    if isinstance(node, (n.Rank, n.Sort)) and node.strategy == UPDATE_FAST:
        return [Updates.AFTER]
    return [Updates.PAIRS] * len(inputs)


def _keeps_rows(node: n.LookupJoin) -> bool:
    """Return whether output rows map one to one to input rows; otherwise UPDATE_AFTER alone may leave stale rows."""
    return node.kind is n.JoinKind.LEFT and finds_one(node)


def _joins_by_key(node: n.Join, inputs: Sequence[Kinds], keys: Sequence[Keys]) -> bool:
    """Return whether UPDATE_AFTER alone replaces all former pairs, because a row keeps its partners."""
    if node.kind is not n.JoinKind.INNER or node.condition is not None:
        # An update may remove a row's partners, and the partners of others must be counted.
        return False
    sides = zip(inputs, keys, (node.left_keys, node.right_keys), strict=True)
    return all(Changes.UPDATE_AFTER not in kinds or frozenset(on) in unique for kinds, unique, on in sides)


def _filters_by_key(node: n.Calc | n.Filter, keys: Keys) -> bool:
    used = {c for test in conjuncts(node.condition) for c in columns_of(test)}
    return any(used <= key for key in keys)


def emitted_kinds(kinds: Kinds, required: Updates) -> Kinds:
    """Return the row kinds of a node for an update kind."""
    return kinds - {Changes.UPDATE_BEFORE} if required is Updates.AFTER else kinds


class Monotonicity(Enum):
    """Whether a column's values increase or decrease."""

    CONSTANT = "constant"
    INCREASING = "increasing"
    DECREASING = "decreasing"


_CALLS = {"COUNT": Monotonicity.INCREASING, "MAX": Monotonicity.INCREASING, "MIN": Monotonicity.DECREASING}


def monotonic(node: n.Node, kinds_of: Callable[[n.Node], Kinds]) -> dict[int, Monotonicity]:
    """Return the monotonicity of a node's columns, as far as known.

    Args:
        node: the node.
        kinds_of: returns the row kinds of a node.
    """
    if isinstance(node, n.Calc):
        below = monotonic(node.input, kinds_of)
        mapping = {i: e.index for i, e in enumerate(node.expressions) if isinstance(e, Column)}
        return {i: below[p] for i, p in mapping.items() if p in below}
    if isinstance(node, n.Aggregate) and kinds_of(node.input) == INSERTS:
        result = dict.fromkeys(range(len(node.keys)), Monotonicity.CONSTANT)
        for i, call in enumerate(node.calls, len(node.keys)):
            monotonicity = _CALLS.get(call.function)
            if call.function == "SUM" and _is_never_negative(node.input, call.arguments[0]):
                monotonicity = Monotonicity.INCREASING
            if monotonicity is not None and call.user is None:
                result[i] = monotonicity
        return result
    return {}


def _is_never_negative(node: n.Node, column: int) -> bool:
    """Return whether a filter drops all rows with negative values of a column."""
    if not isinstance(node, n.Calc):
        return False
    value = node.expressions[column]
    if isinstance(value, Constant):
        return _is_at_least_zero(value)
    return any(
        isinstance(test, Call)
        and test.function in (">", ">=")
        and test.arguments[0] == value
        and _is_at_least_zero(test.arguments[1])
        for test in conjuncts(node.condition)
    )


def _is_at_least_zero(e: Expression) -> bool:
    return isinstance(e, Constant) and isinstance(e.value, (int, float, Decimal)) and e.value >= 0


def is_ordered_by(
    order: tuple[tuple[int, bool, bool], ...], monotonicity: dict[int, Monotonicity], fields: Fields
) -> bool:
    """Return whether updates never worsen a row's position in an order."""
    for column, descending, nulls_first in order:
        result = monotonicity.get(column)
        if result is None or result is (Monotonicity.DECREASING if descending else Monotonicity.INCREASING):
            return False
        if result is not Monotonicity.CONSTANT and nulls_first and fields[column].type.is_nullable:
            # The first value of MIN or MAX replaces a null.
            return False
    return True


# ON CONFLICT strategies that detect a second row of a primary key.
DETECTING = ("NOTHING", "ERROR")
_RETRACTS = "requires UPDATE_BEFORE (retract mode)"


def needs_only_update_after(end: Single, keys: Keys) -> bool:
    """Return whether a sink needs only UPDATE_AFTER, because it upserts by key.

    Args:
        end: the end.
        keys: the upsert keys of its rows. If the primary key has columns outside of all of them, an update may change
            a row's primary key, and the row of the former one must be deleted.
    """
    if isinstance(end, Sink):
        is_upsert = Changes.UPDATE_BEFORE not in end.sink.changes and end.materialize is None
        return is_upsert and (not end.table.primary_key or frozenset(_primary_key(end)) in keys)
    return isinstance(end, ToStream) and end.upsert


def prepared(end: Single, kinds: Kinds, keys: Keys, settings: Mapping[str, str], batch: bool = False) -> Single:
    """Return the sink with its materialization key, if it needs one."""
    if not isinstance(end, Sink):
        return end
    _check_conflict(end, batch)
    primary = _primary_key(end)
    mode = _mode(settings)
    detects = end.conflict in DETECTING
    is_unique = any(key <= frozenset(primary) for key in keys)
    if mode == "AUTO" and not batch:
        _require_conflict(end, is_unique, settings)
    if not primary or mode == "NONE" or (kinds == INSERTS and mode != "FORCE" and not detects):
        return end
    accepts_update_before = Changes.UPDATE_BEFORE in end.sink.changes
    if end.sink.changes == INSERTS or (accepts_update_before and (mode != "FORCE" or Changes.UPDATE_BEFORE in kinds)):
        return end
    if mode == "FORCE" or not is_unique:
        upsert_key = min(keys, key=lambda key: (len(key), sorted(key)), default=frozenset())
        return replace(end, materialize=primary, upsert_key=tuple(sorted(upsert_key)) if detects else ())
    return end


def _check_conflict(end: Sink, batch: bool) -> None:
    """Reject an ON CONFLICT that cannot be executed."""
    if end.conflict is None:
        return
    name, changes = ".".join(end.name), end.sink.changes
    if changes == INSERTS or Changes.UPDATE_BEFORE in changes:
        reason = "only accepts INSERT (append-only) changes" if changes == INSERTS else _RETRACTS
        raise ValidationException(
            f"ON CONFLICT clause is only allowed for upsert sinks. The sink '{name}' is not an upsert sink because it "
            f"{reason}."
        )
    missing = [] if batch or end.conflict not in DETECTING else list(_without_watermarks(end.input))
    if missing:
        raise ValidationException(
            f"ON CONFLICT DO {end.conflict} requires all source tables to define watermarks, but the following "
            f"source(s) do not: {', '.join(missing)}. Please add a WATERMARK declaration to these tables."
        )


def _without_watermarks(node: Node) -> Iterator[str]:
    if isinstance(node, Scan) and node.table.watermark is None:
        yield ".".join(node.name)
    elif isinstance(node, StreamScan) and all(f.time is not TimeAttribute.ROWTIME for f in node.fields.fields):
        yield "a DataStream"
    for below in node.inputs:
        yield from _without_watermarks(below)


def _require_conflict(end: Sink, is_unique: bool, settings: Mapping[str, str]) -> None:
    """Reject a sink that may receive several rows per primary key without ON CONFLICT."""
    changes = end.sink.changes
    is_upsert = bool(end.table.primary_key) and changes != INSERTS and Changes.UPDATE_BEFORE not in changes
    required = settings.get("table.exec.sink.require-on-conflict", "false").strip().lower() == "true"
    if required and is_upsert and not is_unique and end.conflict is None:
        raise ValidationException(
            "The query has an upsert key that differs from the primary key of the sink table "
            f"'{'.'.join(end.name)}'. Please specify an ON CONFLICT clause to define how conflicts should be handled: "
            "ON CONFLICT DO DEDUPLICATE, DO ERROR or DO NOTHING."
        )


def _primary_key(end: Sink) -> tuple[int, ...]:
    return tuple(end.fields.names.index(k) for k in end.table.primary_key)


def _mode(settings: Mapping[str, str]) -> str:
    return settings.get("table.exec.sink.upsert-materialize", "AUTO").upper()
