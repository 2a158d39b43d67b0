"""The jobs of a process: running ones, and recently ended ones."""

from __future__ import annotations

import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from millstream.common.aliases import Json
from millstream.common.configuration import Configuration
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.setting import DurationSetting, IntegerSetting, at_least
from millstream.jobmaster.leases import CheckpointLeases, Lease
from millstream.jobmaster.machine.requests import Request
from millstream.jobmaster.machine.view import JobView

# How long ended jobs are retained, and how many of them.
EXPIRATION = DurationSetting("jobstore.expiration-time", 3_600_000)
CAPACITY = IntegerSetting("jobstore.max-capacity", 2**31 - 1, limit=at_least(1))

# Rates are averaged over this many samples, one second apart.
_SAMPLES = 6


class Job(Protocol):
    """A job as the registry uses it; implemented by `JobMaster`."""

    result: Future[JobExecutionResult]
    leases: CheckpointLeases

    @property
    def view(self) -> JobView: ...

    def cancel(self) -> None: ...

    def leave(self) -> None: ...

    def ask(self, request: Request) -> None: ...

    def lease_checkpoint(self, seconds: float = ...) -> Lease | None: ...

    def sample(self, seconds: float) -> None: ...


@dataclass(frozen=True)
class Sample:
    """A job's view at a time of a monotonic clock."""

    time: float
    view: JobView


@dataclass
class Entry:
    """A job in the registry.

    Attributes:
        job: the job.
        configuration: the configuration at its start.
        samples: its views of the last seconds, oldest first.
        clock: the monotonic clock of the samples.
        ended_at: when it ended; None while it runs.
    """

    job: Job
    configuration: Mapping[str, str]
    clock: Callable[[], float]
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    ended_at: float | None = None

    @property
    def view(self) -> JobView:
        return self.job.view

    def before(self) -> tuple[JobView | None, float]:
        """Return an earlier view and its age in seconds; (None, 0) if the job is too new."""
        oldest = self.samples[0]
        seconds = self.clock() - oldest.time if self.ended_at is None else self.ended_at - oldest.time
        return (oldest.view, seconds) if seconds > 0 else (None, 0.0)


class Registry:
    """The jobs of a process. Thread-safe: callers use only views and requests of a running job."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._listeners: list[Callable[[Entry], None]] = []
        self._capacity = 2**31 - 1
        self._expiration = 3600.0

    def configure(self, configuration: Configuration) -> None:
        """Read how long ended jobs are retained."""
        self._capacity = CAPACITY.read(configuration)
        self._expiration = EXPIRATION.read(configuration) / 1000

    def on_job_end(self, listener: Callable[[Entry], None]) -> None:
        """Call a listener for each job that ends."""
        self._listeners.append(listener)

    def add(self, job: Job, configuration: Mapping[str, str]) -> Entry:
        """Add a job that was started."""
        entry = Entry(job, configuration, self._clock)
        entry.samples.append(Sample(self._clock(), job.view))
        with self._lock:
            self._entries[job.view.job_id] = entry
        job.result.add_done_callback(lambda _: self._ended(entry))
        return entry

    def _ended(self, entry: Entry) -> None:
        entry.ended_at = self._clock()
        for listener in self._listeners:
            listener(entry)

    def entries(self) -> list[Entry]:
        """Return the jobs in start order."""
        with self._lock:
            self._expire()
            return list(self._entries.values())

    def find(self, job_id: str) -> Entry | None:
        """Return a job; None if it is unknown or has expired."""
        with self._lock:
            self._expire()
            return self._entries.get(job_id)

    def _expire(self) -> None:
        """Remove jobs that ended too long ago, and the oldest of too many."""
        oldest = self._clock() - self._expiration
        ended = sorted((e.ended_at, i) for i, e in self._entries.items() if e.ended_at is not None)
        too_many = len(ended) - self._capacity
        for number, (ended_at, job_id) in enumerate(ended):
            if ended_at < oldest or number < too_many:
                del self._entries[job_id]

    def sample(self) -> None:
        """Record the current views; called every second while rates may be requested."""
        now = self._clock()
        for entry in self.entries():
            if entry.ended_at is None:
                entry.samples.append(Sample(now, entry.view))


# The jobs of this process.
JOBS = Registry()

# Maximum operations retained.
_MAX_OPERATIONS = 1000


class Operations:
    """Asynchronous operations of clients, by trigger id."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._known: OrderedDict[tuple[str, str], tuple[str, Future[Json]]] = OrderedDict()
        # Operations whose result no client has received yet.
        self._unreceived: set[tuple[str, str]] = set()

    def start(self, job_id: str, kind: str, done: Future[Json], trigger: str | None = None) -> str:
        """Add an operation of a job; return its trigger id.

        Args:
            job_id: the job.
            kind: the path segment under which clients poll it.
            done: its result.
            trigger: the client's own id, if any.
        """
        trigger = trigger or uuid.uuid4().hex
        with self._lock:
            self._known[job_id, trigger] = (kind, done)
            self._unreceived.add((job_id, trigger))
            while len(self._known) > _MAX_OPERATIONS:
                self._unreceived.discard(self._known.popitem(last=False)[0])
        return trigger

    def find(self, job_id: str, trigger: str) -> Future[Json] | None:
        """Return the result of an operation; None if it is unknown."""
        with self._lock:
            known = self._known.get((job_id, trigger))
            return None if known is None else known[1]

    def mark_read(self, job_id: str, trigger: str) -> None:
        """Record that a client has received the result."""
        with self._lock:
            self._unreceived.discard((job_id, trigger))
            self._lock.notify_all()

    def wait_until_read(self, seconds: float) -> None:
        """Wait until clients have received the results of all operations, for a limited time."""
        with self._lock:
            self._lock.wait_for(lambda: not self._unreceived, seconds)

    def paths(self, job_id: str) -> list[str]:
        """Return the paths of a job's operations."""
        with self._lock:
            return [
                f"/jobs/{job}/{kind}/{trigger}" for (job, trigger), (kind, _) in self._known.items() if job == job_id
            ]
