"""The real job master with its tasks in this process, on a clock that goes by steps: the same files every time.

So checkpoints are taken exactly where a case wants them, and what is on disk can be copied the moment a manifest is
there, before the output that it names is committed.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cloudpickle

from millstream.checkpoint.manifest import Manifest
from millstream.checkpoint.options import CheckpointOptions
from millstream.checkpoint.origin import Origin
from millstream.checkpoint.storage import open_storage
from millstream.checkpoint.store import SHARED, CheckpointStore, Found
from millstream.common import Configuration
from millstream.common.checkpointing_mode import CheckpointingMode
from millstream.common.errors import JobCancelledError
from millstream.graph.job_graph import build_job_graph
from millstream.jobmaster.flow import EpochSizer
from millstream.jobmaster.job import JobMaster, JobOptions
from millstream.jobmaster.requests import Request
from millstream.operators.base import Surroundings
from millstream.operators.slot import JobPlan, LevelTask, SlotReport, SlotRuntime
from millstream.operators.vertex import JobSettings
from millstream.surroundings import Requests
from millstream.testing import CollectSink, ManualClock

from .programs import PROGRAMS, Env

# How far the clock goes with every epoch.
STEP = 100
# How many records a subtask of a source reads in an epoch.
RECORDS = 7


def program(name: str, parallelism: int, **settings: str) -> tuple[Env, CollectSink]:
    env = Env.get_execution_environment(Configuration.from_dict(settings)).set_parallelism(parallelism)
    sink = CollectSink()
    PROGRAMS[name](env, sink)
    return env, sink


@dataclass
class Driver:
    """Runs a program under the job master.

    Attributes:
        name: the program.
        home: the job's directory.
        asked: what is asked of the job, by the number of epochs before.
        written: told of every manifest of a checkpoint that is on disk.
    """

    name: str
    home: Path
    parallelism: int
    start: int
    backend: str = "hashmap"
    mode: CheckpointingMode = CheckpointingMode.EXACTLY_ONCE
    compression: bool = False
    incremental: bool | None = None
    origin: Found | None = None
    asked: dict[int, Request] = field(default_factory=dict)
    written: Callable[[Manifest], None] = lambda manifest: None

    def __post_init__(self) -> None:
        self.env, self.sink = program(self.name, self.parallelism, **{"state.backend.type": self.backend})
        self._sinks = self.env._take_sinks()
        self._clock = ManualClock(self.start)
        self._epochs = 0

    def run(self) -> list[Any]:
        """Run the job to its end, or until it is cancelled; return what it has output."""
        self.master = JobMaster(
            self._plan(None),
            self,
            _TellingStore(open_storage(str(self.home)), {"host": "golden", "pid": 0}, self._written),
            self._options(),
            on_end=lambda: None,
            replan=self._plan,
            clock=self._seconds,
            background=_Inline,
        )
        self.master._main()
        error = self.master.result.exception()
        if error is not None and not isinstance(error, JobCancelledError):
            raise error
        return self.sink.results()

    def _seconds(self) -> float:
        # It never stands still, or who waits for it would wait for ever.
        self._clock.advance(1)
        return self._clock() / 1000

    def _options(self) -> JobOptions:
        checkpoints = CheckpointOptions(enabled=True, interval=1e9, mode=self.mode, incremental=self.incremental)
        found = self.origin
        origin = Origin(found.manifest, found.location, found.state_url()) if found is not None else None
        sizer = EpochSizer(target_seconds=1e9, max_records=RECORDS, budget=RECORDS)
        return JobOptions(0.0, sizer, checkpoints, restore=origin)

    def _plan(self, parallelism: int | None) -> JobPlan:
        graph = self.env._stream_graph(self.name, self._sinks, parallelism)
        job_id = hashlib.md5(str(self.home.name).encode()).hexdigest()
        settings = JobSettings(job_id, graph.job_name, 0, False, {}, self.backend, None, self.compression)
        return JobPlan(replace(settings), build_job_graph(graph, False).vertices)

    def _written(self, manifest: Manifest) -> None:
        self.written(manifest)

    # --- the engine

    def runner(self, plan: JobPlan, attempt: int) -> _Tasks:
        return _Tasks(self, plan, attempt)

    def surroundings(self) -> Surroundings:
        return Surroundings(self._clock, Requests)

    def epoch_starts(self) -> None:
        self._clock.advance(STEP)

    def epoch_ended(self) -> None:
        self._epochs += 1
        request = self.asked.pop(self._epochs, None)
        if request is not None:
            self.master.ask(request)


class _Tasks:
    """Runs the epochs of one execution; follows `EpochRunner`."""

    def __init__(self, driver: Driver, plan: JobPlan, attempt: int) -> None:
        self._driver = driver
        self._plan = plan
        self._attempt = str(attempt)

    def open(self) -> None:
        count = max(self._plan.slots(level) for level in range(self._plan.levels))
        pickled = cloudpickle.dumps(self._plan)
        storage: Any = open_storage(f"{self._driver.home}/{SHARED}", cache=f"{self._driver.home}-scratch")
        self._slots = [
            SlotRuntime(pickle.loads(pickled), i, storage, self._driver.surroundings()) for i in range(count)
        ]

    def run(self, tasks: list[LevelTask]) -> list[SlotReport]:
        self._driver.epoch_starts()
        messages: dict[int, list[bytes]] = {}
        for level, task in enumerate(tasks):
            sent = [m for i in range(self._plan.slots(level)) for m in self._run_slot(i, task, messages.get(i, []))]
            messages = {}
            for target, message in sent:
                messages.setdefault(target, []).append(message)
        self._driver.epoch_ended()
        return [report for slot in sorted(messages) for m in messages[slot] for report in pickle.loads(m)]

    def _run_slot(self, slot: int, task: LevelTask, messages: list[bytes]) -> list[tuple[int, bytes]]:
        return list(self._slots[slot].run(pickle.loads(pickle.dumps(task)), self._attempt, messages))

    def cancel(self) -> None:
        """Do nothing: epochs are short."""

    def release(self) -> None:
        for slot in self._slots:
            slot.close()


class _TellingStore(CheckpointStore):
    def __init__(self, storage: Any, owner: dict[str, Any], tell: Callable[[Manifest], None]) -> None:
        super().__init__(storage, owner)
        self._tell = tell

    def write(self, manifest: Manifest) -> str:
        location = super().write(manifest)
        self._tell(manifest)
        return location


class _Inline:
    """Work is done when it is begun; follows `Background`."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._answers: list[Any] = []

    def start(self, work: Callable[[], Any]) -> None:
        self._answers.append(work())

    def next(self, patience: float) -> Any:
        return self._answers.pop(0) if self._answers else None
