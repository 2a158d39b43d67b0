"""The requests in flight of a subtask's async operators, and the wait for responses while operators are at capacity."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from millstream.operators.async_io import AsyncOperator
from millstream.operators.diagnostics.user_code_guard import Guard
from millstream.operators.runtime.chain import ChainNode

# Maximum wait of an epoch, within its slice, for a response when async operators are at capacity.
_WAIT_SECONDS = 0.1


class RequestCapacity:
    """The async operators of a subtask.

    Attributes:
        deadline: the time of the stopwatch until which this epoch waits for operators at capacity.
    """

    def __init__(self, nodes: Sequence[ChainNode], guard: Guard, stopwatch: Callable[[], float]) -> None:
        self._operators = [(n.operator, n) for n in nodes if isinstance(n.operator, AsyncOperator)]
        self._guard = guard
        self._stopwatch = stopwatch
        self.deadline = -math.inf

    @property
    def max_chunk(self) -> int | None:
        """The maximum number of records per chunk, because capacity is checked between two chunks; None: no limit."""
        return min((operator.capacity for operator, _ in self._operators), default=None)

    @property
    def is_exhausted(self) -> bool:
        """Whether an operator is at capacity."""
        return any(operator.is_full for operator, _ in self._operators)

    @property
    def has_requests(self) -> bool:
        """Whether requests are in flight."""
        return any(operator.is_in_flight for operator, _ in self._operators)

    def wait(self) -> bool:
        """Wait for responses while operators are at capacity; return whether more records may be processed.

        Pending input waits meanwhile, except broadcast input. The driver pauses the sources.
        """
        while (full := next((o for o, _ in self._operators if o.is_full), None)) is not None:
            seconds = self.deadline - self._stopwatch()
            if seconds <= 0 or not full.wait(seconds if seconds == math.inf else min(seconds, _WAIT_SECONDS)):
                self.deadline = -math.inf
                return False
            self.emit_responses()
        return True

    def emit_responses(self) -> None:
        """Emit the responses that have arrived."""
        for operator, node in self._operators:
            self._guard.call(operator.emit_responses, node)

    def finish(self) -> None:
        """Wait for all requests and emit their responses."""
        for operator, node in self._operators:
            self._guard.call(operator.finish, node)

    def cancel(self) -> None:
        """Cancel the requests in flight and start no more."""
        for operator, _ in self._operators:
            operator.end_requests()

    def poll_after_seconds(self) -> float | None:
        """Return when to poll requests in flight; None without requests."""
        return min(filter(None, [o.poll_after_seconds() for o, _ in self._operators]), default=None)
