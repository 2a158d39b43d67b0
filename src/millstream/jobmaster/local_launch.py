"""Starts a job in this process, without Spark: for the time in which a program is written and tried."""

from __future__ import annotations

import os
import sys

from millstream.common.errors import InvalidProgramError
from millstream.common.memory_on_spark import SLOTS
from millstream.jobmaster.dependencies import bring
from millstream.jobmaster.job import JobMaster
from millstream.jobmaster.launch import Home, Launch, Prepared, prepare, start
from millstream.jobmaster.local import LocalEngine
from millstream.jobmaster.pickling import dump_plan
from millstream.operators.logs import name_speakers
from millstream.surroundings import wall_clock


def launch_here(job: Launch) -> JobMaster:
    """Start a job in this process as it would start on Spark, say so, and return its master."""
    prepared = prepare(job)
    name_speakers()
    master = start_here(prepared)
    if not job.config.get_boolean("millstream.quiet", False):
        print("millstream: running in this process, without Spark (millstream.engine=local)", file=sys.stderr)
    return master


def start_here(prepared: Prepared) -> JobMaster:
    """Start a job that is planned in this process."""
    job = prepared.launch
    # Before it starts: a function that no worker could be sent is refused here too.
    pickled = {prepared.plan: dump_plan(prepared.plan)}

    def make_engine(home: Home) -> LocalEngine:
        dependencies = bring(job.config, home.directory)
        if dependencies.directory is not None or dependencies.executable not in (None, sys.executable):
            raise InvalidProgramError(
                "Archives (python.archives) and another interpreter (python.executable) are for worker processes, and "
                "this job runs in the process of the program: run it on Spark (millstream.engine=spark)."
            )
        # As for workers: under this name PyFlink's find their interpreter.
        os.environ["python"] = sys.executable  # noqa: SIM112
        sys.path[:0] = [p for p in dependencies.path if p not in sys.path]
        slots = SLOTS.read(job.config) if SLOTS.is_set(job.config) else None
        return LocalEngine(home.state.open(), job.clock or wall_clock, pickled, slots)

    return start(prepared, make_engine)
