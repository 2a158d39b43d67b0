"""Lookup joins: temporal joins with the current version of a connector's table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from millstream.sql.bind.tables import retry_of
from millstream.sql.errors import TableException
from millstream.sql.expressions import Call, Column, Expression, columns_of, conjunction
from millstream.sql.optimizer.rewrite import inlined, moved
from millstream.sql.plan import nodes as n
from millstream.sql.schema import Fields
from millstream.sql.types import DataTypes

_CAPACITY = "table.exec.async-lookup.buffer-capacity"
# Maximum concurrent lookups: each uses a connection.
_MOST_AT_ONCE = 8


def find_lookup_join(node: n.Node, settings: Mapping[str, str]) -> n.Node:
    """Convert a processing-time temporal join to a lookup join, if the connector supports it."""
    if not isinstance(node, n.TemporalJoin) or node.is_event_time:
        return node
    scan, expressions, condition = _looked_up(node.right)
    if scan is None or scan.source.lookup((), ()) is None:
        return node
    pairs: list[tuple[int, int]] = []
    tests: list[Expression] = [] if node.condition is None else [node.condition]
    width = len(node.left.fields)
    for left, right, null_safe in zip(node.left_keys, node.right_keys, node.null_safe, strict=True):
        result = expressions[right]
        if isinstance(result, Column) and not null_safe and scan.columns[result.index] in _physical(scan):
            pairs.append((left, result.index))
        else:
            tests.append(_equal(node, left, width + right, null_safe))
    if not pairs:
        raise TableException(
            f"Temporal table join requires an equality condition on fields of table [{'.'.join(scan.name)}]."
        )
    scan, expressions, condition, keys = _narrowed(scan, expressions, condition, [k for _, k in pairs])
    hint = dict(node.hint)
    return n.LookupJoin(
        node.fields,
        node.left,
        scan,
        node.kind,
        tuple(i for i, _ in pairs),
        keys,
        expressions,
        condition,
        conjunction(tests) if tests else None,
        retry_of(hint),
        _at_once(hint, settings),
    )


def _looked_up(node: n.Node) -> tuple[n.Scan | None, tuple[Expression, ...], Expression | None]:
    """Return the scan below projections and filters, their expressions, and their condition."""
    if isinstance(node, n.Scan):
        return node, tuple(Column(f.type, i) for i, f in enumerate(node.fields.fields)), None
    if not isinstance(node, (n.Calc, n.Project, n.Filter, n.Watermark)):
        return None, (), None
    scan, below, left = _looked_up(node.input)
    if scan is None or isinstance(node, n.Watermark):
        return scan, below, left
    condition = None if isinstance(node, n.Project) else node.condition
    if condition is not None:
        tests = [inlined(condition, below)] if left is None else [left, inlined(condition, below)]
        left = conjunction(tests)
    if isinstance(node, n.Filter):
        return scan, below, left
    return scan, tuple(inlined(e, below) for e in node.expressions), left


def _physical(scan: n.Scan) -> set[str]:
    return {c.name for c in scan.table.physical}


def _equal(node: n.TemporalJoin, left: int, right: int, null_safe: bool) -> Expression:
    types = [*node.left.fields.types, *node.right.fields.types]
    columns = (Column(types[left], left), Column(types[right], right))
    return Call(DataTypes.BOOLEAN(), "IS NOT DISTINCT FROM" if null_safe else "=", columns)


def _narrowed(
    scan: n.Scan, expressions: tuple[Expression, ...], condition: Expression | None, keys: list[int]
) -> tuple[n.Scan, tuple[Expression, ...], Expression | None, tuple[int, ...]]:
    """Return a scan of only the used columns, with everything over it renumbered."""
    used = {c for e in expressions for c in columns_of(e)} | set(keys)
    used |= set() if condition is None else columns_of(condition)
    kept = sorted(used)
    places = {old: new for new, old in enumerate(kept)}
    result = replace(
        scan,
        fields=Fields(tuple(scan.fields[i] for i in kept)),
        columns=tuple(scan.columns[i] for i in kept),
        filters=(),
        limit=None,
    )
    tested = None if condition is None else moved(condition, places)
    return result, tuple(moved(e, places) for e in expressions), tested, tuple(places[k] for k in keys)


def _at_once(hint: Mapping[str, str], settings: Mapping[str, str]) -> int:
    if hint.get("async", "false").lower() != "true":
        return 1
    return max(min(int(hint.get("capacity", settings.get(_CAPACITY, "100"))), _MOST_AT_ONCE), 1)
