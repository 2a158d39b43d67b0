"""Heartbeats of slot processes, for the parent to detect frozen ones.

A frozen process (SIGSTOP, a frozen cgroup) keeps its connections, so nothing fails. A separate thread of the slot
beats, so that a blocking function does not count as frozen. Nor does a native library that holds the interpreter lock:
used processor time counts as a beat too.
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
from millstream.operating_system import system

_COUNT = struct.Struct("=Q")
# Minimum number of beats within the timeout.
_BEATS_PER_TIMEOUT = 5
_STACK = 256 << 10


@dataclass(frozen=True)
class HeartbeatSettings:
    """Flink's `heartbeat.interval` and `heartbeat.timeout`, in seconds."""

    interval: float = 10.0
    timeout: float = 50.0

    @property
    def pause(self) -> float:
        """Seconds between beats, and between checks."""
        return min(self.interval, self.timeout / _BEATS_PER_TIMEOUT)


class Heartbeat:
    """The heartbeat of a forked process: created by the parent, beaten by the child."""

    def __init__(self, settings: HeartbeatSettings, now: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._now = now
        self._page = mmap.mmap(-1, _COUNT.size)
        self._last: tuple[int, float | None] = (0, None)
        self._seen_at = now()
        # Seconds without a beat. Time without checks does not count: this process was frozen too.
        self._silent_seconds = 0.0

    # --- the child

    def start(self) -> None:
        """Beat on a daemon thread."""
        # A small stack: the process's memory may be limited.
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
        """Return whether the process has been frozen for longer than the timeout; call it every `pause`."""
        now = self._now()
        elapsed, self._seen_at = now - self._seen_at, now
        (count,) = _COUNT.unpack_from(self._page, 0)
        # Read only without a beat: it costs system calls.
        cpu = system.processor_time(pid) if count == self._last[0] else None
        alive = count != self._last[0] or (self._last[1] is not None and cpu != self._last[1])
        self._last = count, cpu
        self._silent_seconds = 0.0 if alive else self._silent_seconds + min(elapsed, 2 * self._settings.pause)
        return self._silent_seconds > self._settings.timeout

    def close(self) -> None:
        self._page.close()


def describe_silence(slot: int, pid: int, settings: HeartbeatSettings) -> str:
    """Return the error for a frozen slot."""
    return (
        f"Slot {slot} (process {pid} on {os.uname().nodename}) has sent no heartbeat for "
        f"{in_words(round(settings.timeout * 1000))} (heartbeat.timeout): the process is frozen, and was killed."
    )
