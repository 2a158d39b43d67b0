"""Operating-system services of worker processes."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from millstream.operating_system import system

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


def run_child(action: Callable[[], None]) -> NoReturn:
    """Run an action in a forked process, and exit."""
    code = 1
    try:
        action()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def ends_with_this_process() -> Callable[[], None] | None:
    """Return a `preexec_fn` that has a server killed when this process ends.

    None off the main thread: the kernel watches the parent thread, which may end earlier.
    """
    return system.die_with_parent if threading.current_thread() is threading.main_thread() else None


def leave_to_parent(signals: Iterable[int]) -> None:
    """Ignore signals that the parent handles; child processes inherit this."""
    for number in signals:
        signal.signal(number, signal.SIG_IGN)


def is_alive(pid: int) -> bool:
    """Return whether a process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def kill(pid: int, number: int) -> None:
    """Send a signal to a process, if it exists."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


@contextlib.contextmanager
def child_exit_notifications() -> Iterator[socket.socket]:
    """Yield a socket that becomes readable when a child process has ended."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    handler = signal.signal(signal.SIGCHLD, lambda *_: None)
    wakeup = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGCHLD, handler)
        reader.close()
        writer.close()


def drain(notifications: socket.socket) -> None:
    """Read all pending notifications."""
    with contextlib.suppress(BlockingIOError):
        notifications.recv(4096)


class Collector:
    """Collects garbage between tasks, never inside a user's loop.

    After a task it collects young objects, and less often all objects. The interval grows with the duration, so that
    each kind takes at most a hundredth of the time.
    """

    _SHARE = 100
    _FULL = 2
    _MIN_SECONDS = {1: 0.0, _FULL: 5.0}

    def __init__(self) -> None:
        gc.collect()
        gc.freeze()
        gc.disable()
        self._due = {1: 0.0, self._FULL: time.monotonic() + self._MIN_SECONDS[self._FULL]}

    def after_task(self) -> None:
        start = time.monotonic()
        for generation in (self._FULL, 1):
            if start >= self._due[generation]:
                gc.collect(generation)
                end = time.monotonic()
                self._due[generation] = end + max(self._MIN_SECONDS[generation], (end - start) * self._SHARE)
                return


_termination_requested = threading.Event()


def exit_on_sigterm() -> None:
    """Have SIGTERM raise SystemExit in the main thread."""
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGALRM, _terminate)
    sys.unraisablehook = _unraisable


def ignore_sigterm() -> None:
    """Ignore SIGTERM, so that cleanup can finish."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def is_termination_requested() -> bool:
    """Return whether this process has received SIGTERM."""
    return _termination_requested.is_set()


def _unraisable(unraisable: UnraisableHookArgs) -> None:
    if not isinstance(unraisable.exc_value, SystemExit):
        sys.__unraisablehook__(unraisable)


def _terminate(_: int, interrupted: FrameType | None) -> None:
    """Interrupt the main thread, unless cleanup is running.

    Python swallows an exception raised in a destructor or a weakref callback, so a timer raises it again until it
    propagates.
    """
    _termination_requested.set()
    while interrupted is not None:
        if interrupted.f_code is ignore_sigterm.__code__:
            return
        interrupted = interrupted.f_back
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    raise SystemExit(0)
