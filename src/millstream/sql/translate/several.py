"""Rows that become several, or are compared with others whole: expand, correlate, set operations."""

from __future__ import annotations

from millstream.graph.transformations import StreamEnd
from millstream.sql.changes import INSERTS
from millstream.sql.operators.correlate import CorrelateOperator
from millstream.sql.operators.expand import ExpandOperator
from millstream.sql.operators.set_operation import BatchSetOperationOperator, SetOperationOperator
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import Planned
from millstream.sql.translate.translator import Translator, kinds_of


def expand(to: Translator, planned: Planned) -> list[StreamEnd]:
    node = planned.node
    assert isinstance(node, nodes.Expand)
    return to.behind(planned, ExpandOperator(node.sets, kinds_of(planned), to.session))


def correlate(to: Translator, planned: Planned) -> list[StreamEnd]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.Correlate)
    operator = CorrelateOperator(
        node.function,
        node.arguments,
        node.fields.types[len(before.node.fields) :],
        to.session,
        keeps_all=node.kind is nodes.JoinKind.LEFT,
        condition=node.condition,
        ordinality=node.ordinality,
    )
    return to.behind(planned, operator)


def set_operation(to: Translator, planned: Planned) -> list[StreamEnd]:
    node = planned.node
    assert isinstance(node, nodes.SetOperation)
    keys = tuple(range(len(node.fields)))
    operator = SetOperationOperator(node.operator, node.all, kinds_of(planned), to.session.batch)
    if to.session.batch and all(p.traits.changes <= INSERTS for p in planned.inputs):
        operator = BatchSetOperationOperator(node.operator, node.all, kinds_of(planned))
    ends = [e for i, p in enumerate(planned.inputs) for e in to.by_key(p, keys, i)]
    return to.one(planned, operator, ends)
