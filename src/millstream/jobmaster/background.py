"""Work beside the job's thread: begun here, its answer fetched later."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class Background(Protocol[T]):
    """Runs pieces of work while the job goes on. Both methods are called from the job's thread."""

    def start(self, work: Callable[[], T]) -> None:
        """Begin a piece of work, which raises nothing."""
        ...

    def next(self, patience: float) -> T | None:
        """Return the answer of one that is done; None when there is none within so many seconds."""
        ...


class Threads(Generic[T]):
    """Gives every piece of work a thread of its own."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """Begin with nothing to do; `wake` is called from other threads when there is an answer."""
        self._wake = wake
        self._answers: queue.SimpleQueue[T] = queue.SimpleQueue()

    def start(self, work: Callable[[], T]) -> None:
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def _run(self, work: Callable[[], T]) -> None:
        self._answers.put(work())
        self._wake()

    def next(self, patience: float) -> T | None:
        try:
            return self._answers.get(timeout=patience) if patience else self._answers.get_nowait()
        except queue.Empty:
            return None
