"""Joins with tables that are looked up."""

from __future__ import annotations

from millstream.graph.transformations import StreamEnd
from millstream.sql.operators.lookup_join import LookupJoinOperator, Retrying
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import Planned
from millstream.sql.translate.translator import Translator


def lookup_join(to: Translator, planned: Planned) -> list[StreamEnd]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.LookupJoin)
    scan = node.scan
    lookup = scan.source.lookup([scan.columns[k] for k in node.lookup_keys], scan.columns, node.at_once)
    assert lookup is not None
    if node.retry is not None:
        lookup = Retrying(lookup, node.retry.attempts, node.retry.seconds)
    types = before.node.fields.types
    operator = LookupJoinOperator(
        lookup,
        [(k, types[k]) for k in node.left_keys],
        node.expressions,
        node.filter,
        node.condition,
        node.kind is nodes.JoinKind.LEFT,
        to.session,
    )
    return to.behind(planned, operator)
