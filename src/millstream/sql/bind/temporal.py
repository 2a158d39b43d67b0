"""Binds joins with a version of a table: FOR SYSTEM_TIME AS OF."""

from __future__ import annotations

from millstream.sql.bind.errors import Refused
from millstream.sql.expressions import Column, Expression
from millstream.sql.language import syntax
from millstream.sql.plan.nodes import Join, JoinKind, Node, TemporalJoin
from millstream.sql.schema import TimeAttribute


def temporal_join(join: Node, time: Expression, left: Node, right: Node, table: syntax.TableName) -> TemporalJoin:
    """Return the join with the version of the right side at a time of the left one."""
    assert isinstance(join, Join)
    if not isinstance(time, Column) or left.fields[time.index].time is None:
        raise Refused(
            "Temporal table join currently only supports 'FOR SYSTEM_TIME AS OF' left table's time attribute field",
            table.at,
        )
    if join.kind not in (JoinKind.INNER, JoinKind.LEFT):
        raise Refused(
            f"Temporal table join currently only support INNER JOIN and LEFT JOIN, but was {join.kind.name} JOIN",
            table.at,
        )
    event = left.fields[time.index].time is TimeAttribute.ROWTIME
    times = [i for i, f in enumerate(right.fields.fields) if f.time is TimeAttribute.ROWTIME]
    if event and not times:
        raise Refused(
            "Event-Time Temporal Table Join requires both primary key and row time attribute in versioned table, but "
            "no row time attribute can be found.",
            table.at,
        )
    return TemporalJoin(
        join.fields,
        left,
        right,
        join.kind,
        join.left_keys,
        join.right_keys,
        join.null_safe,
        join.condition,
        time.index,
        times[0] if times else 0,
        event,
    )
