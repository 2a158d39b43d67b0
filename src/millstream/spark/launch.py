"""Starts a job on Spark: pickles its plan once, and runs its epochs there."""

from __future__ import annotations

import os
import sys
import uuid
from dataclasses import dataclass, field
from enum import Enum

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

from millstream.checkpoint.storage import StateLocation
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError, JobExecutionError
from millstream.jobmaster.dependencies import Dependencies, bring
from millstream.jobmaster.engine import EpochRunner
from millstream.jobmaster.job import JobMaster
from millstream.jobmaster.launch import Home, Launch, prepare, start
from millstream.jobmaster.pickling import dump_plan
from millstream.operators.protocol import JobPlan
from millstream.spark.control import is_embedded
from millstream.spark.epoch import SparkEpochs
from millstream.spark.errors import keep_bridge_quiet
from millstream.spark.exchange_epochs import ExchangeEpochs, executions_that_hold, is_local
from millstream.spark.master import check_settings, master_of
from millstream.spark.session import SPARE_CORES, get_context, local_cores
from millstream.spark.worker import JobRef, save_plan

# The configuration's key for how blocks get from slot to slot.
EXCHANGE = "millstream.exchange"


def default_parallelism(config: Configuration) -> int:
    """Return the parallelism of a program that sets none: as many as the master has cores."""
    check_settings(config)
    cores = local_cores(master_of(config))
    return _context(config).defaultParallelism if cores is None else cores


def launch(job: Launch) -> JobMaster:
    """Start a job and return its master."""
    check_settings(job.config)
    prepared = prepare(job)
    plan, config = prepared.plan, job.config
    exchange = ExchangeChoice.read(config)
    # Before Spark is started: a job that cannot be sent must not cost a wait.
    pickled = dump_plan(plan)
    _context(config)

    def make_engine(home: Home) -> SparkEngine:
        dependencies = bring(config, home.directory)
        name = plan.settings.job_name
        return SparkEngine(config, home.directory, home.state, dependencies, name, {plan: pickled}, exchange)

    return start(prepared, make_engine)


def _context(config: Configuration) -> SparkContext:
    keep_bridge_quiet()
    try:
        return get_context(config)
    except Py4JError as e:
        why = str(e.java_exception) if isinstance(e, Py4JJavaError) else str(e)
        said = f"Spark cannot be started at {master_of(config)}: {why.splitlines()[0]}"
        raise JobExecutionError(said, engine_trace=str(e)) from None


class ExchangeChoice(Enum):
    """How blocks get from slot to slot: straight, between slots that stay, or through Spark's shuffle."""

    RESIDENT = "resident"
    SPARK = "spark"
    AUTO = "auto"

    @classmethod
    def read(cls, config: Configuration) -> ExchangeChoice:
        value = config.get_string(EXCHANGE, cls.AUTO.value)
        try:
            return cls(value.lower())
        except ValueError:
            names = ", ".join(choice.value for choice in cls)
            raise InvalidProgramError(f"{EXCHANGE}={value!r} is none of {names}.") from None


@dataclass
class SparkEngine:
    """Runs the executions of one job on Spark."""

    config: Configuration
    directory: str
    state: StateLocation
    dependencies: Dependencies
    name: str
    # Plans are pickled and saved once, however often a job restarts.
    pickled: dict[JobPlan, bytes]
    exchange: ExchangeChoice
    _saved: dict[JobPlan, str] = field(default_factory=dict)
    _run: str = field(default_factory=lambda: uuid.uuid4().hex[:6])

    def runner(self, plan: JobPlan, attempt: int) -> EpochRunner:
        if plan not in self._saved:
            directory = self._saved[plan] = os.path.join(self.directory, f"plan-{len(self._saved)}")
            pickled = self.pickled.pop(plan, None) or dump_plan(plan)
            save_plan(directory, pickled, [p for p in sys.path if p], self.state, self.dependencies)
        key = f"{plan.settings.job_id}-{self._run}-{attempt}"
        job = JobRef(key, self._saved[plan], attempt, self._run)
        context, python = _context(self.config), self.dependencies.executable
        if self._slots_stay(plan, context):
            return ExchangeEpochs(context, plan, job, self.name, python)
        return SparkEpochs(context, plan, job, self.name, python)

    def _slots_stay(self, plan: JobPlan, context: SparkContext) -> bool:
        """Choose how blocks get from slot to slot."""
        if self.exchange is not ExchangeChoice.AUTO:
            return self.exchange is ExchangeChoice.RESIDENT
        # Spark's shuffle spills to disk what a batch job has too much of, and takes cores only while they work.
        # Elsewhere than here cores are scarce, and hosts may not reach each other.
        here = is_embedded() and is_local(context)
        return here and not plan.settings.batch and executions_that_hold() < SPARE_CORES
