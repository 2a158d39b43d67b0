"""Changes as rows, and back."""

from __future__ import annotations

from millstream.graph.transformations import StreamEnd
from millstream.sql.operators.io.changelog_rows import FromChangelogOperator, ToChangelogOperator
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import Planned
from millstream.sql.translate.translator import Translator


def to_changelog(to: Translator, planned: Planned) -> list[StreamEnd]:
    node = planned.node
    assert isinstance(node, nodes.ToChangelog)
    return to.behind(planned, ToChangelogOperator(node.codes))


def from_changelog(to: Translator, planned: Planned) -> list[StreamEnd]:
    node = planned.node
    assert isinstance(node, nodes.FromChangelog)
    return to.behind(planned, FromChangelogOperator(node.op, node.codes))
