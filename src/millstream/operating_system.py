"""What differs between Linux and other systems: the only module that uses Linux's own interfaces.

`system` is Linux's implementation on Linux, otherwise the portable one, which uses POSIX only. The environment variable
MILLSTREAM_PORTABLE selects the portable one on Linux too: the tests run with it, as no other system is tested.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import BinaryIO, Protocol

PORTABLE_VARIABLE = "MILLSTREAM_PORTABLE"
# Seconds for which the portable implementation caches the memory of this process: it starts a process to read it.
_MEMORY_SECONDS = 1.0


class Poller(Protocol):
    """Waits for events on descriptors; the events are those of `select.poll`."""

    def register(self, descriptor: int, events: int, /) -> None: ...

    def modify(self, descriptor: int, events: int, /) -> None: ...

    def unregister(self, descriptor: int, /) -> None: ...

    def poll(self, seconds: float | None = None, /) -> list[tuple[int, int]]: ...

    def close(self) -> None: ...


class DisconnectPoller(Protocol):
    """Waits until a connection breaks. Descriptors may be added while another thread waits."""

    def add(self, descriptor: int) -> None:
        """Watch a connection; it is reported once."""
        ...

    def wait(self) -> set[int]:
        """Return the descriptors of connections that broke, or of a pipe that was closed."""
        ...

    def close(self) -> None: ...


class ThreadActivity(Protocol):
    """The CPU use of a thread."""

    def seconds(self) -> float:
        """Return the CPU time of the thread."""
        ...

    def is_runnable(self) -> bool:
        """Return whether the thread runs or waits for a CPU only."""
        ...


class Portable:
    """Implementation for any POSIX system. It knows other processes from ps."""

    def __init__(self) -> None:
        self._memory = 0
        self._memory_expires = 0.0

    def cores(self) -> int:
        """Return the number of cores that this process may use."""
        return os.cpu_count() or 1

    def physical_memory(self) -> int:
        """Return the memory of the machine in bytes."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def available_memory(self) -> int:
        """Return the memory of the machine, or of the container that this process is in, in bytes."""
        return self.physical_memory()

    def private_memory(self) -> int:
        """Return the resident memory of this process in bytes, where possible without mapped files."""
        if time.monotonic() >= self._memory_expires:
            self._memory = int(_ps(os.getpid(), "rss") or 0) << 10
            self._memory_expires = time.monotonic() + _MEMORY_SECONDS
        return self._memory

    def boot(self) -> str:
        """Return an id within which pairs of process id and start time are unique."""
        # The start times that ps reports contain the date.
        return sys.platform

    def process_start(self, pid: int) -> str | None:
        """Return the start time of a process as a text; None if there is no such process, or it has ended."""
        state = _ps(pid, "stat")
        return None if state is None or state[:1] in "ZX" else _ps(pid, "lstart")

    def processor_time(self, pid: int) -> float | None:
        """Return the CPU time of a process in seconds; None if there is no such process."""
        text = _ps(pid, "time")
        return None if text is None else _seconds(text)

    def parent(self, pid: int) -> int:
        """Return the parent of a process; 0 if there is no such process."""
        return int(_ps(pid, "ppid") or 0)

    def descendants(self) -> dict[int, str]:
        """Return the names of the processes that this process has started, and of those that they have, by id."""
        command = ["ps", "-A", "-o", "pid=,ppid=,comm="]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows = [line.split(None, 2) for line in text.splitlines()]
        return _descendants({int(row[0]): (int(row[1]), row[2]) for row in rows if len(row) == 3})

    def command_line(self, pid: int) -> list[str]:
        """Return the words of a process's command line."""
        return (_ps(pid, "args") or "").split()

    def name_process(self, name: str) -> None:
        """Set the name of this process for ps and top, where possible."""

    def die_with_parent(self) -> None:
        """Have this process killed when its parent ends, where possible."""

    def poller(self) -> Poller:
        """Return a new poller."""
        return _Poll()

    def disconnect_poller(self) -> DisconnectPoller | None:
        """Return a new poller for broken connections; None if only a read can detect them."""
        return None

    def probe_after(self, connection: socket.socket, seconds: int) -> None:
        """Set the seconds without data after which the kernel probes the peer's machine."""
        option = getattr(socket, "TCP_KEEPALIVE", None) or getattr(socket, "TCP_KEEPIDLE", None)
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, seconds)

    def unanswered_milliseconds(self, connection: socket.socket) -> int:
        """Return for how long the peer's machine has not acknowledged data that was retransmitted; 0 if unknown."""
        return 0

    def current_thread_activity(self) -> ThreadActivity:
        """Return the CPU use of the calling thread."""
        return _ProcessActivity()

    def drop_cached(self, descriptor: int) -> None:
        """Remove a written file from the page cache, where possible."""

    def free_blocks(self, file: BinaryIO, size: int) -> None:
        """Free the disk blocks of the beginning of a file without changing its size, where possible."""

    @property
    def has_process_descriptors(self) -> bool:
        """Whether a descriptor can refer to a process, whose id may be reused."""
        return False

    def open_process(self, pid: int) -> int:
        """Return a descriptor of a child process."""
        raise NotImplementedError("this system has no descriptors of processes")

    def signal_process(self, descriptor: int, number: int) -> None:
        """Send a signal to the process of a descriptor."""
        raise NotImplementedError("this system has no descriptors of processes")


def receive_descriptors(channel: socket.socket, size: int, count: int) -> tuple[bytes, list[int]]:
    """Receive a message of at most `size` bytes with at most `count` descriptors, which programs do not inherit."""
    message, descriptors, _, _ = socket.recv_fds(channel, size, count)
    # The flag MSG_CMSG_CLOEXEC is Linux's, and `recv_fds` of Python 3.11 ignores it.
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return message, descriptors


class _Poll:
    """`select.poll` with seconds."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self.register = self._poll.register
        self.modify = self._poll.modify
        self.unregister = self._poll.unregister

    def poll(self, seconds: float | None = None, /) -> list[tuple[int, int]]:
        return self._poll.poll(None if seconds is None else seconds * 1000)

    def close(self) -> None:
        """Do nothing: a poll object has no descriptor."""


class _ProcessActivity:
    """The CPU use of the whole process, where threads have no clocks."""

    def seconds(self) -> float:
        return time.process_time()

    def is_runnable(self) -> bool:
        return False


def _ps(pid: int, column: str) -> str | None:
    """Return a column of ps for a process; None if there is no such process."""
    command = ["ps", "-o", f"{column}=", "-p", str(pid)]
    environment = {**os.environ, "LC_ALL": "C"}
    text = subprocess.run(command, capture_output=True, text=True, check=False, env=environment).stdout.strip()
    return text or None


def _descendants(processes: dict[int, tuple[int, str]]) -> dict[int, str]:
    """Return the names of this process's descendants, from the parents and names of all processes."""
    found: dict[int, str] = {}
    parents = {os.getpid()}
    while parents:
        children = {pid: name for pid, (parent, name) in processes.items() if parent in parents and pid not in found}
        found |= children
        parents = set(children)
    return found


def _seconds(text: str) -> float:
    """Return the seconds of a time of ps, such as 01:02.5 or 3-04:05:06."""
    days, _, clock = text.rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = 60 * seconds + float(part)
    return 86400 * int(days or 0) + seconds


if sys.platform == "linux":
    _PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
    # Flags of fallocate(2): free disk blocks without changing the file's size.
    _PUNCH_HOLE, _KEEP_SIZE = 0x02, 0x01
    # Whole blocks only: part of a block would read as zeros.
    _BLOCK = 1 << 16
    # Of tcp_info: retransmits since the last answer, and milliseconds since then.
    _TCP_INFO = struct.Struct("=2xB53xI")
    # Fields of /proc/<pid>/stat behind the name, from 0.
    _STATE, _PARENT, _USER_TIME, _KERNEL_TIME, _START = 0, 1, 11, 12, 19

    class Linux(Portable):
        """Implementation for Linux."""

        def cores(self) -> int:
            return len(os.sched_getaffinity(0))

        def available_memory(self) -> int:
            for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
                with contextlib.suppress(OSError, ValueError), open(path) as f:
                    return min(self.physical_memory(), int(f.read()))
            return self.physical_memory()

        def private_memory(self) -> int:
            with open("/proc/self/statm", "rb") as f:
                _, pages, shared, *_ = map(int, f.read().split())
            return (pages - shared) * os.sysconf("SC_PAGE_SIZE")

        def boot(self) -> str:
            with open("/proc/sys/kernel/random/boot_id") as f:
                return f"{f.read().strip()} {os.readlink('/proc/self/ns/pid')}"

        def process_start(self, pid: int) -> str | None:
            fields = _stat(pid)
            # A zombie is still listed.
            return None if not fields or fields[_STATE] in "ZX" else fields[_START]

        def processor_time(self, pid: int) -> float | None:
            fields = _stat(pid)
            ticks = os.sysconf("SC_CLK_TCK")
            return (int(fields[_USER_TIME]) + int(fields[_KERNEL_TIME])) / ticks if fields else None

        def parent(self, pid: int) -> int:
            fields = _stat(pid)
            return int(fields[_PARENT]) if fields else 0

        def descendants(self) -> dict[int, str]:
            processes = {}
            for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
                fields = _stat(pid)
                with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/comm") as f:
                    processes[pid] = int(fields[_PARENT]) if fields else 0, f.read().rstrip("\n")
            return _descendants(processes)

        def command_line(self, pid: int) -> list[str]:
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    return f.read().decode(errors="replace").split("\0")
            except OSError:
                return []

        def name_process(self, name: str) -> None:
            ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)

        def die_with_parent(self) -> None:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

        def poller(self) -> Poller:
            # The cost of a poll must not grow with the number of idle connections.
            return select.epoll()

        def disconnect_poller(self) -> DisconnectPoller | None:
            return _HangUps()

        def probe_after(self, connection: socket.socket, seconds: int) -> None:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)

        def unanswered_milliseconds(self, connection: socket.socket) -> int:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
            repeats, milliseconds = _TCP_INFO.unpack_from(info)
            return int(milliseconds) if repeats else 0

        def current_thread_activity(self) -> ThreadActivity:
            # In the thread itself: requesting the CPU clock of a thread that has ended is undefined.
            return _ThreadClock(time.pthread_getcpuclockid(threading.get_ident()), threading.get_native_id())

        def drop_cached(self, descriptor: int) -> None:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

        def free_blocks(self, file: BinaryIO, size: int) -> None:
            freed = ctypes.c_long(size // _BLOCK * _BLOCK)
            ctypes.CDLL(None).fallocate(file.fileno(), _PUNCH_HOLE | _KEEP_SIZE, ctypes.c_long(0), freed)

        @property
        def has_process_descriptors(self) -> bool:
            return True

        def open_process(self, pid: int) -> int:
            return os.pidfd_open(pid)

        def signal_process(self, descriptor: int, number: int) -> None:
            signal.pidfd_send_signal(descriptor, number)

    class _HangUps:
        """Waits for broken connections with epoll."""

        def __init__(self) -> None:
            self._epoll = select.epoll()

        def add(self, descriptor: int) -> None:
            self._epoll.register(descriptor, select.EPOLLRDHUP | select.EPOLLONESHOT)

        def wait(self) -> set[int]:
            return {descriptor for descriptor, _ in self._epoll.poll()}

        def close(self) -> None:
            self._epoll.close()

    class _ThreadClock:
        """The CPU use of a thread, by its clock and its state in /proc."""

        def __init__(self, clock: int, thread: int) -> None:
            self._clock = clock
            self._status = f"/proc/self/task/{thread}/stat"

        def seconds(self) -> float:
            try:
                return time.clock_gettime(self._clock)
            except OSError:
                # The thread has ended.
                return 0.0

        def is_runnable(self) -> bool:
            try:
                with open(self._status) as f:
                    return f.read().rpartition(")")[2].split()[0] == "R"
            except OSError:
                return False

    def _stat(pid: int) -> list[str]:
        """Return the fields of /proc/<pid>/stat behind the name, which may contain spaces; empty without a process."""
        try:
            with open(f"/proc/{pid}/stat", errors="replace") as f:
                return f.read().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return []

    _best: Callable[[], Portable] = Linux
else:
    _best = Portable

system: Portable = Portable() if os.environ.get(PORTABLE_VARIABLE) else _best()
