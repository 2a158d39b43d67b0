"""Upsert keys, derived through the plan: columns that identify a row and preserve the order of its changes.

All changes of one key come from one subtask. An exchange by other columns breaks this: when a row's value in those
columns changes, another subtask emits the new row than the one that retracts the old one.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.sql.expressions import Call, Column, Expression, conjuncts
from millstream.sql.functions.table import non_deterministic
from millstream.sql.plan import nodes as n


def distribution(node: n.Node) -> list[tuple[int, ...]] | None:
    """Return the columns by which each input must be distributed; empty for a single partition."""
    if isinstance(node, (n.Aggregate, n.WindowAggregate, n.Deduplicate, n.ChangelogNormalize)):
        return [node.keys]
    if isinstance(node, n.WindowTable) and node.is_session:
        return [node.window.partition]
    if isinstance(node, n.Over):
        return [node.over.partition]
    if isinstance(node, n.Rank):
        return [node.partition]
    if isinstance(node, n.Join):
        return [node.left_keys, node.right_keys]
    if isinstance(node, n.MaterializedLookupJoin):
        return [node.state_key]
    if isinstance(node, n.SetOperation):
        return [tuple(range(len(node.fields)))] * 2
    if isinstance(node, n.Sort):
        return [()]
    if isinstance(node, n.Sink) and node.materialize is not None:
        return [node.materialize]
    return None


def is_distributed_by(node: n.Node, keys: tuple[int, ...]) -> bool:
    """Return whether the rows of a node are already distributed by some columns."""
    if isinstance(node, n.Calc):
        positions = []
        for k in keys:
            e = node.expressions[k]
            if not isinstance(e, Column):
                return False
            positions.append(e.index)
        return is_distributed_by(node.input, tuple(positions))
    if isinstance(node, (n.Aggregate, n.WindowAggregate)):
        return bool(keys) and keys == tuple(range(len(node.keys)))
    if isinstance(node, n.Deduplicate):
        return bool(keys) and keys == node.keys
    if isinstance(node, n.WindowTable):
        return node.is_session and bool(keys) and keys == node.window.partition
    if isinstance(node, n.Rank):
        return bool(keys) and keys == node.partition
    return False


def exchanges(planned: n.Planned) -> list[tuple[int, ...] | None]:
    """Return for each input the columns of its exchange; None where the distribution already fits."""
    required = distribution(planned.node)
    if required is None:
        return [None] * len(planned.inputs)
    return [
        None if is_distributed_by(below.node, keys) else keys
        for below, keys in zip(planned.inputs, required, strict=True)
    ]


Keys = frozenset[frozenset[int]]
NONE: Keys = frozenset()


def keys_of(node: n.Node, inputs: Sequence[Keys]) -> Keys:
    """Return the upsert keys of a node; the empty set means at most one row.

    Args:
        node: the node.
        inputs: the upsert keys of its inputs.
    """
    located = [_located(keys, on) for keys, on in zip(inputs, distribution(node) or [()] * len(inputs), strict=True)]
    if isinstance(node, n.Scan):
        return _primary_key(node.table.primary_key, node.fields.names)
    if isinstance(node, n.StreamScan):
        return frozenset([frozenset(node.key)]) if node.key else NONE
    if isinstance(node, n.Values):
        return frozenset([frozenset()]) if len(node.rows) == 1 else NONE
    if isinstance(node, (n.Filter, n.Watermark, n.MiniBatch)):
        return inputs[0]
    if isinstance(node, n.Sort):
        return _of_sort(node, inputs[0])
    if isinstance(node, n.Calc):
        return _projected(node.expressions, inputs[0])
    if isinstance(node, n.Project):
        return _projected(node.expressions, inputs[0])
    if isinstance(node, n.Aggregate):
        return frozenset([frozenset(range(len(node.keys)))])
    if isinstance(node, n.WindowAggregate):
        return _of_windows(node)
    if isinstance(node, n.Deduplicate):
        return frozenset([frozenset(node.keys)])
    if isinstance(node, n.Rank):
        return _of_rank(node, located[0])
    if isinstance(node, n.Over):
        return located[0]
    if isinstance(node, n.ChangelogNormalize):
        return frozenset([frozenset(node.keys)])
    if isinstance(node, n.Join):
        return _of_join(node, inputs, located)
    if isinstance(node, n.LookupJoin):
        return inputs[0] if finds_one(node) and not _differs(node) else NONE
    if isinstance(node, n.SetOperation):
        return NONE if node.all else frozenset([frozenset(range(len(node.fields)))])
    if isinstance(node, (n.Sink, n.Collected, n.ToStream)):
        return inputs[0]
    return NONE


def _located(keys: Keys, on: Sequence[int]) -> Keys:
    """Return the keys that remain upsert keys after an exchange by some columns."""
    return frozenset(key for key in keys if key.issuperset(on))


def finds_one(node: n.LookupJoin) -> bool:
    """Return whether a lookup returns at most one row, by the table's primary key."""
    key = node.scan.table.primary_key
    return bool(key) and set(key) <= {node.scan.columns[k] for k in node.lookup_keys}


def _differs(node: n.LookupJoin) -> bool:
    """Return whether a lookup join's output may differ for the same rows, by Flink's criteria."""
    parts = [*node.expressions, *conjuncts(node.filter), *conjuncts(node.condition)]
    return any(non_deterministic(e) is not None for e in parts)


def _primary_key(names: Sequence[str], columns: Sequence[str]) -> Keys:
    if not names or not set(names) <= set(columns):
        return NONE
    return frozenset([frozenset(columns.index(name) for name in names)])


def _projected(expressions: Sequence[Expression], keys: Keys) -> Keys:
    mapping: dict[int, list[int]] = {}
    for index, e in enumerate(expressions):
        column = _same_value(e)
        if column is not None:
            mapping.setdefault(column, []).append(index)
    result = {frozenset(mapping[k][0] for k in key) for key in keys if all(k in mapping for k in key)}
    return frozenset(result)


def _same_value(e: Expression) -> int | None:
    """Return the column that an expression equals or maps one to one."""
    if isinstance(e, Column):
        return e.index
    if isinstance(e, Call) and e.function == "CAST" and isinstance(e.arguments[0], Column):
        return e.arguments[0].index if _loses_nothing(e) else None
    return None


def _loses_nothing(cast: Call) -> bool:
    from millstream.sql.types import IntegralType, VarCharType

    source, target = cast.arguments[0].type, cast.type
    if isinstance(source, IntegralType) and isinstance(target, IntegralType):
        return source.bits <= target.bits
    return isinstance(source, IntegralType) and isinstance(target, VarCharType)


def _of_windows(node: n.WindowAggregate) -> Keys:
    first = len(node.keys) + len(node.calls)
    result = set()
    for i, part in enumerate(node.properties):
        if part in ("start", "end"):
            result.add(frozenset([*range(len(node.keys)), first + i]))
    return frozenset(result)


def _of_rank(node: n.Rank, below: Keys) -> Keys:
    if node.function != "ROW_NUMBER":
        return below
    if node.shows_rank:
        return _of_places(frozenset([*node.partition, len(node.fields) - 1]))
    rank_keys = _of_places(frozenset(node.partition)) if node.first == node.last else NONE
    return rank_keys if node.first > 1 else rank_keys | below


def _of_places(key: frozenset[int]) -> Keys:
    """Return the upsert key of ranked rows.

    The input's keys do not apply: an update replaces the row at a rank by another one, whose former rank is retracted
    only later.
    """
    return frozenset([key])


def _of_sort(node: n.Sort, below: Keys) -> Keys:
    if not node.offset:
        return below
    return _of_places(frozenset()) if node.limit == 1 else NONE


def _of_join(node: n.Join, inputs: Sequence[Keys], located: Sequence[Keys]) -> Keys:
    left, right = located
    if node.kind in (n.JoinKind.SEMI, n.JoinKind.ANTI):
        return left
    width = len(node.left.fields)
    shifted = frozenset(frozenset(k + width for k in key) for key in right)
    left_unique = any(key <= frozenset(node.left_keys) for key in inputs[0])
    right_unique = any(key <= frozenset(node.right_keys) for key in inputs[1])
    result: set[frozenset[int]] = set()
    # If a row has at most one partner, its side's key is a key of the pair.
    if right_unique and node.kind in (n.JoinKind.INNER, n.JoinKind.LEFT):
        result |= left
    if left_unique and node.kind in (n.JoinKind.INNER, n.JoinKind.RIGHT):
        result |= shifted
    if not result:
        result = {a | b for a in left for b in shifted}
    if not isinstance(node, n.TemporalJoin) or right_unique:
        return frozenset(result)
    return left
