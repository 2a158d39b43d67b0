"""Starts a job on an engine: plans it, reads its settings, gives it its directories."""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from millstream.checkpoint.manifest import SHARED, Origin
from millstream.checkpoint.options import CheckpointOptions
from millstream.checkpoint.origin import claim_latest, find_origin, find_published, supersede_runs
from millstream.checkpoint.owner import this_process
from millstream.checkpoint.restore import restore
from millstream.checkpoint.storage import StateLocation, open_storage, storage_options
from millstream.checkpoint.store import CheckpointStore
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.execution_config import global_job_parameters
from millstream.common.faults import SETTING, arm
from millstream.common.job_status import JobStatus
from millstream.common.memory_on_spark import batch_memory, executor_memory
from millstream.common.records import record
from millstream.common.scratch import scratch
from millstream.common.setting import DurationSetting, IntegerSetting, TextSetting, at_least, in_words
from millstream.graph.job_graph import JobGraph
from millstream.jobmaster.clock import JobClock
from millstream.jobmaster.engine import Engine
from millstream.jobmaster.flow import EpochSizer
from millstream.jobmaster.instructions import KeepFailure
from millstream.jobmaster.job import JobMaster
from millstream.jobmaster.kept_failures import directory_of, keep
from millstream.jobmaster.machine import JobMachine
from millstream.jobmaster.options import Ended, JobOptions, fails_whole
from millstream.jobmaster.restart import restart_strategy
from millstream.jobmaster.scaling_options import ScalingOptions
from millstream.leader.fence import Fence, JobRecord, run_id
from millstream.leader.leadership import Leadership, leadership_of
from millstream.operators.protocol import JobPlan
from millstream.operators.source import SourceOperator
from millstream.operators.vertex import INLINING, JobSettings

# How long input may gather when the user has asked for throughput above all.
_LONGEST_GATHERING = 1.0

# The configuration's keys for how long slots work in an epoch at most, and for how long epochs are aimed to be; where
# they say nothing, that follows from the engine.
SLICE = DurationSetting("millstream.epoch.slice", 1000, limit=at_least(1, in_words))
_TARGET = DurationSetting("millstream.epoch.target", 1000, limit=at_least(1, in_words))
_MAX_RECORDS = IntegerSetting("millstream.epoch.max-records", EpochSizer.max_records, limit=at_least(1))
_MAX_BYTES = IntegerSetting("millstream.epoch.max-bytes", EpochSizer.max_bytes, limit=at_least(1))
_TEMPORARY = TextSetting("io.tmp.dirs", None, ("taskmanager.tmp.dirs",))
_KEEP_BYTES = IntegerSetting("millstream.failures.keep-bytes", JobSettings.keep_bytes, limit=at_least(0))

# Flink's default.
_USUAL_BUFFER_TIMEOUT_MS = 100

_JOB_ID = "$internal.pipeline.job-id"


@record(frozen=True)
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


@record(frozen=True)
class Prepared:
    """A job that is planned and checked, and not started."""

    launch: Launch
    plan: JobPlan
    options: JobOptions
    # Under which leader it runs, and what its checkpoints have to pass, where there may be several.
    leadership: Leadership | None = None
    fence: Fence | None = None

    def replan(self, parallelism: int) -> JobPlan:
        """Plan the program for another parallelism."""
        return JobPlan(settings=self.plan.settings, vertices=self.launch.graph(parallelism).vertices)


@record(frozen=True)
class Home:
    """What a job has on disk: its own directory on this machine, and where its state files are."""

    directory: str
    state: StateLocation


def prepare(launch: Launch) -> Prepared:
    """Plan a job and check its settings."""
    config = launch.config
    checkpoints = CheckpointOptions.read(config)
    leadership = leadership_of(config)
    graph = launch.graph(None)
    job_id = _job_id(config) or (uuid.uuid4().hex if leadership is None else leadership.job_id(graph.job_name))
    fence = None if leadership is None else leadership.fence(job_id, graph.job_name)
    record = None if fence is None else fence.claim()
    settings = settings_of(
        config,
        graph,
        job_id,
        batch=launch.batch,
        clock=launch.clock,
        compressed=checkpoints.compression,
        run_id=None if fence is None else fence.run_id,
    )
    options = JobOptions(
        buffer_timeout=_gathering(launch.buffer_timeout_ms),
        gathers_always=launch.buffer_timeout_ms < 0,
        slice=slice_of(config, launch.batch),
        haste=_haste(launch.buffer_timeout_ms),
        sizer=_sizer(config),
        checkpoints=checkpoints,
        restart=restart_strategy(config, checkpoints.enabled),
        origin=_origin(config, graph.job_name, fence, record),
        # A batch job has no state that another parallelism could go on with.
        scaling=None if launch.batch else ScalingOptions.read(config, checkpoints),
        ended=_ended(record),
        fails_whole=fails_whole(config, launch.batch),
    )
    plan = JobPlan(settings=settings, vertices=graph.vertices)
    if options.ended is None:
        _check_start(plan, options.origin)
    return Prepared(launch, plan, options, leadership, fence)


def _origin(config: Configuration, job_name: str, fence: Fence | None, record: JobRecord | None) -> Origin | None:
    """Return what a job starts from: what an earlier leader has left, else what the settings say."""
    if fence is None or record is None:
        return find_origin(config, job_name)
    if record.outcome is not None:
        return None
    if not record.checkpoints:
        return find_origin(config, job_name)
    found = find_published(config, job_name, record.checkpoints)
    fence.go_on_from(found.location)
    return found


def _ended(record: JobRecord | None) -> Ended | None:
    """Return how a job has ended under an earlier leader."""
    if record is None or record.outcome is None:
        return None
    return Ended(JobStatus[record.outcome], record.message)


def _check_start(plan: JobPlan, origin: Origin | None) -> None:
    """See that a job can start from what it is told to, before anything is started for it."""
    if origin is not None:
        restore(origin.manifest.snapshot, plan, origin.state_url, origin.allow_non_restored)
        return
    for head in (v.head for v in plan.vertices):
        if isinstance(head.operator, SourceOperator):
            try:
                head.operator.source.check()
            except InvalidProgramError as e:
                raise InvalidProgramError(f"Source {head.label}: {e}") from None


def settings_of(config: Configuration, graph: JobGraph, job_id: str, **about: Any) -> JobSettings:
    """Return what the subtasks of a job must know; `about` are further fields."""
    return JobSettings(
        job_id=job_id,
        job_name=graph.job_name,
        attempt=0,
        job_parameters={
            **global_job_parameters(config),
            **{k: v for k, v in config.to_dict().items() if not k.startswith("spark.")},
        },
        state_backend=graph.backend,
        inlining=config.get_boolean(INLINING, True),
        keep_bytes=_KEEP_BYTES.read(config),
        slot_memory=None if (memory := executor_memory(config)) is None else memory.slot,
        batch_memory=batch_memory(config),
        **about,
    )


def start(prepared: Prepared, make_engine: Callable[[Home], Engine]) -> JobMaster:
    """Start a job and return its master."""
    config, options, settings = prepared.launch.config, prepared.options, prepared.plan.settings
    arm(config.get_string(SETTING, "") or None)
    directory = _make_directory(config, f"millstream-{settings.job_id[:8]}-")
    checkpoints = (options.checkpoints.directory or _own_checkpoints(prepared, directory)).rstrip("/")
    reach, scratch = storage_options(config), os.path.join(directory, "scratch")
    storage = open_storage(f"{checkpoints}/{settings.writes_as}", reach, scratch)
    store = CheckpointStore(storage, this_process(settings.job_name), reach, prepared.fence)
    try:
        engine = make_engine(Home(directory, StateLocation(f"{storage.url}/{SHARED}", reach, scratch)))
    except InvalidProgramError:
        shutil.rmtree(directory)
        raise
    clock = _clock(prepared.launch.clock)
    master = JobMaster(
        JobMachine(prepared.plan, options, clock.now()),
        engine,
        store,
        replan=prepared.replan,
        claim=_claim(prepared, checkpoints),
        on_end=partial(_remove, directory),
        keep_failure=partial(_keep_failure, directory_of(config)),
        clock=clock,
    )
    master.start()
    if prepared.leadership is not None:
        prepared.leadership.on_end(master.suspend)
    if options.origin is not None and not config.get_boolean("millstream.quiet", False):
        print(f"millstream: job '{settings.job_name}' goes on from {options.origin.describe()}", file=sys.stderr)
    return master


def _own_checkpoints(prepared: Prepared, directory: str) -> str:
    """Return where checkpoints go that nobody has given a place: beside the job, or where the next leader sees them."""
    if prepared.leadership is None:
        return os.path.join(directory, "checkpoints")
    return f"{prepared.leadership.options.home}/checkpoints"


def _claim(prepared: Prepared, checkpoints: str) -> Callable[[str], None]:
    """Return what makes sure that nobody goes on from another checkpoint than this job."""
    config, settings, origin = prepared.launch.config, prepared.plan.settings, prepared.options.origin
    if prepared.fence is None:
        return partial(claim_latest, config, settings.job_name, origin)
    former = [run_id(settings.job_id, term) for term in range(1, prepared.fence.term)]
    return lambda _: supersede_runs(checkpoints, former, origin, storage_options(config))


def _keep_failure(directory: str, asked: KeepFailure, at: float) -> None:
    keep(directory, asked.plan, asked.number, at, asked.failure)


def _remove(directory: str) -> None:
    with suppress(FileNotFoundError):
        # Somebody may have deleted it under the running job.
        shutil.rmtree(directory)


def _make_directory(config: Configuration, prefix: str) -> str:
    """Make a job's own directory, in the first of those that may be used."""
    given = _TEMPORARY.read(config)
    # Flink parts several with either sign.
    temporary = None if given is None else re.split("[,:]", given)[0].strip()
    try:
        return tempfile.mkdtemp(prefix=prefix, dir=temporary or scratch())
    except OSError as e:
        where = temporary or tempfile.gettempdir()
        raise InvalidProgramError(
            f"{_TEMPORARY.key} is {where}: the job's own directory cannot be made there ({e.strerror}). "
            "Give a directory that is there and can be written."
        ) from None


def _clock(wall: Callable[[], int] | None) -> JobClock:
    return JobClock() if wall is None else JobClock(lambda: wall() / 1000)


def _job_id(config: Configuration) -> str | None:
    chosen = config.get_string(_JOB_ID, "") or None
    if chosen is not None and not re.fullmatch("[0-9a-f]{32}", chosen):
        raise InvalidProgramError(f"{_JOB_ID}={chosen!r} must be 32 lowercase hexadecimal digits.")
    return chosen


def _gathering(buffer_timeout_ms: int) -> float:
    return _LONGEST_GATHERING if buffer_timeout_ms < 0 else buffer_timeout_ms / 1000


def _haste(buffer_timeout_ms: int) -> float:
    """Return by how much slices are to be shorter than usual: in proportion to how long output may wait."""
    return 1.0 if buffer_timeout_ms < 0 else min(buffer_timeout_ms / _USUAL_BUFFER_TIMEOUT_MS, 1.0)


def slice_of(config: Configuration, batch: bool) -> float | None:
    """Return for how many seconds slots work in an epoch if it is said; in BATCH nothing waits for the end of one."""
    if batch:
        return math.inf
    return SLICE.read(config) / 1000 if SLICE.is_set(config) else None


def _sizer(config: Configuration) -> EpochSizer:
    return EpochSizer(
        fixed_target=_TARGET.read(config) / 1000 if _TARGET.is_set(config) else None,
        max_records=_MAX_RECORDS.read(config),
        max_bytes=_MAX_BYTES.read(config),
    )
