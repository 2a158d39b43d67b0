"""MATCH_RECOGNIZE."""

from __future__ import annotations

from millstream.graph.transformations import StreamEnd
from millstream.sql.operators.rank.match_recognize import MatchOperator
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import Planned
from millstream.sql.translate.translator import Translator, kinds_of


def match(to: Translator, planned: Planned) -> list[StreamEnd]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.Match)
    operator = MatchOperator(node, kinds_of(before), kinds_of(planned), to.session)
    return to.one(planned, operator, to.by_key(before, node.partition), single=not node.partition)
