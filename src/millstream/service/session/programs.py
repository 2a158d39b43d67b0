"""The programs of a cluster: starts their processes, serves their requests, and archives their jobs."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from millstream.common.aliases import Json
from millstream.common.errors import MillstreamError
from millstream.common.masking import masked_text
from millstream.common.private_files import socket_directory
from millstream.operating_system import system
from millstream.service.archive import Archive, ArchiveStore
from millstream.service.responses.cluster import Slots
from millstream.service.session.program_channel import Channel
from millstream.service.session.program_starter import ProgramProcess, ProgramStart, ProgramStarter, plan_program
from millstream.service.session.program_store import ProgramStore, Submission
from millstream.spark.session_attachment import AttachmentFields


@dataclass(frozen=True)
class SlotRequest:
    """A job that waits for slots."""

    job: str
    name: str
    count: int


class SlotPool:
    """Assigns the slots of a cluster to jobs. Pure.

    request --> granted --> changed by another request --> released
      |            ^
      v            |  in request order
    waiting -------'
      |
      v
    refused: the cluster has fewer slots, or the timeout has passed
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._held: dict[str, int] = {}
        self._pending: list[SlotRequest] = []

    @property
    def free(self) -> int:
        return self.total - sum(self._held.values())

    @property
    def pending(self) -> list[SlotRequest]:
        return list(self._pending)

    def ask(self, job: str, name: str, count: int) -> str | None:
        """Request the total number of slots of a job.

        Returns:
            The reason if the request can never be granted; else None, and `grant` returns the job later.

        Example:
            >>> pool = SlotPool(4)
            >>> pool.ask("a", "orders", 3), pool.grant(), pool.free
            (None, ['a'], 1)
            >>> pool.ask("b", "clicks", 2), pool.grant()
            (None, [])
            >>> pool.give_back("a"), pool.grant()
            (None, ['b'])
        """
        self._pending = [w for w in self._pending if w.job != job]
        if count > self.total:
            return (
                f"Job '{name}' needs {count} slots, and the cluster has {self.total}, of which {self.free} are free: "
                "run it with a smaller parallelism (-p), or start the cluster with a larger "
                "taskmanager.numberOfTaskSlots."
            )
        self._pending.append(SlotRequest(job, name, count))
        return None

    def grant(self) -> list[str]:
        """Grant requests in order; return the jobs that now have their slots."""
        granted = []
        while self._pending:
            first = self._pending[0]
            if first.count > self.free + self._held.get(first.job, 0):
                # No overtaking: a large request would starve.
                break
            self._held[first.job] = first.count
            granted.append(first.job)
            del self._pending[0]
        return granted

    def give_up(self, job: str, seconds: float) -> str | None:
        """Withdraw a request after its timeout; return the error, None if the job is not waiting."""
        request = next((w for w in self._pending if w.job == job), None)
        if request is None:
            return None
        self._pending.remove(request)
        return (
            f"Job '{request.name}' needs {request.count} slots, but {self.free} of {self.total} are free after "
            f"{seconds:g} s (slot.request.timeout). Cancel another job, run this one with a smaller parallelism (-p), "
            "or start the cluster with a larger taskmanager.numberOfTaskSlots."
        )

    def give_back(self, job: str) -> None:
        """Release a job's slots and withdraw its request."""
        self._held.pop(job, None)
        self._pending = [w for w in self._pending if w.job != job]


log = logging.getLogger("millstream")

# Output files of programs.
STREAMS = ("out", "err")
# How often output files are trimmed.
_TRIM_SECONDS = 2.0
# The exit code of a process whose jobs are suspended for another leader.
SUSPENDED = 75
# Directory for a process's temporary files; short, because socket paths are limited.
_SCRATCH = "t"
# How long programs may take to cancel their jobs when the cluster ends.
_END_SECONDS = 10.0
# Ended programs retained with their output.
_MAX_ENDED = 100
# Maximum bytes of output in the error of a program without a job.
_MAX_ERROR_BYTES = 4000


class ProgramEnded(Exception):
    """A program ended without starting a job; the text is its last output."""


@dataclass
class Program:
    """A submitted program.

    Attributes:
        id: its id.
        directory: its socket, its output and the archives of its jobs.
        first_job: the id of its first job.
        jobs: its jobs; True for those that have ended.
        exit_code: its exit code; None while it runs.
    """

    id: str
    submission: Submission
    directory: str
    process: ProgramProcess
    channel: Channel
    first_job: Future[str] = field(default_factory=Future)
    jobs: dict[str, bool] = field(default_factory=dict)
    exit_code: int | None = None

    @property
    def socket(self) -> str:
        return os.path.join(self.directory, "rest")

    def archive_path(self, job_id: str) -> str:
        return os.path.join(self.directory, f"{job_id}.json")

    def output(self, stream: str, start: int = 0) -> tuple[bytes, int]:
        """Return output of `out` or `err` from a byte offset on, and the offset of its end."""
        return read_from(os.path.join(self.directory, stream), start)

    def trim_output(self) -> None:
        """Discard the oldest output of a program that prints a lot."""
        for stream in STREAMS:
            with contextlib.suppress(FileNotFoundError):
                trim(os.path.join(self.directory, stream))

    def _tail(self, stream: str) -> bytes:
        size = os.path.getsize(os.path.join(self.directory, stream))
        return self.output(stream, max(size - _MAX_ERROR_BYTES, 0))[0]

    def failure_text(self) -> str:
        text = b"".join(map(self._tail, STREAMS))[-_MAX_ERROR_BYTES:].decode(errors="replace").strip()
        return f"The program ended with code {self.exit_code} and has started no job." + (
            f"\n{masked_text(text)}" if text else ""
        )


class Programs:
    """Runs programs. Thread-safe."""

    def __init__(
        self,
        slots: SlotPool,
        archives: ArchiveStore,
        settings: dict[str, str],
        attachment: AttachmentFields,
        slot_seconds: float,
        on_orphaned_job: Callable[[str, Archive | None], None] = lambda job_id, archive: None,
        store: ProgramStore | None = None,
        term: int | None = None,
    ) -> None:
        """Prepare to run programs.

        Args:
            slots: the slots of the cluster.
            archives: stores archives of ended jobs.
            settings: the cluster's configuration, the default for programs.
            attachment: the connection to the cluster's Spark.
            slot_seconds: how long a job may wait for slots.
            on_orphaned_job: cleans up after a job whose process was killed, with its last archive.
            store: stores programs for other job managers; None without high availability.
            term: the term of this leader.
        """
        self._store = store
        self._term = term
        self._is_closing = False
        self.home = socket_directory("millstream-cluster-")
        self._slots = slots
        self._archives = archives
        self._settings = settings
        self._attachment = attachment
        self._slot_seconds = slot_seconds
        self._on_orphaned_job = on_orphaned_job
        self._lock = threading.Lock()
        self._programs: dict[str, Program] = {}
        self._is_closed = threading.Event()
        self._starter = ProgramStarter()
        threading.Thread(target=self._trim, name="program-output", daemon=True).start()

    def _trim(self) -> None:
        while not self._is_closed.wait(_TRIM_SECONDS):
            with self._lock:
                running = [p for p in self._programs.values() if p.exit_code is None]
            for program in running:
                program.trim_output()

    # --- queries

    def find(self, program_id: str) -> Program | None:
        with self._lock:
            return self._programs.get(program_id)

    def of_job(self, job_id: str) -> Program | None:
        """Return the program that runs a job; None if the job has ended or is unknown."""
        with self._lock:
            return next((p for p in self._programs.values() if p.jobs.get(job_id) is False), None)

    def with_jobs(self) -> list[Program]:
        """Return the programs with running jobs."""
        with self._lock:
            return [p for p in self._programs.values() if not all(p.jobs.values())]

    def slots(self) -> Slots:
        with self._lock:
            return Slots(self._slots.total, self._slots.free)

    # --- running

    def recover(self) -> int:
        """Start the programs that former leaders have left; return their number."""
        stored = {} if self._store is None else self._store.all(self.home)
        for program_id, submission in stored.items():
            self._start(program_id, submission)
        return len(stored)

    def submit(self, submission: Submission) -> Program:
        """Start a program."""
        program_id = uuid.uuid4().hex
        if self._store is not None:
            self._store.put(program_id, submission)
        return self._start(program_id, submission)

    def _start(self, program_id: str, submission: Submission) -> Program:
        directory = os.path.join(self.home, program_id[:12])
        work = os.path.join(directory, "work")
        scratch = os.path.join(directory, _SCRATCH)
        os.makedirs(work, mode=0o700)
        os.makedirs(scratch, mode=0o700)
        own_socket, child_socket = socket.socketpair()
        spec = {
            **submission.as_dict(),
            "settings": {**self._settings, **submission.settings},
            "home": directory,
            "attachment": self._attachment,
            "id": program_id,
            "term": self._term,
        }
        path = os.path.join(directory, "program.json")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            json.dump(spec, file)
        with open(os.path.join(directory, "out"), "wb") as out, open(os.path.join(directory, "err"), "wb") as err:
            process = self._starter.start(
                ProgramStart(path, child_socket, out, err, submission.directory or work, scratch)
            )
        child_socket.close()
        program = Program(program_id, submission, directory, process, Channel(own_socket))
        with self._lock:
            self._programs[program_id] = program
            self._discard_ended()
        for target in (self._listen, self._await_end):
            threading.Thread(target=target, args=(program,), name=f"program-{program_id[:8]}", daemon=True).start()
        return program

    def plan(self, submission: Submission) -> dict[str, Json]:
        """Return the plan of a program without running it; raises PlanError."""
        return plan_program(submission, self._settings, self.home)

    def _discard_ended(self) -> None:
        ended = [p for p in self._programs.values() if p.exit_code is not None]
        for program in ended[:-_MAX_ENDED]:
            del self._programs[program.id]
            shutil.rmtree(program.directory, ignore_errors=True)

    def _listen(self, program: Program) -> None:
        """Handle the messages of a program's process until it ends."""
        for message in program.channel:
            self._HANDLERS[message["what"]](self, program, message)
        code = program.process.wait()
        program.channel.close()
        self._ended(program, code)

    def _await_end(self, program: Program) -> None:
        """Close the channel when a program's process ends: forked children may hold its other end open."""
        program.process.wait()
        program.channel.stop_receiving()

    def _job_started(self, program: Program, message: dict[str, Json]) -> None:
        with self._lock:
            program.jobs.setdefault(message["job"], False)
        if not program.first_job.done():
            program.first_job.set_result(message["job"])

    def _job_ended(self, program: Program, message: dict[str, Json]) -> None:
        self._retire(program, message["job"], self._archive(program, message["job"]))

    def _archive(self, program: Program, job_id: str) -> Archive | None:
        try:
            with open(program.archive_path(job_id), "rb") as file:
                return Archive.from_bytes(job_id, file.read())
        except (OSError, ValueError) as e:
            log.warning("The archive of job %s cannot be read: %s", job_id, e)
            return None

    def _retire(self, program: Program, job_id: str, archive: Archive | None) -> None:
        if archive is not None:
            self._archives.put(archive)
        with self._lock:
            program.jobs[job_id] = True
            self._slots.give_back(job_id)
        self._grant()

    def _slots_requested(self, program: Program, message: dict[str, Json]) -> None:
        job_id, name, count = message["job"], message["name"], message["count"]
        with self._lock:
            program.jobs.setdefault(job_id, False)
            reason = self._slots.ask(job_id, name, count)
        if reason is not None:
            program.channel.send(job=job_id, refused=reason)
            return
        self._grant()
        with self._lock:
            is_pending = any(w.job == job_id for w in self._slots.pending)
        if is_pending:
            log.info("Job '%s' waits for %d slots.", name, count)
            timer = threading.Timer(self._slot_seconds, self._give_up, (program, job_id))
            timer.daemon = True
            timer.start()

    def _give_up(self, program: Program, job_id: str) -> None:
        with self._lock:
            reason = self._slots.give_up(job_id, self._slot_seconds)
        if reason is not None:
            program.channel.send(job=job_id, refused=reason)
            # Later requests may fit now.
            self._grant()

    def _grant(self) -> None:
        with self._lock:
            granted = [(job, self._owner(job)) for job in self._slots.grant()]
        for job_id, program in granted:
            if program is not None:
                program.channel.send(job=job_id, granted=True)

    def _owner(self, job_id: str) -> Program | None:
        return next((p for p in self._programs.values() if job_id in p.jobs), None)

    _HANDLERS: dict[str, Callable[[Programs, Program, dict[str, Json]], None]] = {
        "started": _job_started,
        "ended": _job_ended,
        "slots": _slots_requested,
    }

    def _ended(self, program: Program, code: int) -> None:
        with self._lock:
            program.exit_code = code
            left = [job_id for job_id, has_ended in program.jobs.items() if not has_ended]
        for job_id in left:
            reason = f"The process of the job's program {_exit_text(code)} before the job had ended."
            log.warning("Job %s: %s", job_id, reason)
            archive = self._archive(program, job_id)
            if archive is not None:
                archive = archive.as_failed(int(time.time() * 1000), reason)
            try:
                self._on_orphaned_job(job_id, archive)
            except (MillstreamError, OSError) as e:
                log.warning("Job %s: %s", job_id, e)
            self._retire(program, job_id, archive)
        if self._store is not None and not self._is_closing and code != SUSPENDED:
            self._store.remove(program.id)
        shutil.rmtree(os.path.join(program.directory, _SCRATCH), ignore_errors=True)
        if not program.first_job.done():
            program.first_job.set_exception(ProgramEnded(program.failure_text()))

    # --- shutdown

    def _cancel(self, programs: list[Program]) -> None:
        """Cancel jobs that SIGTERM would only suspend."""
        for program in programs:
            program.channel.send(cancel=True)
        deadline = time.monotonic() + _END_SECONDS
        while any(not all(p.jobs.values()) for p in programs) and time.monotonic() < deadline:
            time.sleep(0.02)

    def close(self, cancel: bool = True) -> None:
        """End all programs.

        Args:
            cancel: whether to cancel their jobs; otherwise other job managers, if any, take them over.
        """
        self._is_closed.set()
        with self._lock:
            running = [p for p in self._programs.values() if p.exit_code is None]
            self._is_closing = not cancel
        if cancel and self._store is not None:
            self._cancel(running)
        for program in running:
            program.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + _END_SECONDS
        while any(p.exit_code is None for p in running) and time.monotonic() < deadline:
            time.sleep(0.02)
        for program in running:
            if program.exit_code is None:
                program.process.kill()
        self._starter.close()
        shutil.rmtree(self.home, ignore_errors=True)


def _exit_text(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with code {code}"


# Files above the first size are trimmed to the second; a response has at most the third.
_MAX_BYTES, _RETAINED_BYTES, _RESPONSE_BYTES = 32 << 20, 16 << 20, 1 << 20


def trim(path: str) -> None:
    """Free the disk space of the beginning of a file that is too large. Writers are not affected."""
    status = os.stat(path)
    if status.st_blocks * 512 > _MAX_BYTES:
        with open(path, "r+b") as file:
            system.free_blocks(file, status.st_size - _RETAINED_BYTES)


def read_from(path: str, start: int) -> tuple[bytes, int]:
    """Return a block of a file from an offset on, and the offset of its end; skip what was trimmed."""
    with open(path, "rb") as file:
        try:
            first = os.lseek(file.fileno(), start, os.SEEK_DATA)
        except OSError:
            # There is no data after the offset.
            return b"", start
        file.seek(first)
        block = file.read(_RESPONSE_BYTES)
    return block, first + len(block)
