"""Propagates time attributes through joins and checks nodes that need one."""

from __future__ import annotations

from dataclasses import replace

from millstream.sql.errors import TableException, ValidationException
from millstream.sql.expressions import Call, Column
from millstream.sql.optimizer.rules.windows import windowed
from millstream.sql.plan import nodes as n
from millstream.sql.schema import Field, Fields, TimeAttribute


def retimed(node: n.Node) -> n.Node:
    """Return a node with time attributes where its inputs have them and it preserves them."""
    if isinstance(node, (n.Calc, n.Project)):
        below = node.input.fields
        fields = [replace(f, time=_of(e, below)) for f, e in zip(node.fields.fields, node.expressions, strict=True)]
        return replace(node, fields=Fields(tuple(fields)))
    if isinstance(node, (n.Filter, n.Sort, n.Deduplicate, n.ChangelogNormalize)):
        return replace(node, fields=node.input.fields)
    if isinstance(node, n.Aggregate):
        return replace(node, fields=_with(node.fields, _of_groups(node)))
    if isinstance(node, n.Watermark):
        return replace(node, fields=_marked(node.input.fields, node.column))
    if isinstance(node, n.Union):
        return replace(node, fields=_common(node))
    if isinstance(node, n.TemporalJoin):
        # Watermarks follow the left side.
        width = len(node.left.fields)
        own = [*(f.time for f in node.left.fields.fields), *([None] * (len(node.fields) - width))]
        return replace(node, fields=_with(node.fields, own))
    if isinstance(node, n.IntervalJoin):
        return replace(node, fields=_with(node.fields, _both(node)))
    if isinstance(node, n.Join):
        semi = node.kind in (n.JoinKind.SEMI, n.JoinKind.ANTI)
        return replace(node, fields=_with(node.left.fields if semi else node.fields, [None] * len(node.fields)))
    if isinstance(node, (n.Over, n.Rank, n.WindowTable, n.Correlate)):
        return _with_input_times(node)
    return node


def _of(e: object, below: Fields) -> TimeAttribute | None:
    if isinstance(e, Column):
        return below[e.index].time
    return TimeAttribute.PROCTIME if isinstance(e, Call) and e.function == "PROCTIME" else None


def _with(fields: Fields, times: list[TimeAttribute | None]) -> Fields:
    return Fields(tuple(replace(f, time=t) for f, t in zip(fields.fields, times, strict=True)))


def _marked(fields: Fields, column: int) -> Fields:
    return Fields(
        tuple(replace(f, time=TimeAttribute.ROWTIME) if i == column else f for i, f in enumerate(fields.fields))
    )


def _both(node: n.IntervalJoin) -> list[TimeAttribute | None]:
    times = [f.time for f in node.left.fields.fields]
    if len(node.fields) > len(times):
        times += [f.time for f in node.right.fields.fields]
    return times


def _common(node: n.Union) -> Fields:
    fields: list[Field] = []
    for i, f in enumerate(node.fields.fields):
        times = {p.fields[i].time for p in node.parts}
        fields.append(replace(f, time=times.pop() if len(times) == 1 else None))
    return Fields(tuple(fields))


def _of_groups(node: n.Aggregate) -> list[TimeAttribute | None]:
    """Drop time attributes of group keys, except those of a window."""
    window = windowed(node.input)
    of_window = window is not None and {window.start, window.end} <= set(node.keys)
    keys = [node.input.fields[k].time if of_window and window and k == window.time else None for k in node.keys]
    return [*keys, *([None] * (len(node.fields) - len(keys)))]


def _with_input_times(node: n.Over | n.Rank | n.WindowTable | n.Correlate) -> n.Node:
    width = len(node.input.fields)
    fields = [replace(f, time=b.time) for f, b in zip(node.fields.fields, node.input.fields.fields, strict=False)]
    more = list(node.fields.fields[width:])
    if isinstance(node, n.WindowTable):
        more[2] = replace(more[2], time=node.input.fields[node.window.time].time)
    return replace(node, fields=Fields((*fields, *more)))


def check_times(node: n.Node) -> n.Node:
    """Reject streaming nodes that need a time attribute and have none."""
    if isinstance(node, (n.WindowTable, n.WindowAggregate)) and getattr(node, "has_window", None) is None:
        field = node.input.fields[node.window.time]
        if field.time is None:
            raise ValidationException(
                f"The window function requires the timecol is a time attribute type, but is {field.type}: column "
                f"'{field.name}' has lost it, by a join without time bounds, an aggregate, or an expression."
            )
    if isinstance(node, n.Sort) and node.order and node.limit is None and not node.offset:
        column, descending, _ = node.order[0]
        if node.input.fields[column].time is None or descending:
            raise TableException("Sort on a non-time-attribute field is not supported.")
    if isinstance(node, n.Over):
        _check_over(node)
    return node


_BATCH_ALONE = frozenset(["LEAD", "NTILE", "PERCENT_RANK", "CUME_DIST"])


def _check_over(node: n.Over) -> None:
    over = node.over
    for call in over.calls:
        if call.function in _BATCH_ALONE:
            raise TableException(f"{call.function} Function is not supported in stream mode.")
    ranks = all(c.function in ("ROW_NUMBER", "RANK", "DENSE_RANK") for c in over.calls)
    if not over.order:
        if not ranks:
            raise TableException("OVER windows' ordering in stream mode must be defined on a time attribute.")
        return
    if (over.end or 0) > 0 or (over.end is None):
        raise TableException("OVER RANGE FOLLOWING windows are not supported yet.")
    column, descending, _ = over.order[0]
    if descending and node.input.fields[column].time is not None and not ranks:
        raise TableException("The window can only be ordered in ASCENDING mode.")
