"""ExplainDetail: additional output of EXPLAIN."""

from __future__ import annotations

__all__ = ["ExplainDetail"]


class ExplainDetail:
    """Selects additional output of EXPLAIN.

    Example:
        >>> _ = t_env.execute_sql("CREATE VIEW t AS SELECT * FROM (VALUES 1, 2) AS t (a)")
        >>> plan = t_env.explain_sql("SELECT COUNT(*) FROM t GROUP BY a", ExplainDetail.CHANGELOG_MODE)
        >>> "changelogMode=[I,UB,UA]" in plan
        True
    """

    # The cost of a node as the planner sees it.
    ESTIMATED_COST = 0
    # The row kinds of each node.
    CHANGELOG_MODE = 1
    # The job's plan as JSON.
    JSON_EXECUTION_PLAN = 2
    # Advice to improve the plan.
    PLAN_ADVICE = 3
