"""What the processes on a worker's host need of the operating system."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def run_child(action: Callable[[], None]) -> NoReturn:
    """Do something in a process that was just forked, and end it."""
    code = 1
    try:
        action()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def die_with_parent() -> None:
    """Be killed when the process that forked this one ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def ends_with_this_process() -> Callable[[], None] | None:
    """Return what a server that is started now runs first, so that it is killed when this process ends.

    None off the main thread: the kernel looks at the thread that started it, which may end earlier.
    """
    return die_with_parent if threading.current_thread() is threading.main_thread() else None


def leave_to_parent(signals: Iterable[int]) -> None:
    """Ignore signals that the process above this one deals with for both, as does whatever this one starts."""
    for number in signals:
        signal.signal(number, signal.SIG_IGN)


def name_process(name: str) -> None:
    """Name the process for ps and top."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def is_alive(pid: int) -> bool:
    """Tell whether a process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def kill(pid: int, number: int) -> None:
    """Send a signal to a process, if it still exists."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


@contextlib.contextmanager
def children_told() -> Iterator[socket.socket]:
    """Give a socket from which something can be read whenever a child has ended."""
    told, teller = socket.socketpair()
    told.setblocking(False)
    teller.setblocking(False)
    handler = signal.signal(signal.SIGCHLD, lambda *_: None)
    wakeup = signal.set_wakeup_fd(teller.fileno(), warn_on_full_buffer=False)
    try:
        yield told
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGCHLD, handler)
        told.close()
        teller.close()


def drain(told: socket.socket) -> None:
    """Read all that was told."""
    with contextlib.suppress(BlockingIOError):
        told.recv(4096)
