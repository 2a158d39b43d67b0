"""OVER."""

from __future__ import annotations

from dataclasses import replace

from millstream.graph.transformations import StreamEnd
from millstream.operators.base import Operator
from millstream.sql.operators.aggregate.user_accumulators import in_session
from millstream.sql.operators.over.over_batch import BatchOverOperator
from millstream.sql.operators.over.over_non_time import ColumnOverOperator, streamed
from millstream.sql.operators.over.over_time import OverOperator
from millstream.sql.plan import nodes
from millstream.sql.plan.changelog import is_over_time
from millstream.sql.plan.nodes import Planned
from millstream.sql.schema import TimeAttribute
from millstream.sql.translate.translator import Translator, kinds_of


def over(to: Translator, planned: Planned) -> list[StreamEnd]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.Over)
    over, kinds = replace(node.over, calls=in_session(node.over.calls, to.session)), kinds_of(before)
    operator: Operator
    if to.session.batch:
        operator = BatchOverOperator(over, kinds)
    elif is_over_time(node):
        time = over.order[0][0]
        rowtime = time if before.node.fields[time].time is TimeAttribute.ROWTIME else None
        preceding = None if over.start is None else -over.start
        calls = streamed(over).calls
        operator = OverOperator(over.partition, rowtime, over.rows, preceding, calls, kinds, planned.traits.state_ttl)
    else:
        operator = ColumnOverOperator(streamed(over), kinds, planned.traits.state_ttl)
    return to.one(planned, operator, to.by_key(before, over.partition), single=not over.partition)
