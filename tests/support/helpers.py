"""Sources and functions that several tests use."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from millstream.common.job_client import JobClient
from millstream.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from millstream.datastream.collect import LocalJobClient
from millstream.datastream.state import ValueStateDescriptor
from millstream.jobmaster.job import JobMaster


def job_of(client: JobClient) -> JobMaster:
    """Return the job master of a job of this process."""
    assert isinstance(client, LocalJobClient)
    return client.job


class PushedReader:
    """A PySpark stream reader whose latest offset is set by the test."""

    def __init__(self) -> None:
        self.available = 0
        self.committed: list[int] = []
        self.stopped = False
        # The number of micro-batches that got offsets.
        self.n_batches = 0

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def push(self, count: int) -> None:
        self.available += count

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:
        return {"at": self.available}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[tuple[int, int]]:
        self.n_batches += 1
        middle = (start["at"] + end["at"]) // 2
        return [p for p in ((start["at"], middle), (middle, end["at"])) if p[0] < p[1]]

    def read(self, partition: tuple[int, int]) -> Iterator[tuple[int]]:
        for i in range(*partition):
            yield (i,)

    def commit(self, end: dict[str, int]) -> None:
        self.committed.append(end["at"])

    def stop(self) -> None:
        self.stopped = True


class CountWithPid(KeyedProcessFunction[int, Any, Any]):
    """Counts the records of a key, and emits the process id."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        n = (self.count.value() or 0) + 1
        self.count.update(n)
        yield ctx.get_current_key(), n, os.getpid()


class BreaksOnce:
    """Raises, or kills its own process, at one value, the first time only."""

    def __init__(self, flag: Path, trigger: str, failure: str) -> None:
        self._flag, self._trigger, self._failure = flag, trigger, failure

    def __call__(self, value: str) -> str:
        if value == self._trigger and not self._flag.exists():
            self._flag.touch()
            if self._failure == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("once")
        return value


def restart_at_once(env: StreamExecutionEnvironment) -> None:
    """Let a job restart from its last checkpoint when slots are killed."""
    env.enable_checkpointing(50)
    config = env.get_configuration()
    config.set_string("restart-strategy.type", "fixed-delay")
    config.set_string("restart-strategy.fixed-delay.attempts", "10")
    config.set_string("restart-strategy.fixed-delay.delay", "10 ms")


def slot_processes() -> list[psutil.Process]:
    """Return the resident slot processes of this test run."""
    return [p for p in psutil.Process().children(recursive=True) if _name(p).startswith("millstream-s")]


def daemon_processes() -> list[psutil.Process]:
    """Return the daemons, without slots and relays."""
    daemons = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "millstream.spark.daemon" in process.cmdline() and not _name(process).startswith("millstream-"):
                daemons.append(process)
        except psutil.NoSuchProcess:
            continue
    return daemons


def _name(process: psutil.Process) -> str:
    try:
        with open(f"/proc/{process.pid}/comm") as f:
            return f.read().strip()
    except FileNotFoundError:
        return ""


def wait_until(condition: Callable[[], bool], seconds: float = 60, description: str = "the condition") -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{description} did not become true within {seconds} s"
        time.sleep(0.02)
