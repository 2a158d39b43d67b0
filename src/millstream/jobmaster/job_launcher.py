"""The job launcher: plans a job, reads its settings, creates its directories, and starts it on an engine.

The launcher of an engine (`spark/spark_launcher.py`, `local.py`) calls `prepare` and `start`, which creates the engine,
the job's machine and its master. The master then runs the job on its own thread.
"""

from __future__ import annotations

import logging
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from millstream.checkpoint.manifest import SHARED, Origin
from millstream.checkpoint.options import CheckpointOptions
from millstream.checkpoint.origin import (
    claim_latest,
    delete_former_drivers,
    delete_former_runs,
    find_origin,
    find_published,
    starts_from_latest,
    supersede_runs,
)
from millstream.checkpoint.restore import restore
from millstream.checkpoint.signing import signing_keys
from millstream.checkpoint.storage import StateLocation, open_storage, storage_options
from millstream.checkpoint.store import CheckpointStore, is_alive, this_process
from millstream.common.aliases import Json
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.execution_config import global_job_parameters
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.faults import SETTING, arm
from millstream.common.job_status import JobStatus
from millstream.common.memory_on_spark import batch_memory, executor_memory
from millstream.common.private_files import scratch
from millstream.common.run_ids import new_run_id, run_id
from millstream.common.setting import DurationSetting, IntegerSetting, TextSetting, at_least, in_words
from millstream.graph.job_graph import JobGraph
from millstream.jobmaster.engine import Engine
from millstream.jobmaster.failure_reports import directory_of, write_report
from millstream.jobmaster.job import JobMaster
from millstream.jobmaster.machine.flow import EpochSizer
from millstream.jobmaster.machine.instructions import WriteFailureReport
from millstream.jobmaster.machine.job_machine import JobMachine
from millstream.jobmaster.machine.options import JobOptions, JobOutcome, ScalingOptions, full_failover
from millstream.jobmaster.machine.restart import restart_strategy
from millstream.jobmaster.mailbox import JobClock
from millstream.leader.drivers import DriverLease, DriverRegistry, owner_file
from millstream.leader.fence import Fence, JobRecord
from millstream.leader.leadership import Leadership, leadership_of
from millstream.leader.options import DURATION as LEASE_DURATION
from millstream.operators.runtime.messages import JobPlan
from millstream.operators.runtime.vertex import INLINING, JobSettings
from millstream.operators.source import SourceOperator

log = logging.getLogger("millstream")

# Maximum seconds of gathering input with buffer timeout -1, which prefers throughput.
_MAX_GATHERING_SECONDS = 1.0

# Maximum and target seconds of an epoch; the defaults depend on the engine.
SLICE = DurationSetting("millstream.epoch.slice", 1000, limit=at_least(1, in_words))
_TARGET = DurationSetting("millstream.epoch.target", 1000, limit=at_least(1, in_words))
_MAX_RECORDS = IntegerSetting("millstream.epoch.max-records", EpochSizer.max_records, limit=at_least(1))
_MAX_BYTES = IntegerSetting("millstream.epoch.max-bytes", EpochSizer.max_bytes, limit=at_least(1))
_TEMPORARY = TextSetting("io.tmp.dirs", None, ("taskmanager.tmp.dirs",))
_KEEP_BYTES = IntegerSetting("millstream.failures.keep-bytes", JobSettings.keep_bytes, limit=at_least(0))

# Flink's default.
_DEFAULT_BUFFER_TIMEOUT_MS = 100

_JOB_ID = "$internal.pipeline.job-id"


@fast_dataclass
class JobSpec:
    """The specification of a job to start.

    Attributes:
        graph: builds the job graph for a default parallelism; None is the program's own.
    """

    graph: Callable[[int | None], JobGraph]
    config: Configuration
    batch: bool
    buffer_timeout_ms: int
    clock: Callable[[], int] | None = None


@fast_dataclass
class JobClaim:
    """The claim of this process on a job that other processes could run.

    Attributes:
        owner: this process, as written to the job's directory.
        fence: guards the job's checkpoints; None if no other process can have the job.
        record: the job's record when it was claimed.
        leadership: the leadership it runs under, with several job managers.
        hold: the lease of this driver, if there is one.
        drivers: the registry of drivers, with one job manager.
    """

    job_id: str
    owner: dict[str, Json]
    fence: Fence | None = None
    record: JobRecord | None = None
    leadership: Leadership | None = None
    hold: DriverLease | None = None
    drivers: DriverRegistry | None = None

    @contextmanager
    def released_on_error(self) -> Iterator[None]:
        """Release the claim if the job cannot be started."""
        try:
            yield
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release the claim: the job has ended or was not started."""
        if self.hold is not None:
            self.hold.release()

    def is_alive(self, owner: dict[str, Json]) -> bool:
        """Return whether an owner of a directory still runs."""
        return is_alive(owner) if self.drivers is None else self.drivers.is_alive(owner)


@fast_dataclass
class PreparedJob:
    """A job that is planned and checked, but not started."""

    spec: JobSpec
    plan: JobPlan
    options: JobOptions
    claim: JobClaim

    def former_runs(self) -> list[str] | None:
        """Return the run ids of earlier leaders; None with one job manager."""
        if self.claim.leadership is None or self.claim.fence is None:
            return None
        return [run_id(self.plan.settings.job_id, term) for term in range(1, self.claim.fence.term)]

    def replan(self, parallelism: int) -> JobPlan:
        """Plan the program for another parallelism."""
        return JobPlan(settings=self.plan.settings, vertices=self.spec.graph(parallelism).vertices)


@fast_dataclass
class JobDirectories:
    """A job's directory on this machine, and the location of its state files."""

    directory: str
    state: StateLocation


def prepare(spec: JobSpec) -> PreparedJob:
    """Plan a job and check its settings."""
    config = spec.config
    checkpoints = CheckpointOptions.read(config)
    graph = spec.graph(None)
    claim = _claim_job(config, graph.job_name, checkpoints)
    with claim.released_on_error():
        return _prepare(spec, graph, checkpoints, claim)


def _prepare(spec: JobSpec, graph: JobGraph, checkpoints: CheckpointOptions, claim: JobClaim) -> PreparedJob:
    config = spec.config
    settings = replace(
        job_settings(config, graph, claim.job_id, spec.batch),
        clock=spec.clock,
        compressed=checkpoints.compression,
        digests=signing_keys(config) is not None,
        run_id=None if claim.fence is None else claim.fence.run_id,
    )
    options = JobOptions(
        buffer_timeout=_gathering(spec.buffer_timeout_ms),
        always_gathers=spec.buffer_timeout_ms < 0,
        slice=configured_slice(config, spec.batch),
        slice_factor=_slice_factor(spec.buffer_timeout_ms),
        sizer=_sizer(config),
        checkpoints=checkpoints,
        restart=restart_strategy(config, checkpoints.enabled),
        origin=_origin(config, graph.job_name, claim),
        # A batch job has no state that another parallelism could restore.
        scaling=None if spec.batch else ScalingOptions.read(config, checkpoints),
        ended=_ended(claim.record),
        full_failover=full_failover(config, spec.batch),
    )
    plan = JobPlan(settings=settings, vertices=graph.vertices)
    if options.ended is None:
        _check_start(plan, options.origin)
    return PreparedJob(spec, plan, options, claim)


def _claim_job(config: Configuration, job_name: str, checkpoints: CheckpointOptions) -> JobClaim:
    """Claim a job that another process could have."""
    leadership, configured_id, owner = leadership_of(config), _job_id(config), this_process(job_name)
    if leadership is not None:
        job_id = configured_id or leadership.job_id(job_name)
        fence = leadership.fence(job_id, job_name)
        return JobClaim(job_id, owner, fence, fence.claim(), leadership)
    directory, latest = checkpoints.directory, starts_from_latest(config)
    if directory is None or not (latest or checkpoints.enabled) or not DriverRegistry.can_hold(directory):
        return JobClaim(configured_id or new_run_id(), owner)
    drivers = DriverRegistry(directory, storage_options(config), LEASE_DURATION.read(config) / 1000)
    claim = drivers.claim_latest(job_name, owner) if latest else drivers.claim_run(job_name, configured_id, owner)
    fence = claim.fence
    return JobClaim(configured_id or fence.job_id, owner_file(fence, owner), fence, fence.record, None, claim, drivers)


def _origin(config: Configuration, job_name: str, claim: JobClaim) -> Origin | None:
    """Return the snapshot a job starts from: the checkpoint of an earlier leader, or the configured one."""
    fence, record = claim.fence, claim.record
    if record is not None and record.outcome is not None:
        return None
    if fence is None or record is None or not record.checkpoints:
        return find_origin(config, job_name, claim.is_alive)
    origin = find_published(config, job_name, record.checkpoints)
    fence.withdraw_after(origin.location)
    return origin


def _ended(record: JobRecord | None) -> JobOutcome | None:
    """Return the outcome of a job under an earlier leader."""
    if record is None or record.outcome is None:
        return None
    return JobOutcome(JobStatus[record.outcome], record.message)


def _check_start(plan: JobPlan, origin: Origin | None) -> None:
    """Check that a job can start from its origin, before anything is started."""
    if origin is not None:
        restore(origin.manifest.snapshot, plan, origin.state_url, origin.allow_non_restored)
        return
    for head in (v.head for v in plan.vertices):
        if isinstance(head.operator, SourceOperator):
            try:
                head.operator.source.check()
            except InvalidProgramError as e:
                raise InvalidProgramError(f"Source {head.label}: {e}") from None


def job_settings(config: Configuration, graph: JobGraph, job_id: str, batch: bool) -> JobSettings:
    """Return the settings that subtasks need."""
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
        batch=batch,
        batch_memory=batch_memory(config),
    )


def start(prepared: PreparedJob, make_engine: Callable[[JobDirectories], Engine]) -> JobMaster:
    """Start a job and return its master."""
    with prepared.claim.released_on_error():
        return _start(prepared, make_engine)


def _start(prepared: PreparedJob, make_engine: Callable[[JobDirectories], Engine]) -> JobMaster:
    config, options, settings = prepared.spec.config, prepared.options, prepared.plan.settings
    arm(config.get_string(SETTING, "") or None)
    directory = _make_directory(config, f"millstream-{settings.job_id[:8]}-")
    checkpoints = (options.checkpoints.directory or _own_checkpoints(prepared, directory)).rstrip("/")
    reach, scratch = storage_options(config), os.path.join(directory, "scratch")
    storage = open_storage(f"{checkpoints}/{settings.writes_as}", reach, scratch)
    claim = prepared.claim
    _clear_ended(prepared, checkpoints, storage.url)
    store = CheckpointStore(storage, claim.owner, reach, claim.fence, signing_keys(config))
    try:
        engine = make_engine(JobDirectories(directory, StateLocation(f"{storage.url}/{SHARED}", reach, scratch)))
    except InvalidProgramError:
        shutil.rmtree(directory)
        raise
    clock = _clock(prepared.spec.clock)
    master = JobMaster(
        JobMachine(prepared.plan, options, clock.now()),
        engine,
        store,
        replan=prepared.replan,
        claim=_claim(prepared, checkpoints),
        delete_former=_delete_former(prepared, checkpoints),
        is_alive=claim.is_alive,
        on_end=partial(_remove, directory, claim),
        write_failure_report=partial(_write_failure_report, directory_of(config)),
        clock=clock,
    )
    master.start()
    if claim.leadership is not None:
        claim.leadership.on_end(master.suspend)
    if claim.hold is not None:
        claim.hold.watch(master.suspend)
    _announce(config, settings.job_name, options)
    return master


def _announce(config: Configuration, job_name: str, options: JobOptions) -> None:
    """Print the snapshot a job starts from, if any."""
    if config.get_boolean("millstream.quiet", False):
        return
    if options.origin is not None:
        print(f"millstream: job '{job_name}' starts from {options.origin.describe()}", file=sys.stderr)
    if options.ended is not None and options.ended.outcome is JobStatus.FINISHED:
        text = "has already finished in an earlier process of the program: it does not run again"
        print(f"millstream: job '{job_name}' {text}", file=sys.stderr)


def _clear_ended(prepared: PreparedJob, checkpoints: str, own: str) -> None:
    """Delete the checkpoints of a driver that died after its job had ended."""
    if prepared.options.ended is not None:
        try:
            _delete_former(prepared, checkpoints)(own)
        except Exception as e:
            log.warning("checkpoints of job '%s' could not be deleted: %s", prepared.plan.settings.job_name, e)


def _own_checkpoints(prepared: PreparedJob, directory: str) -> str:
    """Return the default checkpoint directory: beside the job, or where the next leader finds it."""
    if prepared.claim.leadership is None:
        return os.path.join(directory, "checkpoints")
    return f"{prepared.claim.leadership.options.home}/checkpoints"


def _claim(prepared: PreparedJob, checkpoints: str) -> Callable[[str], None]:
    """Return a function that makes sure that no other job restores from another checkpoint."""
    config, settings, origin = prepared.spec.config, prepared.plan.settings, prepared.options.origin
    former = prepared.former_runs()
    if former is None:
        return partial(claim_latest, config, settings.job_name, origin, is_alive=prepared.claim.is_alive)
    return lambda _: supersede_runs(checkpoints, former, origin, storage_options(config))


def _delete_former(prepared: PreparedJob, checkpoints: str) -> Callable[[str], None]:
    """Return a function that deletes the checkpoints of earlier drivers."""
    config, job_name, former = prepared.spec.config, prepared.plan.settings.job_name, prepared.former_runs()
    if former is None:
        return lambda own: delete_former_drivers(config, job_name, own, prepared.claim.is_alive)
    return lambda _: delete_former_runs(checkpoints, former, storage_options(config))


def _write_failure_report(directory: str, instruction: WriteFailureReport, time: float) -> None:
    write_report(directory, instruction.plan, instruction.number, time, instruction.failure)


def _remove(directory: str, claim: JobClaim) -> None:
    claim.release()
    with suppress(FileNotFoundError):
        # It may have been deleted while the job ran.
        shutil.rmtree(directory)


def _make_directory(config: Configuration, prefix: str) -> str:
    """Create a job's directory in the first configured temporary directory."""
    configured = _TEMPORARY.read(config)
    # Flink allows either separator.
    temporary = None if configured is None else re.split("[,:]", configured)[0].strip()
    try:
        # Slots have other working directories.
        temporary = os.path.abspath(temporary) if temporary else None
        return tempfile.mkdtemp(prefix=prefix, dir=temporary or scratch())
    except OSError as e:
        parent = temporary or tempfile.gettempdir()
        raise InvalidProgramError(
            f"{_TEMPORARY.key} is {parent}: the job's directory cannot be created there ({e.strerror}). "
            "Use an existing, writable directory."
        ) from None


def _clock(wall: Callable[[], int] | None) -> JobClock:
    return JobClock() if wall is None else JobClock(lambda: wall() / 1000)


def _job_id(config: Configuration) -> str | None:
    chosen = config.get_string(_JOB_ID, "") or None
    if chosen is not None and not re.fullmatch("[0-9a-f]{32}", chosen):
        raise InvalidProgramError(f"{_JOB_ID}={chosen!r} must be 32 lowercase hexadecimal digits.")
    return chosen


def _gathering(buffer_timeout_ms: int) -> float:
    return _MAX_GATHERING_SECONDS if buffer_timeout_ms < 0 else buffer_timeout_ms / 1000


def _slice_factor(buffer_timeout_ms: int) -> float:
    """Return the factor for the length of slices: in proportion to the buffer timeout."""
    return 1.0 if buffer_timeout_ms < 0 else min(buffer_timeout_ms / _DEFAULT_BUFFER_TIMEOUT_MS, 1.0)


def configured_slice(config: Configuration, batch: bool) -> float | None:
    """Return the configured seconds of a slice; in BATCH nothing waits for the end of an epoch."""
    if batch:
        return math.inf
    return SLICE.read(config) / 1000 if SLICE.is_set(config) else None


def _sizer(config: Configuration) -> EpochSizer:
    return EpochSizer(
        fixed_target=_TARGET.read(config) / 1000 if _TARGET.is_set(config) else None,
        max_records=_MAX_RECORDS.read(config),
        max_bytes=_MAX_BYTES.read(config),
    )
