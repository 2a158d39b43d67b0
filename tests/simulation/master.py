"""The real job master and machine in virtual time, with checks of their files and output."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from millstream.checkpoint.manifest import NAME
from millstream.checkpoint.store import CheckpointStore
from millstream.common.job_status import JobStatus
from millstream.jobmaster.engine import Engine
from millstream.jobmaster.job import JobMaster
from millstream.jobmaster.machine import events as e
from millstream.jobmaster.machine import instructions as i
from millstream.jobmaster.machine.coordinator import CheckpointStatus
from millstream.jobmaster.machine.job_machine import JobMachine
from millstream.jobmaster.machine.job_state import operators_in
from millstream.jobmaster.machine.options import JobOptions
from millstream.jobmaster.machine.view import JobView
from millstream.jobmaster.mailbox import JobClock, Mailbox
from millstream.jobmaster.monitors import EpochWatchdog, SlotMonitor
from millstream.operators.runtime.messages import JobPlan

from .scene import Scene
from .storage import SimulatedStorage, Writing


class WatchedMachine:
    """The real job machine, with its decisions checked."""

    def __init__(self, scene: Scene, machine: JobMachine, home: str, unanswered: set[int]) -> None:
        self._world = scene.world
        self._disk = scene.disk
        self._external = scene.external
        self._retained = scene.setup.checkpoints.retained
        self._machine = machine
        self._home = home
        self._unanswered = unanswered
        # Recoveries in progress: the request and its time.
        self._recovery: tuple[i.RecoverOutput, float] | None = None
        self._errors_before_end: int | None = None

    # --- the machine's interface

    @property
    def view(self) -> JobView:
        return self._machine.view

    @property
    def has_ended(self) -> bool:
        return self._machine.has_ended

    @property
    def deadline(self) -> float:
        return self._machine.deadline

    def handle(self, event: e.Event, now: float, ahead: float = 0.0) -> list[i.Instruction]:
        if isinstance(event, e.OutputCommitted):
            self._check_recovery(event)
        if isinstance(event, (e.InstructionFailed, e.CancelRequested, e.SuspendRequested)):
            # A job that is stopping aborts its remaining output at the end, so an interrupted recovery is not checked.
            self._recovery = None
        if isinstance(event, (e.ManifestWritten, e.ManifestFailed)):
            self._unanswered.discard(event.checkpoint)
        instructions = self._machine.handle(event, now, ahead)
        if isinstance(event, (e.ManifestWritten, e.ManifestFailed)) and self._world.random.random() < 0.1:
            self._repeat_event(event, now)
        if any(isinstance(x, i.PollSources) for x in instructions):
            # All earlier instructions have been executed.
            self._check_retained()
        for instruction in instructions:
            self._on_instruction(instruction)
        if self._machine.has_ended:
            self._check_end()
        return instructions

    def _on_instruction(self, instruction: i.Instruction) -> None:
        if isinstance(instruction, i.RecoverOutput):
            self._recovery = instruction, self._world.now
        elif isinstance(instruction, i.WriteManifest):
            self._unanswered.add(instruction.manifest.id)
        elif isinstance(instruction, i.CloseSources):
            self._errors_before_end = self._world.faults.happened["error"]

    # --- invariants

    def _repeat_event(self, event: e.ManifestWritten | e.ManifestFailed, now: float) -> None:
        """Repeat or contradict an event that the machine has handled; it must ignore the event."""
        number = event.checkpoint
        before = self._machine.view.checkpoints
        lost = e.ManifestFailed(checkpoint=number, reason="lost")
        repeated = self._world.random.choice((e.ManifestWritten(checkpoint=number, location=""), lost))
        unexpected = [
            x for x in self._machine.handle(repeated, now) if not isinstance(x, (i.Warn, i.DiscardCheckpoints))
        ]
        if unexpected or self._machine.view.checkpoints != before:
            self._world.violate(f"the machine has handled the result of checkpoint {number} twice: {unexpected}")

    def _check_recovery(self, event: e.OutputCommitted) -> None:
        if self._recovery is None or event.checkpoint is not None:
            return
        (request, began), self._recovery = self._recovery, None
        plan = self._machine.view.plan
        operators = request.operators
        if operators is None:
            operators = operators_in(plan, frozenset(v.id for v in plan.vertices))
        unfinished = {name for committables in event.unfinished.values() for _, name in committables}
        self._external.check_clean(operators, request.former_job_id, began, unfinished)

    def _check_retained(self) -> None:
        """Check that storage has only checkpoints that are retained, in progress, or could not be deleted."""
        checkpoints = self.view.checkpoints
        notified = {c.id for c in checkpoints.history if c.status is CheckpointStatus.NOTIFIED} & checkpoints.retained
        if len(notified) > self._retained:
            self._world.violate(f"more checkpoints are retained than configured: {sorted(notified)}")
        retained = {f"{self._home}/chk-{number}/{NAME}" for number in checkpoints.retained | self._unanswered}
        for path in self._disk.manifests(self._home):
            if path not in retained and path not in self._disk.undeletable:
                self._world.violate(f"{path} was not deleted")

    def _check_end(self) -> None:
        remaining = self._disk.manifests(self._home)
        no_error = self._world.faults.happened["error"] == self._errors_before_end
        if self.view.status is JobStatus.FINISHED and remaining and no_error:
            self._world.violate(f"the job has finished and left {remaining}")


class SimulatedSlotMonitor(SlotMonitor):
    """Does not poll: the world reports slot changes."""

    def _begin(self) -> None:
        pass


class SimulatedWatchdog(EpochWatchdog):
    """Never starts: a real timer cannot follow virtual time."""

    def begin(self, seconds: float) -> None:
        pass


class VirtualMailbox:
    """Delivers events and writes manifests in virtual time; follows `Mailbox`."""

    def __init__(self, scene: Scene, storage: SimulatedStorage) -> None:
        self._world = scene.world
        self._storage = storage
        self._draw = partial(Writing, scene.world, scene.setup.writing_seconds, scene.setup.checkpoints.timeout)
        self._events: list[e.Event] = []

    def put(self, event: e.Event) -> None:
        self._events.append(event)

    def take(self, seconds: float) -> e.Event | None:
        world = self._world
        if not self._events and seconds == math.inf:
            # A driver killed during an unlimited wait has no next step that would detect it.
            world.wait(seconds, lambda: bool(self._events) or world.driver is None)
            world.check_alive()
        elif not self._events:
            world.wait(seconds, lambda: bool(self._events))
        return self._events.pop(0) if self._events else None

    def work(self, work: Callable[[], e.Event]) -> None:
        """Begin to write at once. The manifest reaches storage later, and its result arrives after that."""
        writing = self._storage.writing = self._draw()
        try:
            result = work()
        finally:
            self._storage.writing = None
        self._world.after(writing.reported_in, partial(self.put, result), self._world.driver)


def make_master(
    scene: Scene,
    plan: JobPlan,
    engine: Engine,
    storage: SimulatedStorage,
    store: CheckpointStore,
    options: JobOptions,
    inbox: Mailbox | None = None,
    **arguments: Any,
) -> JobMaster:
    """Return the job master in the simulated world; `arguments` are passed to it."""
    world = scene.world
    clock = JobClock(world.clock, lambda: world.now)
    machine = WatchedMachine(scene, JobMachine(plan, options, clock.now()), storage.url, set())
    return JobMaster(
        machine,  # type: ignore[arg-type]
        engine,
        store,
        on_end=partial(world.step, "end"),
        clock=clock,
        inbox=inbox or VirtualMailbox(scene, storage),
        watch=SimulatedSlotMonitor,
        watchdog=SimulatedWatchdog,
        **arguments,
    )
