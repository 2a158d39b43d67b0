"""What a Spark task of millstream's does inside a Python worker: run one level of an epoch for one slot."""

from __future__ import annotations

import base64
import functools
import io
import json
import os
import pickle
import socket
import struct
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from typing import Any

from pyspark import TaskContext

from millstream.checkpoint.storage import Storage
from millstream.common import pyflink_names
from millstream.common.faults import SETTING, arm
from millstream.common.pickles import adopt_main_classes, dump
from millstream.operators.base import RuntimeServices
from millstream.operators.diagnostics.failures import SubtaskFailed
from millstream.operators.diagnostics.logs import Logged
from millstream.operators.runtime.messages import JobPlan, LevelTask, SlotLocation
from millstream.operators.runtime.slot_runner import SlotRunner
from millstream.runtime_services import requests, resident, stopwatch, timer_lag, wall_clock
from millstream.spark.saved_plan import JobRef, check_shared, find_plan
from millstream.stack_sampler import StackSampler

# How the JVM side of a Python shuffle wants its keys.
_LONG = struct.Struct(">q")
# What a slot reports goes through the JVM's memory as a whole, and then through the driver's.
_MOST_REPORT_BYTES = 256 << 20

FAILURE_MARK = "millstream-failure:"


class LevelFunction:
    """The function Spark calls for each task of a level.

    What the driver says about the level is pickled apart: it may hold objects of the user's modules, which can be
    imported only after the plan was loaded.
    """

    def __init__(self, job: JobRef, task: LevelTask, is_last: bool) -> None:
        self.job = job
        self.level = task.level
        self.task = dump(task)
        self.is_last = is_last

    def __call__(self, slot: int, messages: Iterable[bytes]) -> Iterator[bytes]:
        # From here on: requests in flight may print between two tasks.
        printed = sys.stdout = _printed
        try:
            runtime = runtime_of(self.job, slot, printed)
            context = TaskContext.get()
            # No name is ever used twice: not by another run, execution or task.
            attempt = f"{self.job.run}.{self.job.attempt}.{context.taskAttemptId() if context else 0:x}"
            # Level 0 has no messages, only the one element that makes its partition.
            incoming: Iterable[bytes] = messages if self.level else _nothing(messages)
            task: LevelTask = pickle.loads(self.task)
            for target, message in runtime.run(task, attempt, incoming):
                if not self.is_last:
                    yield _LONG.pack(target)
                elif len(message) > _MOST_REPORT_BYTES:
                    raise runtime.too_large(message, _MOST_REPORT_BYTES, task.epoch)
                yield message
        except SubtaskFailed as e:
            raise TaskFailed(describe(e, printed.take())) from None


class TaskFailed(Exception):
    """Carries a failure through Spark's own error report to the driver."""


_runtimes: dict[tuple[str, int], SlotRunner] = {}
_logged = Logged()


def runtime_of(job: JobRef, slot: int, printed: Printed) -> SlotRunner:
    """Return the slot's part of a job; the plan is loaded when it is first asked for."""
    runtime = _runtimes.get((job.key, slot))
    if runtime is None:
        plan, storage = load_plan(job)
        plan = replace(plan, settings=replace(plan.settings, attempt=job.attempt))
        arm(plan.settings.job_parameters.get(SETTING))
        clock = plan.settings.clock or wall_clock
        services = RuntimeServices(clock, requests, stopwatch(clock), timer_lag(clock), resident)
        runtime = SlotRunner(plan, slot, storage, services)
        runtime.sampler = StackSampler()
        runtime.location = this_place()
        _runtimes[job.key, slot] = runtime
    runtime.take_printed, runtime.take_logged = printed.take, _logged.take
    return runtime


def close_all() -> None:
    """Close the functions of every job this process has worked for."""
    while _runtimes:
        _, runtime = _runtimes.popitem()
        runtime.close()


def load_plan(job: JobRef) -> tuple[JobPlan, Storage]:
    """Read what the driver has saved, and make the program's modules known here."""
    saved = find_plan(job)
    # Before anything of the user's is imported.
    _logged.listen(saved.log_levels)
    dependencies = saved.dependencies
    # Under this name PyFlink's workers find their interpreter.
    os.environ["python"] = sys.executable  # noqa: SIM112
    sys.path[:0] = [p for p in dependencies.path if p not in sys.path]
    if dependencies.directory is not None:
        os.chdir(dependencies.directory)
    # What the driver can import, its workers can import.
    sys.path.extend(p for p in saved.path if p not in sys.path)
    if saved.as_pyflink:
        # Before the plan: the user's modules that it brings in may import pyflink.
        pyflink_names.install()
    plan: JobPlan = pickle.loads(saved.plan)
    adopt_main_classes()
    if job.parcel is not None and job.shares_state:
        check_shared(saved.state, job.run)
    return plan, saved.state.open()


def _nothing(messages: Iterable[bytes]) -> list[bytes]:
    # Read to the end, or Spark throws the worker process away.
    for _ in messages:
        pass
    return []


def describe(error: SubtaskFailed, printed: str) -> str:
    """Write a failure as text, for the driver to find in whatever text it comes with."""
    logged = [asdict(line) for line in _logged.take()]
    report: dict[str, Any] = {**asdict(error.failure), "printed": printed, "logged": logged}
    return FAILURE_MARK + base64.b64encode(json.dumps(report).encode()).decode() + ";"


class Printed(io.TextIOBase):
    """Takes what user code prints; it reaches the driver's console with the epoch's report."""

    def __init__(self) -> None:
        # What is printed meanwhile, by a thread, is not lost.
        self._parts: deque[str] = deque()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._parts.append(text)
        return len(text)

    def take(self) -> str:
        return "".join([self._parts.popleft() for _ in range(len(self._parts))])


# What is printed in the residents of slots.
_printed = Printed()

# The executor of a Spark on this machine, which is in the driver's own Java.
DRIVER = "driver"


@functools.cache
def this_place() -> SlotLocation:
    """Return where this worker process is; forked ones ask for themselves."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return SlotLocation(_executor(), socket.gethostname(), memory)


def _executor() -> str:
    """Return the id of the executor that has started this process: its Java was told it on its command line."""
    told = os.environ.get("SPARK_EXECUTOR_ID")
    if told:
        return told
    process = os.getppid()
    while process > 1:
        try:
            with open(f"/proc/{process}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
            with open(f"/proc/{process}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            break
        if "--executor-id" in words:
            return words[words.index("--executor-id") + 1]
        process = parent
    return DRIVER
