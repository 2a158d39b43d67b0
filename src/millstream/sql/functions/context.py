"""What functions are told beside their arguments: the session's time zone, the clock, and what runs them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


def _now() -> int:
    return int(time.time() * 1000)


@dataclass(frozen=True)
class EvaluationContext:
    """Where expressions are evaluated.

    Attributes:
        time_zone: the session's, `table.local-time-zone`.
        clock: the time in milliseconds since 1970.
        batch: whether all rows see the same CURRENT_TIMESTAMP: that of `query_start`.
        query_start: when the query began, by the clock.
        watermark: the watermark of the operator, None as long as there is none.
        catalog, database: the current ones.
        runtime_context: what functions of the user's are opened with; None where none may be called.
    """

    time_zone: str = "UTC"
    clock: Callable[[], int] = _now
    batch: bool = False
    query_start: int = field(default_factory=_now)
    watermark: Callable[[], int | None] = lambda: None
    catalog: str = "default_catalog"
    database: str = "default_database"
    runtime_context: Any = None

    def now(self) -> int:
        """Return the time that CURRENT_TIMESTAMP gives."""
        return self.query_start if self.batch else self.clock()
