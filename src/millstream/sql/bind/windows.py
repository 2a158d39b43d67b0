"""Binds window TVFs, group windows and OVER windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from millstream.sql.bind import relation_builder
from millstream.sql.bind.expressions import ExpressionBinder
from millstream.sql.bind.grouping import GroupWindow
from millstream.sql.bind.scope import BindError, Scope
from millstream.sql.bind.unbound_calls import Aggregated, Frame, Overed
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import AggregateCall, Column, Constant, Expression, replaced, walk
from millstream.sql.functions.evaluate import folded
from millstream.sql.language import syntax
from millstream.sql.plan.nodes import Node, Over, OverSpec, WindowKind, WindowSpec, WindowTable
from millstream.sql.schema import Field, Fields, TimeAttribute
from millstream.sql.types import DataType, DayTimeIntervalType, LocalZonedTimestampType, TimestampType

if TYPE_CHECKING:
    from millstream.sql.bind.binder import Binder

# Their parameter names in order, and the number of required ones.
_PARAMETERS = {
    "TUMBLE": (("DATA", "TIMECOL", "SIZE", "OFFSET"), 3),
    "HOP": (("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"), 4),
    "CUMULATE": (("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"), 4),
    "SESSION": (("DATA", "TIMECOL", "GAP"), 3),
}
FUNCTIONS = frozenset(_PARAMETERS)


def window_table(binder: Binder, call: syntax.Call, outer: Scope | None) -> Node:
    """Return the node of a window TVF."""
    kind = call.name.upper()
    arguments = _by_name(kind, call)
    node, partition = _table(binder, arguments["DATA"], outer)
    time = _time_column(binder, node, arguments["TIMECOL"])
    field = node.fields[time]
    size = _milliseconds(binder, arguments.get("SIZE") or arguments["GAP"])
    step_given = arguments.get("SLIDE") or arguments.get("STEP")
    step = _milliseconds(binder, step_given) if step_given is not None else 0
    offset = _milliseconds(binder, arguments["OFFSET"]) if "OFFSET" in arguments else 0
    if size <= 0 or (step_given is not None and step <= 0):
        raise BindError(f"{kind} table function based aggregate requires size and step to be positive", call.position)
    if kind == "CUMULATE" and size % step:
        raise BindError(
            f"CUMULATE table function based aggregate requires maxSize must be an integral multiple of step, but got "
            f"maxSize {size} ms and step {step} ms",
            call.position,
        )
    partition_columns = tuple(_column(node, e) for e in partition)
    spec = WindowSpec(
        WindowKind(kind), time, field.time is not TimeAttribute.PROCTIME, size, step, offset, partition_columns
    )
    plain = TimestampType(3, False)
    window_time = Field("window_time", field.type.not_null(), field.time)
    fields = (*node.fields.fields, Field("window_start", plain), Field("window_end", plain), window_time)
    return WindowTable(Fields(fields), node, spec)


def _by_name(kind: str, call: syntax.Call) -> dict[str, syntax.Expression]:
    names, required = _PARAMETERS[kind]
    if call.names:
        arguments = {n.upper(): a for n, a in zip(call.names, call.arguments, strict=True)}
        unknown = [n for n in arguments if n not in names]
        if unknown:
            raise BindError(f"{kind} has no argument {unknown[0]}; it has {', '.join(names)}", call.position)
    else:
        arguments = dict(zip(names, call.arguments, strict=False))
    missing = [n for n in names[:required] if n not in arguments]
    if missing or len(call.arguments) > len(names):
        forms = ", ".join(names[:required])
        optional = f"[, {names[-1]}]" if len(names) > required else ""
        raise BindError(
            f"Invalid number of arguments to function '{kind}'. Was expecting {kind}({forms}{optional})", call.position
        )
    return arguments


def _table(binder: Binder, data: syntax.Expression, outer: Scope | None) -> tuple[Node, tuple[syntax.Expression, ...]]:
    if isinstance(data, syntax.TableArgument):
        return binder.relation(data.table, outer)[0], data.partition
    if isinstance(data, syntax.Subquery):
        return binder.query(data.query, outer), ()
    if isinstance(data, syntax.Name):
        return binder.table(syntax.TableName(data.parts, position=data.position))[0], ()
    raise BindError("The first argument of a window function must be a table: TABLE t", data.position)


def _is_time(binder: Binder, kind: DataType, attribute: TimeAttribute | None) -> bool:
    """Return whether a column can be a window's time; in batch any timestamp can."""
    return attribute is not None or (binder.batch and isinstance(kind, (TimestampType, LocalZonedTimestampType)))


def _time_column(binder: Binder, node: Node, descriptor: syntax.Expression) -> int:
    if not (isinstance(descriptor, syntax.Call) and descriptor.name == "DESCRIPTOR" and len(descriptor.arguments) == 1):
        raise BindError("The time column of a window function must be DESCRIPTOR(column)", descriptor.position)
    index = _column(node, descriptor.arguments[0])
    field = node.fields[index]
    if not _is_time(binder, field.type, field.time):
        raise BindError(
            "The window function requires the timecol is a time attribute type, but is "
            f"{field.type}: declare WATERMARK FOR {field.name}, or use a column AS PROCTIME()",
            descriptor.position,
        )
    return index


def _column(node: Node, e: syntax.Expression) -> int:
    assert isinstance(e, syntax.Name)
    name = e.parts[-1]
    if name not in node.fields.names:
        raise BindError(f"Column '{name}' not found in any table", e.position)
    return node.fields.names.index(name)


def _milliseconds(binder: Binder, e: syntax.Expression) -> int:
    value = binder.folded(ExpressionBinder(binder, Scope()).bind(e))
    if not isinstance(value, Constant) or not isinstance(value.type, DayTimeIntervalType):
        raise BindError("The length of a window must be a constant interval of days to seconds", e.position)
    assert isinstance(value.value, int)
    return value.value


# --- GROUP BY TUMBLE(..)


def group_window(binder: Binder, element: syntax.Expression, expressions: ExpressionBinder) -> GroupWindow | None:
    """Return the group window of a GROUP BY element; None for other expressions."""
    if not isinstance(element, syntax.Call) or element.name.upper() not in ("TUMBLE", "HOP", "SESSION"):
        return None
    kind = element.name.upper()
    if len(element.arguments) != (3 if kind == "HOP" else 2):
        raise BindError(f"Invalid number of arguments to function '{kind}'", element.position)
    time = expressions.raw(element.arguments[0])
    attribute = expressions.time_of(time)
    if not isinstance(time, Column) or not _is_time(binder, time.type, attribute):
        raise BindError(
            f"Window aggregate can only be defined over a time attribute column, but {time.type} encountered.",
            element.position,
        )
    counts = [_rows(a) for a in element.arguments[1:]]
    is_event_time = attribute is not TimeAttribute.PROCTIME
    if None not in counts:
        return _of_rows(element, WindowKind(kind), time, is_event_time, [c for c in counts if c is not None])
    lengths = [_milliseconds(binder, a) for a in element.arguments[1:]]
    # HOP(time, slide, size): the slide is first.
    size, step = (lengths[1], lengths[0]) if kind == "HOP" else (lengths[0], 0)
    return GroupWindow(WindowSpec(WindowKind(kind), time.index, is_event_time, size, step), time)


@runtime_checkable
class Rows(Protocol):
    """A Table API expression for a number of rows."""

    rows: int


def _rows(e: syntax.Expression) -> int | None:
    return e.rows if isinstance(e, Rows) else None


def _of_rows(
    element: syntax.Call, kind: WindowKind, time: Column, is_event_time: bool, counts: list[int]
) -> GroupWindow:
    if is_event_time:
        raise BindError("Event-time grouping windows on row intervals are currently not supported.", element.position)
    size, slide = (counts[1], counts[0]) if kind is WindowKind.HOP else (counts[0], counts[0])
    spec = WindowSpec(kind, time.index, False, size, slide if kind is WindowKind.HOP else 0)
    return GroupWindow(spec, time, (size, slide))


_WITH_NUMBER = frozenset(["LAG", "LEAD", "NTILE"])
# Maps an expression to a column.
ColumnIndex = Callable[[Expression], int]


def with_overs(node: Node, items: Sequence[Expression]) -> tuple[Node, list[Expression]]:
    """Return a relation with the results of the OVERs in some expressions, and the expressions over it."""
    overs = list(dict.fromkeys(e for item in items for e in walk(item) if isinstance(e, Overed)))
    if not overs:
        return node, list(items)
    below, column_of = _with_arguments(node, overs)
    columns: dict[Overed, Column] = {}
    frames: dict[Frame, list[Overed]] = {}
    for over in overs:
        frames.setdefault(over.frame, []).append(over)
    for number, (frame, calls) in enumerate(frames.items()):
        result = [_call(o, column_of) for o in calls]
        order = tuple((column_of(k), d, n) for k, d, n in frame.order)
        spec = OverSpec(
            tuple(map(column_of, frame.partition)), order, frame.rows, frame.start, frame.end, tuple(result)
        )
        new = [Field(f"w{number}$o{i}", c.type) for i, c in enumerate(result)]
        for i, over in enumerate(calls):
            columns[over] = Column(over.type, len(below.fields) + i)
        below = Over(Fields((*below.fields.fields, *new)), below, spec)
    return below, [replaced(i, lambda e: columns.get(e) if isinstance(e, Overed) else None) for i in items]


def _call(over: Overed, column_of: ColumnIndex) -> AggregateCall:
    call = over.call
    condition = None if call.condition is None else column_of(call.condition)
    arguments = tuple(column_of(a) for a in call.arguments)
    options = (*call.options, *_distance(call))
    types = () if call.user is None else tuple(a.type for a in call.arguments)
    return AggregateCall(call.function, arguments, over.type, call.distinct, condition, (), options, call.user, types)


def _distance(call: Aggregated) -> tuple[int, ...]:
    """Return the offset of LAG and LEAD, or the number of buckets of NTILE."""
    if call.function not in _WITH_NUMBER:
        return ()
    index = 0 if call.function == "NTILE" else 1
    number = folded(call.arguments[index]) if len(call.arguments) > index else None
    if number is None:
        return (1,)
    if not isinstance(number, Constant) or not isinstance(number.value, int):
        raise ValidationException(f"The number of {call.function} must be a constant.")
    return (number.value,)


def _with_arguments(node: Node, overs: Sequence[Overed]) -> tuple[Node, ColumnIndex]:
    """Return the node with a column for each expression of an OVER, and its index."""
    columns = relation_builder.columns(node.fields)
    names = list(node.fields.names)

    def column_of(e: Expression) -> int:
        if isinstance(e, Column):
            return e.index
        if e not in columns:
            columns.append(e)
            names.append(f"$f{len(columns) - 1}")
        return columns.index(e)

    for over in overs:
        for e in (*over.call.arguments, *over.frame.partition, *(k for k, _, _ in over.frame.order)):
            column_of(e)
        if over.call.condition is not None:
            column_of(over.call.condition)
    return relation_builder.project(node, columns, names), column_of
