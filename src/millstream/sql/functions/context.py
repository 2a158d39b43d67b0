"""What functions are told beside their arguments: the session's time zone, the clock, and what runs them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from millstream.common.fast_dataclass import record
from millstream.sql.functions.user import OpenedFunction, UserFunction
from millstream.sql.types import DataType


def _now() -> int:
    return int(time.time() * 1000)


@record(frozen=True)
class EvaluationContext:
    """Where expressions are evaluated.

    Attributes:
        time_zone: the session's, `table.local-time-zone`.
        clock: the time in milliseconds since 1970.
        batch: whether all rows see the same CURRENT_TIMESTAMP: that of `query_start`.
        query_start: when the query began, by the clock.
        watermark: the watermark of the operator, None as long as there is none.
        catalog, database: the current ones.
        runtime_context: what functions of the user's are opened with; None where there is no subtask.
        options: the configuration.
    """

    time_zone: str = "UTC"
    clock: Callable[[], int] = _now
    batch: bool = False
    query_start: int = field(default_factory=_now)
    watermark: Callable[[], int | None] = lambda: None
    catalog: str = "default_catalog"
    database: str = "default_database"
    runtime_context: Any = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    _opened: dict[Any, OpenedFunction] = field(default_factory=dict, repr=False)
    # What is asked for several times: expressions as text, and what computes each once for a batch, see `evaluate`.
    shared: dict[str, Any] = field(default_factory=dict, repr=False)

    def now(self) -> int:
        """Return the time that CURRENT_TIMESTAMP gives."""
        return self.query_start if self.batch else self.clock()

    def opened(self, function: UserFunction, name: str, types: Sequence[DataType], result: DataType) -> OpenedFunction:
        """Return a function of the user's, opened once however often it stands in expressions of this context."""
        key = (id(function), name, tuple(types), result)
        found = self._opened.get(key)
        if found is None:
            found = self._opened[key] = function.opened(name, types, result, self)
        return found

    def close(self) -> None:
        """Close the functions of the user's that were opened here."""
        for function in self._opened.values():
            function.close()
        self._opened.clear()
