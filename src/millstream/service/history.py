"""The history server: ended jobs from the archives in a directory."""

from __future__ import annotations

import logging
import threading
import time
from urllib.parse import parse_qsl

from starlette.applications import Starlette

from millstream.checkpoint.storage import Storage
from millstream.common.aliases import Json
from millstream.common.job_status import JobStatus
from millstream.service.app import assembled
from millstream.service.archive import Archive
from millstream.service.cluster_api import ClusterApi, ClusterInfo
from millstream.service.http import Answer, RequestError, is_id, json_bytes
from millstream.service.logs import RecentLines
from millstream.service.remote_jobs_api import RemoteJobsApi, unknown

log = logging.getLogger("millstream")


class ArchiveStore:
    """Archives by job id; thread-safe."""

    def __init__(self, capacity: int | None = None, expiration: float | None = None) -> None:
        """Create an empty store.

        Args:
            capacity: maximum number of archives; None for no limit.
            expiration: seconds after a job's end; None for no limit.
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
            self._expire()
            return self._archives.get(job_id)

    def all(self) -> list[Archive]:
        """Return the archives in the order of the jobs' start."""
        with self._lock:
            self._expire()
            return sorted(self._archives.values(), key=lambda a: a.line["start-time"])

    def _expire(self) -> None:
        """Discard expired archives, and the oldest above the capacity."""
        ended = sorted(self._archives.values(), key=lambda a: a.line["end-time"])
        too_many = 0 if self._capacity is None else len(ended) - self._capacity
        oldest = 0.0 if self._expiration is None else (time.time() - self._expiration) * 1000
        for number, archive in enumerate(ended):
            if number < too_many or archive.line["end-time"] < oldest:
                del self._archives[archive.job_id]

    async def lines(self) -> list[dict[str, Json]]:
        return [archive.line for archive in self.all()]

    async def ask(self, job_id: str, method: str, rest: str, query: str, body: bytes) -> Answer:
        archive = self.find(job_id)
        if archive is None:
            raise unknown(job_id)
        if method == "PATCH" and not rest:
            # As while the job's process exists.
            if archive.line["state"] == JobStatus.CANCELED.name:
                return Answer(202, b"{}")
            raise RequestError(409, f"Job {job_id} has ended already: it is {archive.line['state']}.")
        if method != "GET":
            raise RequestError(404, f"Job {job_id} not found: it has ended and is {archive.line['state']}.")
        return Answer(200, json_bytes(archive.answer(rest, dict(parse_qsl(query, keep_blank_values=True)))))


class ArchiveDirectory:
    """The archives in a directory, one file per job."""

    def __init__(self, storage: Storage, archives: ArchiveStore) -> None:
        self._storage = storage
        self._archives = archives
        self._tried: set[str] = set()

    def refresh(self) -> None:
        """Read new archives; discard deleted ones."""
        names = {name for name in self._storage.list("") if is_id(name)}
        for name in sorted(names - self._tried):
            try:
                self._archives.put(Archive.from_bytes(name, bytes(self._storage.read(name))))
            except ValueError as e:
                log.warning("%s/%s cannot be shown: %s", self._storage.url, name, e)
        for name in self._tried - names:
            self._archives.drop(name)
        self._tried = names


def history_app(archives: ArchiveStore, settings: dict[str, str], token: str | None, refresh_ms: int) -> Starlette:
    """Return the application of a history server."""
    info = ClusterInfo(
        settings=settings, refresh_ms=refresh_ms, log=RecentLines(), lines=archives.lines, is_history=True, token=token
    )
    return assembled([*RemoteJobsApi(archives).routes(), *ClusterApi(info).routes()], token)
