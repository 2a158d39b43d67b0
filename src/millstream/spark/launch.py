"""Starts a job: pickles its plan once, gives it its directories, and runs its epochs on Spark."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from millstream.checkpoint.options import CheckpointOptions
from millstream.checkpoint.origin import claim_latest, find_origin
from millstream.checkpoint.owner import this_process
from millstream.checkpoint.storage import open_storage, storage_options
from millstream.checkpoint.store import SHARED, CheckpointStore
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.faults import SETTING, arm
from millstream.graph.job_graph import JobGraph
from millstream.jobmaster.flow import EpochSizer
from millstream.jobmaster.job import JobMaster, JobOptions
from millstream.jobmaster.restart import restart_strategy
from millstream.operators.slot import JobPlan
from millstream.operators.vertex import JobSettings
from millstream.spark.dependencies import Dependencies, prepare
from millstream.spark.epoch import SparkEpochs
from millstream.spark.pickling import dump_plan
from millstream.spark.session import DEFAULT_MASTER, get_context
from millstream.spark.worker import JobRef, StateLocation, save_plan

# How long input may gather when the user has asked for throughput above all.
_LONGEST_GATHERING = 1.0

_JOB_ID = "$internal.pipeline.job-id"


def default_parallelism(config: Configuration) -> int:
    """Return the parallelism of a program that sets none: as many as the master has cores."""
    master = config.get_string("spark.master", os.environ.get("MASTER", DEFAULT_MASTER))
    local = re.fullmatch(r"local(?:\[([*\d]+)(?:,\s*\d+)?\])?", master)
    if local is None:
        return get_context(config).defaultParallelism
    threads = local.group(1) or "1"
    return len(os.sched_getaffinity(0)) if threads == "*" else int(threads)


@dataclass
class Launch:
    """What a job is started with.

    Attributes:
        graph: builds the job graph for a default parallelism; None is the program's own.
    """

    graph: Callable[[int | None], JobGraph]
    config: Configuration
    batch: bool
    buffer_timeout_ms: int
    clock: Callable[[], int] | None = None


def launch(job: Launch) -> JobMaster:
    """Start a job and return its master."""
    config = job.config
    job_id = _job_id(config)
    checkpoints = CheckpointOptions.read(config)
    graph = job.graph(None)
    parameters = {k: v for k, v in config.to_dict().items() if not k.startswith("spark.")}
    settings = JobSettings(
        job_id, graph.job_name, 0, job.batch, parameters, state_backend(config), job.clock, checkpoints.compression
    )
    plan = JobPlan(settings, graph.vertices)
    origin = find_origin(config, graph.job_name)
    options = JobOptions(
        _gathering(job.buffer_timeout_ms),
        _sizer(config),
        checkpoints,
        restart_strategy(config, checkpoints.enabled),
        origin,
        partial(claim_latest, config, graph.job_name, origin),
    )
    # Before Spark is started: a job that cannot be sent must not cost a wait.
    pickled = dump_plan(plan)
    get_context(config)
    arm(config.get_string(SETTING, "") or None)
    directory = tempfile.mkdtemp(prefix=f"millstream-{job_id[:8]}-", dir=config.get_string("io.tmp.dirs", "") or None)
    home = f"{(checkpoints.directory or os.path.join(directory, 'checkpoints')).rstrip('/')}/{job_id}"
    reach = storage_options(config)
    scratch = os.path.join(directory, "scratch")
    store = CheckpointStore(open_storage(home, reach, scratch), this_process(graph.job_name), reach)
    location = StateLocation(f"{store.storage.url}/{SHARED}", reach, scratch)
    try:
        dependencies = prepare(config, directory)
    except InvalidProgramError:
        shutil.rmtree(directory)
        raise
    engine = SparkEngine(config, directory, location, dependencies, graph.job_name, {id(plan): pickled})
    master = JobMaster(
        plan,
        engine,
        store,
        options,
        on_end=lambda: shutil.rmtree(directory),
        replan=lambda parallelism: JobPlan(replace(settings), job.graph(parallelism).vertices),
        clock=time.time if job.clock is None else _seconds(job.clock),
    )
    master.start()
    return master


def _seconds(clock: Callable[[], int]) -> Callable[[], float]:
    return lambda: clock() / 1000


@dataclass
class SparkEngine:
    """Runs the executions of one job on Spark."""

    config: Configuration
    directory: str
    state: StateLocation
    dependencies: Dependencies
    name: str
    # Plans by their identity; pickled once, however often a job restarts.
    pickled: dict[int, bytes]
    _saved: dict[int, str] = field(default_factory=dict)
    _run: str = field(default_factory=lambda: uuid.uuid4().hex[:6])

    def runner(self, plan: JobPlan, attempt: int) -> SparkEpochs:
        if id(plan) not in self._saved:
            directory = self._saved[id(plan)] = os.path.join(self.directory, f"plan-{len(self._saved)}")
            pickled = self.pickled.pop(id(plan), None) or dump_plan(plan)
            save_plan(directory, pickled, [p for p in sys.path if p], self.state, self.dependencies)
        key = f"{plan.settings.job_id}-{self._run}-{attempt}"
        job = JobRef(key, self._saved[id(plan)], attempt, self._run)
        return SparkEpochs(get_context(self.config), plan, job, self.name, self.dependencies.executable)


def _job_id(config: Configuration) -> str:
    chosen = config.get_string(_JOB_ID, "") or uuid.uuid4().hex
    if not re.fullmatch("[0-9a-f]{32}", chosen):
        raise InvalidProgramError(f"{_JOB_ID}={chosen!r} must be 32 lowercase hexadecimal digits.")
    return chosen


_BACKENDS = {"hashmap": "hashmap", "jobmanager": "hashmap", "filesystem": "hashmap", "lmdb": "lmdb", "rocksdb": "lmdb"}


def state_backend(config: Configuration) -> str:
    """Return the backend of a job; Flink's names are understood, and its on-disk one is served by LMDB."""
    name = config.get_string("state.backend.type", config.get_string("state.backend", "hashmap")).lower()
    if name not in _BACKENDS:
        raise InvalidProgramError(
            f"state.backend.type is {name!r}: it must be 'hashmap', or 'lmdb' ('rocksdb' is taken for it)."
        )
    return _BACKENDS[name]


def _gathering(buffer_timeout_ms: int) -> float:
    return _LONGEST_GATHERING if buffer_timeout_ms < 0 else buffer_timeout_ms / 1000


def _sizer(config: Configuration) -> EpochSizer:
    return EpochSizer(
        target_seconds=config.get_millis("millstream.epoch.target", 1000) / 1000,
        max_records=config.get_integer("millstream.epoch.max-records", EpochSizer.max_records),
        max_bytes=config.get_integer("millstream.epoch.max-bytes", EpochSizer.max_bytes),
    )
