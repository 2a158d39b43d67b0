"""The programs of a cluster: a process for each, what it says on its line, what becomes of its jobs when it ends."""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import shutil
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from millstream.common.errors import MillstreamError
from millstream.common.masking import masked_text
from millstream.common.private_files import socket_directory
from millstream.service.archive import Archive
from millstream.service.history import Shelf
from millstream.service.responses.cluster import Slots
from millstream.service.session.program_channel import Line
from millstream.service.session.program_starter import ProgramProcess, Start, Starter, plan_program
from millstream.service.session.program_store import Library
from millstream.service.session.slots import SlotPool
from millstream.service.session.submission import Submission

log = logging.getLogger("millstream")

# Where programs print to.
STREAMS = ("out", "err")
# How often their files are looked at, in seconds.
_TRIM_SECONDS = 2.0
# What a program's process ends with whose jobs are left to another leader.
SUSPENDED = 75
# What a program's process puts here goes with it; the name is short, for paths of sockets have few bytes.
_SCRATCH = "t"
# How long programs may take to cancel their jobs when the cluster ends.
_END_SECONDS = 10.0
# So many programs that have ended are remembered, with what they printed.
_KEPT = 100
# So many bytes of what a program printed last are told when it ends without a job.
_LAST_WORDS = 4000


class ProgramEnded(Exception):
    """A program has ended without starting a job; the text is what it said."""


@dataclass
class Program:
    """A program that was submitted.

    Attributes:
        id: by which it is known.
        directory: what it has on disk: its socket, what it printed, the archives of its jobs.
        first_job: the id of the first job that it starts.
        jobs: the jobs it has started; those that have ended are True.
        exit_code: what it ended with; None while it runs.
    """

    id: str
    submission: Submission
    directory: str
    process: ProgramProcess
    line: Line
    first_job: Future[str] = field(default_factory=Future)
    jobs: dict[str, bool] = field(default_factory=dict)
    exit_code: int | None = None

    @property
    def socket(self) -> str:
        return os.path.join(self.directory, "rest")

    def archive_path(self, job_id: str) -> str:
        return os.path.join(self.directory, f"{job_id}.json")

    def output(self, stream: str, start: int = 0) -> tuple[bytes, int]:
        """Return what the program printed to `out` or `err` from some byte on, and up to which byte that is."""
        return read_from(os.path.join(self.directory, stream), start)

    def trim_output(self) -> None:
        """Let go of what nobody will read of a program that prints without end."""
        for stream in STREAMS:
            with contextlib.suppress(FileNotFoundError):
                trim(os.path.join(self.directory, stream))

    def _end_of(self, stream: str) -> bytes:
        size = os.path.getsize(os.path.join(self.directory, stream))
        return self.output(stream, max(size - _LAST_WORDS, 0))[0]

    def last_words(self) -> str:
        said = b"".join(map(self._end_of, STREAMS))[-_LAST_WORDS:].decode(errors="replace").strip()
        return f"The program ended with code {self.exit_code} and has started no job." + (
            f"\n{masked_text(said)}" if said else ""
        )


class Programs:
    """Runs programs. Any thread may ask it for something."""

    def __init__(
        self,
        slots: SlotPool,
        shelf: Shelf,
        settings: dict[str, str],
        attachment: dict[str, Any],
        slot_seconds: float,
        left_behind: Callable[[str, Archive | None], None] = lambda job_id, archive: None,
        library: Library | None = None,
        term: int | None = None,
    ) -> None:
        """Take what programs run with.

        Args:
            slots: what their jobs share.
            shelf: takes the archives of jobs that have ended.
            settings: the cluster's, which programs begin with.
            attachment: how its Spark is reached.
            slot_seconds: how long a job may wait for slots.
            left_behind: given a job whose process was gone before it had ended, and what is known of it, sees to what
                that process would have seen to.
            library: where other job managers find the programs; None where there are none.
            term: in which this one leads.
        """
        self._library = library
        self._term = term
        self._is_closing = False
        self.home = socket_directory("millstream-cluster-")
        self._slots = slots
        self._shelf = shelf
        self._settings = settings
        self._attachment = attachment
        self._slot_seconds = slot_seconds
        self._left_behind = left_behind
        self._lock = threading.Lock()
        self._programs: dict[str, Program] = {}
        self._is_closed = threading.Event()
        self._starter = Starter()
        threading.Thread(target=self._trim, name="program-output", daemon=True).start()

    def _trim(self) -> None:
        while not self._is_closed.wait(_TRIM_SECONDS):
            with self._lock:
                running = [p for p in self._programs.values() if p.exit_code is None]
            for program in running:
                program.trim_output()

    # --- looking

    def find(self, program_id: str) -> Program | None:
        with self._lock:
            return self._programs.get(program_id)

    def of_job(self, job_id: str) -> Program | None:
        """Return the program whose process has a job; None when it has ended, or there is none."""
        with self._lock:
            return next((p for p in self._programs.values() if p.jobs.get(job_id) is False), None)

    def with_jobs(self) -> list[Program]:
        """Return the programs that have jobs which run."""
        with self._lock:
            return [p for p in self._programs.values() if not all(p.jobs.values())]

    def slots(self) -> Slots:
        with self._lock:
            return Slots(self._slots.total, self._slots.free)

    # --- running

    def recover(self) -> int:
        """Start the programs that other job managers have left; return how many."""
        left = {} if self._library is None else self._library.all(self.home)
        for program_id, submission in left.items():
            self._start(program_id, submission)
        return len(left)

    def submit(self, submission: Submission) -> Program:
        """Start a program."""
        program_id = uuid.uuid4().hex
        if self._library is not None:
            self._library.put(program_id, submission)
        return self._start(program_id, submission)

    def _start(self, program_id: str, submission: Submission) -> Program:
        directory = os.path.join(self.home, program_id[:12])
        work = os.path.join(directory, "work")
        scratch = os.path.join(directory, _SCRATCH)
        os.makedirs(work, mode=0o700)
        os.makedirs(scratch, mode=0o700)
        ours, theirs = socket.socketpair()
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
            process = self._starter.start(Start(path, theirs, out, err, submission.directory or work, scratch))
        theirs.close()
        program = Program(program_id, submission, directory, process, Line(ours))
        with self._lock:
            self._programs[program_id] = program
            self._forget()
        for target in (self._listen, self._await_end):
            threading.Thread(target=target, args=(program,), name=f"program-{program_id[:8]}", daemon=True).start()
        return program

    def plan(self, submission: Submission) -> dict[str, Any]:
        """Return the plan of a program, which is not run; raises NotPlanned."""
        return plan_program(submission, self._settings, self.home)

    def _forget(self) -> None:
        ended = [p for p in self._programs.values() if p.exit_code is not None]
        for program in ended[:-_KEPT]:
            del self._programs[program.id]
            shutil.rmtree(program.directory, ignore_errors=True)

    def _listen(self, program: Program) -> None:
        """Do what a program's process asks for, until it has ended."""
        for message in program.line:
            self._TOLD[message["what"]](self, program, message)
        code = program.process.wait()
        program.line.close()
        self._ended(program, code)

    def _await_end(self, program: Program) -> None:
        """Hang up when a program's process has ended: processes that it has forked may hold its end of the line."""
        program.process.wait()
        program.line.hear_no_more()

    def _job_started(self, program: Program, message: dict[str, Any]) -> None:
        with self._lock:
            program.jobs.setdefault(message["job"], False)
        if not program.first_job.done():
            program.first_job.set_result(message["job"])

    def _job_ended(self, program: Program, message: dict[str, Any]) -> None:
        self._put_away(program, message["job"], self._archive(program, message["job"]))

    def _archive(self, program: Program, job_id: str) -> Archive | None:
        try:
            with open(program.archive_path(job_id), "rb") as file:
                return Archive.from_bytes(job_id, file.read())
        except (OSError, ValueError) as e:
            log.warning("What is known of job %s cannot be read: %s", job_id, e)
            return None

    def _put_away(self, program: Program, job_id: str, archive: Archive | None) -> None:
        if archive is not None:
            self._shelf.put(archive)
        with self._lock:
            program.jobs[job_id] = True
            self._slots.give_back(job_id)
        self._grant()

    def _slots_asked(self, program: Program, message: dict[str, Any]) -> None:
        job_id, name, count = message["job"], message["name"], message["count"]
        with self._lock:
            program.jobs.setdefault(job_id, False)
            why = self._slots.ask(job_id, name, count)
        if why is not None:
            program.line.send(job=job_id, refused=why)
            return
        self._grant()
        with self._lock:
            waits = any(w.job == job_id for w in self._slots.waiting)
        if waits:
            log.info("Job '%s' waits for %d slots.", name, count)
            timer = threading.Timer(self._slot_seconds, self._give_up, (program, job_id))
            timer.daemon = True
            timer.start()

    def _give_up(self, program: Program, job_id: str) -> None:
        with self._lock:
            why = self._slots.give_up(job_id, self._slot_seconds)
        if why is not None:
            program.line.send(job=job_id, refused=why)
            # Who stood behind it may fit.
            self._grant()

    def _grant(self) -> None:
        with self._lock:
            granted = [(job, self._owner(job)) for job in self._slots.grant()]
        for job_id, program in granted:
            if program is not None:
                program.line.send(job=job_id, granted=True)

    def _owner(self, job_id: str) -> Program | None:
        return next((p for p in self._programs.values() if job_id in p.jobs), None)

    _TOLD: dict[str, Callable[[Programs, Program, dict[str, Any]], None]] = {
        "started": _job_started,
        "ended": _job_ended,
        "slots": _slots_asked,
    }

    def _ended(self, program: Program, code: int) -> None:
        with self._lock:
            program.exit_code = code
            left = [job_id for job_id, has_ended in program.jobs.items() if not has_ended]
        for job_id in left:
            why = f"The process of the job's program {_manner(code)} before the job had ended."
            log.warning("Job %s: %s", job_id, why)
            archive = self._archive(program, job_id)
            if archive is not None:
                archive = archive.broken_off(int(time.time() * 1000), why)
            try:
                self._left_behind(job_id, archive)
            except (MillstreamError, OSError) as e:
                log.warning("Job %s: %s", job_id, e)
            self._put_away(program, job_id, archive)
        if self._library is not None and not self._is_closing and code != SUSPENDED:
            self._library.remove(program.id)
        shutil.rmtree(os.path.join(program.directory, _SCRATCH), ignore_errors=True)
        if not program.first_job.done():
            program.first_job.set_exception(ProgramEnded(program.last_words()))

    # --- the end

    def _cancel(self, programs: list[Program]) -> None:
        """Cancel jobs that would be left to others when their programs' processes are told to end."""
        for program in programs:
            program.line.send(cancel=True)
        deadline = time.monotonic() + _END_SECONDS
        while any(not all(p.jobs.values()) for p in programs) and time.monotonic() < deadline:
            time.sleep(0.02)

    def close(self, cancel: bool = True) -> None:
        """End all programs.

        Args:
            cancel: whether their jobs are cancelled; else other job managers go on with them, where there are any.
        """
        self._is_closed.set()
        with self._lock:
            running = [p for p in self._programs.values() if p.exit_code is None]
            self._is_closing = not cancel
        if cancel and self._library is not None:
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


def _manner(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with code {code}"


# More than this of a file is on disk for a moment only, and so much stays; so much is told at once.
_MOST_BYTES, _KEPT_BYTES, _ANSWER = 32 << 20, 16 << 20, 1 << 20
_BLOCK = 1 << 16
# The kernel's words for: let go of the disk, and leave the file as long as it is.
_PUNCH_HOLE, _KEEP_SIZE = 0x02, 0x01


def trim(path: str) -> None:
    """Let go of the beginning of a file that has become too large. Who writes to it does not notice."""
    about = os.stat(path)
    if sys.platform != "linux" or about.st_blocks * 512 <= _MOST_BYTES:
        return
    with open(path, "r+b") as file:
        # Whole blocks: part of one would be zeros.
        gone = ctypes.c_long((about.st_size - _KEPT_BYTES) // _BLOCK * _BLOCK)
        ctypes.CDLL(None).fallocate(file.fileno(), _PUNCH_HOLE | _KEEP_SIZE, ctypes.c_long(0), gone)


def read_from(path: str, start: int) -> tuple[bytes, int]:
    """Return what was printed from some byte on, as much as is told at once, and where that ends.

    What was let go of is left out.
    """
    with open(path, "rb") as file:
        # The first byte that is still there.
        try:
            kept = os.lseek(file.fileno(), start, os.SEEK_DATA)
        except OSError:
            # There is nothing behind it.
            return b"", start
        file.seek(kept)
        found = file.read(_ANSWER)
    return found, kept + len(found)
