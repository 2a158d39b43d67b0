"""ExplainDetail: what EXPLAIN tells beyond the plan."""

from __future__ import annotations

__all__ = ["ExplainDetail"]


class ExplainDetail:
    """Details of EXPLAIN."""

    # The cost of a node as the planner sees it.
    ESTIMATED_COST = 0
    # What the rows of each node can say.
    CHANGELOG_MODE = 1
    # The job's plan as JSON.
    JSON_EXECUTION_PLAN = 2
    # What could be better.
    PLAN_ADVICE = 3
