"""Replaces subqueries in expressions by joins."""

from __future__ import annotations

from dataclasses import replace

from millstream.sql.bind import relation_builder
from millstream.sql.bind.relations import joined_fields
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import (
    AggregateCall,
    Call,
    Column,
    Constant,
    Expression,
    conjunction,
    conjuncts,
    disjunction,
    replaced,
    walk,
)
from millstream.sql.optimizer.rewrite import bottom_up, inlined
from millstream.sql.optimizer.rules.decorrelation import Pulled, by_outer, has_outer_columns, pulled, turned_in
from millstream.sql.optimizer.upsert_keys import Keys, keys_of
from millstream.sql.plan import nodes as n
from millstream.sql.plan.subqueries import Subquery, SubqueryKind
from millstream.sql.schema import Field, Fields
from millstream.sql.types import BigIntType, BooleanType

_BOOLEAN = BooleanType(False)
_TRUE = Constant(_BOOLEAN, True)


def subqueries_to_joins(node: n.Node) -> n.Node:
    """Replace the subqueries of a Filter or Project, and an Apply, by joins."""
    if isinstance(node, n.Filter):
        return _filter(node)
    if isinstance(node, n.Project) and _has_subquery(node.expressions):
        below, expressions = _replaced_by_columns(node.input, list(node.expressions))
        return n.Project(node.fields, below, tuple(expressions))
    if isinstance(node, n.Apply):
        return _apply(node)
    if isinstance(node, n.Join) and _has_subquery(conjuncts(node.condition)):
        return _join(node)
    return node


def without_subqueries(node: n.Node) -> n.Node:
    """Replace all subqueries of a plan by joins, innermost first."""
    return bottom_up(node, subqueries_to_joins)


def _has_subquery(expressions: object) -> bool:
    assert isinstance(expressions, (list, tuple))
    return any(isinstance(p, Subquery) for e in expressions for p in walk(e))


def _relation_of(subquery: Subquery) -> n.Node:
    return without_subqueries(subquery.node)


# --- conditions


def _filter(node: n.Filter) -> n.Node:
    tests = conjuncts(node.condition)
    if not _has_subquery(tests):
        return node
    result = node.input
    rest: list[Expression] = []
    for test in tests:
        one = _as_semi_join(result, test)
        if one is None:
            rest.append(test)
        else:
            result = one
    if not _has_subquery(rest):
        return n.Filter(result.fields, result, conjunction(rest)) if rest else result
    below, rest = _replaced_by_columns(result, rest)
    filtered = n.Filter(below.fields, below, conjunction(rest))
    columns = tuple(Column(f.type, i) for i, f in enumerate(node.fields.fields))
    return n.Project(node.fields, filtered, columns)


def _as_semi_join(left: n.Node, test: Expression) -> n.Node | None:
    negated = isinstance(test, Call) and test.function == "NOT"
    inner = test.arguments[0] if negated and isinstance(test, Call) else test
    if not isinstance(inner, Subquery) or inner.kind is SubqueryKind.SCALAR or _has_subquery(inner.values):
        return None
    kind = n.JoinKind.ANTI if negated else n.JoinKind.SEMI
    node = _relation_of(inner)
    if inner.kind is SubqueryKind.EXISTS:
        node = _for_existence(node)
        if _always_has_row(node):
            return left if not negated else n.Values(left.fields, ())
    result, late = _with_late(node, left)
    width = len(left.fields)
    tests = [turned_in(t, width) for t in result.conditions]
    for index, value in enumerate(inner.values):
        right = _value(result, late, index, width)
        equal = Call(BooleanType(value.type.is_nullable or right.type.is_nullable), "=", (value, right))
        # A null among the rows makes membership unknown: NOT IN is then not true.
        tests.append(Call(_BOOLEAN, "IS NOT FALSE", (equal,)) if negated and equal.type.is_nullable else equal)
    condition = conjunction(tests) if tests else None
    return n.Join(left.fields, left, result.node, kind, condition=condition)


def _for_existence(node: n.Node) -> n.Node:
    """Return a relation that is non-empty exactly when the node is, for EXISTS."""
    while isinstance(node, n.Project) or (isinstance(node, n.Sort) and node.offset == 0 and node.limit != 0):
        node = node.input
    return node


def _always_has_row(node: n.Node) -> bool:
    """Return whether a node always has a row: a global aggregate."""
    return isinstance(node, n.Aggregate) and not node.keys


def _with_late(node: n.Node, outer_node: n.Node) -> tuple[Pulled, tuple[Expression, ...] | None]:
    """Decorrelate a query; correlated expressions of its outermost SELECT are computed above the join."""
    if isinstance(node, n.Project) and any(map(has_outer_columns, node.expressions)):
        below = pulled(node.input, outer_node)
        mapping = dict(enumerate(below.mapping))
        late = tuple(
            replaced(e, lambda c: Column(c.type, mapping[c.index]) if isinstance(c, Column) else None)
            for e in node.expressions
        )
        return below, late
    return pulled(node, outer_node), None


def _value(query: Pulled, late: tuple[Expression, ...] | None, index: int, width: int) -> Expression:
    if late is not None:
        return turned_in(late[index], width)
    column = query.mapping[index]
    return Column(query.node.fields[column].type, column + width)


# --- values


def _replaced_by_columns(below: n.Node, expressions: list[Expression]) -> tuple[n.Node, list[Expression]]:
    """Join the subqueries of expressions to their input, and replace them by columns."""
    known: dict[int, Expression] = {}

    def change(part: Expression) -> Expression | None:
        return known.get(id(part))

    for e in expressions:
        # A query nested in another is joined first.
        for part in reversed(list(walk(e))):
            if isinstance(part, Subquery) and id(part) not in known:
                values = tuple(replaced(v, change) for v in part.values)
                below, known[id(part)] = _joined(below, replace(part, values=values))
    return below, [replaced(e, change) for e in expressions]


def _joined(left: n.Node, subquery: Subquery) -> tuple[n.Node, Expression]:
    if subquery.kind is SubqueryKind.SCALAR:
        return _scalar(left, subquery)
    if subquery.kind is SubqueryKind.EXISTS:
        node = _for_existence(_relation_of(subquery))
        return (left, _TRUE) if _always_has_row(node) else _marked(left, node, ())
    if subquery.type.is_nullable:
        return _three_valued(left, subquery)
    return _marked(left, _relation_of(subquery), subquery.values)


def _left_join(left: n.Node, right: n.Node, tests: list[Expression]) -> n.Join:
    fields = joined_fields(n.JoinKind.LEFT, left.fields, right.fields)
    return n.Join(fields, left, right, n.JoinKind.LEFT, condition=conjunction(tests) if tests else None)


def _scalar(left: n.Node, subquery: Subquery) -> tuple[n.Node, Expression]:
    node = _relation_of(subquery)
    otherwise = _value_of_no_rows(node)
    result, late = _with_late(node, left)
    right = result.node
    if not _is_single(result):
        right, result = _single(result, left)
        if late is not None:
            raise ValidationException(
                "A scalar subquery with outer columns in expressions must return one row: use an aggregate."
            )
    width = len(left.fields)
    marker = None
    if otherwise is None and late is not None:
        # Expressions above the join must be null where there is no row.
        otherwise = Constant(subquery.type, None)
    if otherwise is not None:
        columns = relation_builder.columns(right.fields)
        right = relation_builder.project(right, [*columns, _TRUE], [*right.fields.names, "$there"])
        marker = width + len(columns)
    joined = _left_join(left, right, [turned_in(t, width) for t in result.conditions])
    value = _value(result, late, 0, width)
    value = replaced(
        value, lambda c: Column(c.type.nullable(), c.index) if isinstance(c, Column) and c.index >= width else None
    )
    if marker is not None and otherwise is not None:
        is_found = Call(_BOOLEAN, "IS NOT NULL", (Column(_BOOLEAN.nullable(), marker),))
        value = Call(subquery.type, "CASE", (is_found, value, otherwise))
    return joined, value


def _value_of_no_rows(node: n.Node) -> Expression | None:
    """Return an aggregate's value over no rows where it is not null: COUNT is 0."""
    expressions: tuple[Expression, ...] = (Column(node.fields[0].type, 0),)
    while isinstance(node, n.Project):
        expressions = tuple(inlined(e, node.expressions) for e in expressions)
        node = node.input
    if not isinstance(node, n.Aggregate) or node.keys or not any(c.function == "COUNT" for c in node.calls):
        return None
    calls = node.calls

    def of_none(e: Expression) -> Expression | None:
        if not isinstance(e, Column):
            return None
        return Constant(e.type, 0) if calls[e.index].function == "COUNT" else Constant(e.type.nullable(), None)

    return replaced(expressions[0], of_none)


def _all_keys(node: n.Node) -> Keys:
    return keys_of(node, [_all_keys(i) for i in node.inputs])


def _is_single(query: Pulled) -> bool:
    """Return whether a query has at most one row per outer row."""
    node = query.node
    if isinstance(node, n.Sort) and node.limit == 1:
        return True
    equal: set[int] = set()
    for test in query.conditions:
        if isinstance(test, Call) and test.function in ("=", "IS NOT DISTINCT FROM"):
            equal |= {a.index for a in test.arguments if isinstance(a, Column)}
    return any(key <= equal for key in _all_keys(node))


def _single(query: Pulled, outer_node: n.Node) -> tuple[n.Node, Pulled]:
    """Return the query limited to one row per outer row, failing at run time for more."""
    rows = by_outer(query, "a scalar subquery of several rows", outer_node)
    keys = tuple(dict.fromkeys(rows.keys))
    value = rows.node.fields[query.mapping[0] + rows.shift]
    call = AggregateCall("SINGLE_VALUE", (query.mapping[0] + rows.shift,), value.type.nullable())
    own = [replace(rows.node.fields[k], time=None) for k in keys]
    fields = Fields((*own, Field(value.name, value.type.nullable())))
    grouped = n.Aggregate(fields, rows.node, keys, (call,))
    conditions = rows.conditions({k: i for i, k in enumerate(keys)})
    return grouped, Pulled(grouped, conditions, (len(keys),))


def _marked(left: n.Node, node: n.Node, values: tuple[Expression, ...]) -> tuple[n.Node, Expression]:
    """Return the left rows with a column that indicates a match, and the condition on it."""
    result = pulled(node, left)
    rows_of = by_outer(result, "EXISTS or IN that is not a condition of its own", left)
    required = [result.mapping[i] + rows_of.shift for i in range(len(values))]
    distinct = tuple(dict.fromkeys([*rows_of.keys, *required]))
    width = len(left.fields)
    if not distinct:
        count = n.Aggregate(
            Fields((Field("$c", BigIntType(False)),)), node, (), (AggregateCall("COUNT", (), BigIntType(False)),)
        )
        joined = _left_join(left, count, [])
        column = Column(BigIntType(), width)
        more = Call(BooleanType(), ">", (column, Constant(BigIntType(False), 0)))
        return joined, Call(_BOOLEAN, "IS TRUE", (more,))
    fields = Fields(tuple(replace(rows_of.node.fields[p], time=None) for p in distinct))
    rows = n.Aggregate(fields, rows_of.node, distinct, ())
    columns = relation_builder.columns(rows.fields)
    right = relation_builder.project(rows, [*columns, _TRUE], [*rows.fields.names, "$there"])
    tests = [turned_in(t, width) for t in rows_of.conditions({k: i for i, k in enumerate(distinct)})]
    tests += [_equal(v, rows, distinct.index(w), width) for v, w in zip(values, required, strict=True)]
    joined = _left_join(left, right, tests)
    is_found = Column(_BOOLEAN.nullable(), width + len(columns))
    return joined, Call(_BOOLEAN, "IS NOT NULL", (is_found,))


def _equal(value: Expression, right: n.Node, index: int, width: int) -> Expression:
    column = Column(right.fields[index].type, index + width)
    return Call(BooleanType(value.type.is_nullable or column.type.is_nullable), "=", (value, column))


def _three_valued(left: n.Node, subquery: Subquery) -> tuple[n.Node, Expression]:
    """Return IN as a value: null when there is no match, but the value or one of the rows is null."""
    node = _relation_of(subquery)
    result = pulled(node, left)
    if result.conditions:
        return _three_valued_around(left, result, subquery)
    width = len(left.fields)
    big = BigIntType(False)
    arguments = tuple(range(len(subquery.values)))
    calls = (AggregateCall("COUNT", (), big), *(AggregateCall("COUNT", (i,), big) for i in arguments))
    names = Fields(tuple(Field(f"$c{i}", big) for i in range(len(calls))))
    counted = _left_join(left, n.Aggregate(names, node, (), calls), [])
    joined, is_found = _marked(counted, node, subquery.values)
    rows = Column(big.nullable(), width)
    none = Call(_BOOLEAN, "IS NOT TRUE", (_is_positive(rows),))
    unknown: list[Expression] = [Call(_BOOLEAN, "IS NULL", (v,)) for v in subquery.values if v.type.is_nullable]
    for i in arguments:
        fewer = Call(BooleanType(), "<", (Column(big.nullable(), width + 1 + i), rows))
        unknown.append(Call(_BOOLEAN, "IS TRUE", (fewer,)))
    false, null = Constant(_BOOLEAN, False), Constant(BooleanType(), None)
    value = Call(BooleanType(), "CASE", (is_found, _TRUE, none, false, disjunction(unknown), null, false))
    return joined, value


def _three_valued_around(left: n.Node, query: Pulled, subquery: Subquery) -> tuple[n.Node, Expression]:
    """Return a correlated IN as a value, from counts of equal and of unknown rows per outer row."""
    width = len(left.fields)
    columns = relation_builder.columns(left.fields)
    fields = Fields(tuple(replace(f, time=None) for f in left.fields.fields))
    distinct = n.Aggregate(fields, left, tuple(range(width)), ())
    tests = [turned_in(t, width) for t in query.conditions]
    together = joined_fields(n.JoinKind.INNER, fields, query.node.fields)
    both = n.Join(together, distinct, query.node, n.JoinKind.INNER, condition=conjunction(tests))
    equal = [_equal(v, query.node, query.mapping[i], width) for i, v in enumerate(subquery.values)]
    same = conjunction(equal)
    expressions = [*columns, Call(_BOOLEAN, "IS TRUE", (same,)), Call(_BOOLEAN, "IS NULL", (same,))]
    tested = relation_builder.project(both, expressions, [*fields.names, "$same", "$open"])
    big = BigIntType(False)
    calls = (AggregateCall("COUNT", (), big, condition=width), AggregateCall("COUNT", (), big, condition=width + 1))
    named = Fields((*fields.fields, Field("$same", big), Field("$open", big)))
    counted = n.Aggregate(named, tested, tuple(range(width)), calls)
    ties: list[Expression] = [
        Call(_BOOLEAN, "IS NOT DISTINCT FROM", (c, Column(c.type, width + i))) for i, c in enumerate(columns)
    ]
    joined = _left_join(left, counted, ties)
    counts = [Call(_BOOLEAN, "IS TRUE", (_is_positive(Column(big.nullable(), 2 * width + i)),)) for i in (0, 1)]
    false, null = Constant(_BOOLEAN, False), Constant(BooleanType(), None)
    return joined, Call(BooleanType(), "CASE", (counts[0], _TRUE, counts[1], null, false))


def _is_positive(count: Expression) -> Expression:
    return Call(BooleanType(), ">", (count, Constant(BigIntType(False), 0)))


# --- LATERAL


def _apply(node: n.Apply) -> n.Node:
    result, late = _with_late(node.right, node.left)
    if late is not None and node.kind is not n.JoinKind.INNER:
        raise ValidationException(
            "A LATERAL query on the right side of a LEFT JOIN cannot use left columns in expressions of its SELECT."
        )
    width = len(node.left.fields)
    tests = [turned_in(t, width) for t in result.conditions]
    fields = joined_fields(node.kind, node.left.fields, result.node.fields)
    values = [_value(result, late, i, width) for i in range(len(node.right.fields))]
    if node.condition is not None:
        own = dict(enumerate(values))
        tests.append(
            replaced(
                node.condition,
                lambda c: own[c.index - width] if isinstance(c, Column) and c.index >= width else None,
            )
        )
    joined = n.Join(fields, node.left, result.node, node.kind, condition=conjunction(tests) if tests else None)
    return n.Project(node.fields, joined, (*relation_builder.columns(node.left.fields), *values))


def _join(node: n.Join) -> n.Node:
    if node.kind is not n.JoinKind.INNER:
        raise ValidationException("A subquery in the ON of an outer join is not supported: put it in WHERE.")
    plain = [t for t in conjuncts(node.condition) if not _has_subquery([t])]
    rest = [t for t in conjuncts(node.condition) if _has_subquery([t])]
    joined = replace(node, condition=conjunction(plain) if plain else None)
    return _filter(n.Filter(node.fields, joined, conjunction(rest)))
