"""The Python daemon of executors: one resident process for each slot of a job, for the job's whole life.

Spark's stock daemon hands a task to any idle worker process. Here a small relay process serves each connection of the
JVM (which needs a process of its own for each worker, to monitor and kill) and passes the connection to the resident
process of the task's slot:

    JVM --socket--> relay --descriptor over a Unix socket--> resident of (job, slot)

A task names its job in Spark's local properties, at the head of its stream. Other tasks run in the relay itself, as in
the stock daemon.

Life cycles: all processes die with the manager; a running task dies with its resident; a resident dies with a relay
whose task is running (the JVM kills the relay when the task is cancelled), because user code can be stopped only with
its process.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import json
import os
import re
import select
import signal
import socket
import struct
import sys
import time
import traceback
import uuid
from collections import deque
from dataclasses import dataclass, field

import pyspark.worker
from pyspark import daemon as stock_daemon
from pyspark.serializers import read_int, write_int, write_with_length

from millstream.operating_system import system
from millstream.spark.control import DIRECTORY_VARIABLE
from millstream.spark.heartbeat import Heartbeat, HeartbeatSettings, describe_silence
from millstream.spark.processes import is_alive, kill, run_child
from millstream.spark.spark_task_process import ReplayedStream, serve

JOB_PROPERTY = "millstream.job"
RELEASE_PROPERTY = "millstream.release"
# A module to import in the daemon before slots are forked.
LOADS_PROPERTY = "millstream.loads"
# Heartbeat interval and timeout of slots, in milliseconds.
HEARTBEAT_PROPERTY = "millstream.heartbeat"

_JOB = re.compile(rb'"millstream\.job":"([0-9a-zA-Z_-]+)"')
_RELEASE = re.compile(rb'"millstream\.release":"([0-9a-zA-Z_-]+)"')
_LOADS = re.compile(rb'"millstream\.loads":"([0-9a-zA-Z_.]+)"')
_HEARTBEAT = re.compile(rb'"millstream\.heartbeat":"(\d+)/(\d+)"')
_INTS = struct.Struct(">iii")

# How long the functions of a released job may take to close.
_CLOSE_SECONDS = 1.5


@dataclass
class _Resident:
    pid: int
    path: str
    settings: HeartbeatSettings
    heartbeat: Heartbeat
    next_check: float = 0.0


@dataclass
class _Release:
    """A request to end a job's residents, answered when they have ended."""

    connection: socket.socket
    pids: list[int]
    kill_at: float


@dataclass
class Manager:
    """Accepts the JVM's connections and manages the residents."""

    directory: str
    listener: socket.socket
    control: socket.socket
    control_path: str
    residents: dict[tuple[str, int], _Resident] = field(default_factory=dict)
    releases: list[_Release] = field(default_factory=list)
    # Ended jobs: a late task must not start a process that nothing would end.
    ended: deque[str] = field(default_factory=lambda: deque(maxlen=1000))
    # Description of the frozen slot, by job.
    frozen: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        stdin = os.fdopen(0, "rb", 4, closefd=False)
        poller = select.poll()
        for fd in (0, self.listener.fileno(), self.control.fileno()):
            poller.register(fd, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poller.poll(20 if self.releases else self._pause())}
            if 0 in ready:
                try:
                    pid = read_int(stdin)  # type: ignore[no-untyped-call]
                except EOFError:
                    return
                kill(pid, signal.SIGKILL)
            if self.listener.fileno() in ready:
                self._accept()
            if self.control.fileno() in ready:
                self._answer()
            self._finish_releases()
            self._end_frozen()

    def _accept(self) -> None:
        connection, _ = self.listener.accept()
        pid = self._fork()
        if pid == 0:
            system.name_process("millstream-relay")
            run_child(lambda: Relay(connection, self.control_path).run())
        connection.close()

    def _answer(self) -> None:
        connection, _ = self.control.accept()
        connection.settimeout(5)
        try:
            request = json.loads(connection.recv(4096))
            if "release" in request:
                self._release(request["release"], connection)
                return
            if "frozen" in request:
                connection.sendall(self.frozen.get(request["frozen"], "").encode())
                connection.close()
                return
            if not self._has_ended(request["job"]):
                _load(request["loads"])
                settings = HeartbeatSettings(*request["heartbeat"])
                connection.sendall(self._resident(request["job"], request["slot"], settings).path.encode())
        except (OSError, ValueError):
            # The relay was killed before it read the answer.
            traceback.print_exc()
        connection.close()

    def _resident(self, job: str, slot: int, settings: HeartbeatSettings) -> _Resident:
        former = self.residents.get((job, slot))
        if former is not None and is_alive(former.pid):
            return former
        path = os.path.join(self.directory, f".s{uuid.uuid4().hex[:12]}")
        listener = _listen(path)
        heartbeat = Heartbeat(settings)
        pid = self._fork()
        if pid == 0:
            system.name_process(f"millstream-s{slot}")
            run_child(lambda: serve(listener, heartbeat))
        listener.close()
        # A slot that froze without a task has failed no epoch.
        self.frozen.pop(job, None)
        resident = self.residents[job, slot] = _Resident(pid, path, settings, heartbeat)
        return resident

    def _pause(self) -> int:
        """Return the poll timeout in milliseconds."""
        return round(1000 * min((r.settings.pause for r in self.residents.values()), default=1.0))

    def _end_frozen(self) -> None:
        """Kill slots without a heartbeat: their tasks fail, and `frozen` holds the reason."""
        now = time.monotonic()
        for (job, slot), resident in self.residents.items():
            if now < resident.next_check or not is_alive(resident.pid):
                continue
            resident.next_check = now + resident.settings.pause
            if resident.heartbeat.is_silent(resident.pid):
                text = self.frozen[job] = describe_silence(slot, resident.pid, resident.settings)
                print(text, file=sys.stderr, flush=True)
                kill(resident.pid, signal.SIGKILL)

    def _release(self, job: str, connection: socket.socket) -> None:
        self.ended.append(job)
        self.frozen.pop(job, None)
        job_residents = [key for key in self.residents if key[0] == job or key[0].startswith(f"{job}-")]
        pids = []
        for key in job_residents:
            resident = self.residents.pop(key)
            kill(resident.pid, signal.SIGTERM)
            pids.append(resident.pid)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(resident.path)
        self.releases.append(_Release(connection, pids, time.monotonic() + _CLOSE_SECONDS))

    def _has_ended(self, key: str) -> bool:
        """Return whether an execution was released, alone or with its job."""
        parts = key.split("-")
        return any("-".join(parts[:n]) in self.ended for n in range(1, len(parts) + 1))

    def _finish_releases(self) -> None:
        for release in list(self.releases):
            release.pids = [p for p in release.pids if is_alive(p)]
            if release.pids and time.monotonic() > release.kill_at:
                for pid in release.pids:
                    kill(pid, signal.SIGKILL)
            if not release.pids:
                self.releases.remove(release)
                with contextlib.suppress(OSError):
                    release.connection.sendall(b"released")
                release.connection.close()

    def _fork(self) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            system.die_with_parent()
            self.listener.close()
            self.control.close()
            for release in self.releases:
                release.connection.close()
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            # The manager's stdin is its channel to the JVM.
            with open(os.devnull, "rb") as devnull:
                os.dup2(devnull.fileno(), 0)
        return pid


class Relay:
    """Serves one connection of the JVM, task by task."""

    def __init__(self, connection: socket.socket, control_path: str) -> None:
        self._jvm = connection
        self._control_path = control_path

    def run(self) -> None:
        with self._jvm.makefile("wb") as out:
            write_int(os.getpid(), out)  # type: ignore[no-untyped-call]
        while True:
            head = self._read_head()
            if head is None or not self._serve(head):
                break
        # The JVM closes the connection; it must not see a broken pipe before.
        with contextlib.suppress(OSError):
            while self._jvm.recv(1024):
                pass

    def _read_head(self) -> bytes | None:
        """Read a task's first message: id, length, and the body that starts with the partition number."""
        start = _read_exactly(self._jvm, 8)
        if len(start) < 8:
            return None
        length = struct.unpack(">i", start[4:])[0]
        return start + _read_exactly(self._jvm, length)

    def _serve(self, head: bytes) -> bool:
        """Run one task; return whether the connection can be used again."""
        release, job = _RELEASE.search(head), _JOB.search(head)
        if release is not None:
            self._ask({"release": release.group(1).decode()})
        elif job is not None:
            slot = _INTS.unpack_from(head)[2]
            loads = _LOADS.search(head)
            module = None if loads is None else loads.group(1).decode()
            path = self._ask(
                {"job": job.group(1).decode(), "slot": slot, "loads": module, "heartbeat": _heartbeat(head)}
            )
            if not path:
                self._jvm.shutdown(socket.SHUT_RDWR)
                return False
            return self._pass_on(head, path)
        return _run_stock(self._jvm, head)

    def _ask(self, request: dict[str, object]) -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            control.connect(self._control_path)
            control.sendall(json.dumps(request).encode())
            return control.recv(4096).decode()

    def _pass_on(self, head: bytes, path: str) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as resident:
            resident.connect(path)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self._jvm.fileno()]))]
            resident.sendmsg([struct.pack(">I", len(head))], rights)
            resident.sendall(head)
            poller = select.poll()
            poller.register(resident.fileno(), select.POLLIN)
            # No events: only hang-up, which means that the task was cancelled.
            poller.register(self._jvm.fileno(), 0)
            poller.poll()
            resident.setblocking(False)
            try:
                answer = resident.recv(1)
            except BlockingIOError:
                answer = b""
        if answer == b"k":
            return True
        # The last open descriptor: closing it signals the end of the resident to the JVM.
        self._jvm.shutdown(socket.SHUT_RDWR)
        return False


def _heartbeat(head: bytes) -> list[float]:
    """Return heartbeat interval and timeout of a task's slot, in seconds."""
    match = _HEARTBEAT.search(head)
    assert match is not None, "a task of millstream must set its heartbeat interval and timeout"
    return [int(milliseconds) / 1000 for milliseconds in match.groups()]


def _load(module: str | None) -> None:
    """Import a module in the daemon, so that slot processes share it."""
    if module is None or module in sys.modules:
        return
    try:
        importlib.import_module(module)
    except ImportError:
        # The user of the module raises the error.
        sys.modules[module] = type(sys)(module)
    gc.collect()
    gc.freeze()


def _run_stock(connection: socket.socket, head: bytes) -> bool:
    """Run a task of other programs in this process."""
    infile = ReplayedStream.open(head, os.dup(connection.fileno()))
    outfile = os.fdopen(os.dup(connection.fileno()), "wb", 65536)
    try:
        pyspark.worker.main(infile, outfile)
    except SystemExit as e:
        return not e.code
    finally:
        with contextlib.suppress(OSError):
            outfile.flush()
    return True


def _read_exactly(connection: socket.socket, count: int) -> bytes:
    parts = []
    while count > 0:
        part = connection.recv(count)
        if not part:
            break
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _listen(path: str) -> socket.socket:
    """Listen on a Unix socket that only this user can connect to, regardless of its directory and the umask."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Before the socket exists: this process has one thread.
    mask = os.umask(0o177)
    try:
        listener.bind(path)
    finally:
        os.umask(mask)
    listener.listen(1024)
    return listener


def main() -> None:
    """Run the manager; without Unix domain sockets, which pass connections, run the stock daemon."""
    if os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "false").lower() != "true":
        stock_daemon.manager()
        return
    os.setpgid(0, 0)
    # Imported once here, shared by all slot processes. By name: this package must not import the API.
    for name in ("cloudpickle", "millstream.datastream", "millstream.spark.slot_host"):
        importlib.import_module(name)
    # Slot processes do not scan these objects for garbage.
    gc.collect()
    gc.freeze()
    directory = os.environ["PYTHON_WORKER_FACTORY_SOCK_DIR"]
    path = os.path.join(directory, f".{uuid.uuid4()}.sock")
    listener = _listen(path)
    control_path = os.path.join(os.environ.get(DIRECTORY_VARIABLE, directory), f".c{uuid.uuid4().hex[:12]}")
    control = _listen(control_path)
    with os.fdopen(os.dup(1), "wb") as out:
        write_with_length(path.encode(), out)  # type: ignore[no-untyped-call]

    def stop(*_: object) -> None:
        for leftover in (path, control_path):
            with contextlib.suppress(OSError):
                os.unlink(leftover)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(0, signal.SIGHUP)
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        Manager(directory, listener, control, control_path).run()
    except BaseException:
        traceback.print_exc()
    finally:
        stop()


if __name__ == "__main__":
    main()
