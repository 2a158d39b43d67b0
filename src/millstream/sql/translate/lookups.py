"""Joins with tables that are looked up."""

from __future__ import annotations

from millstream.graph.transformations import StreamEnd
from millstream.sql.operators.join.lookup_join import LookupJoinOperator, Retrying
from millstream.sql.operators.join.materialized_lookup_join import MaterializedLookupJoinOperator
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import Planned
from millstream.sql.translate.translator import Translator, kinds_of


def lookup_join(to: Translator, planned: Planned) -> list[StreamEnd]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.LookupJoin)
    scan = node.scan
    lookup = scan.source.lookup([scan.columns[k] for k in node.lookup_keys], scan.columns, node.at_once)
    assert lookup is not None
    if node.retry is not None:
        lookup = Retrying(lookup, node.retry.attempts, node.retry.seconds)
    types = before.node.fields.types
    keys = [(k, types[k]) for k in node.left_keys]
    keeps_all = node.kind is nodes.JoinKind.LEFT
    found = node.expressions, node.filter, node.condition
    if not isinstance(node, nodes.MaterializedLookupJoin):
        return to.behind(planned, LookupJoinOperator(lookup, keys, *found, keeps_all, to.session))
    operator = MaterializedLookupJoinOperator(
        lookup,
        keys,
        *found,
        keeps_all,
        to.session,
        kinds=kinds_of(before),
        state_key=node.state_key,
        replaces=node.replaces,
        ttl=planned.traits.state_ttl,
    )
    return to.one(planned, operator, to.by_key(before, node.state_key))
