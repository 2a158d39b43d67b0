"""Starts a job on Spark: pickles its plan once, and runs its epochs there."""

from __future__ import annotations

import logging
import os
import re
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

from millstream.checkpoint.options import CheckpointOptions
from millstream.checkpoint.storage import StateLocation
from millstream.common.configuration import Configuration
from millstream.common.display_text import printable
from millstream.common.errors import InvalidProgramError, JobExecutionError
from millstream.jobmaster.dependencies import Dependencies, stage_dependencies
from millstream.jobmaster.engine import EpochRunner
from millstream.jobmaster.job import JobMaster
from millstream.jobmaster.job_launcher import JobDirectories, JobSpec, PreparedJob, prepare, start
from millstream.jobmaster.machine.options import ScalingOptions
from millstream.jobmaster.pickling import dump_plan
from millstream.operators.runtime.messages import JobPlan
from millstream.spark import control
from millstream.spark.control import is_embedded
from millstream.spark.cores import executions_that_hold, free_cores, is_local, may_grow, record_allocation, slots_of
from millstream.spark.errors import keep_bridge_quiet
from millstream.spark.exchange_settings import TLS_ENABLED, ExchangeChoice, ExchangeSettings
from millstream.spark.master import check_settings, master_of
from millstream.spark.resident_epochs import ExchangeEpochs, FallbackEpochs
from millstream.spark.saved_plan import JobRef, mark_shared, save_plan, send_job_files
from millstream.spark.session import SPARE_CORES, get_context, is_ours
from millstream.spark.session_attachment import attachment, with_allocated_slots
from millstream.spark.shuffle_epochs import SparkEpochs

log = logging.getLogger("millstream")


def launch(job: JobSpec) -> JobMaster:
    """Start a job and return its master."""
    check_settings(job.config)
    prepared = prepare(job)
    with prepared.claim.released_on_error():
        return _launch(job, prepared)


def _launch(job: JobSpec, prepared: PreparedJob) -> JobMaster:
    plan, config, scaling = prepared.plan, job.config, prepared.options.scaling
    exchange = ExchangeSettings.read(config)
    if scaling is not None and attachment() is not None:
        raise InvalidProgramError(
            "jobmanager.scheduler: adaptive needs a program with its own Spark, and a session cluster allots fixed "
            "slots: remove the setting, or run without -t session."
        )
    # Before Spark is started: a job that cannot be pickled fails at once.
    pickled = dump_plan(plan)
    context = _context(config)
    if scaling is not None and may_grow(context):
        _check_dynamic(scaling, exchange.choice)
    checkpoints = prepared.options.checkpoints

    def make_engine(home: JobDirectories) -> SparkEngine:
        dependencies = stage_dependencies(config, home.directory)
        # Java rejects lone surrogates, and Spark's pages should stay readable.
        name = printable(plan.settings.job_name, 200)
        return SparkEngine(
            config,
            home.directory,
            home.state,
            dependencies,
            name,
            plan.settings.job_id,
            {plan: pickled},
            exchange,
            checkpoints,
            scaling is not None,
        )

    return start(prepared, make_engine)


def _check_dynamic(scaling: ScalingOptions, exchange: ExchangeChoice) -> None:
    """Refuse an adaptive job if dynamic allocation prevents it from following the available slots."""
    if scaling.reactive:
        raise InvalidProgramError(
            "scheduler-mode: reactive uses all available slots, and with spark.dynamicAllocation.enabled Spark "
            "allocates as many as are requested: use jobmanager.scheduler: adaptive, or set "
            "spark.dynamicAllocation.enabled to false."
        )
    if exchange is ExchangeChoice.SPARK:
        raise InvalidProgramError(
            "jobmanager.scheduler: adaptive follows the available slots, and with millstream.exchange: spark and "
            "spark.dynamicAllocation.enabled Spark removes them whenever no epoch runs: remove one of the three."
        )


def _context(config: Configuration) -> SparkContext:
    keep_bridge_quiet()
    try:
        return get_context(config)
    except Py4JError as e:
        cause = str(e.java_exception) if isinstance(e, Py4JJavaError) else str(e)
        message = f"Spark cannot be started at {master_of(config)}: {cause.splitlines()[0]}"
        raise JobExecutionError(message, engine_trace=str(e)) from None


# Settings with which Spark encrypts what it sends.
_SPARK_ENCRYPTS = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled", "spark.ssl.enabled")

# Masters on which resident slots are tested to survive the executors' life cycle.
_PROVEN = re.compile(r"local-cluster\[|spark://")


@dataclass
class SparkEngine:
    """Runs the executions of one job on Spark."""

    config: Configuration
    directory: str
    state: StateLocation
    dependencies: Dependencies
    name: str
    job_id: str
    # Plans are pickled and saved once, however often a job restarts.
    pickled: dict[JobPlan, bytes]
    exchange: ExchangeSettings
    checkpoints: CheckpointOptions
    # Whether the number of subtasks follows the available slots.
    is_adaptive: bool = False
    # Whether resident slots were tried, and are not available.
    _has_fallen_back: bool = False
    _saved: dict[JobPlan, str] = field(default_factory=dict)
    # Their names in Spark's files.
    _sent: dict[tuple[JobPlan, str], str] = field(default_factory=dict)
    _run: str = field(default_factory=lambda: uuid.uuid4().hex[:6])

    def runner(self, plan: JobPlan, attempt: int) -> EpochRunner:
        return with_allocated_slots(plan, partial(self._runner, plan, attempt))

    def slots(self, requested: int) -> int:
        return slots_of(_context(self.config), self.job_id, requested)

    def _runner(self, plan: JobPlan, attempt: int, slots: int | None) -> EpochRunner:
        if slots is not None:
            record_allocation(plan.settings.job_id, slots)
        if not os.path.isdir(self.directory):
            self._recreate_directory()
        if plan not in self._saved:
            directory = self._saved[plan] = os.path.join(self.directory, f"plan-{len(self._saved)}")
            pickled = self.pickled.pop(plan, None) or dump_plan(plan)
            save_plan(directory, pickled, [p for p in sys.path if p], self.state, self.dependencies)
        context, python = _context(self.config), self.dependencies.executable
        key = f"{plan.settings.job_id}-{self._run}-{attempt}"
        job = JobRef(key, self._saved[plan], attempt, self._run, self._send(plan, context))
        control.check()
        spark = partial(SparkEpochs, context, plan, job, self.name, self.exchange.heartbeat, python)
        if not self._uses_resident_slots(plan, context):
            self._warn_if_unencrypted(context)
            return spark()
        # Without checkpoints, resident slots retain their state in memory.
        resident_job = replace(job, shares_state=self.checkpoints.enabled)
        resident = ExchangeEpochs(context, plan, resident_job, self.name, self.exchange, python, self.is_adaptive)
        if self.exchange.choice is ExchangeChoice.RESIDENT:
            return resident
        return FallbackEpochs(resident, partial(self._fall_back, spark, context))

    def _send(self, plan: JobPlan, context: SparkContext) -> str | None:
        """Send a plan with Spark's files to executors without access to this disk; None on a local Spark."""
        if is_local(context):
            return None
        # Files are sent per Spark application.
        key = (plan, str(context.applicationId))
        if key not in self._sent:
            directory = self._saved[plan]
            mark_shared(self.state, self._run)
            self._sent[key] = send_job_files(context, self.directory, directory, f"{self._run}-{len(self._sent)}")
        return self._sent[key]

    def _fall_back(self, spark: Callable[[], EpochRunner], context: SparkContext) -> EpochRunner:
        """Return the runner without resident slots, for this and all later executions."""
        self._has_fallen_back = True
        self._warn_if_unencrypted(context)
        return spark()

    def _warn_if_unencrypted(self, context: SparkContext) -> None:
        """Warn if encryption is requested and Spark sends blocks unencrypted."""
        settings = context.getConf()
        is_encrypted = any(str(settings.get(key, "")).lower() == "true" for key in _SPARK_ENCRYPTS)
        if self.exchange.is_encrypted and not is_encrypted and not is_local(context):
            log.warning(
                "%s is true, but the blocks of job '%s' go through Spark's shuffle, which is not encrypted: set "
                "spark.authenticate and spark.network.crypto.enabled.",
                TLS_ENABLED,
                self.name,
            )

    def _recreate_directory(self) -> None:
        """Recreate the deleted directory of the job, with the files that workers need."""
        log.warning("The job's temporary directory %s was deleted: creating it again.", self.directory)
        os.makedirs(self.directory, mode=0o700)
        self.dependencies = stage_dependencies(self.config, self.directory)
        self._saved.clear()
        self._sent.clear()

    def _uses_resident_slots(self, plan: JobPlan, context: SparkContext) -> bool:
        """Return whether an execution uses resident slots."""
        if self.exchange.choice is not ExchangeChoice.AUTO:
            return self.exchange.choice is ExchangeChoice.RESIDENT
        if self.checkpoints.directory is None and str(context.master).startswith("spark://"):
            # With Spark's shuffle, machines pass state through files, and no shared directory is configured.
            return not self._has_fallen_back
        # Batch jobs use Spark's shuffle, which spills to disk and holds cores only while tasks run.
        # Cores of a foreign Spark are shared, and may be removed. An adaptive job holds all available slots.
        may_shrink = may_grow(context) and not self.is_adaptive
        if plan.settings.batch or self._has_fallen_back or not is_ours(context) or may_shrink:
            return False
        if is_local(context):
            return is_embedded() and executions_that_hold() < SPARE_CORES
        # One core stays free for other jobs, unless this one uses all.
        needed = 1 if self.is_adaptive else 2
        return _PROVEN.match(str(context.master)) is not None and free_cores(context, needed) >= needed
