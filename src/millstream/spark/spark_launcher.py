"""Launches a job on Spark: checks its settings, pickles its plan, and starts a job master with a `SparkEngine`."""

from __future__ import annotations

from millstream.common.display_text import printable
from millstream.common.errors import InvalidProgramError
from millstream.jobmaster.dependencies import stage_dependencies
from millstream.jobmaster.job import JobMaster
from millstream.jobmaster.job_launcher import JobDirectories, JobSpec, PreparedJob, prepare, start
from millstream.jobmaster.machine.options import ScalingOptions
from millstream.jobmaster.pickling import dump_plan
from millstream.spark.cores import may_grow
from millstream.spark.engine import SparkEngine, spark_context
from millstream.spark.exchange_settings import ExchangeChoice, ExchangeSettings
from millstream.spark.master import check_settings
from millstream.spark.session_attachment import attachment


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
    context = spark_context(config)
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
