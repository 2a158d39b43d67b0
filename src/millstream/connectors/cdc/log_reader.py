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
    """Changes of one transaction, or a note that there are none up to a place.

    Attributes:
        transaction: what names it; None where nothing of interest happened.
        count: how many changes there are.
        size: how many bytes, about.
        after: how far the log is dealt out behind it.
    """

    transaction: Any = None
    count: int = 0
    size: int = 0
    after: Any = None


P = TypeVar("P", bound=LogPiece)


class LogThread(ABC, Generic[P]):
    """Reads pieces of the log until it is closed; the job takes them.

    Args:
        name: of the thread.
        wake: called, in that thread, when there is something to take, or when something has gone wrong.
    """

    # So many changes, and bytes, are read ahead of the job, about.
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

    # --- for the job

    def peek(self) -> P | None:
        """Return what is to be dealt out next, None for nothing."""
        with self._lock:
            return self._pieces[0] if self._pieces else None

    def pop(self) -> None:
        """Take away what is to be dealt out next."""
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
        """How many changes have been read and not taken."""
        return self._ahead

    def check(self) -> None:
        """Raise what has gone wrong in the thread."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        self._thread.join(timeout=10)
        self._disconnect()

    # --- the thread

    @abstractmethod
    def _read(self) -> None:
        """Read, and put what is read, until it is closed."""

    @abstractmethod
    def _failed(self, error: Exception) -> MillstreamError:
        """Return in a sentence what has gone wrong."""

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
                    # Of places where nothing happens the last one tells all; but the first may just be looked at.
                    self._pieces.pop()
                self._pieces.append(piece)
                self._ahead += piece.count
                self._ahead_bytes += piece.size
        if was_empty:
            self._wake()
