"""An operation: a running statement and its rows, which a client fetches in pages.

    PENDING -> RUNNING -> FINISHED
       |          |-----> ERROR
       |          |-----> TIMEOUT
       '----------'-----> CANCELED

Each page has a token, from 0. A client requests the next page, or the last one again if the response was lost.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from millstream.gateway.session import Outcome
from millstream.sql.columns.batch import Batch
from millstream.sql.errors import TableException

PENDING, RUNNING, FINISHED, CANCELED, ERROR, TIMEOUT = (
    *("PENDING", "RUNNING", "FINISHED", "CANCELED", "ERROR", "TIMEOUT"),
)
_ENDED = (FINISHED, CANCELED, ERROR, TIMEOUT)

# Maximum rows buffered for a slow client before the job stalls.
_MAX_BUFFERED_ROWS = 5000
# The maximum time that a request waits for rows; it limits the polling rate of clients.
_WAIT_SECONDS = 0.1


class OperationError(TableException):
    """A request that is invalid in the operation's status."""


@dataclass(frozen=True)
class ResultPage:
    """A page of a result.

    Attributes:
        kind: NOT_READY, PAYLOAD or EOS.
        batches: the rows.
        next_token: the token of the next page, None at the end.
        outcome: the statement's outcome, None while it is unknown.
    """

    kind: str
    batches: tuple[Batch, ...]
    next_token: int | None
    outcome: Outcome | None


class Operation:
    """A statement of a session, on its own thread."""

    def __init__(self, execute: Callable[[], Outcome], timeout_seconds: float = 0.0) -> None:
        """Create an operation, to be run by `start`.

        Args:
            execute: executes the statement.
            timeout_seconds: the maximum time to its first rows; 0 for no limit.
        """
        self.handle = str(uuid.uuid4())
        self._execute = execute
        self._timeout_seconds = timeout_seconds
        self._changed = threading.Condition()
        self._status = PENDING
        self._error: Exception | None = None
        self._outcome: Outcome | None = None
        self._ready: deque[Batch] = deque()
        self._token = 0
        self._last: tuple[Batch, ...] = ()

    @property
    def status(self) -> str:
        """The operation's status."""
        with self._changed:
            return self._status

    def start(self) -> None:
        """Start the statement on its own thread."""
        threading.Thread(target=self._run, name="millstream-statement", daemon=True).start()
        if self._timeout_seconds > 0:
            clock = threading.Timer(self._timeout_seconds, self._end, (TIMEOUT,))
            clock.daemon = True
            clock.start()

    def _run(self) -> None:
        with self._changed:
            if self._status != PENDING:
                return
            self._status = RUNNING
        try:
            outcome = self._execute()
            with self._changed:
                self._outcome = outcome
                is_running = self._status == RUNNING
                self._changed.notify_all()
            if not is_running:
                outcome.cancel()
                return
            self._buffer_rows(outcome)
        except Exception as e:
            self._end(ERROR, e)

    def _buffer_rows(self, outcome: Outcome) -> None:
        """Read the rows, at most a buffer ahead of the client."""
        for batch in outcome.batches:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._status in (CANCELED, TIMEOUT) or self._rows_ready < _MAX_BUFFERED_ROWS
                )
                if self._status in (CANCELED, TIMEOUT):
                    return
                self._ready.append(batch)
                self._changed.notify_all()
        with self._changed:
            if self._status == RUNNING:
                self._status = FINISHED
            self._changed.notify_all()

    @property
    def _rows_ready(self) -> int:
        return sum(map(len, self._ready))

    def _end(self, status: str, error: Exception | None = None) -> bool:
        """End the operation if it has not ended; return whether this call ended it."""
        with self._changed:
            if self._status in _ENDED:
                # The error of a cancelled job is expected.
                return False
            self._status, self._error = status, error
            outcome = self._outcome
            self._changed.notify_all()
        if outcome is not None:
            outcome.cancel()
        return True

    def cancel(self) -> None:
        """Close the operation."""
        if not self._end(CANCELED) and self.status != CANCELED:
            raise OperationError(
                f"Failed to convert the Operation Status from {self.status} to CANCELED for {self.handle}."
            )

    def close(self) -> None:
        """Cancel the operation if it runs."""
        self._end(CANCELED)

    def fetch(self, token: int) -> ResultPage:
        """Return the rows of a token."""
        with self._changed:
            self._changed.wait_for(lambda: self._outcome is not None or self._status in _ENDED, _WAIT_SECONDS)
            self._check_not_ended()
            if self._outcome is None:
                return ResultPage("NOT_READY", (), 0, None)
            if token == self._token - 1:
                return ResultPage("PAYLOAD", self._last, self._token, self._outcome)
            if token != self._token:
                known = f"{self._token} or {self._token - 1}" if self._token else "0"
                raise OperationError(f"Expecting token to be {known}, but found {token}.")
            return self._next(self._outcome)

    def _next(self, outcome: Outcome) -> ResultPage:
        self._changed.wait_for(lambda: self._ready or self._status in _ENDED, _WAIT_SECONDS)
        self._check_not_ended()
        if not self._ready and self._status == FINISHED:
            return ResultPage("EOS", (), None, outcome)
        self._last = tuple(self._ready)
        self._ready.clear()
        self._token += 1
        self._changed.notify_all()
        return ResultPage("PAYLOAD", self._last, self._token, outcome)

    def _check_not_ended(self) -> None:
        """Raise an error for a closed, cancelled or failed operation, after the rows before the failure."""
        if self._error is not None and not self._ready:
            raise self._error
        if self._status in (CANCELED, TIMEOUT):
            raise OperationError(f"Can not fetch results from the {self.handle} in {self._status} status.")
