"""Heartbeats of slot processes: only a frozen process is unresponsive."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from millstream.spark.heartbeat import Heartbeat, HeartbeatSettings

SETTINGS = HeartbeatSettings(interval=10.0, timeout=1.5)


def sleeps() -> None:
    time.sleep(600)


def keeps_the_interpreter() -> None:
    # Catastrophic backtracking: native code, in which no other thread runs.
    re.match(r"(a+)+$", "a" * 64 + "b")


def forked(heartbeat: Heartbeat, action: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        heartbeat.start()
        action()
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
@pytest.mark.parametrize("action", [sleeps, keeps_the_interpreter])
def test_heartbeat_is_silent_only_while_process_is_stopped(heartbeat: Heartbeat, action: Callable[[], None]) -> None:
    pid = forked(heartbeat, action)
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


def test_heartbeat_is_not_silent_after_observer_was_frozen() -> None:
    times = iter([0.0, 0.3, 600.0, 600.3])
    heartbeat = Heartbeat(SETTINGS, lambda: next(times))
    assert [heartbeat.is_silent(os.getpid()) for _ in range(3)] == [False, False, False]


def test_heartbeat_is_silent_only_after_timeout() -> None:
    # Clock increments whose sums are exact.
    times = count(0.0, 0.25)
    heartbeat = Heartbeat(SETTINGS, lambda: next(times))
    with subprocess.Popen(["sleep", "600"]) as idle:
        # Its CPU time no longer changes.
        os.kill(idle.pid, signal.SIGSTOP)
        os.waitpid(idle.pid, os.WUNTRACED)
        results = [heartbeat.is_silent(idle.pid) for _ in range(7)]
        idle.kill()
    assert results == [False] * 6 + [True]


def test_heartbeat_of_dead_process_is_silent() -> None:
    times = count(0.0, 0.25)
    heartbeat = Heartbeat(SETTINGS, lambda: next(times))
    assert [heartbeat.is_silent(2**22 - 1) for _ in range(7)] == [False] * 6 + [True]


@pytest.mark.parametrize(("interval", "timeout", "pause"), [(10.0, 50.0, 10.0), (10.0, 1.5, 0.3), (0.5, 50.0, 0.5)])
def test_heartbeat_pause_fits_five_beats_into_timeout(interval: float, timeout: float, pause: float) -> None:
    assert HeartbeatSettings(interval, timeout).pause == pytest.approx(pause)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_heartbeat_keeps_stack_of_other_threads(heartbeat: Heartbeat) -> None:
    pid = forked(heartbeat, lambda: os._exit(threading.stack_size() != 0))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
