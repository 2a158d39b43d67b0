"""A job's plan and files as the driver saves them, and how workers load them."""

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

# Where a job's state is: the driver leaves a sign there, by which workers know that they see the same place.
_MARK = "driver"


@dataclass(frozen=True)
class JobRef:
    """Where a task finds its job: the plan is read once a process, not sent with every task."""

    key: str
    # The plan's directory on the driver's machine.
    directory: str
    attempt: int
    # Tells this run of the program from every other.
    run: str
    # What Spark has carried the plan in, where executors do not share the driver's disk.
    parcel: str | None = None
    # Whether what one machine writes of the job's state must be seen by the others.
    shares_state: bool = True


@dataclass(frozen=True, kw_only=True)
class SavedPlan:
    """What the workers need to know about a job; they read it once a process.

    Attributes:
        plan: the JobPlan, pickled: it can be loaded only when all else is in place.
        path: where the driver finds its modules.
        as_pyflink: whether the program imports pyflink and gets millstream.
        log_levels: how much loggers let through in the driver.
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
    """Write what the workers need to know about a job."""
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
    """Read what the driver has saved, from its own disk or from what Spark has carried here."""
    home = os.path.dirname(job.directory)
    here = home if job.parcel is None else unpack_job_files(job.parcel)
    with open(os.path.join(here, os.path.basename(job.directory), "plan"), "rb") as f:
        saved: SavedPlan = pickle.load(f)
    if here == home:
        return saved
    copies = os.path.join(here, "scratch")
    return replace(saved, dependencies=saved.dependencies.moved(home, here), state=replace(saved.state, copies=copies))


def mark_shared(state: StateLocation, run: str) -> None:
    """Leave a sign where a job's state is, by which workers know that they see the same place."""
    _beside(state).publish(_MARK, run.encode())


def check_shared(state: StateLocation, run: str) -> None:
    """Refuse a place for state that is this machine's own."""
    try:
        seen = bytes(_beside(state).read(_MARK))
    except DamagedStateError:
        seen = b""
    if seen != run.encode():
        raise StateNotSharedError(
            f"The machine {socket.gethostname()} does not see the job's state in {state.url}: set "
            "execution.checkpointing.dir to a place that the driver and all executors share, such as s3://bucket/path "
            "or a directory that is mounted on each of them."
        )


def _beside(state: StateLocation) -> Storage:
    # What is in the place itself and belongs to no checkpoint is deleted now and then.
    return replace(state, url=state.url.rpartition("/")[0]).open()


# What of a job's directory is not the driver's alone.
_CARRIED = ("files", "archives", "packages")


def send_job_files(context: SparkContext, directory: str, plan: str, name: str) -> str:
    """Let Spark carry a plan's directory, and what the program brought along; return the parcel's name."""
    name = f"millstream-{name}.tar"
    path = os.path.join(directory, name)
    with tarfile.open(path, "w") as parcel:
        for part in (os.path.basename(plan), *_CARRIED):
            if os.path.exists(os.path.join(directory, part)):
                parcel.add(os.path.join(directory, part), part)
    context.addFile(path)
    return name


def unpack_job_files(name: str) -> str:
    """Return the directory on this machine that a parcel is unpack_job_files in."""
    root = SparkFiles.getRootDirectory()
    target = os.path.join(root, name + ".d")
    if not os.path.isdir(target):
        fresh = tempfile.mkdtemp(prefix="millstream-parcel-", dir=root)
        with tarfile.open(SparkFiles.get(name)) as parcel:
            if hasattr(tarfile, "fully_trusted_filter"):
                parcel.extraction_filter = tarfile.fully_trusted_filter
            parcel.extractall(fresh)
        try:
            os.rename(fresh, target)
        except OSError:
            # Another process of this executor was first.
            shutil.rmtree(fresh)
    return target
