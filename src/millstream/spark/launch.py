"""Starts a job on Spark: pickles its plan once, and runs its epochs there."""

from __future__ import annotations

import os
import re
import sys
import uuid
from dataclasses import dataclass, field

from millstream.checkpoint.storage import StateLocation
from millstream.common.configuration import Configuration
from millstream.jobmaster.job import JobMaster
from millstream.jobmaster.launch import Home, Launch, prepare, start
from millstream.operators.protocol import JobPlan
from millstream.spark.dependencies import Dependencies, bring
from millstream.spark.epoch import SparkEpochs
from millstream.spark.pickling import dump_plan
from millstream.spark.session import DEFAULT_MASTER, get_context
from millstream.spark.worker import JobRef, save_plan


def default_parallelism(config: Configuration) -> int:
    """Return the parallelism of a program that sets none: as many as the master has cores."""
    master = config.get_string("spark.master", os.environ.get("MASTER", DEFAULT_MASTER))
    local = re.fullmatch(r"local(?:\[([*\d]+)(?:,\s*\d+)?\])?", master)
    if local is None:
        return get_context(config).defaultParallelism
    threads = local.group(1) or "1"
    return len(os.sched_getaffinity(0)) if threads == "*" else int(threads)


def launch(job: Launch) -> JobMaster:
    """Start a job and return its master."""
    prepared = prepare(job)
    plan, config = prepared.plan, job.config
    # Before Spark is started: a job that cannot be sent must not cost a wait.
    pickled = dump_plan(plan)
    get_context(config)

    def make_engine(home: Home) -> SparkEngine:
        dependencies = bring(config, home.directory)
        name = plan.settings.job_name
        return SparkEngine(config, home.directory, home.state, dependencies, name, {plan: pickled})

    return start(prepared, make_engine)


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
    _saved: dict[JobPlan, str] = field(default_factory=dict)
    _run: str = field(default_factory=lambda: uuid.uuid4().hex[:6])

    def runner(self, plan: JobPlan, attempt: int) -> SparkEpochs:
        if plan not in self._saved:
            directory = self._saved[plan] = os.path.join(self.directory, f"plan-{len(self._saved)}")
            pickled = self.pickled.pop(plan, None) or dump_plan(plan)
            save_plan(directory, pickled, [p for p in sys.path if p], self.state, self.dependencies)
        key = f"{plan.settings.job_id}-{self._run}-{attempt}"
        job = JobRef(key, self._saved[plan], attempt, self._run)
        return SparkEpochs(get_context(self.config), plan, job, self.name, self.dependencies.executable)
