"""An operation: a statement that runs, and its rows, which a client takes piece by piece.

    PENDING -> RUNNING -> FINISHED
       |          |-----> ERROR
       |          |-----> TIMEOUT
       '----------'-----> CANCELED

Each piece has a token, from 0 on. A client asks for the next one, or for the last one again if its answer was lost.
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

# A job waits when so many rows lie ready that nobody takes.
_MOST_READY = 5000
# A client that asks before there are rows waits so long, and so asks less often.
_WAIT_SECONDS = 0.1


class Fetching(TableException):
    """What a client asks for is not there."""


@dataclass(frozen=True)
class Piece:
    """Some rows of a result.

    Attributes:
        kind: NOT_READY, PAYLOAD or EOS.
        batches: the rows.
        next_token: what to ask for next, None at the end.
        outcome: what the statement came to, None while that is not known.
    """

    kind: str
    batches: tuple[Batch, ...]
    next_token: int | None
    outcome: Outcome | None


class Operation:
    """A statement of a session, on a thread of its own."""

    def __init__(self, execute: Callable[[], Outcome], timeout_seconds: float = 0.0) -> None:
        """Take a statement, to be run by `start`.

        Args:
            execute: carries it out.
            timeout_seconds: how long it may take until its rows come; 0 for as long as it likes.
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
        """How far it is."""
        with self._changed:
            return self._status

    def start(self) -> None:
        """Begin, on a thread of its own."""
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
                is_wanted = self._status == RUNNING
                self._changed.notify_all()
            if not is_wanted:
                outcome.cancel()
                return
            self._take(outcome)
        except Exception as e:
            self._end(ERROR, e)

    def _take(self, outcome: Outcome) -> None:
        """Take the rows as they come, but not many more than the client does."""
        for batch in outcome.batches:
            with self._changed:
                self._changed.wait_for(lambda: self._status in (CANCELED, TIMEOUT) or self._rows_ready < _MOST_READY)
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
        """End it if it has not ended; tell whether it did so now."""
        with self._changed:
            if self._status in _ENDED:
                # What a cancelled job says of its end is no error.
                return False
            self._status, self._error = status, error
            outcome = self._outcome
            self._changed.notify_all()
        if outcome is not None:
            outcome.cancel()
        return True

    def cancel(self) -> None:
        """Have it end."""
        if not self._end(CANCELED) and self.status != CANCELED:
            raise Fetching(f"Failed to convert the Operation Status from {self.status} to CANCELED for {self.handle}.")

    def close(self) -> None:
        """Have it end if it runs."""
        self._end(CANCELED)

    def fetch(self, token: int) -> Piece:
        """Return the rows of a token."""
        with self._changed:
            self._changed.wait_for(lambda: self._outcome is not None or self._status in _ENDED, _WAIT_SECONDS)
            self._refuse_if_ended()
            if self._outcome is None:
                return Piece("NOT_READY", (), 0, None)
            if token == self._token - 1:
                return Piece("PAYLOAD", self._last, self._token, self._outcome)
            if token != self._token:
                known = f"{self._token} or {self._token - 1}" if self._token else "0"
                raise Fetching(f"Expecting token to be {known}, but found {token}.")
            return self._next(self._outcome)

    def _next(self, outcome: Outcome) -> Piece:
        self._changed.wait_for(lambda: self._ready or self._status in _ENDED, _WAIT_SECONDS)
        self._refuse_if_ended()
        if not self._ready and self._status == FINISHED:
            return Piece("EOS", (), None, outcome)
        self._last = tuple(self._ready)
        self._ready.clear()
        self._token += 1
        self._changed.notify_all()
        return Piece("PAYLOAD", self._last, self._token, outcome)

    def _refuse_if_ended(self) -> None:
        """Refuse rows of what was given up or has failed; those that came before a failure are still given."""
        if self._error is not None and not self._ready:
            raise self._error
        if self._status in (CANCELED, TIMEOUT):
            raise Fetching(f"Can not fetch results from the {self.handle} in {self._status} status.")
