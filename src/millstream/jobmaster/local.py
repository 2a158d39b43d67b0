"""An engine in this process, without Spark, with the same slots, blocks and state files.

A list replaces Spark's shuffle between two levels. Functions are pickled as for workers.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from dataclasses import replace

from millstream.common.errors import JobCancelledError
from millstream.common.pipeline_options import cores_here
from millstream.jobmaster.engine import QUICK, EpochFailed
from millstream.jobmaster.pickling import dump_plan
from millstream.operators.base import RuntimeServices
from millstream.operators.diagnostics.failures import SubtaskFailed
from millstream.operators.runtime.messages import JobPlan, LevelTask, SlotLocation, SlotReport
from millstream.operators.runtime.slot_runner import SlotRunner
from millstream.runtime_services import requests, stopwatch, timer_lag
from millstream.stack_sampler import StackSampler
from millstream.state.keyed import StateStorage

# What the one worker is called.
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

    def run(self, tasks: list[LevelTask], attempt: str, go_on: Callable[[], None] = lambda: None) -> list[SlotReport]:
        """Run the levels of an epoch; `go_on` is called in between and may raise."""
        messages: dict[int, list[bytes]] = {}
        for level, task in enumerate(tasks):
            sent: dict[int, list[bytes]] = {}
            for slot in range(self._plan.slots(level)):
                for target, message in self.slots[slot].run(task, attempt, messages.get(slot, [])):
                    sent.setdefault(target, []).append(message)
                    go_on()
                go_on()
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
            return self._slots.run(tasks, self._attempt, self._go_on)
        except SubtaskFailed as e:
            raise EpochFailed.of(e.failure) from e.__cause__

    def _go_on(self) -> None:
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
        self._count = slots or cores_here()

    def runner(self, plan: JobPlan, attempt: int) -> LocalEpochs:
        pickled = self._pickled[plan] = self._pickled.get(plan) or dump_plan(plan)
        return LocalEpochs(plan, attempt, self._storage, self._clock, pickled)

    def slots(self, desired: int) -> int:
        """Return the configured number, though subtasks of any number can take turns here."""
        return self._count
