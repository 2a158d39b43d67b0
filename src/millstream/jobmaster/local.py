"""Local jobs, in this process and without Spark: an engine with the same slots, blocks and state files; its launcher.

A list replaces Spark's shuffle between two levels. Functions are pickled as for workers.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import threading
from collections.abc import Callable
from dataclasses import replace

from millstream.common.errors import InvalidProgramError, JobCancelledError
from millstream.common.memory_on_spark import SLOTS
from millstream.jobmaster.dependencies import FILES_DIRECTORY, stage_dependencies
from millstream.jobmaster.engine import QUICK, EpochFailed
from millstream.jobmaster.job import JobMaster
from millstream.jobmaster.job_launcher import JobDirectories, JobSpec, PreparedJob, prepare, start
from millstream.jobmaster.pickling import dump_plan
from millstream.operating_system import system
from millstream.operators.base import RuntimeServices
from millstream.operators.diagnostics.failures import SubtaskFailed
from millstream.operators.diagnostics.logs import name_operators_in_logs
from millstream.operators.runtime.messages import JobPlan, LevelTask, SlotLocation, SlotReport
from millstream.operators.runtime.slot_runner import SlotRunner
from millstream.runtime_services import requests, stopwatch, timer_lag, wall_clock
from millstream.stack_sampler import StackSampler
from millstream.state.keyed import StateStorage

# The location of the only worker.
_HERE = SlotLocation("local", "localhost", 0)


class LocalSlots:
    """The slots of one execution, in this process."""

    def __init__(
        self,
        plan: JobPlan,
        storage: StateStorage,
        clock: Callable[[], int],
        pickled: bytes | None = None,
        attempt: int = 0,
    ) -> None:
        self._plan = plan
        self._attempt = attempt
        self._storage = storage
        self._clock = clock
        self._pickled = pickled or dump_plan(plan)
        self.slots: list[SlotRunner] = []

    def start(self) -> None:
        """Create slots with empty memory, as in new processes."""
        for slot in self.slots:
            slot.end_requests()
        services = RuntimeServices(self._clock, requests, stopwatch(self._clock), timer_lag(self._clock))
        count = max(self._plan.slots(level) for level in range(self._plan.levels))
        self.slots = [SlotRunner(self._loaded(), i, self._storage, services) for i in range(count)]
        for slot in self.slots:
            slot.sampler = StackSampler()
            slot.location, slot.is_resident = _HERE, True

    def _loaded(self) -> JobPlan:
        plan: JobPlan = pickle.loads(self._pickled)
        return replace(plan, settings=replace(plan.settings, attempt=self._attempt))

    def run(self, tasks: list[LevelTask], attempt: str, check: Callable[[], None] = lambda: None) -> list[SlotReport]:
        """Run the levels of an epoch; `check` is called in between and may raise."""
        messages: dict[int, list[bytes]] = {}
        for level, task in enumerate(tasks):
            sent: dict[int, list[bytes]] = {}
            for slot in range(self._plan.slots(level)):
                for target, message in self.slots[slot].run(task, attempt, messages.get(slot, [])):
                    sent.setdefault(target, []).append(message)
                    check()
                check()
            messages = sent
        return [report for slot in sorted(messages) for m in messages[slot] for report in pickle.loads(m)]

    def close(self) -> None:
        """Close all functions that are still open; raise the first error."""
        failed: SubtaskFailed | None = None
        for slot in self.slots:
            try:
                slot.close()
            except SubtaskFailed as e:
                failed = failed or e
        if failed is not None:
            raise failed


class LocalEpochs:
    """Runs the epochs of one execution in this process; implements `EpochRunner`."""

    resident_slots = True
    slices = QUICK

    def __init__(
        self,
        plan: JobPlan,
        attempt: int,
        storage: StateStorage,
        clock: Callable[[], int],
        pickled: bytes | None = None,
    ) -> None:
        self._name = plan.settings.job_name
        self._attempt = str(attempt)
        self._slots = LocalSlots(plan, storage, clock, pickled, attempt)
        self._is_cancelled = threading.Event()

    def open(self, lost: Callable[[], None]) -> None:
        self._slots.start()

    def run(self, tasks: list[LevelTask]) -> list[SlotReport]:
        try:
            return self._slots.run(tasks, self._attempt, self._check_cancelled)
        except SubtaskFailed as e:
            raise EpochFailed.of(e.failure) from e.__cause__

    def _check_cancelled(self) -> None:
        if self._is_cancelled.is_set():
            raise JobCancelledError(f"Job '{self._name}' was cancelled.")

    def cancel(self) -> None:
        """Stop between two blocks: user code in this process cannot be interrupted."""
        self._is_cancelled.set()

    def release(self) -> None:
        try:
            self._slots.close()
        except SubtaskFailed as e:
            raise EpochFailed.of(e.failure) from e.__cause__


class LocalEngine:
    """Runs the executions of a job in this process."""

    def __init__(
        self,
        storage: StateStorage,
        clock: Callable[[], int],
        pickled: dict[JobPlan, bytes] | None = None,
        slots: int | None = None,
    ) -> None:
        """Set what the slots need.

        Args:
            storage: the state files.
            clock: the wall clock in milliseconds.
            pickled: plans that are already pickled.
            slots: the number of slots; None for the number of processors.
        """
        self._storage = storage
        self._clock = clock
        self._pickled = dict(pickled or {})
        self._count = slots or system.cores()

    def runner(self, plan: JobPlan, attempt: int) -> LocalEpochs:
        pickled = self._pickled[plan] = self._pickled.get(plan) or dump_plan(plan)
        return LocalEpochs(plan, attempt, self._storage, self._clock, pickled)

    def slots(self, desired: int) -> int:
        """Return the configured number, though subtasks of any number can take turns here."""
        return self._count


def launch_locally(job: JobSpec) -> JobMaster:
    """Start a job in this process as on Spark, print a notice, and return its master."""
    prepared = prepare(job)
    name_operators_in_logs()
    master = start_locally(prepared)
    if not job.config.get_boolean("millstream.quiet", False):
        print("millstream: running in this process, without Spark (millstream.engine=local)", file=sys.stderr)
    return master


# Import paths added by earlier jobs of this process.
_added_paths: set[str] = set()


def _import_from(paths: list[str], files: str) -> None:
    """Make the job's files importable, and unload those of earlier jobs, as new workers would not have them.

    Args:
        paths: the first entries of the import path.
        files: the directory of the job's own Python files; other modules stay loaded.
    """
    sys.path[:] = [*paths, *(p for p in sys.path if p not in _added_paths and p not in paths)]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if any(file.startswith(os.path.join(path, "")) for path in _added_paths):
            del sys.modules[name]
    _added_paths.update(path for path in paths if path.startswith(files))
    importlib.invalidate_caches()


def start_locally(prepared: PreparedJob) -> JobMaster:
    """Start a planned job in this process."""
    job = prepared.spec
    with prepared.claim.released_on_error():
        return _start_here(job, prepared)


def _start_here(job: JobSpec, prepared: PreparedJob) -> JobMaster:
    # Pickle before the start: a function that could not be sent to workers is rejected here too.
    pickled = {prepared.plan: dump_plan(prepared.plan)}

    def make_engine(home: JobDirectories) -> LocalEngine:
        dependencies = stage_dependencies(job.config, home.directory)
        if dependencies.directory is not None or dependencies.executable not in (None, sys.executable):
            raise InvalidProgramError(
                "Archives (python.archives) and another interpreter (python.executable) are for worker processes, and "
                "this job runs in the process of the program: run it on Spark (millstream.engine=spark)."
            )
        # As on workers: PyFlink programs find their interpreter under this name.
        os.environ["python"] = sys.executable  # noqa: SIM112
        _import_from(dependencies.path, os.path.join(home.directory, FILES_DIRECTORY))
        slots = SLOTS.read(job.config) if SLOTS.is_set(job.config) else None
        return LocalEngine(home.state.open(), job.clock or wall_clock, pickled, slots)

    return start(prepared, make_engine)
