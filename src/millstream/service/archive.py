"""Archives of ended jobs, REST responses by path in Flink's format, and the history server for a directory of them.

Flink's archives can be read, and Flink's history server reads these.
"""

from __future__ import annotations

import asyncio
import atexit
import copy
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.types import ASGIApp

from millstream.checkpoint.storage import Storage, open_storage, storage_options
from millstream.common.aliases import Json
from millstream.common.configuration import Configuration
from millstream.common.execution_state import ExecutionState
from millstream.common.job_status import JobStatus
from millstream.common.setting import TextSetting
from millstream.jobmaster.failure_reports import directory_of, files_of
from millstream.jobmaster.machine.view import JobView
from millstream.service.app import Service, assembled, make_app
from millstream.service.cluster_api import ClusterApi, ClusterInfo
from millstream.service.http import Answer, RequestError, get_from_app, is_id, json_bytes
from millstream.service.logs import RecentLines
from millstream.service.registry import Entry
from millstream.service.remote_jobs_api import RemoteJobsApi, unknown
from millstream.service.responses.metrics import aggregated_metrics, listed_metrics
from millstream.service.responses.tasks import vertex_id

# Archived paths of a job and of each vertex; metrics with values.
_OF_JOB = (
    "", "/plan", "/config", "/exceptions", "/accumulators", "/metrics", "/execution-result", "/explanations",
    "/checkpoints", "/checkpoints/config", "/jobmanager/config", "/jobmanager/environment",
)  # fmt: skip
_OF_VERTEX = (
    "", "/accumulators", "/backpressure", "/metrics", "/subtasktimes", "/taskmanagers", "/watermarks",
    "/subtasks/accumulators", "/diagnostics",
)  # fmt: skip
_ALL_METRICS = "all=true"
_OVERVIEW = "/jobs/overview"
_TERMINAL_STATES = tuple(state.name for state in ExecutionState if state.is_terminal())


@dataclass(frozen=True)
class Archive:
    """The archive of an ended job.

    Attributes:
        job_id: the job.
        answers: responses by path, without /v1.
    """

    job_id: str
    answers: Mapping[str, Json]

    @property
    def line(self) -> dict[str, Json]:
        """The job's entry in the list of jobs."""
        overview: dict[str, Json] = self.answers[_OVERVIEW]["jobs"][0]
        return overview

    def answer(self, rest: str, query: Mapping[str, str]) -> Json:
        """Return the response for a path.

        Args:
            rest: the path after /jobs/:jobid.
            query: the query parameters.
        """
        path = f"/jobs/{self.job_id}{rest}"
        names = _names(query, "get")
        if rest == "/status":
            return {"status": self.line["state"]}
        if rest.endswith("/flamegraph"):
            # Flink's response for an ended job.
            return {"endTimestamp": -1}
        if rest.endswith("/subtasks/metrics"):
            by_subtask = _by_subtask(self._metrics(path.removesuffix("/subtasks/metrics") + "/metrics"))
            return aggregated_metrics(list(by_subtask.values()), names, _names(query, "agg"))
        if path not in self.answers:
            return self._part(path, names)
        stored = self.answers[path]
        return listed_metrics(_values(stored), names) if rest.endswith("/metrics") else stored

    def _metrics(self, path: str) -> dict[str, Json]:
        return _values(self.answers.get(path, []))

    def _part(self, path: str, names: list[str] | None) -> Json:
        """Return the response for one subtask, which is part of its vertex's."""
        vertex, _, rest = path.partition("/subtasks/")
        number, _, detail = rest.partition("/")
        subtasks = self.answers.get(vertex, {}).get("subtasks", []) if rest and number.isdecimal() else []
        details = next((s for s in subtasks if s["subtask"] == int(number)), None)
        if details is not None and detail == "metrics":
            return listed_metrics(_by_subtask(self._metrics(f"{vertex}/metrics")).get(number, {}), names)
        if details is not None and detail in ("", f"attempts/{details['attempt']}"):
            return details
        raise RequestError(404, f"Not found: {path}: the job has ended, and its archive does not contain this.")

    def to_bytes(self) -> bytes:
        """Return the stored form of the archive."""
        entries = [{"path": path, "json": json.dumps(answer)} for path, answer in self.answers.items()]
        return json.dumps({"archive": entries}).encode()

    @staticmethod
    def from_bytes(job_id: str, data: bytes) -> Archive:
        """Read an archive.

        Raises:
            ValueError: the data is not an archive.
        """
        try:
            answers = {entry["path"]: json.loads(entry["json"]) for entry in json.loads(data)["archive"]}
            archive = Archive(job_id, answers)
            # The list of jobs needs it.
            if archive.line["jid"] != job_id:
                raise ValueError(f"the archive is of job {archive.line['jid']}")
        except (KeyError, TypeError, IndexError) as e:
            raise ValueError(f"it is not an archive of a job: {e!r}") from None
        return archive

    def as_failed(self, time_ms: int, reason: str) -> Archive:
        """Return the archive of a job whose process died before the job's end.

        Args:
            at: the time in milliseconds.
            reason: how the process ended.
        """
        answers = copy.deepcopy(dict(self.answers))
        job = answers[f"/jobs/{self.job_id}"]
        ended = {"state": "FAILED", "end-time": time_ms, "duration": time_ms - job["start-time"]}
        job.update(ended)
        job["timestamps"]["FAILED"] = time_ms
        for vertex in job["vertices"]:
            if vertex["status"] not in _TERMINAL_STATES:
                vertex["status"] = ExecutionState.FAILED.name
        line = answers[_OVERVIEW]["jobs"][0]
        line.update(ended, **{"last-modification": time_ms})
        entry = {
            "exceptionName": reason, "stacktrace": reason, "timestamp": time_ms, "taskName": None, "endpoint": None,
            "taskManagerId": None, "failureLabels": {}, "concurrentExceptions": [],
        }  # fmt: skip
        answers[f"/jobs/{self.job_id}/exceptions"] |= {
            "root-exception": reason,
            "timestamp": time_ms,
            "exceptionHistory": {"entries": [entry], "truncated": False},
        }
        answers[f"/jobs/{self.job_id}/execution-result"] = {
            "status": {"id": "COMPLETED"},
            "job-execution-result": {
                "id": self.job_id,
                "application-status": "FAILED",
                "accumulator-results": {},
                "net-runtime": ended["duration"],
                "failure-cause": {"class": "ProgramEnded", "stack-trace": reason, "serialized-throwable": ""},
            },
        }
        return Archive(self.job_id, answers)


async def archived(app: ASGIApp, view: JobView, extra_paths: Iterable[str]) -> Archive:
    """Create a job's archive from the responses of an application.

    Args:
        app: the application.
        view: the job.
        extra_paths: further paths to archive.
    """
    answers: dict[str, Json] = {}
    listed = (await get_from_app(app, _OVERVIEW)).json()["jobs"]
    answers[_OVERVIEW] = {"jobs": [line for line in listed if line["jid"] == view.job_id]}
    for path in (*_paths(view), *extra_paths):
        response = await get_from_app(app, path, _ALL_METRICS if path.endswith("/metrics") else "")
        if response.status == 200:
            answers[path] = response.json()
    return Archive(view.job_id, answers)


def _paths(view: JobView) -> Iterator[str]:
    job = f"/jobs/{view.job_id}"
    yield from (job + rest for rest in _OF_JOB)
    yield from (f"{job}/checkpoints/details/{c.id}" for c in view.checkpoints.history)
    for vertex in view.plan.vertices:
        yield from (f"{job}/vertices/{vertex_id(vertex)}{rest}" for rest in _OF_VERTEX)


def _values(listed: list[dict[str, str]]) -> dict[str, Json]:
    return {m["id"]: _number(m.get("value", "")) for m in listed}


def _number(text: str) -> Json:
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and "e" not in text.lower() and "." not in text else number


def _by_subtask(metrics: Mapping[str, Json]) -> dict[str, dict[str, Json]]:
    """Return the metrics of each subtask from names such as `0.numRecordsIn`."""
    by_subtask_index: dict[str, dict[str, Json]] = {}
    for name, value in metrics.items():
        subtask, _, metric = name.partition(".")
        by_subtask_index.setdefault(subtask, {})[metric] = value
    return by_subtask_index


def _names(query: Mapping[str, str], parameter: str) -> list[str] | None:
    text = query.get(parameter)
    return None if text is None else [name for name in text.split(",") if name]


log = logging.getLogger("millstream")

DIRECTORY = TextSetting("jobmanager.archive.fs.dir", None)
# How long a program waits at its end for archives to be written.
_WAIT_SECONDS = 10.0


class Archiver:
    """Stores the archive of each job that ends."""

    def __init__(self, service: Service, put: Callable[[Entry, Callable[[], Archive]], None]) -> None:
        """Create an archiver.

        Args:
            service: the jobs.
            put: stores the archive of an ended job; called on the job's thread.
        """
        self._registry = service.registry
        self._operations = service.operations
        self._app = make_app(service)
        self._put = put
        self._done: set[str] = set()
        self._changed = threading.Condition()

    def start(self) -> None:
        self._registry.on_job_end(self._archive)
        atexit.register(self.wait)

    def now(self, entry: Entry) -> Archive:
        """Return the archive of a job in its current state."""
        archiving = archived(self._app, entry.view, self._operations.paths(entry.view.job_id))
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            # Works during interpreter shutdown, when no thread can be started.
            return asyncio.run(archiving)
        # A notebook's thread has a running event loop.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, archiving).result()

    def _archive(self, entry: Entry) -> None:
        try:
            self._put(entry, partial(self.now, entry))
        except Exception as e:
            # A failure to archive must not fail the job.
            log.warning("The archive of job '%s' could not be written: %s", entry.view.job_name, e)
        with self._changed:
            self._done.add(entry.view.job_id)
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait for the archives of all ended jobs."""
        with self._changed:
            self._changed.wait_for(self._is_idle, _WAIT_SECONDS)

    def _is_idle(self) -> bool:
        return all(e.view.job_id in self._done for e in self._registry.entries() if e.job.result.done())


def write_to_archive_directory(entry: Entry, archive: Callable[[], Archive]) -> None:
    """Write a job's archive to the directory of its settings, if any."""
    config = Configuration.from_dict(dict(entry.configuration))
    directory = DIRECTORY.read(config)
    if directory is not None:
        created = archive()
        storage = open_storage(directory, storage_options(config))
        storage.publish(created.job_id, created.to_bytes())
        for path in files_of(directory_of(config), f"{created.job_id}."):
            with open(path, "rb") as file:
                storage.publish(os.path.basename(path), file.read(), private=True)


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
