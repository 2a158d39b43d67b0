"""Joins: which columns must be equal."""

from __future__ import annotations

from dataclasses import replace

from millstream.sql.expressions import Call, Column, Constant, Expression, columns_of, conjunction, conjuncts
from millstream.sql.optimizer.rewrite import shifted
from millstream.sql.plan.nodes import Calc, Join, JoinKind, Node
from millstream.sql.schema import Field, Fields

_EQUALITIES = {"=": False, "IS NOT DISTINCT FROM": True}


def find_equal_keys(node: Node) -> Node:
    """Take equalities of both sides out of a join's condition, as its keys."""
    if not isinstance(node, Join) or node.condition is None:
        return node
    width = len(node.left.fields)
    extra_left: list[Expression] = []
    extra_right: list[Expression] = []
    keys: list[tuple[int, int, bool]] = list(zip(node.left_keys, node.right_keys, node.null_safe, strict=True))
    rest: list[Expression] = []
    for test in conjuncts(node.condition):
        pair = _sides(test, width)
        if pair is None:
            if not (isinstance(test, Constant) and test.value is True):
                rest.append(test)
            continue
        left, right, null_safe = pair
        a = _place(left, extra_left, width)
        b = _place(shifted(right, -width), extra_right, len(node.right.fields))
        if (a, b, null_safe) not in keys:
            keys.append((a, b, null_safe))
    condition = conjunction(rest) if rest else None
    found = replace(
        node,
        left_keys=tuple(k[0] for k in keys),
        right_keys=tuple(k[1] for k in keys),
        null_safe=tuple(k[2] for k in keys),
        condition=condition,
    )
    if not extra_left and not extra_right:
        return found
    return _with_computed_keys(found, extra_left, extra_right)


def _sides(test: Expression, width: int) -> tuple[Expression, Expression, bool] | None:
    """Return the left and right side of an equality between both inputs of a join."""
    if not isinstance(test, Call) or test.function not in _EQUALITIES:
        return None
    a, b = test.arguments
    ca, cb = columns_of(a), columns_of(b)
    if not ca or not cb:
        return None
    if max(ca) < width <= min(cb):
        return a, b, _EQUALITIES[test.function]
    if max(cb) < width <= min(ca):
        return b, a, _EQUALITIES[test.function]
    return None


def _place(e: Expression, extra: list[Expression], width: int) -> int:
    if isinstance(e, Column):
        return e.index
    if e not in extra:
        extra.append(e)
    return width + extra.index(e)


def _with_computed_keys(node: Join, left: list[Expression], right: list[Expression]) -> Node:
    """Compute keys that are no columns below the join, and leave them out above it."""
    old_width, right_width = len(node.left.fields), len(node.right.fields)
    new_left, new_right = _extended(node.left, left), _extended(node.right, right)
    by = len(left)

    def place(e: Expression) -> Expression:
        from millstream.sql.expressions import replaced

        return replaced(
            e,
            lambda c: Column(c.type, c.index + by) if isinstance(c, Column) and c.index >= old_width else None,
        )

    condition = None if node.condition is None else place(node.condition)
    semi = node.kind in (JoinKind.SEMI, JoinKind.ANTI)
    if semi:
        fields = new_left.fields
    else:
        own = node.fields.fields
        fields = Fields(
            (
                *own[:old_width],
                *new_left.fields.fields[old_width:],
                *own[old_width:],
                *new_right.fields.fields[right_width:],
            )
        )
    joined = replace(node, fields=fields, left=new_left, right=new_right, condition=condition)
    kept = list(range(old_width))
    if not semi:
        kept += [old_width + by + i for i in range(right_width)]
    columns = tuple(Column(node.fields[i].type, k) for i, k in enumerate(kept))
    return Calc(node.fields, joined, columns)


def _extended(node: Node, extra: list[Expression]) -> Node:
    if not extra:
        return node
    columns = [Column(f.type, i) for i, f in enumerate(node.fields.fields)]
    new = [Field(f"$f{len(columns) + i}", e.type) for i, e in enumerate(extra)]
    return Calc(Fields((*node.fields.fields, *new)), node, (*columns, *extra))
