"""Which rows must lie together, and which do."""

from __future__ import annotations

from millstream.sql.expressions import Column
from millstream.sql.plan import nodes as n


def distribution(node: n.Node) -> list[tuple[int, ...]] | None:
    """Return by which columns of its inputs the rows of a node lie together; by none: all in one place."""
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


def lies_so(node: n.Node, keys: tuple[int, ...]) -> bool:
    """Tell whether the rows of a node lie together by some columns already."""
    if isinstance(node, n.Calc):
        moved = []
        for k in keys:
            e = node.expressions[k]
            if not isinstance(e, Column):
                return False
            moved.append(e.index)
        return lies_so(node.input, tuple(moved))
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
    """Return for each input the columns by which its rows are exchanged; None where they lie as they should."""
    wanted = distribution(planned.node)
    if wanted is None:
        return [None] * len(planned.inputs)
    return [None if lies_so(below.node, keys) else keys for below, keys in zip(planned.inputs, wanted, strict=True)]
