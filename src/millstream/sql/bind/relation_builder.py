"""Builders of plan nodes, shared by queries and the Table API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.sql import type_rules
from millstream.sql.bind.scope import BindError
from millstream.sql.bind.unbound_calls import cast
from millstream.sql.expressions import Call, Column, Constant, Expression
from millstream.sql.plan.nodes import Aggregate, Filter, Node, Project, SetOperation, Sort, Union, Values
from millstream.sql.schema import Field, Fields, TimeAttribute
from millstream.sql.types import DataType, IntType


def time_of(expression: Expression, fields: Fields) -> TimeAttribute | None:
    """Return the type of time attribute of an expression over some columns."""
    if isinstance(expression, Column):
        return fields[expression.index].time
    if isinstance(expression, Call) and expression.function == "PROCTIME":
        return TimeAttribute.PROCTIME
    return None


def project(node: Node, expressions: Sequence[Expression], names: Sequence[str]) -> Node:
    """Return a projection, or the relation itself if nothing changes."""
    fields = tuple(Field(n, e.type, time_of(e, node.fields)) for e, n in zip(expressions, names, strict=True))
    same = len(fields) == len(node.fields) and all(
        isinstance(e, Column) and e.index == i for i, e in enumerate(expressions)
    )
    if same and fields == node.fields.fields:
        return node
    return Project(Fields(fields), node, tuple(expressions))


def columns(fields: Fields, first: int = 0) -> list[Expression]:
    """Return all columns of a relation as expressions."""
    return [Column(f.type, first + i) for i, f in enumerate(fields.fields)]


def renamed(node: Node, names: Sequence[str]) -> Node:
    """Return the relation with renamed columns."""
    if list(names) == node.fields.names:
        return node
    return project(node, columns(node.fields), names)


def filtered(node: Node, condition: Expression) -> Node:
    """Return the relation filtered by a condition."""
    return Filter(node.fields, node, condition)


def distinct(node: Node) -> Node:
    """Return the distinct rows."""
    fields = Fields(tuple(replace(f, time=None) for f in node.fields.fields))
    return Aggregate(fields, node, tuple(range(len(fields))), ())


def cast_to(node: Node, kinds: Sequence[DataType]) -> Node:
    """Return a relation with columns cast to some types."""
    if all(f.type.is_same_but_null(k) for f, k in zip(node.fields.fields, kinds, strict=True)):
        return node
    casted = [cast(c, k) for c, k in zip(columns(node.fields), kinds, strict=True)]
    return project(node, casted, node.fields.names)


def common_fields(parts: Sequence[Fields], operation: str, position: int | None = None) -> list[DataType]:
    """Return the common types of the columns of several relations."""
    if len({len(p) for p in parts}) > 1:
        raise BindError(f"Column count mismatch in {operation}", position)
    kinds: list[DataType] = []
    for i, names in enumerate(zip(*(p.fields for p in parts), strict=True)):
        kind = type_rules.least_restrictive([f.type for f in names])
        if kind is None:
            raise BindError(f"Type mismatch in column {i + 1} of {operation}", position)
        kinds.append(kind)
    return kinds


def set_operation(operator: str, all_: bool, left: Node, right: Node, position: int | None = None) -> Node:
    """Return UNION, INTERSECT or EXCEPT of two relations, with their common types."""
    operation = f"{operator} ALL" if all_ else operator
    kinds = common_fields([left.fields, right.fields], operation, position)
    left, right = cast_to(left, kinds), cast_to(right, kinds)
    pairs = zip(left.fields.fields, right.fields.fields, kinds, strict=True)
    fields = tuple(Field(a.name, k, a.time if a.time is b.time else None) for a, b, k in pairs)
    if operator != "UNION":
        plain = Fields(tuple(replace(f, time=None) for f in fields))
        return SetOperation(plain, left, right, operator, all_)
    parts: list[Node] = []
    for side in (left, right):
        parts += side.parts if isinstance(side, Union) and side.fields.types == list(kinds) else [side]
    result = Union(Fields(fields), tuple(parts))
    return result if all_ else distinct(result)


def sorted_by(node: Node, order: Sequence[tuple[int, bool, bool]], offset: int = 0, limit: int | None = None) -> Node:
    """Return the relation sorted or limited."""
    if isinstance(node, Sort) and not order and node.limit is None and node.offset == 0:
        return replace(node, offset=offset, limit=limit)
    return Sort(node.fields, node, tuple(order), offset, limit)


def rows_of(
    rows: Sequence[Sequence[Expression]], names: Sequence[str] | None = None, position: int | None = None
) -> Node:
    """Return literal rows; expressions that are not constant are computed above them."""
    if len({len(r) for r in rows}) > 1:
        raise BindError("Values passed to VALUES operator must have compatible types: rows differ in length", position)
    kinds: list[DataType] = []
    for i, members in enumerate(zip(*rows, strict=True)):
        kind = type_rules.least_restrictive([m.type for m in members])
        if kind is None:
            raise BindError(f"Values passed to VALUES operator must have compatible types: column {i + 1}", position)
        kinds.append(kind)
    called = list(names) if names is not None else [f"EXPR${i}" for i in range(len(kinds))]
    fields = Fields(tuple(Field(n, k) for n, k in zip(called, kinds, strict=True)))
    cast_rows = [[cast(m, k) for m, k in zip(row, kinds, strict=True)] for row in rows]
    if all(isinstance(m, Constant) for row in cast_rows for m in row):
        return Values(fields, tuple(tuple(m for m in row if isinstance(m, Constant)) for row in cast_rows))
    parts = [project(one_row(), row, called) for row in cast_rows]
    parts = [Project(fields, p.inputs[0], p.expressions) for p in parts if isinstance(p, Project)]
    return parts[0] if len(parts) == 1 else Union(fields, tuple(parts))


def one_row() -> Values:
    """Return a single dummy row, for expressions without a table."""
    zero = Constant(DUMMY.type, 0)
    return Values(Fields((DUMMY,)), ((zero,),))


DUMMY = Field("ZERO", IntType(False))
