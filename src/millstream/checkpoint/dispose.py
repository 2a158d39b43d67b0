"""Deletes a savepoint, and nothing else."""

from __future__ import annotations

import re

from millstream.checkpoint.inspect import Inspection
from millstream.checkpoint.manifest import NAME
from millstream.checkpoint.storage import open_storage
from millstream.common.errors import InvalidProgramError

# What attempts that failed may have left in a savepoint's directory.
_PART = re.compile(r"[0-9a-f]{32}(\.operator)?-\d+-.+\.parquet")


def dispose_savepoint(inspection: Inspection) -> list[str]:
    """Delete a savepoint; return the files in its directory that are not its own, and stay."""
    if inspection.manifest.kind != "savepoint":
        raise InvalidProgramError(
            f"{inspection.location} is a checkpoint, which belongs to its job and may share files with others: it is "
            "not deleted."
        )
    storage = open_storage(inspection.location, inspection.options)
    parts = set(inspection.snapshot.parts())
    # First what makes it a savepoint: half of one must not look like one.
    storage.delete(NAME)
    for name in storage.list(""):
        if name in parts or _PART.fullmatch(name):
            storage.delete(name)
    left = list(storage.list(""))
    if not left:
        storage.delete("")
    return left
