"""The real job master, with virtual time to wait in, and with checks of what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from millstream.checkpoint.coordinator import CheckpointStatus, Coordinator
from millstream.checkpoint.manifest import NAME
from millstream.checkpoint.store import CheckpointStore
from millstream.common.checkpointing_mode import CheckpointingMode
from millstream.common.job_status import JobStatus
from millstream.jobmaster.checkpoints import Answer
from millstream.jobmaster.engine import Engine
from millstream.jobmaster.job import JobMaster, JobOptions
from millstream.jobmaster.regions import operators_in, region_of
from millstream.operators.slot import JobPlan, SlotReport

from .scene import Scene
from .storage import SimulatedStorage, Writing
from .world import World


class SimulatedMaster(JobMaster):
    """The job master. What it does is its own; here it is only looked at."""

    background: SimulatedBackground

    def __init__(
        self,
        scene: Scene,
        plan: JobPlan,
        engine: Engine,
        storage: SimulatedStorage,
        store: CheckpointStore,
        options: JobOptions,
        replan: Callable[[int], JobPlan],
    ) -> None:
        world = scene.world
        on_end = partial(world.step, "end")
        super().__init__(plan, engine, store, options, on_end, replan, world.clock, self._make_background)
        self._world = world
        self._disk = scene.disk
        self._external = scene.external
        self._storage = storage
        self._draw_writing = partial(
            Writing, world, scene.circumstances.writing_seconds, scene.circumstances.checkpoints.timeout
        )
        self._cancel = _VirtualEvent(world)  # type: ignore[assignment]
        self._woken = _VirtualEvent(world)  # type: ignore[assignment]

    def _make_background(self, wake: Callable[[], None]) -> SimulatedBackground:
        self.background = SimulatedBackground(
            self._world, self._storage, self._draw_writing, wake, lambda: self._checkpoints.coordinator
        )
        return self.background

    def _open(self) -> None:
        began = self._world.now
        super()._open()
        if (origin := self._options.restore) is not None:
            self._check_recovery(None, origin.manifest.snapshot.job_id, began)

    def _go_back(self, error: Exception) -> None:
        began = self._world.now
        super()._go_back(error)
        region = region_of(self.plan, getattr(error, "operator_id", None))
        if self._options.checkpoints.mode is CheckpointingMode.AT_MOST_ONCE:
            region = None
        self._check_recovery(region, self.plan.settings.job_id, began)

    def _check_recovery(self, region: frozenset[int] | None, job_id: str, began: float) -> None:
        operators = operators_in(self.plan, region or frozenset(v.id for v in self.plan.vertices))
        waiting = {name for waits in self._output.waiting().values() for _, name in waits}
        self._external.check_clean(operators, job_id, began, waiting)

    def _run_epoch(self, *arguments: Any, **about: Any) -> list[SlotReport]:
        reports = super()._run_epoch(*arguments, **about)
        self._check_retained()
        return reports

    def _check_retained(self) -> None:
        """Only those checkpoints are on storage that are retained, are being written, or could not be deleted."""
        retained = self._checkpoints.coordinator.retained()
        complete = [c for c in retained if c.status is CheckpointStatus.NOTIFIED]
        if len(complete) > self._options.checkpoints.retained:
            self._world.violate(f"more checkpoints are retained than wanted: {[c.id for c in complete]}")
        home = self._store.storage.url
        kept = {f"{home}/chk-{i}/{NAME}" for i in {c.id for c in retained} | self.background.unanswered}
        for path in self._disk.manifests(home):
            if path not in kept and path not in self._disk.undeletable:
                self._world.violate(f"{path} is still there")

    def _shut_down(self, outcome: JobStatus) -> None:
        errors = self._world.faults.happened["error"]
        super()._shut_down(outcome)
        left = self._disk.manifests(self._store.storage.url)
        if outcome is JobStatus.FINISHED and left and self._world.faults.happened["error"] == errors:
            self._world.violate(f"the job has finished and leaves {left}")


class _VirtualEvent:
    """A threading.Event that waits in virtual time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def wait(self, seconds: float) -> bool:
        self._world.wait(seconds, self.is_set)
        return self._set


class SimulatedBackground:
    """Writes manifests while virtual time passes; follows `millstream.jobmaster.background.Background`."""

    def __init__(
        self,
        world: World,
        storage: SimulatedStorage,
        draw: Callable[[], Writing],
        wake: Callable[[], None],
        coordinator: Callable[[], Coordinator],
    ) -> None:
        self.unanswered: set[int] = set()
        self._world = world
        self._storage = storage
        self._draw = draw
        self._wake = wake
        self._coordinator = coordinator
        self._answers: list[Answer] = []
        self._taken: list[Answer] = []

    def start(self, work: Callable[[], Answer]) -> None:
        """Begin to write at once. The manifest is on storage later, and the answer comes later still."""
        writing = self._storage.writing = self._draw()
        try:
            answer = work()
        finally:
            self._storage.writing = None
        self.unanswered.add(answer[0].id)
        self._world.after(writing.answered_in, partial(self._answer, answer), self._world.driver)

    def _answer(self, answer: Answer) -> None:
        self._answers.append(answer)
        self._wake()

    def next(self, patience: float) -> Answer | None:
        self._world.wait(patience, lambda: bool(self._answers))
        if self._taken and self._world.random.random() < 0.1:
            self._answer_again(self._world.random.choice(self._taken))
        if not self._answers:
            return None
        answer = self._answers.pop(0)
        self.unanswered.discard(answer[0].id)
        self._taken.append(answer)
        return answer

    def _answer_again(self, answer: Answer) -> None:
        """The coordinator hears once more of what it knows, or even the contrary: it must not be moved."""
        coordinator, checkpoint_id = self._coordinator(), answer[0].id
        now = self._world.clock()
        if coordinator.written(checkpoint_id, now) or coordinator.write_failed(checkpoint_id, "lost", now):
            self._world.violate(f"the coordinator has answered twice to the end of checkpoint {checkpoint_id}")
