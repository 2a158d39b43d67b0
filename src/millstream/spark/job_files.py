"""Carries what workers need of a job's directory to executors that do not see the driver's disk.

The driver packs the plan and what the program brought along into one file, and Spark gives it to executors that ask.
Each unpacks it once, whichever of its processes comes first.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile

from pyspark import SparkContext, SparkFiles

# What of a job's directory is not the driver's alone.
_CARRIED = ("files", "archives", "packages")


def send(context: SparkContext, directory: str, plan: str, name: str) -> str:
    """Let Spark carry a plan's directory, and what the program brought along; return the parcel's name."""
    name = f"millstream-{name}.tar"
    path = os.path.join(directory, name)
    with tarfile.open(path, "w") as parcel:
        for part in (os.path.basename(plan), *_CARRIED):
            if os.path.exists(os.path.join(directory, part)):
                parcel.add(os.path.join(directory, part), part)
    context.addFile(path)
    return name


def unpacked(name: str) -> str:
    """Return the directory on this machine that a parcel is unpacked in."""
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
