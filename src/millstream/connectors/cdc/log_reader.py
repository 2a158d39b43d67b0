"""The thread that reads a database's log, a bounded amount ahead of the job."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from millstream.common.errors import MillstreamError

__all__ = ["LogPiece", "LogThread"]


@dataclass(kw_only=True)
class LogPiece:
    """Changes of one transaction, or a log offset without changes.

    Attributes:
        transaction: its id, or None if no captured table changed.
        count: number of changes.
        size: approximate bytes.
        after: the log offset behind it.
    """

    transaction: Any = None
    count: int = 0
    size: int = 0
    after: Any = None


P = TypeVar("P", bound=LogPiece)


class LogThread(ABC, Generic[P]):
    """Reads pieces of the log until closed; the job consumes them.

    Args:
        name: the thread's name.
        wake: called in the thread when a piece is available or reading failed.
    """

    # Approximate limits of changes and bytes read ahead of the job.
    ahead_changes = 1 << 62
    ahead_bytes = 16 << 20

    def __init__(self, name: str, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Condition()
        self._pieces: deque[P] = deque()
        self._ahead = self._ahead_bytes = 0
        self._closed = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # --- called by the job

    def peek(self) -> P | None:
        """Return the next piece to assign, or None."""
        with self._lock:
            return self._pieces[0] if self._pieces else None

    def pop(self) -> None:
        """Remove the next piece."""
        with self._lock:
            piece = self._pieces.popleft()
            self._ahead -= piece.count
            self._ahead_bytes -= piece.size
            self._lock.notify_all()

    @property
    def has_more(self) -> bool:
        return bool(self._pieces)

    @property
    def waiting(self) -> int:
        """Number of changes read but not consumed."""
        return self._ahead

    def check(self) -> None:
        """Raise the error of the thread."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        self._thread.join(timeout=10)
        self._disconnect()

    # --- run by the thread

    @abstractmethod
    def _read(self) -> None:
        """Read the log and queue its pieces until closed."""

    @abstractmethod
    def _failed(self, error: Exception) -> MillstreamError:
        """Return the error to raise in the job."""

    @abstractmethod
    def _disconnect(self) -> None: ...

    def _run(self) -> None:
        try:
            self._read()
        except MillstreamError as e:
            self._failure = e
        except Exception as e:
            self._failure = self._failed(e)
            self._failure.__cause__ = e
        if self._failure is not None and not self._closed:
            self._wake()

    @property
    def _is_full(self) -> bool:
        return self._ahead > self.ahead_changes or self._ahead_bytes >= self.ahead_bytes

    def _put(self, *found: P) -> None:
        with self._lock:
            was_empty = not self._pieces
            for piece in found:
                last = self._pieces[-1] if self._pieces else None
                is_idle = piece.transaction is None and last is not None and last.transaction is None
                if is_idle and len(self._pieces) > 1:
                    # Of consecutive empty pieces only the last matters, but the job may hold the first.
                    self._pieces.pop()
                self._pieces.append(piece)
                self._ahead += piece.count
                self._ahead_bytes += piece.size
        if was_empty:
            self._wake()
