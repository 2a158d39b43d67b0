"""Rules for sources: changelog normalization, limits, shared scans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from millstream.sql.errors import TableException
from millstream.sql.expressions import Column, columns_of, conjunction, conjuncts
from millstream.sql.optimizer.rewrite import bottom_up
from millstream.sql.optimizer.rules.filter_pushdown import is_stable
from millstream.sql.plan import nodes as n
from millstream.sql.schema import INSERTS, Changes, Fields

_DUPLICATES = "table.exec.source.cdc-events-duplicate"

_FILTERED_VERSIONS = (
    "Filter is not allowed for right changelog input of event time temporal join, it will corrupt the versioning of "
    "data. Please consider removing the filter before joining: put it into the ON or WHERE of the join."
)


def normalize_changes(node: n.Node, settings: Mapping[str, str]) -> n.Node:
    """Put a ChangelogNormalize above a source that emits upserts or duplicates.

    The versioned side of a temporal join needs none: normalization would give a deletion the time of the deleted row,
    which would then never have been valid.
    """
    if isinstance(node, n.TemporalJoin) and node.is_event_time:
        return replace(node, right=_versions(node.right) or node.right)
    if isinstance(node, n.StreamScan) and node.key:
        return n.ChangelogNormalize(node.fields, node, node.key)
    if not isinstance(node, n.Scan):
        return node
    changes = node.source.changes
    is_upserts = Changes.UPDATE_AFTER in changes and Changes.UPDATE_BEFORE not in changes
    has_duplicates = changes != INSERTS and settings.get(_DUPLICATES, "false").strip().lower() == "true"
    if not is_upserts and not has_duplicates:
        return node
    key = node.table.primary_key
    if not key:
        raise TableException(_without_key(".".join(node.name), is_upserts))
    key_columns = tuple(node.fields.names.index(k) for k in key)
    return n.ChangelogNormalize(node.fields, node, key_columns)


def _versions(node: n.Node) -> n.Node | None:
    """Return the source's rows below projections; None if another node creates the rows."""
    if isinstance(node, n.ChangelogNormalize):
        return node.input
    if not isinstance(node, (n.Project, n.Filter, n.Watermark)):
        return node if isinstance(node, (n.Scan, n.StreamScan)) else None
    below = _versions(node.input)
    if below is not None and isinstance(node, n.Filter):
        raise TableException(_FILTERED_VERSIONS)
    return None if below is None else node.with_inputs([below])


def _without_key(table: str, is_upserts: bool) -> str:
    if is_upserts:
        return (
            f"Table '{table}' produces a changelog stream that contains UPDATE_AFTER but no UPDATE_BEFORE, but it has "
            "no primary key: declare PRIMARY KEY (..) NOT ENFORCED."
        )
    return (
        f"Configuration '{_DUPLICATES}' is enabled which requires the changelog sources to define a PRIMARY KEY. "
        f"However, table '{table}' doesn't have a primary key."
    )


def filter_in_normalize(plans: Sequence[n.Node]) -> list[n.Node]:
    """Move the filter above a ChangelogNormalize into it, so that it stores fewer rows.

    Conditions on the key are pushed below it. A shared node is unchanged: its rows are stored once for all readers.
    """
    tables = Counter(_table_of(node) for plan in plans for node in _all(plan) if isinstance(node, n.ChangelogNormalize))

    def pushed(node: n.Node) -> n.Node:
        if not isinstance(node, n.Calc) or not isinstance(node.input, n.ChangelogNormalize) or node.condition is None:
            return node
        below, tests = node.input, conjuncts(node.condition)
        if tables[_table_of(below)] > 1 or not all(is_stable(t) and columns_of(t) for t in tests):
            return node
        source = below.input
        is_upserts = not isinstance(source, n.Scan) or Changes.UPDATE_BEFORE not in source.source.changes
        by_key = [t for t in tests if is_upserts and columns_of(t) <= set(below.keys)]
        others = [t for t in tests if t not in by_key]
        if by_key:
            columns = tuple(Column(f.type, i) for i, f in enumerate(source.fields.fields))
            source = n.Calc(source.fields, source, columns, conjunction(by_key))
        result = replace(below, input=source, condition=conjunction(others) if others else None)
        return replace(node, input=result, condition=None)

    return [bottom_up(plan, pushed) for plan in plans]


def _table_of(node: n.ChangelogNormalize) -> object:
    below: n.Node = node
    while below.inputs:
        (below,) = below.inputs
    return id(below.stream) if isinstance(below, n.StreamScan) else getattr(below, "name", id(below))


def _all(node: n.Node) -> Iterator[n.Node]:
    yield node
    for below in node.inputs:
        yield from _all(below)


def limit_scan(node: n.Node) -> n.Node:
    """Pass a limit to a source, where each of its rows is a result row."""
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


def share_scans(plans: Sequence[n.Node]) -> list[n.Node]:
    """Read a table once per job, with the union of the columns that its readers need."""
    required: dict[int, tuple[n.Scan, set[str]]] = {}
    result: list[n.Scan] = []
    for plan in plans:
        result += [s for s in _scans(plan) if not s.filters and s.limit is None]
    for scan in result:
        same = next((k for k, (other, _) in required.items() if _is_same_table(scan, other)), None)
        if same is None:
            required[id(scan)] = (scan, set(scan.columns))
        else:
            required[same][1].update(scan.columns)

    def widened(node: n.Node) -> n.Node:
        if not isinstance(node, n.Scan) or node.filters or node.limit is not None:
            return node
        columns = next(c for other, c in required.values() if _is_same_table(node, other))
        if columns == set(node.columns):
            return node
        return _with_columns(node, [s for s in result if _is_same_table(node, s)], columns)

    return [bottom_up(plan, widened) for plan in plans]


def _scans(node: n.Node) -> Iterator[n.Scan]:
    return (one for one in _all(node) if isinstance(one, n.Scan))


def _is_same_table(a: n.Scan, b: n.Scan) -> bool:
    return a.name == b.name and a.options == b.options and a.table == b.table


def _with_columns(node: n.Scan, equal_scans: Sequence[n.Scan], columns: set[str]) -> n.Node:
    """Return a scan of more columns in table order, projected to the former ones."""
    fields = {c: f for scan in equal_scans for c, f in zip(scan.columns, scan.fields.fields, strict=True)}
    declared = [c.metadata_key or c.name for c in node.table.columns]
    order = sorted(columns, key=declared.index)
    wide = replace(node, fields=Fields(tuple(fields[c] for c in order)), columns=tuple(order))
    own = tuple(Column(fields[c].type, order.index(c)) for c in node.columns)
    return n.Project(node.fields, wide, own)
