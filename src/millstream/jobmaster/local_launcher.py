"""The local launcher: starts a job in this process, without Spark, for development."""

from __future__ import annotations

import importlib
import os
import sys

from millstream.common.errors import InvalidProgramError
from millstream.common.memory_on_spark import SLOTS
from millstream.jobmaster.dependencies import FILES_DIRECTORY, stage_dependencies
from millstream.jobmaster.job import JobMaster
from millstream.jobmaster.job_launcher import JobDirectories, JobSpec, PreparedJob, prepare, start
from millstream.jobmaster.local import LocalEngine
from millstream.jobmaster.pickling import dump_plan
from millstream.operators.diagnostics.logs import name_speakers
from millstream.runtime_services import wall_clock


def launch_locally(job: JobSpec) -> JobMaster:
    """Start a job in this process as on Spark, print a notice, and return its master."""
    prepared = prepare(job)
    name_speakers()
    master = start_locally(prepared)
    if not job.config.get_boolean("millstream.quiet", False):
        print("millstream: running in this process, without Spark (millstream.engine=local)", file=sys.stderr)
    return master


# Import paths added by earlier jobs of this process.
_brought: set[str] = set()


def _import_from(paths: list[str], files: str) -> None:
    """Make the job's files importable, and unload those of earlier jobs, as new workers would not have them.

    Args:
        paths: the first entries of the import path.
        files: the directory of the job's own Python files; other modules stay loaded.
    """
    sys.path[:] = [*paths, *(p for p in sys.path if p not in _brought and p not in paths)]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if any(file.startswith(os.path.join(path, "")) for path in _brought):
            del sys.modules[name]
    _brought.update(path for path in paths if path.startswith(files))
    importlib.invalidate_caches()


def start_locally(prepared: PreparedJob) -> JobMaster:
    """Start a planned job in this process."""
    job = prepared.launch
    with prepared.claim.released_on_error():
        return _start_here(job, prepared)


def _start_here(job: JobSpec, prepared: PreparedJob) -> JobMaster:
    # Pickle before the start: a function that could not be sent to workers is rejected here too.
    pickled = {prepared.plan: dump_plan(prepared.plan)}

    def make_engine(home: JobDirectories) -> LocalEngine:
        dependencies = stage_dependencies(job.config, home.directory)
        if dependencies.directory is not None or dependencies.executable not in (None, sys.executable):
            raise InvalidProgramError(
                "Archives (python.archives) and another interpreter (python.executable) are for worker processes, and "
                "this job runs in the process of the program: run it on Spark (millstream.engine=spark)."
            )
        # As on workers: PyFlink programs find their interpreter under this name.
        os.environ["python"] = sys.executable  # noqa: SIM112
        _import_from(dependencies.path, os.path.join(home.directory, FILES_DIRECTORY))
        slots = SLOTS.read(job.config) if SLOTS.is_set(job.config) else None
        return LocalEngine(home.state.open(), job.clock or wall_clock, pickled, slots)

    return start(prepared, make_engine)
