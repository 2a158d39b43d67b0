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
from millstream.spark.cores import allot, executions_that_hold, free_cores, is_local, may_grow, slots_of
from millstream.spark.errors import keep_bridge_quiet
from millstream.spark.exchange_settings import TLS_ENABLED, ExchangeChoice, ExchangeSettings
from millstream.spark.master import check_settings, master_of
from millstream.spark.resident_epochs import ExchangeEpochs, FallbackEpochs
from millstream.spark.saved_plan import JobRef, mark_shared, save_plan, send_job_files
from millstream.spark.session import SPARE_CORES, get_context, is_ours
from millstream.spark.session_attachment import attachment, with_allotment
from millstream.spark.shuffle_epochs import SparkEpochs

log = logging.getLogger("millstream")


def launch(job: JobSpec) -> JobMaster:
    """Start a job and return its master."""
    check_settings(job.config)
    prepared = prepare(job)
    with prepared.claim.let_go_if_it_fails():
        return _launch(job, prepared)


def _launch(job: JobSpec, prepared: PreparedJob) -> JobMaster:
    plan, config, scaling = prepared.plan, job.config, prepared.options.scaling
    exchange = ExchangeSettings.read(config)
    if scaling is not None and attachment() is not None:
        raise InvalidProgramError(
            "jobmanager.scheduler: adaptive is for programs with a Spark of their own; a session cluster allots slots "
            "to its jobs as they ask: leave the setting out, or run without -t session."
        )
    # Before Spark is started: a job that cannot be sent must not cost a wait.
    pickled = dump_plan(plan)
    context = _context(config)
    if scaling is not None and may_grow(context):
        _check_dynamic(scaling, exchange.choice)
    checkpoints = prepared.options.checkpoints

    def make_engine(home: JobDirectories) -> SparkEngine:
        dependencies = stage_dependencies(config, home.directory)
        # Java takes no half characters, and pages of Spark's should stay readable.
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
    """See that a job can follow the slots of a Spark that brings and takes executors by itself."""
    if scaling.reactive:
        raise InvalidProgramError(
            "scheduler-mode: reactive takes all the slots there are, and with spark.dynamicAllocation.enabled Spark "
            "brings as many as are asked for: use jobmanager.scheduler: adaptive, or set "
            "spark.dynamicAllocation.enabled to false."
        )
    if exchange is ExchangeChoice.SPARK:
        raise InvalidProgramError(
            "jobmanager.scheduler: adaptive follows the slots there are, and with millstream.exchange: spark and "
            "spark.dynamicAllocation.enabled Spark takes them away whenever no epoch runs: leave out one of the three."
        )


def _context(config: Configuration) -> SparkContext:
    keep_bridge_quiet()
    try:
        return get_context(config)
    except Py4JError as e:
        why = str(e.java_exception) if isinstance(e, Py4JJavaError) else str(e)
        said = f"Spark cannot be started at {master_of(config)}: {why.splitlines()[0]}"
        raise JobExecutionError(said, engine_trace=str(e)) from None


# Settings with which Spark encrypts what it sends.
_SPARK_ENCRYPTS = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled", "spark.ssl.enabled")

# Where slots that stay have been seen to survive what executors do.
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
    # Whether the number of its subtasks follows the slots there are.
    is_adaptive: bool = False
    # Whether slots that stay were tried, and cannot be had.
    _cannot_stay: bool = False
    _saved: dict[JobPlan, str] = field(default_factory=dict)
    # The names under which Spark carries them.
    _sent: dict[tuple[JobPlan, str], str] = field(default_factory=dict)
    _run: str = field(default_factory=lambda: uuid.uuid4().hex[:6])

    def runner(self, plan: JobPlan, attempt: int) -> EpochRunner:
        return with_allotment(plan, partial(self._runner, plan, attempt))

    def slots(self, wanted: int) -> int:
        return slots_of(_context(self.config), self.job_id, wanted)

    def _runner(self, plan: JobPlan, attempt: int, slots: int | None) -> EpochRunner:
        if slots is not None:
            allot(plan.settings.job_id, slots)
        if not os.path.isdir(self.directory):
            self._begin_anew()
        if plan not in self._saved:
            directory = self._saved[plan] = os.path.join(self.directory, f"plan-{len(self._saved)}")
            pickled = self.pickled.pop(plan, None) or dump_plan(plan)
            save_plan(directory, pickled, [p for p in sys.path if p], self.state, self.dependencies)
        context, python = _context(self.config), self.dependencies.executable
        key = f"{plan.settings.job_id}-{self._run}-{attempt}"
        job = JobRef(key, self._saved[plan], attempt, self._run, self._send(plan, context))
        control.check()
        spark = partial(SparkEpochs, context, plan, job, self.name, self.exchange.heartbeat, python)
        if not self._slots_stay(plan, context):
            self._warn_if_plain(context)
            return spark()
        # Slots that stay leave their state in memory while nobody asks for a checkpoint of it.
        staying = replace(job, shares_state=self.checkpoints.enabled)
        resident = ExchangeEpochs(context, plan, staying, self.name, self.exchange, python, self.is_adaptive)
        if self.exchange.choice is ExchangeChoice.RESIDENT:
            return resident
        return FallbackEpochs(resident, partial(self._fall_back, spark, context))

    def _send(self, plan: JobPlan, context: SparkContext) -> str | None:
        """Have Spark carry a plan to executors that do not see this disk; None where all are on this machine."""
        if is_local(context):
            return None
        # Another Spark knows nothing of what the one before it has carried.
        key = (plan, str(context.applicationId))
        if key not in self._sent:
            directory = self._saved[plan]
            mark_shared(self.state, self._run)
            self._sent[key] = send_job_files(context, self.directory, directory, f"{self._run}-{len(self._sent)}")
        return self._sent[key]

    def _fall_back(self, spark: Callable[[], EpochRunner], context: SparkContext) -> EpochRunner:
        """Slots that stay cannot be had: not now, nor for executions to come."""
        self._cannot_stay = True
        self._warn_if_plain(context)
        return spark()

    def _warn_if_plain(self, context: SparkContext) -> None:
        """Who asks for encryption must know where Spark sends blocks, and does not encrypt them."""
        settings = context.getConf()
        is_encrypted = any(str(settings.get(key, "")).lower() == "true" for key in _SPARK_ENCRYPTS)
        if self.exchange.is_encrypted and not is_encrypted and not is_local(context):
            log.warning(
                "%s is true, but the blocks of job '%s' go through Spark's shuffle, which is not encrypted: set "
                "spark.authenticate and spark.network.crypto.enabled.",
                TLS_ENABLED,
                self.name,
            )

    def _begin_anew(self) -> None:
        """Make the job's directory again, with all that workers need: somebody has deleted it."""
        log.warning("The job's temporary directory %s was deleted: it is made anew.", self.directory)
        os.makedirs(self.directory, mode=0o700)
        self.dependencies = stage_dependencies(self.config, self.directory)
        self._saved.clear()
        self._sent.clear()

    def _slots_stay(self, plan: JobPlan, context: SparkContext) -> bool:
        """Choose how blocks get from slot to slot."""
        if self.exchange.choice is not ExchangeChoice.AUTO:
            return self.exchange.choice is ExchangeChoice.RESIDENT
        if self.checkpoints.directory is None and str(context.master).startswith("spark://"):
            # With Spark's shuffle machines hand state to each other through files, and there is no place for these.
            return not self._cannot_stay
        # Spark's shuffle spills to disk what a batch job has too much of, and takes cores only while they work.
        # In a Spark of somebody else's cores are for others too, and may be taken away.
        # One that follows the slots there are holds on to them.
        is_taken = may_grow(context) and not self.is_adaptive
        if plan.settings.batch or self._cannot_stay or not is_ours(context) or is_taken:
            return False
        if is_local(context):
            return is_embedded() and executions_that_hold() < SPARE_CORES
        # One core stays free for other jobs, unless this one takes all there are.
        needed = 1 if self.is_adaptive else 2
        return _PROVEN.match(str(context.master)) is not None and free_cores(context, needed) >= needed
