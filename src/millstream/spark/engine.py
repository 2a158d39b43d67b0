"""The engine of a job on Spark: saves its plan once, and creates the runner of each execution.

There are two kinds of runners, and `SparkEngine._uses_resident_slots` chooses:

* `ExchangeEpochs` (`resident_epochs.py`): one long Spark job holds the slots, and the driver sends them epochs over
  connections.
* `SparkEpochs` (`shuffle_epochs.py`): each epoch is a Spark job.

`FallbackEpochs` tries the first kind, and falls back to the second if no slots are available.
"""

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
from millstream.common.errors import JobExecutionError
from millstream.jobmaster.dependencies import Dependencies, stage_dependencies
from millstream.jobmaster.engine import EpochRunner
from millstream.jobmaster.pickling import dump_plan
from millstream.operators.runtime.messages import JobPlan
from millstream.spark import control
from millstream.spark.control import is_embedded
from millstream.spark.cores import executions_that_hold, free_cores, is_local, may_grow, record_allocation, slots_of
from millstream.spark.errors import keep_bridge_quiet
from millstream.spark.exchange_settings import TLS_ENABLED, ExchangeChoice, ExchangeSettings
from millstream.spark.master import master_of
from millstream.spark.resident_epochs import ExchangeEpochs, FallbackEpochs
from millstream.spark.saved_plan import JobRef, mark_shared, save_plan, send_job_files
from millstream.spark.session import SPARE_CORES, get_context, is_ours
from millstream.spark.session_attachment import with_allocated_slots
from millstream.spark.shuffle_epochs import SparkEpochs

log = logging.getLogger("millstream")

# Settings with which Spark encrypts what it sends.
_SPARK_ENCRYPTS = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled", "spark.ssl.enabled")

# Masters on which resident slots are tested to survive the executors' life cycle.
_TESTED_MASTERS = re.compile(r"local-cluster\[|spark://")


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
        return slots_of(spark_context(self.config), self.job_id, requested)

    def _runner(self, plan: JobPlan, attempt: int, slots: int | None) -> EpochRunner:
        if slots is not None:
            record_allocation(plan.settings.job_id, slots)
        if not os.path.isdir(self.directory):
            self._recreate_directory()
        if plan not in self._saved:
            directory = self._saved[plan] = os.path.join(self.directory, f"plan-{len(self._saved)}")
            pickled = self.pickled.pop(plan, None) or dump_plan(plan)
            save_plan(directory, pickled, [p for p in sys.path if p], self.state, self.dependencies)
        context, python = spark_context(self.config), self.dependencies.executable
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
        return _TESTED_MASTERS.match(str(context.master)) is not None and free_cores(context, needed) >= needed

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


def spark_context(config: Configuration) -> SparkContext:
    """Return the SparkContext; start Spark if necessary."""
    keep_bridge_quiet()
    try:
        return get_context(config)
    except Py4JError as e:
        cause = str(e.java_exception) if isinstance(e, Py4JJavaError) else str(e)
        message = f"Spark cannot be started at {master_of(config)}: {cause.splitlines()[0]}"
        raise JobExecutionError(message, engine_trace=str(e)) from None
