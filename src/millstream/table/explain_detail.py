"""ExplainDetail: additional output of EXPLAIN."""

from __future__ import annotations

__all__ = ["ExplainDetail"]


class ExplainDetail:
    """Details of EXPLAIN."""

    # The cost of a node as the planner sees it.
    ESTIMATED_COST = 0
    # The row kinds of each node.
    CHANGELOG_MODE = 1
    # The job's plan as JSON.
    JSON_EXECUTION_PLAN = 2
    # Advice to improve the plan.
    PLAN_ADVICE = 3
