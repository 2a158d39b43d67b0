"""Heartbeats of slot processes: only a process that is frozen is silent."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from millstream.spark.heartbeat import Heartbeat, HeartbeatSettings

SETTINGS = HeartbeatSettings(interval=10.0, timeout=1.5)


def sleeps() -> None:
    time.sleep(600)


def keeps_the_interpreter() -> None:
    # Catastrophic backtracking: native code, in which no other thread runs.
    re.match(r"(a+)+$", "a" * 64 + "b")


def forked(heartbeat: Heartbeat, does: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        heartbeat.start()
        does()
        os._exit(0)
    return pid


@pytest.fixture
def heartbeat() -> Iterator[Heartbeat]:
    heartbeat = Heartbeat(SETTINGS)
    yield heartbeat
    heartbeat.close()


def is_silent_within(heartbeat: Heartbeat, pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if heartbeat.is_silent(pid):
            return True
        time.sleep(SETTINGS.pause)
    return False


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("does", [sleeps, keeps_the_interpreter])
def test_heartbeat_is_silent_only_while_process_is_stopped(heartbeat: Heartbeat, does: Callable[[], None]) -> None:
    pid = forked(heartbeat, does)
    try:
        assert not is_silent_within(heartbeat, pid, 2 * SETTINGS.timeout)
        os.kill(pid, signal.SIGSTOP)
        assert is_silent_within(heartbeat, pid, 30)
        os.kill(pid, signal.SIGCONT)
        time.sleep(2 * SETTINGS.pause)
        assert not heartbeat.is_silent(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_heartbeat_is_not_silent_after_whoever_looks_was_frozen() -> None:
    times = iter([0.0, 0.3, 600.0, 600.3])
    heartbeat = Heartbeat(SETTINGS, lambda: next(times))
    assert [heartbeat.is_silent(os.getpid()) for _ in range(3)] == [False, False, False]
