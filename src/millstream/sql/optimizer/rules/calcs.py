"""Merges adjacent filters and projections into one Calc."""

from __future__ import annotations

from dataclasses import replace

from millstream.sql.expressions import Call, Column, Constant, Expression, UserCall, conjunction, conjuncts, walk
from millstream.sql.functions.evaluate import makes_json
from millstream.sql.functions.table import find
from millstream.sql.optimizer.rewrite import inlined
from millstream.sql.plan.nodes import Calc, Collected, Filter, Node, Project, Sink

# Functions about as cheap as copying a column.
_CHEAP = frozenset(["CAST", "TRY_CAST", "FIELD", "ITEM", "CASE", "IF", "COALESCE", "IFNULL", "NULLIF", "PROCTIME"])
_CHEAP |= {"AND", "OR", "NOT", "IN", "MOD", "ABS", "ROW", "BETWEEN"}


def to_calc(node: Node) -> Node:
    """Convert a Filter or Project to a Calc."""
    if isinstance(node, Filter):
        columns = tuple(Column(f.type, i) for i, f in enumerate(node.fields.fields))
        return Calc(node.fields, node.input, columns, node.condition)
    if isinstance(node, Project):
        return Calc(node.fields, node.input, node.expressions)
    return node


def merge_calcs(node: Node) -> Node:
    """Merge a Calc with the Calc below it."""
    while isinstance(node, Calc) and isinstance(node.input, Calc) and _can_merge(node, node.input):
        below = node.input
        expressions = tuple(inlined(e, below.expressions) for e in node.expressions)
        condition = below.condition
        if node.condition is not None:
            condition = conjunction([*conjuncts(condition), *conjuncts(inlined(node.condition, below.expressions))])
        node = Calc(node.fields, below.input, expressions, condition)
    return node


def _can_merge(above: Calc, below: Calc) -> bool:
    """Return whether merging repeats no expensive or non-deterministic expression."""
    uses: dict[int, int] = {}
    for e in [*above.expressions, *conjuncts(above.condition)]:
        for part in walk(e):
            if isinstance(part, Column):
                uses[part.index] = uses.get(part.index, 0) + 1
    for index, e in enumerate(below.expressions):
        count = uses.get(index, 0)
        if count > 1 and any(_costs(p) for p in walk(e)) and not (makes_json(e) and _is_in_json(above, index)):
            return False
        if (count > 1 or above.condition is not None) and any(differs(p) for p in walk(e)):
            return False
    return True


def _is_in_json(calc: Calc, index: int) -> bool:
    """Return whether a column of a Calc's input is an argument of a JSON function, which must see that it is JSON."""
    parts = [p for e in [*calc.expressions, *conjuncts(calc.condition)] for p in walk(e) if isinstance(p, Call)]
    written = [a for p in parts if p.function in ("JSON_OBJECT", "JSON_ARRAY", "JSON_STRING") for a in p.arguments]
    return any(isinstance(a, Column) and a.index == index for a in written)


def differs(e: Expression) -> bool:
    """Return whether an expression is non-deterministic."""
    if isinstance(e, UserCall):
        return not e.function.deterministic
    function = find(e.function) if isinstance(e, Call) else None
    # A processing time attribute has the time of its evaluation.
    return function is not None and not function.deterministic and function.name != "PROCTIME"


def _costs(e: Expression) -> bool:
    """Return whether an expression is too expensive to repeat."""
    if isinstance(e, UserCall):
        return True
    return (
        isinstance(e, Call) and e.function[0].isalpha() and not (e.function in _CHEAP or e.function.startswith("IS "))
    )


def remove_calc(node: Node) -> Node:
    """Remove a Calc that changes nothing, not even a name."""
    if not isinstance(node, Calc):
        return node
    condition = node.condition
    if isinstance(condition, Constant) and condition.value is True:
        node = Calc(node.fields, node.input, node.expressions)
    if node.condition is not None or len(node.expressions) != len(node.input.fields):
        return node
    same = all(isinstance(e, Column) and e.index == i for i, e in enumerate(node.expressions))
    return node.input if same and node.fields == node.input.fields else node


def skip_renaming(end: Node) -> Node:
    """Remove a Calc below a sink that only renames columns: sinks use column positions."""
    if not isinstance(end, (Sink, Collected)) or not isinstance(end.input, Calc):
        return end
    calc = end.input
    if calc.condition is not None or len(calc.expressions) != len(calc.input.fields):
        return end
    same = all(isinstance(e, Column) and e.index == i for i, e in enumerate(calc.expressions))
    return replace(end, input=calc.input) if same else end
