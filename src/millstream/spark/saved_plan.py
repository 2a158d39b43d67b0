"""A job's plan as the driver saves it, and how workers load it."""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import tarfile
import tempfile
from dataclasses import dataclass, replace

from pyspark import SparkContext, SparkFiles

from millstream.checkpoint.storage import StateLocation, Storage
from millstream.common import pyflink_names
from millstream.common.errors import DamagedStateError, StateNotSharedError
from millstream.jobmaster.dependencies import Dependencies
from millstream.operators.diagnostics.logs import levels

# A file next to the job's state, by which workers check that they access the same storage.
_MARK = "driver"


@dataclass(frozen=True)
class JobRef:
    """Locates a task's job: each process reads the plan once, instead of receiving it with each task."""

    key: str
    # The plan's directory on the driver's machine.
    directory: str
    attempt: int
    # Identifies this run of the program.
    run: str
    # The archive of the plan in Spark's files, if executors do not share the driver's disk.
    archive: str | None = None
    # Whether all machines must have access to the job's state.
    shares_state: bool = True


@dataclass(frozen=True, kw_only=True)
class SavedPlan:
    """The part of a job that workers need; each process reads it once.

    Attributes:
        plan: the pickled JobPlan: it can be loaded only after the other fields are applied.
        path: the driver's module search path.
        as_pyflink: whether `pyflink` resolves to millstream.
        log_levels: the driver's log levels, by logger.
    """

    plan: bytes
    path: list[str]
    state: StateLocation
    dependencies: Dependencies
    as_pyflink: bool
    log_levels: dict[str, int]


def save_plan(
    directory: str, plan: bytes, driver_path: list[str], state: StateLocation, dependencies: Dependencies
) -> None:
    """Write a job's plan for the workers."""
    os.makedirs(directory)
    saved = SavedPlan(
        plan=plan,
        path=driver_path,
        state=state,
        dependencies=dependencies,
        as_pyflink=pyflink_names.is_installed(),
        log_levels=levels(),
    )
    with open(os.path.join(directory, "plan"), "wb") as f:
        pickle.dump(saved, f, 5)


def find_plan(job: JobRef) -> SavedPlan:
    """Read a job's plan from the driver's disk or from Spark's files."""
    home = os.path.dirname(job.directory)
    here = home if job.archive is None else unpack_job_files(job.archive)
    with open(os.path.join(here, os.path.basename(job.directory), "plan"), "rb") as f:
        saved: SavedPlan = pickle.load(f)
    if here == home:
        return saved
    copies = os.path.join(here, "scratch")
    return replace(saved, dependencies=saved.dependencies.moved(home, here), state=replace(saved.state, copies=copies))


def mark_shared(state: StateLocation, run: str) -> None:
    """Write the file by which workers check that they access the job's state."""
    _parent_storage(state).publish(_MARK, run.encode())


def check_shared(state: StateLocation, run: str) -> None:
    """Raise StateNotSharedError if this machine does not access the job's state."""
    try:
        seen = bytes(_parent_storage(state).read(_MARK))
    except DamagedStateError:
        seen = b""
    if seen != run.encode():
        raise StateNotSharedError(
            f"The machine {socket.gethostname()} cannot access the job's state in {state.url}: set "
            "execution.checkpointing.dir to storage that the driver and all executors share, such as s3://bucket/path "
            "or a directory that is mounted on each of them."
        )


def _parent_storage(state: StateLocation) -> Storage:
    # Files inside the directory that belong to no checkpoint are deleted.
    return replace(state, url=state.url.rpartition("/")[0]).open()


# Subdirectories of a job's directory that workers need.
_JOB_SUBDIRECTORIES = ("files", "archives", "packages")


def send_job_files(context: SparkContext, directory: str, plan: str, name: str) -> str:
    """Add a plan and the program's files to Spark's files; return the archive's name."""
    name = f"millstream-{name}.tar"
    path = os.path.join(directory, name)
    with tarfile.open(path, "w") as archive:
        for part in (os.path.basename(plan), *_JOB_SUBDIRECTORIES):
            if os.path.exists(os.path.join(directory, part)):
                archive.add(os.path.join(directory, part), part)
    context.addFile(path)
    return name


def unpack_job_files(name: str) -> str:
    """Return the directory of an unpacked archive on this machine."""
    root = SparkFiles.getRootDirectory()
    target = os.path.join(root, name + ".d")
    if not os.path.isdir(target):
        fresh = tempfile.mkdtemp(prefix="millstream-archive-", dir=root)
        with tarfile.open(SparkFiles.get(name)) as archive:
            if hasattr(tarfile, "fully_trusted_filter"):
                archive.extraction_filter = tarfile.fully_trusted_filter
            archive.extractall(fresh)
        try:
            os.rename(fresh, target)
        except OSError:
            # Another process of this executor was first.
            shutil.rmtree(fresh)
    return target
