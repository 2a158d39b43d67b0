"""The rules in their order."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.sql.plan.nodes import Node
from millstream.sql.plan.rewrite import bottom_up
from millstream.sql.plan.rules.calcs import merge_calcs, remove_calc, to_calc
from millstream.sql.plan.rules.joins import find_equal_keys


def optimized(node: Node, settings: Mapping[str, str], batch: bool) -> Node:
    """Return a plan that gives the same rows for less."""
    node = bottom_up(node, find_equal_keys)
    node = bottom_up(node, lambda n: remove_calc(merge_calcs(to_calc(n))))
    return node
