"""What was asked for over REST and takes its time: known by the id it was given until some time after its end."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from concurrent.futures import Future
from typing import Any

# So many are remembered.
_MOST = 1000


class Operations:
    """Things under way, by id."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._known: OrderedDict[tuple[str, str], tuple[str, Future[Any]]] = OrderedDict()
        # Whose result no client has been sent yet.
        self._unread: set[tuple[str, str]] = set()

    def start(self, job_id: str, kind: str, done: Future[Any], asked: str | None = None) -> str:
        """Remember something that was begun for a job; return its id, the client's own if it gave one.

        Args:
            job_id: the job.
            kind: what was begun: the part of the path under which it is asked for.
            done: what comes of it.
            asked: the client's id.
        """
        trigger = asked or uuid.uuid4().hex
        with self._lock:
            self._known[job_id, trigger] = (kind, done)
            self._unread.add((job_id, trigger))
            while len(self._known) > _MOST:
                self._unread.discard(self._known.popitem(last=False)[0])
        return trigger

    def find(self, job_id: str, trigger: str) -> Future[Any] | None:
        """Return what was begun, None if it is not known."""
        with self._lock:
            known = self._known.get((job_id, trigger))
            return None if known is None else known[1]

    def mark_read(self, job_id: str, trigger: str) -> None:
        """Note that a client was sent the result."""
        with self._lock:
            self._unread.discard((job_id, trigger))
            self._lock.notify_all()

    def wait_until_read(self, seconds: float) -> None:
        """Wait until clients were sent the results of all operations; no longer than some seconds."""
        with self._lock:
            self._lock.wait_for(lambda: not self._unread, seconds)

    def paths(self, job_id: str) -> list[str]:
        """Return under which paths what was begun for a job is asked for."""
        with self._lock:
            return [
                f"/jobs/{job}/{kind}/{trigger}" for (job, trigger), (kind, _) in self._known.items() if job == job_id
            ]
