"""Translation of expand, correlate and set operations."""

from __future__ import annotations

from millstream.graph.transformations import UpstreamEdge
from millstream.operators.base import Operator
from millstream.sql.operators.aggregate.group_aggregate import GroupAggregateOperator
from millstream.sql.operators.base import ColumnKeyPartitioner
from millstream.sql.operators.io.calc import ExpandOperator
from millstream.sql.operators.join.correlate import CorrelateOperator
from millstream.sql.operators.join.regular_join import JoinOperator, JoinSide
from millstream.sql.operators.join.set_operation import BatchSetOperationOperator, SetOperationOperator
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import Planned
from millstream.sql.schema import INSERTS, Changes
from millstream.sql.translate.translator import Translator, arrow_types


def expand(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node = planned.node
    assert isinstance(node, nodes.Expand)
    return to.add_forward(planned, ExpandOperator(node.sets, arrow_types(planned), to.session))


def correlate(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.Correlate)
    operator = CorrelateOperator(
        node.function,
        node.arguments,
        node.fields.types[len(before.node.fields) :],
        to.session,
        is_outer=node.kind is nodes.JoinKind.LEFT,
        condition=node.condition,
        ordinality=node.ordinality,
    )
    return to.add_forward(planned, operator)


def set_operation(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node, ttl = planned.node, planned.traits.state_ttl
    assert isinstance(node, nodes.SetOperation)
    keys = tuple(range(len(node.fields)))
    ends = [e for i, p in enumerate(planned.inputs) for e in to.by_key(p, keys, i)]
    if ttl and not node.all and not to.session.batch:
        return _set_operation_with_ttl(to, planned, ends)
    operator: Operator
    if to.session.batch and all(p.traits.changes <= INSERTS for p in planned.inputs):
        operator = BatchSetOperationOperator(node.operator, node.all, arrow_types(planned))
    else:
        batch = to.session.batch
        operator = SetOperationOperator(node.operator, node.all, arrow_types(planned), batch, 0 if batch else ttl)
    return to.add_after(planned, operator, ends)


def _set_operation_with_ttl(to: Translator, planned: Planned, ends: list[UpstreamEdge]) -> list[UpstreamEdge]:
    """Add a set operation with state TTL: as in Flink, a join whose state expires, then distinct rows."""
    node, ttl, kinds = planned.node, planned.traits.state_ttl, arrow_types(planned)
    assert isinstance(node, nodes.SetOperation)
    keys = tuple(range(len(kinds)))
    kind = nodes.JoinKind.SEMI if node.operator.upper() == "INTERSECT" else nodes.JoinKind.ANTI
    side = JoinSide(tuple(kinds), keys)
    join = JoinOperator(kind, side, side, (True,) * len(keys), None, to.session, ttl=ttl)
    joined = to.add(planned, join, ends, suffix="-join")
    pairs = Changes.UPDATE_BEFORE in planned.traits.changes
    distinct = GroupAggregateOperator(keys, (), kinds, retracts=True, pairs=pairs, ttl=ttl)
    return to.add_after(planned, distinct, [UpstreamEdge(joined, ColumnKeyPartitioner(keys))])
