"""What stands above a source whose updates have no first half."""

from __future__ import annotations

from millstream.sql.changes import Changes
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
