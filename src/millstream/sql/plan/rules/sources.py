"""Sources: what stands above one whose updates have no first half, and how much of one is wanted."""

from __future__ import annotations

from dataclasses import replace

from millstream.sql.changes import INSERTS, Changes
from millstream.sql.errors import TableException
from millstream.sql.plan import nodes as n


def normalize_upserts(node: n.Node) -> n.Node:
    """Put a ChangelogNormalize above a source that gives upserts."""
    if not isinstance(node, n.Scan):
        return node
    changes = node.source.changes
    if Changes.UPDATE_AFTER not in changes or Changes.UPDATE_BEFORE in changes:
        return node
    key = node.table.primary_key
    if not key:
        raise TableException(
            f"Table '{'.'.join(node.name)}' produces a changelog stream that contains UPDATE_AFTER but no "
            "UPDATE_BEFORE, but it has no primary key: declare PRIMARY KEY (..) NOT ENFORCED."
        )
    places = tuple(node.fields.names.index(k) for k in key)
    return n.ChangelogNormalize(node.fields, node, places)


def limit_scan(node: n.Node) -> n.Node:
    """Tell a source that only some of its rows are wanted, where each of them is one of the result's."""
    if not isinstance(node, n.Sort) or node.order or node.limit is None:
        return node
    below = _limited(node.input, node.offset + node.limit)
    return node if below is None else replace(node, input=below)


def _limited(node: n.Node, limit: int) -> n.Node | None:
    if isinstance(node, n.Scan):
        return replace(node, limit=limit) if node.source.changes == INSERTS and not node.filters else None
    if isinstance(node, (n.Project, n.Watermark)) or (isinstance(node, n.Calc) and node.condition is None):
        below = _limited(node.input, limit)
        return None if below is None else node.with_inputs([below])
    return None
