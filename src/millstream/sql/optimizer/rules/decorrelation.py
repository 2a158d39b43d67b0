"""Decorrelation: moves conditions on outer rows out of a subquery into a join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.common.dispatch import Dispatch
from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.bind.relations import joined_fields
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Call, Column, Expression, columns_of, conjunction, conjuncts, replaced, walk
from millstream.sql.optimizer.rewrite import moved, shifted
from millstream.sql.plan import nodes as n
from millstream.sql.plan.subqueries import Outer, Subquery
from millstream.sql.schema import Field, Fields
from millstream.sql.types import BooleanType


def has_outer_columns(e: Expression) -> bool:
    """Return whether an expression refers to an outer row."""
    return any(isinstance(p, Outer) or (isinstance(p, Subquery) and is_correlated(p.node, 2)) for p in walk(e))


def expressions_of(node: n.Node) -> list[Expression]:
    """Return the expressions of a single node."""
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
    """Return whether a query refers to the row `level` levels outward."""
    for e in expressions_of(node):
        for part in walk(e):
            if isinstance(part, Outer) and part.level >= level:
                return True
            if isinstance(part, Subquery) and is_correlated(part.node, level + 1):
                return True
    return any(is_correlated(i, level) for i in node.inputs)


@fast_dataclass
class Pulled:
    """A decorrelated query.

    Attributes:
        node: the query; columns that the conditions need are appended.
        conditions: over its columns and, by `Outer`, over the outer row.
        mapping: the indexes of its own columns.
    """

    node: n.Node
    conditions: tuple[Expression, ...]
    mapping: tuple[int, ...]


def pulled(node: n.Node, outer_node: n.Node | None = None) -> Pulled:
    """Move correlated conditions out of a query.

    Args:
        node: the query.
        outer_node: the relation with the outer rows; None if it is not available.
    """
    own = tuple(range(len(node.fields)))
    if not is_correlated(node):
        return Pulled(node, (), own)
    pull = _PULL.get(node)
    if pull is None:
        raise ValidationException(
            f"A correlated subquery with {type(node).__name__} inside is not supported: join with it instead."
        )
    return pull(node, outer_node)


def _filter(node: n.Filter, outer_node: n.Node | None) -> Pulled:
    below = pulled(node.input, outer_node)
    mapping = dict(enumerate(below.mapping))
    tests = [moved(t, mapping) for t in conjuncts(node.condition)]
    inner_tests = [t for t in tests if not has_outer_columns(t)]
    out = [t for t in tests if has_outer_columns(t)]
    result = n.Filter(below.node.fields, below.node, conjunction(inner_tests)) if inner_tests else below.node
    return Pulled(result, (*below.conditions, *out), below.mapping)


def _project(node: n.Project, outer_node: n.Node | None) -> Pulled:
    below = pulled(node.input, outer_node)
    if any(map(has_outer_columns, node.expressions)):
        raise ValidationException(
            "A correlated subquery can use outer columns in expressions only in its outermost SELECT."
        )
    mapping = dict(enumerate(below.mapping))
    expressions = [moved(e, mapping) for e in node.expressions]
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
    result = n.Project(Fields(tuple(fields)), below.node, tuple(expressions))
    return Pulled(result, conditions, tuple(range(len(node.fields))))


def _equal_sides(test: Expression) -> tuple[Expression, Expression] | None:
    """Return the correlated and the uncorrelated operand of an equality."""
    if isinstance(test, Call) and test.function == "=":
        a, b = test.arguments
        for outer, inner in ((a, b), (b, a)):
            if has_outer_columns(outer) and not columns_of(outer) and not has_outer_columns(inner):
                return outer, inner
    return None


@fast_dataclass
class ByOuter:
    """A query with columns that relate its rows to outer rows.

    Attributes:
        node: the query.
        keys: the columns; `outers` are the equal expressions over the outer row.
        operator: `=` or its null-safe form.
        shift: the shift of the query's own columns.
    """

    node: n.Node
    keys: tuple[int, ...]
    outers: tuple[Expression, ...]
    operator: str = "="
    shift: int = 0

    def conditions(self, mapping: dict[int, int]) -> tuple[Expression, ...]:
        """Return the conditions that relate its rows to outer rows, with its keys at given indexes."""
        result = []
        for key, outer in zip(self.keys, self.outers, strict=True):
            column = Column(self.node.fields[key].type, mapping[key])
            nullable = self.operator == "=" and (outer.type.is_nullable or column.type.is_nullable)
            result.append(Call(BooleanType(nullable), self.operator, (outer, column)))
        return tuple(result)


def by_outer(below: Pulled, construct: str, outer_node: n.Node | None) -> ByOuter:
    """Return a query with the columns that relate its rows to outer rows."""
    sides = [_equal_sides(t) for t in below.conditions]
    if any(s is None for s in sides):
        return _joined_around(below, construct, outer_node)
    columns: list[Expression] = [Column(f.type, i) for i, f in enumerate(below.node.fields.fields)]
    fields = list(below.node.fields.fields)
    keys, outers = [], []
    for pair in sides:
        assert pair is not None
        outer, inner = pair
        if inner not in columns:
            columns.append(inner)
            fields.append(Field(f"$k{len(columns)}", inner.type))
        keys.append(columns.index(inner))
        outers.append(outer)
    node = below.node
    if len(columns) > len(node.fields):
        node = n.Project(Fields(tuple(fields)), node, tuple(columns))
    return ByOuter(node, tuple(keys), tuple(outers))


def _joined_around(
    below: Pulled, construct: str, outer_node: n.Node | None, more: Sequence[Expression] = ()
) -> ByOuter:
    """Join a query with the distinct outer values that it uses, for conditions that are not equalities.

    `more` are conditions to be added above, whose outer values are included.
    """
    outer = [p for t in (*below.conditions, *more) for p in walk(t) if isinstance(p, Outer)]
    outer_columns = sorted({p.index for p in outer})
    if outer_node is None or any(p.level > 1 for p in outer):
        raise ValidationException(f"A correlated condition below {construct} must be an equality with an outer column.")
    fields = Fields(tuple(replace(outer_node.fields[i], time=None) for i in outer_columns))
    columns = tuple(Column(outer_node.fields[i].type, i) for i in outer_columns)
    distinct = n.Aggregate(fields, n.Project(fields, outer_node, columns), tuple(range(len(outer_columns))), ())
    width = len(outer_columns)

    def relocated(part: Expression) -> Expression | None:
        if isinstance(part, Outer):
            return Column(part.type, outer_columns.index(part.index))
        return Column(part.type, part.index + width) if isinstance(part, Column) else None

    tests = [replaced(t, relocated) for t in below.conditions]
    condition = conjunction(tests) if tests else None
    together = joined_fields(n.JoinKind.INNER, fields, below.node.fields)
    joined = n.Join(together, distinct, below.node, n.JoinKind.INNER, condition=condition)
    outers = tuple(Outer(outer_node.fields[i].type, i) for i in outer_columns)
    return ByOuter(joined, tuple(range(width)), outers, "IS NOT DISTINCT FROM", width)


def _aggregate(node: n.Aggregate, outer_node: n.Node | None) -> Pulled:
    below = pulled(node.input, outer_node)
    rows = by_outer(below, "an aggregate", outer_node)
    moved_to = [p + rows.shift for p in below.mapping]
    keys = tuple(moved_to[k] for k in node.keys)
    added = tuple(p for p in dict.fromkeys(rows.keys) if p not in keys)
    calls = tuple(
        replace(
            c,
            arguments=tuple(moved_to[a] for a in c.arguments),
            condition=None if c.condition is None else moved_to[c.condition],
            order=tuple((moved_to[p], d, f) for p, d, f in c.order),
        )
        for c in node.calls
    )
    old = len(node.keys)
    new_fields = [replace(rows.node.fields[p], time=None) for p in added]
    fields = (*node.fields.fields[:old], *new_fields, *node.fields.fields[old:])
    all_keys = (*keys, *added)
    grouped = n.Aggregate(Fields(fields), rows.node, all_keys, calls)
    conditions = rows.conditions({k: i for i, k in enumerate(all_keys)})
    mapping = (*range(old), *(len(all_keys) + i for i in range(len(calls))))
    return Pulled(grouped, conditions, mapping)


def _sort(node: n.Sort, outer_node: n.Node | None) -> Pulled:
    below = pulled(node.input, outer_node)
    if node.limit is None and not node.offset:
        return below
    rows = by_outer(below, "ORDER BY with LIMIT", outer_node)
    if node.limit is None:
        raise ValidationException("OFFSET without LIMIT in a correlated subquery is not supported.")
    order = tuple((below.mapping[c] + rows.shift, d, f) for c, d, f in node.order)
    if not order:
        raise ValidationException("LIMIT without ORDER BY in a correlated subquery is not supported.")
    partition = tuple(dict.fromkeys(rows.keys))
    first, last = node.offset + 1, node.offset + node.limit
    ranked = n.Rank(rows.node.fields, rows.node, partition, order, "ROW_NUMBER", first, last, False)
    mapping = tuple(p + rows.shift for p in below.mapping)
    return Pulled(ranked, rows.conditions({p: p for p in partition}), mapping)


def _join(node: n.Join, outer_node: n.Node | None) -> Pulled:
    left, right = pulled(node.left, outer_node), pulled(node.right, outer_node)
    inner = node.kind is n.JoinKind.INNER
    if not inner and (right.conditions or any(map(has_outer_columns, conjuncts(node.condition)))):
        return _join_around(node, left, right, outer_node)
    width, old = len(left.node.fields), len(node.left.fields)
    mapping = dict(enumerate(left.mapping))
    mapping |= {old + i: width + p for i, p in enumerate(right.mapping)}
    tests = [moved(t, mapping) for t in conjuncts(node.condition)]
    out = [t for t in tests if has_outer_columns(t)]
    inner_tests = [t for t in tests if t not in out]
    fields = joined_fields(node.kind, left.node.fields, right.node.fields)
    joined = replace(
        node,
        fields=fields,
        left=left.node,
        right=right.node,
        left_keys=tuple(left.mapping[k] for k in node.left_keys),
        right_keys=tuple(right.mapping[k] for k in node.right_keys),
        condition=conjunction(inner_tests) if inner_tests else None,
    )
    conditions = (*left.conditions, *(shifted(t, width) for t in right.conditions), *out)
    own = tuple(mapping[i] for i in range(len(node.fields)))
    return Pulled(joined, conditions, own)


def _join_around(node: n.Join, left: Pulled, right: Pulled, outer_node: n.Node | None) -> Pulled:
    """Decorrelate an outer, semi or anti join by the outer values it uses."""
    construct = f"a {node.kind.name} JOIN, EXISTS or IN within a correlated subquery"
    if node.kind in (n.JoinKind.RIGHT, n.JoinKind.FULL):
        raise ValidationException(f"A correlated condition below {construct} is not supported: join with it instead.")
    own = conjuncts(node.condition)
    rows = _joined_around(left, construct, outer_node, (*right.conditions, *own))
    outer_columns = [o.index for o in rows.outers if isinstance(o, Outer)]
    old, width = len(node.left.fields), len(rows.node.fields)

    def relocated(part: Expression, above: bool) -> Expression | None:
        if isinstance(part, Outer):
            return Column(part.type, outer_columns.index(part.index))
        if not isinstance(part, Column):
            return None
        if not above:
            return Column(part.type, part.index + width)
        side = part.index < old
        where = left.mapping[part.index] + rows.shift if side else right.mapping[part.index - old] + width
        return Column(part.type, where)

    tests = [replaced(t, lambda p: relocated(p, False)) for t in right.conditions]
    tests += [replaced(t, lambda p: relocated(p, True)) for t in own]
    keys = [
        (left.mapping[a] + rows.shift, right.mapping[b]) for a, b in zip(node.left_keys, node.right_keys, strict=True)
    ]
    joined = replace(
        node,
        fields=joined_fields(node.kind, rows.node.fields, right.node.fields),
        left=rows.node,
        right=right.node,
        left_keys=tuple(a for a, _ in keys),
        right_keys=tuple(b for _, b in keys),
        condition=conjunction(tests) if tests else None,
    )
    mapping = [p + rows.shift for p in left.mapping]
    if len(node.fields) > old:
        mapping += [p + width for p in right.mapping]
    return Pulled(joined, rows.conditions({k: k for k in rows.keys}), tuple(mapping))


def _correlate(node: n.Correlate, outer_node: n.Node | None) -> Pulled:
    below = pulled(node.input, outer_node)
    if any(map(has_outer_columns, [*node.arguments, *conjuncts(node.condition)])):
        raise ValidationException("A table function in a correlated subquery cannot use outer columns.")
    mapping = dict(enumerate(below.mapping))
    width, old = len(below.node.fields), len(node.input.fields)
    created = node.fields.fields[old:]
    mapping |= {old + i: width + i for i in range(len(created))}
    result = replace(
        node,
        fields=Fields((*below.node.fields.fields, *created)),
        input=below.node,
        arguments=tuple(moved(a, mapping) for a in node.arguments),
        condition=None if node.condition is None else moved(node.condition, mapping),
    )
    return Pulled(result, below.conditions, tuple(mapping[i] for i in range(len(node.fields))))


_PULL = (
    Dispatch[["n.Node | None"], Pulled]()
    .on(n.Filter, _filter)
    .on(n.Project, _project)
    .on(n.Aggregate, _aggregate)
    .on(n.Sort, _sort)
    .on(n.Join, _join)
    .on(n.Correlate, _correlate)
)


def turned_in(e: Expression, width: int) -> Expression:
    """Return a condition over the outer row and a query's row as one over their join."""

    def change(part: Expression) -> Expression | None:
        if isinstance(part, Outer):
            return Column(part.type, part.index) if part.level == 1 else Outer(part.type, part.index, part.level - 1)
        return Column(part.type, part.index + width) if isinstance(part, Column) else None

    return replaced(e, change)
