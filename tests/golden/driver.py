"""The real job master with its tasks in this process, on a clock that advances in steps: the same files every time.

So checkpoints are taken at exactly defined epochs, and files can be copied right after a manifest is written, before
the output named by it is committed.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.checkpoint.manifest import SHARED, Manifest, Origin
from millstream.checkpoint.options import CheckpointOptions
from millstream.checkpoint.storage import open_storage
from millstream.checkpoint.store import CheckpointStore, StoredCheckpoint
from millstream.common import Configuration
from millstream.common.checkpointing_mode import CheckpointingMode
from millstream.common.errors import JobCancelledError
from millstream.datastream.stream_execution_environment import builder_of
from millstream.graph.job_graph import build_job_graph
from millstream.jobmaster.job import JobMaster
from millstream.jobmaster.local import LocalEpochs
from millstream.jobmaster.machine.events import Event
from millstream.jobmaster.machine.flow import EpochSizer
from millstream.jobmaster.machine.job_machine import JobMachine
from millstream.jobmaster.machine.options import JobOptions
from millstream.jobmaster.machine.requests import Request
from millstream.jobmaster.mailbox import JobClock, ThreadMailbox
from millstream.operators.runtime.messages import JobPlan, LevelTask, SlotReport
from millstream.operators.runtime.vertex import JobSettings
from millstream.testing import CollectSink, ManualClock

from .programs import PROGRAMS, Env

# The clock's step per epoch.
STEP = 100
# The records that a source subtask reads per epoch.
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
        requests: requests to the job, by the number of epochs before each.
        written: receives every checkpoint manifest after it is stored.
    """

    name: str
    home: Path
    parallelism: int
    start: int
    backend: str = "hashmap"
    mode: CheckpointingMode = CheckpointingMode.EXACTLY_ONCE
    compression: bool = False
    incremental: bool | None = None
    origin: StoredCheckpoint | None = None
    requests: dict[int, Request] = field(default_factory=dict)
    on_written: Callable[[Manifest], None] = lambda manifest: None

    def __post_init__(self) -> None:
        self.env, self.sink = program(self.name, self.parallelism, **{"state.backend.type": self.backend})
        self._sinks = builder_of(self.env).take_sinks()
        self._clock = ManualClock(self.start)
        self._epochs = 0

    def run(self) -> list[Any]:
        """Run the job to its end, or until it is cancelled; return its output."""
        self.master = JobMaster(
            JobMachine(self._plan(None), self._options(), self._seconds()),
            self,
            _ObservedStore(open_storage(str(self.home)), {"host": "golden", "pid": 0}, self._on_written),
            replan=self._plan,
            clock=JobClock(self._seconds, self._seconds),
            inbox=_Inline(),
        )
        self.master.run()
        error = self.master.result.exception()
        if error is not None and not isinstance(error, JobCancelledError):
            raise error
        return self.sink.results()

    def _seconds(self) -> float:
        # Each call advances the clock: otherwise waiting for a deadline would never end.
        self._clock.advance(1)
        return self._clock() / 1000

    def _options(self) -> JobOptions:
        checkpoints = CheckpointOptions(enabled=True, interval=1e9, mode=self.mode, incremental=self.incremental)
        checkpoint = self.origin
        origin = (
            Origin(checkpoint.manifest, checkpoint.location, checkpoint.state_url()) if checkpoint is not None else None
        )
        sizer = EpochSizer(fixed_target=1e9, max_records=RECORDS, budget=RECORDS)
        return JobOptions(buffer_timeout=0.0, sizer=sizer, checkpoints=checkpoints, origin=origin)

    def _plan(self, parallelism: int | None) -> JobPlan:
        graph = builder_of(self.env).stream_graph(self.name, self._sinks, parallelism)
        job_id = hashlib.md5(str(self.home.name).encode()).hexdigest()
        job_graph = build_job_graph(graph, False)
        settings = JobSettings(
            job_id=job_id,
            job_name=graph.job_name,
            attempt=0,
            batch=False,
            state_backend=job_graph.backend,
            compressed=self.compression,
        )
        return JobPlan(settings=settings, vertices=job_graph.vertices)

    def _on_written(self, manifest: Manifest) -> None:
        self.on_written(manifest)

    # --- the engine

    def runner(self, plan: JobPlan, attempt: int) -> _Epochs:
        storage = open_storage(f"{self.home}/{SHARED}", cache=f"{self.home}-scratch")
        return _Epochs(self, plan, attempt, storage, self._clock)

    def slots(self, requested: int) -> int:
        return requested

    def epoch_starts(self) -> None:
        self._clock.advance(STEP)

    def epoch_ended(self) -> None:
        self._epochs += 1
        request = self.requests.pop(self._epochs, None)
        if request is not None:
            self.master.ask(request)


class _Epochs(LocalEpochs):
    """Epochs in this process, which notify the driver."""

    def __init__(self, driver: Driver, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._driver = driver

    def run(self, tasks: list[LevelTask]) -> list[SlotReport]:
        self._driver.epoch_starts()
        reports = super().run(pickle.loads(pickle.dumps(tasks)))
        self._driver.epoch_ended()
        return reports


class _ObservedStore(CheckpointStore):
    def __init__(self, storage: Any, owner: dict[str, Any], on_written: Callable[[Manifest], None]) -> None:
        super().__init__(storage, owner)
        self._on_written = on_written

    def write(self, manifest: Manifest) -> str:
        location = super().write(manifest)
        self._on_written(manifest)
        return location


class _Inline(ThreadMailbox):
    """Runs background work immediately, so that no caller waits."""

    def take(self, seconds: float) -> Event | None:
        return super().take(0.0)

    def work(self, work: Callable[[], Event]) -> None:
        self.put(work())
