"""What a slot's process knows of the job: it loads the plan once, and runs levels of epochs with a `SlotRunner`.

A resident slot does so through `SlotWork`, and a Spark task (with `millstream.exchange: spark`) through
`LevelFunction`.
"""

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
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace

from pyspark import TaskContext

from millstream.checkpoint.storage import Storage
from millstream.common import pyflink_names
from millstream.common.errors import MillstreamError, StateNotSharedError
from millstream.common.faults import SETTING, arm
from millstream.common.pickles import adopt_main_classes, dump
from millstream.operating_system import system
from millstream.operators.base import RuntimeServices
from millstream.operators.diagnostics.failures import SubtaskFailed
from millstream.operators.diagnostics.io_metrics import SlotTraffic
from millstream.operators.diagnostics.logs import Logged
from millstream.operators.runtime.messages import JobPlan, LevelTask, SlotLocation
from millstream.operators.runtime.slot_runner import SlotRunner
from millstream.runtime_services import requests, stopwatch, timer_lag, wall_clock
from millstream.spark.processes import Collector, is_termination_requested
from millstream.spark.saved_plan import JobRef, check_shared, find_plan
from millstream.stack_sampler import StackSampler

# The format of keys in a Python shuffle.
_LONG = struct.Struct(">q")
# A slot's report is held in memory as a whole, by the executor's JVM and by the driver.
_MAX_REPORT_BYTES = 256 << 20

FAILURE_MARK = "millstream-failure:"


_runners: dict[tuple[str, int], SlotRunner] = {}
_logged = Logged()


def slot_runner_of(job: JobRef, slot: int, printed: Printed) -> SlotRunner:
    """Return the runner of a slot's subtasks; the first call loads the plan."""
    runner = _runners.get((job.key, slot))
    if runner is None:
        plan, storage = load_plan(job)
        plan = replace(plan, settings=replace(plan.settings, attempt=job.attempt))
        arm(plan.settings.job_parameters.get(SETTING))
        clock = plan.settings.clock or wall_clock
        services = RuntimeServices(clock, requests, stopwatch(clock), timer_lag(clock), system.private_memory)
        runner = SlotRunner(plan, slot, storage, services)
        runner.sampler = StackSampler()
        runner.location = local_location()
        _runners[job.key, slot] = runner
    runner.take_printed, runner.take_logged = printed.take, _logged.take
    return runner


def close_all() -> None:
    """Close the functions of every job this process has worked for."""
    while _runners:
        _, runner = _runners.popitem()
        runner.close()


def load_plan(job: JobRef) -> tuple[JobPlan, Storage]:
    """Load the plan that the driver has saved, and make the program's modules importable."""
    saved = find_plan(job)
    # Before any module of the user's is imported.
    _logged.listen(saved.log_levels)
    dependencies = saved.dependencies
    # PyFlink's workers find their interpreter by this name.
    os.environ["python"] = sys.executable  # noqa: SIM112
    sys.path[:0] = [p for p in dependencies.path if p not in sys.path]
    if dependencies.directory is not None:
        os.chdir(dependencies.directory)
    # Workers can import the modules that the driver can.
    sys.path.extend(p for p in saved.path if p not in sys.path)
    if saved.as_pyflink:
        # Before the plan: the user's modules that it imports may import pyflink.
        pyflink_names.install()
    plan: JobPlan = pickle.loads(saved.plan)
    adopt_main_classes()
    if job.archive is not None and job.shares_state:
        check_shared(saved.state, job.run)
    return plan, saved.state.open()


def encoded_failure(error: SubtaskFailed, printed: str) -> str:
    """Encode a failure as text, which the driver finds in Spark's error."""
    logged = [asdict(line) for line in _logged.take()]
    report = {**asdict(error.failure), "printed": printed, "logged": logged}
    return FAILURE_MARK + base64.b64encode(json.dumps(report).encode()).decode() + ";"


class Printed(io.TextIOBase):
    """Collects the output of user code, which the epoch's report brings to the driver's console."""

    def __init__(self) -> None:
        # Thread-safe: threads may print meanwhile.
        self._parts: deque[str] = deque()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._parts.append(text)
        return len(text)

    def take(self) -> str:
        return "".join([self._parts.popleft() for _ in range(len(self._parts))])


# The output of user code in this process.
_printed = Printed()


# --- resident slots


class SlotWork:
    """Runs a resident slot's part of the job; `SlotLoop` calls it for each level of an epoch."""

    def __init__(self, job: JobRef, slot: int, task_attempt: int) -> None:
        self._job = job
        self._slot = slot
        # Unique among all runs, executions and tasks and, with the epoch, of this slot.
        self._attempt = f"{job.run}.{job.attempt}.{task_attempt:x}"
        self._printed = Printed()
        self._runner: SlotRunner | None = None
        self._collector: Collector | None = None

    def open(self, take_traffic: Callable[[], SlotTraffic | None]) -> None:
        sys.stdout = self._printed
        self._runner = slot_runner_of(self._job, self._slot, self._printed)
        self._runner.take_traffic = take_traffic
        self._runner.is_resident = True
        self._collector = Collector()

    def run(self, task: LevelTask, messages: list[bytes]) -> Iterator[tuple[int, bytes]]:
        assert self._runner is not None
        try:
            yield from self._runner.run(task, f"{self._attempt}.{task.epoch:x}", messages)
        except SystemExit as e:
            if is_termination_requested():
                raise
            raise RuntimeError(f"user code ended its process: {e!r}") from e

    def after_epoch(self) -> None:
        assert self._collector is not None
        self._collector.after_task()

    def describe(self, error: Exception) -> str:
        """Return the text that reports a failure to the driver."""
        trace = "".join(traceback.format_exception(error))
        if isinstance(error, SubtaskFailed):
            return f"{encoded_failure(error, self._printed.take())}\n{trace}"
        if isinstance(error, StateNotSharedError):
            return trace
        return str(error) if isinstance(error, MillstreamError) else trace


# --- Spark tasks


class LevelFunction:
    """The function that Spark calls for each task of a level, if epochs are Spark jobs.

    The level's task is pickled separately: it may contain objects of the user's modules, which can be imported only
    after the plan is loaded.
    """

    def __init__(self, job: JobRef, task: LevelTask, is_last: bool) -> None:
        self.job = job
        self.level = task.level
        self.task = dump(task)
        self.is_last = is_last

    def __call__(self, slot: int, messages: Iterable[bytes]) -> Iterator[bytes]:
        # Stays set: requests in flight may print between two tasks.
        printed = sys.stdout = _printed
        try:
            runner = slot_runner_of(self.job, slot, printed)
            context = TaskContext.get()
            # Unique among all runs, executions and tasks.
            attempt = f"{self.job.run}.{self.job.attempt}.{context.taskAttemptId() if context else 0:x}"
            # Level 0 has no messages, only the element of its partition.
            incoming: Iterable[bytes] = messages if self.level else _drained(messages)
            task: LevelTask = pickle.loads(self.task)
            for target, message in runner.run(task, attempt, incoming):
                if not self.is_last:
                    yield _LONG.pack(target)
                elif len(message) > _MAX_REPORT_BYTES:
                    raise runner.too_large(message, _MAX_REPORT_BYTES, task.epoch)
                yield message
        except SubtaskFailed as e:
            raise TaskFailed(encoded_failure(e, printed.take())) from None


class TaskFailed(Exception):
    """Carries a failure through Spark's own error report to the driver."""


def _drained(messages: Iterable[bytes]) -> list[bytes]:
    # Read to the end, or Spark discards the worker process.
    for _ in messages:
        pass
    return []


# --- the location of a slot

# The executor id of a local Spark, whose executor is in the driver's JVM.
DRIVER = "driver"


@functools.cache
def local_location() -> SlotLocation:
    """Return the location of this worker process; each forked process evaluates it itself."""
    memory = system.physical_memory()
    return SlotLocation(_executor(), socket.gethostname(), memory)


def _executor() -> str:
    """Return the id of the executor that started this process, from the command line of its JVM."""
    executor = os.environ.get("SPARK_EXECUTOR_ID")
    if executor:
        return executor
    process = os.getppid()
    while process > 1:
        words = system.command_line(process)
        if "--executor-id" in words:
            return words[words.index("--executor-id") + 1]
        process = system.parent(process)
    return DRIVER
