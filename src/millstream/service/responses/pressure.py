"""Back pressure: who holds the others up, in Flink's words."""

from __future__ import annotations

from typing import Any

# Shares of time up to which Flink calls back pressure nothing, and low.
NONE_TO, LOW_TO = 0.10, 0.50


def level(share: float) -> str:
    """Return Flink's word for a share of time.

    Example:
        >>> level(0.05), level(0.3), level(0.9)
        ('ok', 'low', 'high')
    """
    return "ok" if share <= NONE_TO else "low" if share <= LOW_TO else "high"


def of_vertex(subtasks: list[dict[str, Any]], attempts: list[int], at: int) -> dict[str, Any]:
    """Return the back pressure of a vertex from the metrics of its subtasks."""
    shown = []
    for i, metrics in enumerate(subtasks):
        ratio = metrics["backPressuredTimeMsPerSecond"] / 1000
        shown.append(
            {
                "subtask": i,
                "attempt-number": attempts[i],
                "backpressureLevel": level(ratio),
                "backpressure-level": level(ratio),
                "ratio": ratio,
                "idleRatio": metrics["idleTimeMsPerSecond"] / 1000,
                "busyRatio": metrics["busyTimeMsPerSecond"] / 1000,
                "other-concurrent-attempts": [],
            }
        )
    most = max((s["ratio"] for s in shown), default=0.0)
    return {
        "status": "ok",
        "backpressureLevel": level(most),
        "backpressure-level": level(most),
        "end-timestamp": at,
        "subtasks": shown,
    }
