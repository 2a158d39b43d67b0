"""Starts a job: pickles its plan once, gives it a directory, and runs its epochs on Spark."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable

from millstream.checkpoint.storage import DirectoryStorage
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.graph.job_graph import JobGraph
from millstream.jobmaster.flow import EpochSizer
from millstream.jobmaster.job import JobMaster, JobOptions
from millstream.operators.slot import JobPlan
from millstream.operators.subtask import JobSettings
from millstream.spark.epoch import SparkEpochs
from millstream.spark.pickling import dump_plan
from millstream.spark.session import DEFAULT_MASTER, get_context
from millstream.spark.worker import JobRef, save_plan

# How long input may gather when the user has asked for throughput above all.
_LONGEST_GATHERING = 1.0


def default_parallelism(config: Configuration) -> int:
    """Return the parallelism of a program that sets none: as many as the master has cores."""
    master = config.get_string("spark.master", os.environ.get("MASTER", DEFAULT_MASTER))
    local = re.fullmatch(r"local(?:\[([*\d]+)(?:,\s*\d+)?\])?", master)
    if local is None:
        return get_context(config).defaultParallelism
    threads = local.group(1) or "1"
    return len(os.sched_getaffinity(0)) if threads == "*" else int(threads)


def launch(
    graph: JobGraph,
    config: Configuration,
    batch: bool,
    buffer_timeout_ms: int,
    clock: Callable[[], int] | None = None,
) -> JobMaster:
    """Start a job and return its master."""
    job_id = uuid.uuid4().hex
    parameters = {k: v for k, v in config.to_dict().items() if not k.startswith("spark.")}
    plan = JobPlan(
        JobSettings(job_id, graph.job_name, 0, batch, parameters, state_backend(config), clock), graph.vertices
    )
    # Before Spark is started: a job that cannot be sent must not cost a wait.
    pickled = dump_plan(plan)
    context = get_context(config)
    directory = tempfile.mkdtemp(prefix=f"millstream-{job_id[:8]}-", dir=config.get_string("io.tmp.dirs", "") or None)
    state = os.path.join(directory, "state")
    os.mkdir(state)
    save_plan(directory, pickled, [p for p in sys.path if p])
    job = JobMaster(
        plan,
        SparkEpochs(context, plan, JobRef(f"{job_id}-0", directory), graph.job_name),
        DirectoryStorage(state),
        _options(config, buffer_timeout_ms),
        on_end=lambda: shutil.rmtree(directory),
        clock=time.time if clock is None else lambda: clock() / 1000,
    )
    job.start()
    return job


_BACKENDS = {"hashmap": "hashmap", "jobmanager": "hashmap", "filesystem": "hashmap", "lmdb": "lmdb", "rocksdb": "lmdb"}


def state_backend(config: Configuration) -> str:
    """Return the backend of a job; Flink's names are understood, and its on-disk one is served by LMDB."""
    name = config.get_string("state.backend.type", config.get_string("state.backend", "hashmap")).lower()
    if name not in _BACKENDS:
        raise InvalidProgramError(
            f"state.backend.type is {name!r}: it must be 'hashmap', or 'lmdb' ('rocksdb' is taken for it)."
        )
    return _BACKENDS[name]


def _options(config: Configuration, buffer_timeout_ms: int) -> JobOptions:
    sizer = EpochSizer(
        target_seconds=config.get_millis("millstream.epoch.target", 1000) / 1000,
        max_records=config.get_integer("millstream.epoch.max-records", EpochSizer.max_records),
        max_bytes=config.get_integer("millstream.epoch.max-bytes", EpochSizer.max_bytes),
    )
    gathering = _LONGEST_GATHERING if buffer_timeout_ms < 0 else buffer_timeout_ms / 1000
    return JobOptions(gathering, sizer)
