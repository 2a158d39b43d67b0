"""Lowers OVER: columns for what frames need, then a node for each frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.sql.bind import relation_builder
from millstream.sql.bind.unbound_calls import Aggregated, Frame, Overed
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import AggregateCall, Column, Constant, Expression, replaced, walk
from millstream.sql.functions.evaluate import folded
from millstream.sql.plan.nodes import Node, Over, OverSpec
from millstream.sql.schema import Field, Fields

_WITH_A_NUMBER = frozenset(["LAG", "LEAD", "NTILE"])
# Where an expression is a column.
Place = Callable[[Expression], int]


def with_overs(node: Node, items: Sequence[Expression]) -> tuple[Node, list[Expression]]:
    """Return a relation that has what the OVERs of some expressions compute, and the expressions over it."""
    overs = list(dict.fromkeys(e for item in items for e in walk(item) if isinstance(e, Overed)))
    if not overs:
        return node, list(items)
    below, place = _with_arguments(node, overs)
    columns: dict[Overed, Column] = {}
    frames: dict[Frame, list[Overed]] = {}
    for over in overs:
        frames.setdefault(over.frame, []).append(over)
    for number, (frame, calls) in enumerate(frames.items()):
        made = [_call(o, place) for o in calls]
        order = tuple((place(k), d, n) for k, d, n in frame.order)
        spec = OverSpec(tuple(map(place, frame.partition)), order, frame.rows, frame.start, frame.end, tuple(made))
        new = [Field(f"w{number}$o{i}", c.type) for i, c in enumerate(made)]
        for i, over in enumerate(calls):
            columns[over] = Column(over.type, len(below.fields) + i)
        below = Over(Fields((*below.fields.fields, *new)), below, spec)
    return below, [replaced(i, lambda e: columns.get(e) if isinstance(e, Overed) else None) for i in items]


def _call(over: Overed, place: Place) -> AggregateCall:
    call = over.call
    condition = None if call.condition is None else place(call.condition)
    arguments = tuple(place(a) for a in call.arguments)
    options = (*call.options, *_distance(call))
    types = () if call.user is None else tuple(a.type for a in call.arguments)
    return AggregateCall(call.function, arguments, over.type, call.distinct, condition, (), options, call.user, types)


def _distance(call: Aggregated) -> tuple[int, ...]:
    """Return by how many rows LAG and LEAD look away, and into how many parts NTILE divides."""
    if call.function not in _WITH_A_NUMBER:
        return ()
    place = 0 if call.function == "NTILE" else 1
    number = folded(call.arguments[place]) if len(call.arguments) > place else None
    if number is None:
        return (1,)
    if not isinstance(number, Constant) or not isinstance(number.value, int):
        raise ValidationException(f"The number of {call.function} must be a constant.")
    return (number.value,)


def _with_arguments(node: Node, overs: Sequence[Overed]) -> tuple[Node, Place]:
    """Return the node with a column for each expression that an OVER needs, and where that is."""
    columns = relation_builder.columns(node.fields)
    names = list(node.fields.names)

    def place(e: Expression) -> int:
        if isinstance(e, Column):
            return e.index
        if e not in columns:
            columns.append(e)
            names.append(f"$f{len(columns) - 1}")
        return columns.index(e)

    for over in overs:
        for e in (*over.call.arguments, *over.frame.partition, *(k for k, _, _ in over.frame.order)):
            place(e)
        if over.call.condition is not None:
            place(over.call.condition)
    return relation_builder.project(node, columns, names), place
