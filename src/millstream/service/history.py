"""Jobs that have ended, from the archives in a directory."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette

from millstream.checkpoint.storage import Storage
from millstream.common.job_status import JobStatus
from millstream.service.app import assembled
from millstream.service.archive import Archive
from millstream.service.cluster_api import ClusterApi, Household
from millstream.service.http import Answer, Refused, is_id, json_bytes
from millstream.service.logs import RecentLines
from millstream.service.remote_jobs_api import ElsewhereApi, unknown

log = logging.getLogger("millstream")


class Shelf:
    """The archives of jobs, by id. Any thread may put one there."""

    def __init__(self, capacity: int | None = None, expiration: float | None = None) -> None:
        """Make an empty shelf.

        Args:
            capacity: of how many jobs it keeps archives, those that ended last; None for all.
            expiration: for how many seconds after a job's end; None for ever.
        """
        self._capacity = capacity
        self._expiration = expiration
        self._lock = threading.Lock()
        self._archives: dict[str, Archive] = {}

    def put(self, archive: Archive) -> None:
        with self._lock:
            self._archives[archive.job_id] = archive

    def drop(self, job_id: str) -> None:
        with self._lock:
            self._archives.pop(job_id, None)

    def find(self, job_id: str) -> Archive | None:
        with self._lock:
            self._forget()
            return self._archives.get(job_id)

    def all(self) -> list[Archive]:
        """Return the archives, in the order in which jobs began."""
        with self._lock:
            self._forget()
            return sorted(self._archives.values(), key=lambda a: a.line["start-time"])

    def _forget(self) -> None:
        """Forget jobs that ended too long ago, and the oldest of too many."""
        ended = sorted(self._archives.values(), key=lambda a: a.line["end-time"])
        too_many = 0 if self._capacity is None else len(ended) - self._capacity
        oldest = 0.0 if self._expiration is None else (time.time() - self._expiration) * 1000
        for number, archive in enumerate(ended):
            if number < too_many or archive.line["end-time"] < oldest:
                del self._archives[archive.job_id]

    async def lines(self) -> list[dict[str, Any]]:
        return [archive.line for archive in self.all()]

    async def ask(self, job_id: str, method: str, rest: str, query: str, body: bytes) -> Answer:
        archive = self.find(job_id)
        if archive is None:
            raise unknown(job_id)
        if method == "PATCH" and not rest:
            # As it is answered while the job's process is still there.
            if archive.line["state"] == JobStatus.CANCELED.name:
                return Answer(202, b"{}")
            raise Refused(409, f"Job {job_id} has ended already: it is {archive.line['state']}.")
        if method != "GET":
            raise Refused(404, f"Job {job_id} not found: it has ended and is {archive.line['state']}.")
        return Answer(200, json_bytes(archive.answer(rest, dict(parse_qsl(query, keep_blank_values=True)))))


class ArchiveDirectory:
    """The archives in a directory, one file a job."""

    def __init__(self, storage: Storage, shelf: Shelf) -> None:
        self._storage = storage
        self._shelf = shelf
        self._tried: set[str] = set()

    def refresh(self) -> None:
        """Read what is new there; forget what is there no more."""
        names = {name for name in self._storage.list("") if is_id(name)}
        for name in sorted(names - self._tried):
            try:
                self._shelf.put(Archive.from_bytes(name, bytes(self._storage.read(name))))
            except ValueError as e:
                log.warning("%s/%s cannot be shown: %s", self._storage.url, name, e)
        for name in self._tried - names:
            self._shelf.drop(name)
        self._tried = names


def history_app(shelf: Shelf, settings: dict[str, str], token: str | None, refresh_ms: int) -> Starlette:
    """Return the application that shows archives."""
    home = Household(
        settings=settings, refresh_ms=refresh_ms, log=RecentLines(), lines=shelf.lines, is_history=True, token=token
    )
    return assembled([*ElsewhereApi(shelf).routes(), *ClusterApi(home).routes()], token)
