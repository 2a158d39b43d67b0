"""Heartbeats of slot processes: whoever has forked a slot notices when it is frozen.

A frozen process (SIGSTOP, a frozen cgroup) keeps its connections: nothing breaks, and nobody would hear of it. A thread
of the slot beats apart from the one that works, so that a function that blocks does not count as frozen. Neither does
one that keeps the interpreter to itself, in a native library: processor time counts as a beat too.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from millstream.common.setting import in_words

_COUNT = struct.Struct("=Q")
# Beats within the time that is allowed without one, at least.
_BEATS = 5
_STACK = 256 << 10
# In /proc/<pid>/stat behind the name: the state, then at these places the time in user code and in the kernel.
_USER, _KERNEL = 11, 12


@dataclass(frozen=True)
class HeartbeatSettings:
    """Flink's `heartbeat.interval` and `heartbeat.timeout`, in seconds."""

    interval: float = 10.0
    timeout: float = 50.0

    @property
    def pause(self) -> float:
        """Seconds between two beats, and between two looks at them."""
        return min(self.interval, self.timeout / _BEATS)


class Heartbeat:
    """The heartbeat of a process to be forked: made by the parent, beaten by the child."""

    def __init__(self, settings: HeartbeatSettings, now: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._now = now
        self._page = mmap.mmap(-1, _COUNT.size)
        self._last: tuple[int, int | None] = (0, None)
        self._seen_at = now()
        # Seconds without a beat. The time in which nobody looked does not count: then this process was frozen too.
        self._silence = 0.0

    # --- the child

    def start(self) -> None:
        """Beat on a thread of its own for as long as this process lives."""
        # The thread needs little of the memory that a process may be limited to.
        before = threading.stack_size(_STACK)
        try:
            threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()
        finally:
            threading.stack_size(before)

    def _beat(self) -> None:
        count = 0
        while True:
            count += 1
            _COUNT.pack_into(self._page, 0, count)
            time.sleep(self._settings.pause)

    # --- the parent

    def is_silent(self, pid: int) -> bool:
        """Return whether the process has been frozen for longer than the timeout; to be asked every `pause`."""
        now = self._now()
        elapsed, self._seen_at = now - self._seen_at, now
        (count,) = _COUNT.unpack_from(self._page, 0)
        # Looked up only where there was no beat: it costs a system call or three.
        cpu = _processor_time(pid) if count == self._last[0] else None
        alive = count != self._last[0] or (self._last[1] is not None and cpu != self._last[1])
        self._last = count, cpu
        self._silence = 0.0 if alive else self._silence + min(elapsed, 2 * self._settings.pause)
        return self._silence > self._settings.timeout

    def close(self) -> None:
        self._page.close()


def describe_silence(slot: int, pid: int, settings: HeartbeatSettings) -> str:
    """Return the error for a slot that is frozen."""
    return (
        f"Slot {slot} (process {pid} on {os.uname().nodename}) has sent no heartbeat for "
        f"{in_words(round(settings.timeout * 1000))} (heartbeat.timeout): the process is frozen, and was killed."
    )


def _processor_time(pid: int) -> int | None:
    """Return the processor time that a process has used, in clock ticks; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[_USER]) + int(fields[_KERNEL])
