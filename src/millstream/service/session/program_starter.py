"""Starts the processes of programs: forked where the system can, so that they share the memory of loaded modules."""

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
from typing import Any, BinaryIO, Protocol

from millstream.common.errors import MillstreamError
from millstream.common.masking import masked_text
from millstream.common.private_files import SCRATCH_VARIABLE
from millstream.service.session.submission import Submission

log = logging.getLogger("millstream")

# The process of a program, and the one that forks such processes.
_MAIN, _FORK_MAIN = "millstream.cli.session.run_program", "millstream.cli.session.fork_server"
_LARGEST_MESSAGE = 4096
# The exit code of a process whose parent was gone before it.
_UNKNOWN = 255


class ProgramProcess(Protocol):
    """The process of a program."""

    def wait(self) -> int:
        """Wait for its end; return its exit code, which is negative for a signal."""
        ...

    def send_signal(self, number: int, /) -> None: ...

    def kill(self) -> None: ...


@dataclass(frozen=True)
class Start:
    """What a process of a program is started with.

    Attributes:
        path: the file that says what to run.
        line: its end of the line to the cluster.
        out, err: where it prints to.
        directory: where it runs.
        scratch: where it puts what goes with it.
    """

    path: str
    line: socket.socket
    out: BinaryIO
    err: BinaryIO
    directory: str
    scratch: str


class Starter:
    """Starts processes of programs. Any thread may ask it to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: ForkServer | None = None

    def start(self, start: Start) -> ProgramProcess:
        if not hasattr(os, "pidfd_open"):
            return _spawn(start)
        with self._lock:
            if self._server is not None:
                # Whoever is gone before it has read a request has forked nothing.
                with contextlib.suppress(OSError):
                    return self._server.fork(start)
            self._server = ForkServer()
            return self._server.fork(start)

    def close(self) -> None:
        """End the process that forks; those it has forked go on."""
        with self._lock:
            if self._server is not None:
                self._server.close()


def _spawn(start: Start) -> ProgramProcess:
    return subprocess.Popen(
        [sys.executable, "-m", _MAIN, start.path, str(start.line.fileno())],
        stdin=subprocess.DEVNULL,
        stdout=start.out,
        stderr=start.err,
        cwd=start.directory,
        pass_fds=[start.line.fileno()],
        env={**os.environ, SCRATCH_VARIABLE: start.scratch},
        # What a terminal sends the cluster is not for programs.
        start_new_session=True,
    )


class ForkedProcess:
    """A process that another one has forked; follows `ProgramProcess`."""

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
        # The lock, lest the descriptor is another one's by now.
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self._code is None:
                signal.pidfd_send_signal(self.pidfd, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def ended(self, code: int) -> None:
        with self._lock:
            self._code = code
            os.close(self.pidfd)
        self._has_ended.set()


class ForkServer:
    """The process that forks: requests to it, and its reports."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-m", _FORK_MAIN, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self._answers: queue.SimpleQueue[ForkedProcess | str | OSError] = queue.SimpleQueue()
        self._living: dict[int, ForkedProcess] = {}
        threading.Thread(target=self._listen, name="program-forks", daemon=True).start()

    def fork(self, start: Start) -> ForkedProcess:
        """Return a new process; one thread at a time may ask for one.

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
            self._take_all()
            reason: OSError | None = None
        except ConnectionResetError as e:
            # So says the system when there was something that the other end had not read.
            reason = e
        code = self._process.wait()
        self._answers.put(reason or f"the process that starts programs ended with code {code}")
        self._await_rest()
        self._control.close()

    def _take_all(self) -> None:
        while True:
            text, descriptors, _, _ = socket.recv_fds(self._control, _LARGEST_MESSAGE, 1, socket.MSG_CMSG_CLOEXEC)
            if not text:
                return
            self._take(json.loads(text), descriptors)

    def _take(self, message: dict[str, Any], descriptors: list[int]) -> None:
        if "pid" in message:
            process = self._living[message["pid"]] = ForkedProcess(descriptors[0])
            self._answers.put(process)
        elif "ended" in message:
            self._living.pop(message["ended"]).ended(message["code"])
        else:
            self._answers.put(message["failed"])

    def _await_rest(self) -> None:
        """Wait for processes that have lost the one which forked them: they run on, and nobody learns their codes."""
        poller = select.poll()
        by_descriptor = {process.pidfd: process for process in self._living.values()}
        for descriptor in by_descriptor:
            poller.register(descriptor, select.POLLIN)
        while by_descriptor:
            for descriptor, _ in poller.poll():
                poller.unregister(descriptor)
                log.warning("A program's process has ended; its exit code is unknown.")
                by_descriptor.pop(descriptor).ended(_UNKNOWN)


_PLAN_MAIN = "millstream.cli.session.plan_program"
# How long a program may take to its execute().
_PATIENCE = 60.0
# So many bytes of what it said last are told when there is no plan.
_LAST_WORDS = 4000


class NotPlanned(Exception):
    """There is no plan; the text says why."""


def plan_program(submission: Submission, settings: dict[str, str], home: str) -> dict[str, Any]:
    """Return the plan of a program.

    Args:
        submission: the program.
        settings: the cluster's, which programs begin with.
        home: where it may have a directory for as long as that takes.
    """
    directory = tempfile.mkdtemp(prefix="plan-", dir=home)
    try:
        return _planned(submission, settings, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _planned(submission: Submission, settings: dict[str, str], directory: str) -> dict[str, Any]:
    told, plan = os.path.join(directory, "program.json"), os.path.join(directory, "plan.json")
    spec = {**submission.as_dict(), "settings": {**settings, **submission.settings}, "plan": plan}
    with open(os.open(told, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        json.dump(spec, file)
    with open(os.path.join(directory, "err"), "w+b") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", _PLAN_MAIN, told],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, cwd=directory, start_new_session=True,
        )  # fmt: skip
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            raise NotPlanned(f"The program has not come to its execute() within {_PATIENCE:g} s.") from None
        finally:
            # With whatever it has started.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if not os.path.exists(plan):
            said.seek(0)
            words = said.read()[-_LAST_WORDS:].decode(errors="replace").strip()
            raise NotPlanned(masked_text(words) or f"The program ended with code {process.returncode} without a plan.")
    with open(plan) as found:
        made: dict[str, Any] = json.load(found)
        return made
