"""Takes what looks at the row of the query around out of a query: conditions become those of a join."""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.sql.bind.relations import joined_fields
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Call, Column, Expression, columns_of, conjunction, conjuncts, replaced, walk
from millstream.sql.plan import nodes as n
from millstream.sql.plan.rewrite import moved, shifted
from millstream.sql.plan.subqueries import Outer, Subquery
from millstream.sql.schema import Field, Fields
from millstream.sql.types import BooleanType


def looks_out(e: Expression) -> bool:
    """Tell whether an expression looks at the row of a query around."""
    return any(isinstance(p, Outer) or (isinstance(p, Subquery) and is_correlated(p.node, 2)) for p in walk(e))


def expressions_of(node: n.Node) -> list[Expression]:
    """Return the expressions of a node itself."""
    if isinstance(node, n.Project):
        return list(node.expressions)
    if isinstance(node, n.Calc):
        return [*node.expressions, *conjuncts(node.condition)]
    if isinstance(node, n.Filter):
        return [node.condition]
    if isinstance(node, n.Correlate):
        return [*node.arguments, *conjuncts(node.condition)]
    if isinstance(node, (n.Join, n.Apply)):
        return conjuncts(node.condition)
    return []


def is_correlated(node: n.Node, level: int = 1) -> bool:
    """Tell whether a query looks at the row of one so many levels around it."""
    for e in expressions_of(node):
        for part in walk(e):
            if isinstance(part, Outer) and part.level >= level:
                return True
            if isinstance(part, Subquery) and is_correlated(part.node, level + 1):
                return True
    return any(is_correlated(i, level) for i in node.inputs)


@dataclass(frozen=True)
class Pulled:
    """A query without what looked out of it.

    Attributes:
        node: the query; columns that conditions need are behind its own.
        conditions: about its columns, and about the row around by `Outer`.
        places: where its own columns are now.
    """

    node: n.Node
    conditions: tuple[Expression, ...]
    places: tuple[int, ...]


def pulled(node: n.Node) -> Pulled:
    """Take conditions that look out of a query out of it."""
    own = tuple(range(len(node.fields)))
    if not is_correlated(node):
        return Pulled(node, (), own)
    pull = _PULL.get(type(node))
    if pull is None:
        raise ValidationException(
            f"A correlated subquery with {type(node).__name__} inside is not supported: join with it instead."
        )
    return pull(node)


def _filter(node: n.Filter) -> Pulled:
    below = pulled(node.input)
    places = dict(enumerate(below.places))
    tests = [moved(t, places) for t in conjuncts(node.condition)]
    kept = [t for t in tests if not looks_out(t)]
    out = [t for t in tests if looks_out(t)]
    found = n.Filter(below.node.fields, below.node, conjunction(kept)) if kept else below.node
    return Pulled(found, (*below.conditions, *out), below.places)


def _project(node: n.Project) -> Pulled:
    below = pulled(node.input)
    if any(map(looks_out, node.expressions)):
        raise ValidationException(
            "A correlated subquery cannot compute with columns of the query around it below its outermost SELECT."
        )
    places = dict(enumerate(below.places))
    expressions = [moved(e, places) for e in node.expressions]
    fields = list(node.fields.fields)
    needed = sorted({c for t in below.conditions for c in columns_of(t)})
    new: dict[int, int] = {}
    for column in needed:
        same = next((i for i, e in enumerate(expressions) if isinstance(e, Column) and e.index == column), None)
        if same is None:
            same = len(expressions)
            field = below.node.fields[column]
            expressions.append(Column(field.type, column))
            fields.append(field)
        new[column] = same
    conditions = tuple(moved(t, new) for t in below.conditions)
    found = n.Project(Fields(tuple(fields)), below.node, tuple(expressions))
    return Pulled(found, conditions, tuple(range(len(node.fields))))


def _equal_sides(test: Expression) -> tuple[Expression, Expression] | None:
    """Return the side that looks out and the side that does not, of an equality."""
    if isinstance(test, Call) and test.function == "=":
        a, b = test.arguments
        for outer, inner in ((a, b), (b, a)):
            if looks_out(outer) and not columns_of(outer) and not looks_out(inner):
                return outer, inner
    return None


def grouping_columns(below: Pulled, what: str) -> tuple[n.Node, list[int], list[Expression]]:
    """Return the query with a column for each side that must be equal to one around, and what it must equal."""
    columns: list[Expression] = [Column(f.type, i) for i, f in enumerate(below.node.fields.fields)]
    fields = list(below.node.fields.fields)
    places, outers = [], []
    for test in below.conditions:
        sides = _equal_sides(test)
        if sides is None:
            raise ValidationException(f"A correlated condition below {what} must be an equality with a column around.")
        outer, inner = sides
        if inner not in columns:
            columns.append(inner)
            fields.append(Field(f"$k{len(columns)}", inner.type))
        places.append(columns.index(inner))
        outers.append(outer)
    node = below.node
    if len(columns) > len(node.fields):
        node = n.Project(Fields(tuple(fields)), node, tuple(columns))
    return node, places, outers


def _aggregate(node: n.Aggregate) -> Pulled:
    below = pulled(node.input)
    found, extra, outers = grouping_columns(below, "an aggregate")
    keys = tuple(below.places[k] for k in node.keys)
    added = tuple(p for p in dict.fromkeys(extra) if p not in keys)
    calls = tuple(
        replace(
            c,
            arguments=tuple(below.places[a] for a in c.arguments),
            condition=None if c.condition is None else below.places[c.condition],
            order=tuple((below.places[p], d, f) for p, d, f in c.order),
        )
        for c in node.calls
    )
    old = len(node.keys)
    new_fields = [replace(found.fields[p], time=None) for p in added]
    fields = (*node.fields.fields[:old], *new_fields, *node.fields.fields[old:])
    grouped = n.Aggregate(Fields(fields), found, (*keys, *added), calls)
    all_keys = (*keys, *added)
    conditions = []
    for place, outer in zip(extra, outers, strict=True):
        column = Column(found.fields[place].type, all_keys.index(place))
        conditions.append(_equal(outer, column))
    places = (*range(old), *(len(all_keys) + i for i in range(len(calls))))
    return Pulled(grouped, tuple(conditions), places)


def _equal(outer: Expression, column: Expression) -> Expression:
    return Call(BooleanType(outer.type.is_nullable or column.type.is_nullable), "=", (outer, column))


def _sort(node: n.Sort) -> Pulled:
    below = pulled(node.input)
    if node.limit is None and not node.offset:
        return below
    found, extra, outers = grouping_columns(below, "ORDER BY with LIMIT")
    if node.limit is None:
        raise ValidationException("OFFSET without LIMIT in a correlated subquery is not supported.")
    order = tuple((below.places[c], d, f) for c, d, f in node.order)
    if not order:
        raise ValidationException("LIMIT without ORDER BY in a correlated subquery is not supported.")
    partition = tuple(dict.fromkeys(extra))
    first, last = node.offset + 1, node.offset + node.limit
    ranked = n.Rank(found.fields, found, partition, order, "ROW_NUMBER", first, last, False)
    conditions = tuple(_equal(o, Column(found.fields[p].type, p)) for p, o in zip(extra, outers, strict=True))
    return Pulled(ranked, conditions, below.places)


def _join(node: n.Join) -> Pulled:
    left, right = pulled(node.left), pulled(node.right)
    inner = node.kind is n.JoinKind.INNER
    if right.conditions and not inner:
        raise ValidationException(
            f"A correlated subquery with a condition of the query around at the right of a {node.kind.name} JOIN is "
            "not supported."
        )
    width, old = len(left.node.fields), len(node.left.fields)
    places = dict(enumerate(left.places))
    places |= {old + i: width + p for i, p in enumerate(right.places)}
    tests = [moved(t, places) for t in conjuncts(node.condition)]
    out = [t for t in tests if looks_out(t)] if inner else []
    kept = [t for t in tests if t not in out]
    fields = joined_fields(node.kind, left.node.fields, right.node.fields)
    joined = replace(
        node,
        fields=fields,
        left=left.node,
        right=right.node,
        left_keys=tuple(left.places[k] for k in node.left_keys),
        right_keys=tuple(right.places[k] for k in node.right_keys),
        condition=conjunction(kept) if kept else None,
    )
    conditions = (*left.conditions, *(shifted(t, width) for t in right.conditions), *out)
    own = tuple(places[i] for i in range(len(node.fields)))
    return Pulled(joined, conditions, own)


def _correlate(node: n.Correlate) -> Pulled:
    below = pulled(node.input)
    if any(map(looks_out, [*node.arguments, *conjuncts(node.condition)])):
        raise ValidationException("A table function in a correlated subquery cannot look at the query around.")
    places = dict(enumerate(below.places))
    width, old = len(below.node.fields), len(node.input.fields)
    made = node.fields.fields[old:]
    places |= {old + i: width + i for i in range(len(made))}
    found = replace(
        node,
        fields=Fields((*below.node.fields.fields, *made)),
        input=below.node,
        arguments=tuple(moved(a, places) for a in node.arguments),
        condition=None if node.condition is None else moved(node.condition, places),
    )
    return Pulled(found, below.conditions, tuple(places[i] for i in range(len(node.fields))))


_PULL = {
    n.Filter: _filter,
    n.Project: _project,
    n.Aggregate: _aggregate,
    n.Sort: _sort,
    n.Join: _join,
    n.Correlate: _correlate,
}


def turned_in(e: Expression, width: int) -> Expression:
    """Return a condition about the row around and a query's own as one about a join of both."""

    def change(part: Expression) -> Expression | None:
        if isinstance(part, Outer):
            return Column(part.type, part.index) if part.level == 1 else Outer(part.type, part.index, part.level - 1)
        return Column(part.type, part.index + width) if isinstance(part, Column) else None

    return replaced(e, change)
