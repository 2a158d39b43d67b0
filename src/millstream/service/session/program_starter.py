"""Starts programs' processes; where possible forked, so that they share the memory of loaded modules."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from millstream.common.aliases import Json
from millstream.common.errors import MillstreamError
from millstream.common.masking import masked_text
from millstream.common.private_files import SCRATCH_VARIABLE
from millstream.operating_system import receive_descriptors, system
from millstream.service.session.program_store import Submission

log = logging.getLogger("millstream")

# The process of a program, and the one that forks such processes.
_MAIN, _FORK_MAIN = "millstream.cli.session.run_program", "millstream.cli.session.fork_server"
_MAX_MESSAGE = 4096
# The exit code of a process whose parent ended before it.
_UNKNOWN = 255


class ProgramProcess(Protocol):
    """A program's process."""

    def wait(self) -> int:
        """Wait for its end; return its exit code, negative for a signal."""
        ...

    def send_signal(self, number: int, /) -> None: ...

    def kill(self) -> None: ...


@dataclass(frozen=True)
class ProgramStart:
    """Arguments of a program's process.

    Attributes:
        path: the file with the submission.
        line: its end of the channel to the cluster.
        out, err: its output files.
        directory: its working directory.
        scratch: its directory for temporary files.
    """

    path: str
    line: socket.socket
    out: BinaryIO
    err: BinaryIO
    directory: str
    scratch: str


class ProgramStarter:
    """Starts programs' processes. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: ForkServer | None = None

    def start(self, start: ProgramStart) -> ProgramProcess:
        if not system.has_process_descriptors:
            return _spawn(start)
        with self._lock:
            if self._server is not None:
                # A fork server that died before reading the request has forked nothing: start another.
                with contextlib.suppress(OSError):
                    return self._server.fork(start)
            self._server = ForkServer()
            return self._server.fork(start)

    def close(self) -> None:
        """End the fork server; processes it has forked continue."""
        with self._lock:
            if self._server is not None:
                self._server.close()


def _spawn(start: ProgramStart) -> ProgramProcess:
    return subprocess.Popen(
        [sys.executable, "-m", _MAIN, start.path, str(start.line.fileno())],
        stdin=subprocess.DEVNULL,
        stdout=start.out,
        stderr=start.err,
        cwd=start.directory,
        pass_fds=[start.line.fileno()],
        env={**os.environ, SCRATCH_VARIABLE: start.scratch},
        # The terminal's signals to the cluster must not reach programs.
        start_new_session=True,
    )


class ForkedProcess:
    """A process forked by the fork server; implements `ProgramProcess`."""

    def __init__(self, pidfd: int) -> None:
        self.pidfd = pidfd
        self._code: int | None = None
        self._has_ended = threading.Event()
        self._lock = threading.Lock()

    def wait(self) -> int:
        self._has_ended.wait()
        assert self._code is not None
        return self._code

    def send_signal(self, number: int, /) -> None:
        # Under the lock, because a closed descriptor may be reused.
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self._code is None:
                system.signal_process(self.pidfd, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def ended(self, code: int) -> None:
        with self._lock:
            self._code = code
            os.close(self.pidfd)
        self._has_ended.set()


class ForkServer:
    """Client of the fork server process."""

    def __init__(self) -> None:
        self._control, child_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-m", _FORK_MAIN, str(child_socket.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[child_socket.fileno()],
            start_new_session=True,
        )
        child_socket.close()
        self._answers: queue.SimpleQueue[ForkedProcess | str | OSError] = queue.SimpleQueue()
        self._processes: dict[int, ForkedProcess] = {}
        threading.Thread(target=self._listen, name="program-forks", daemon=True).start()

    def fork(self, start: ProgramStart) -> ForkedProcess:
        """Return a new process. Not thread-safe.

        Raises:
            OSError: the request was not read.
            MillstreamError: no process was started.
        """
        request = {"path": start.path, "directory": start.directory, "scratch": start.scratch}
        descriptors = [start.line.fileno(), start.out.fileno(), start.err.fileno()]
        socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)
        answer = self._answers.get()
        if isinstance(answer, OSError):
            raise answer
        if isinstance(answer, str):
            raise MillstreamError(f"The program's process was not started: {answer}.")
        return answer

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> None:
        try:
            self._receive_all()
            reason: OSError | None = None
        except ConnectionResetError as e:
            # The system reports unread data at the other end.
            reason = e
        code = self._process.wait()
        self._answers.put(reason or f"the process that starts programs ended with code {code}")
        self._await_orphans()
        self._control.close()

    def _receive_all(self) -> None:
        while True:
            text, descriptors = receive_descriptors(self._control, _MAX_MESSAGE, 1)
            if not text:
                return
            self._receive(json.loads(text), descriptors)

    def _receive(self, message: dict[str, Json], descriptors: list[int]) -> None:
        if "pid" in message:
            process = self._processes[message["pid"]] = ForkedProcess(descriptors[0])
            self._answers.put(process)
        elif "ended" in message:
            self._processes.pop(message["ended"]).ended(message["code"])
        else:
            self._answers.put(message["failed"])

    def _await_orphans(self) -> None:
        """Wait for processes that outlive the fork server; their exit codes are unknown."""
        poller = select.poll()
        by_descriptor = {process.pidfd: process for process in self._processes.values()}
        for descriptor in by_descriptor:
            poller.register(descriptor, select.POLLIN)
        while by_descriptor:
            for descriptor, _ in poller.poll():
                poller.unregister(descriptor)
                log.warning("A program's process has ended; its exit code is unknown.")
                by_descriptor.pop(descriptor).ended(_UNKNOWN)


_PLAN_MAIN = "millstream.cli.session.plan_program"
# How long a program may take to reach execute().
_PLAN_SECONDS = 60.0
# Maximum bytes of its error output in the error message.
_MAX_ERROR_BYTES = 4000


class PlanError(Exception):
    """A program has no plan; the text is the reason."""


def plan_program(submission: Submission, settings: dict[str, str], parent: str) -> dict[str, Json]:
    """Return the plan of a program.

    Args:
        submission: the program.
        settings: the cluster's configuration, the default for programs.
        parent: the parent of a temporary directory.
    """
    directory = tempfile.mkdtemp(prefix="plan-", dir=parent)
    try:
        return _plan(submission, settings, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _plan(submission: Submission, settings: dict[str, str], directory: str) -> dict[str, Json]:
    path, plan = os.path.join(directory, "program.json"), os.path.join(directory, "plan.json")
    spec = {**submission.as_dict(), "settings": {**settings, **submission.settings}, "plan": plan}
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        json.dump(spec, file)
    with open(os.path.join(directory, "err"), "w+b") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", _PLAN_MAIN, path],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, cwd=directory, start_new_session=True,
        )  # fmt: skip
        try:
            process.wait(_PLAN_SECONDS)
        except subprocess.TimeoutExpired:
            raise PlanError(f"The program did not reach execute() within {_PLAN_SECONDS:g} s.") from None
        finally:
            # Also the processes it has started.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if not os.path.exists(plan):
            errors.seek(0)
            text = errors.read()[-_MAX_ERROR_BYTES:].decode(errors="replace").strip()
            raise PlanError(masked_text(text) or f"The program ended with code {process.returncode} without a plan.")
    with open(plan) as result:
        planned: dict[str, Json] = json.load(result)
        return planned
