"""Part files on their way: hidden while they are written, renamed when they count, deleted when they never will.

A hidden file is called `.{name}.inprogress.{transaction}`, after the transaction in which it was started. Nobody but
the writer that started it ever writes to it. A task that is believed dead may still be that writer, and what it writes
follows the file under any name. So a file is only renamed after its own writer has closed it; what was acknowledged of
any other file is copied.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO

from millstream.common.errors import MillstreamError
from millstream.common.tags import tagged

_HIDDEN = ".inprogress."
_COPY_BYTES = 1 << 20


@tagged("part-file")
@dataclass(frozen=True)
class PartFile:
    """A hidden file, and what it will be called.

    Attributes:
        hidden: its path now.
        final: its path once it is finished.
        length: how many of its bytes count.
        waited: for how many checkpoints it has waited, closed, to be put together with others.
    """

    hidden: str
    final: str
    length: int
    waited: int = 0


@tagged("staged-parts")
@dataclass(frozen=True)
class StagedParts:
    """What a writer hands to the committer for an epoch.

    Attributes:
        files: closed by their writer, to be renamed.
        obsolete: hidden files whose contents are in `files` now.
    """

    files: tuple[PartFile, ...]
    obsolete: tuple[str, ...] = ()


def hidden_path(directory: str, name: str, transaction: str) -> str:
    return os.path.join(directory, f".{name}{_HIDDEN}{transaction}")


def transaction_of(name: str) -> str | None:
    """Return the transaction in which a hidden file was started; None for any other file."""
    start, marker, transaction = name.rpartition(_HIDDEN)
    return transaction if marker and start.startswith(".") else None


def create(path: str) -> None:
    """Start a hidden file; its directory is made if it is missing."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb"):
        pass


def append(path: str, data: bytes) -> None:
    """Add to a file that must be there: what was deleted must not come back."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    except FileNotFoundError:
        raise MillstreamError(
            f"FileSink: {path} is not there any more: it was deleted or moved under the running job, which must go on "
            "from its last checkpoint."
        ) from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def open_start(path: str, length: int) -> BinaryIO:
    """Open a file to read what was acknowledged of it."""
    try:
        size = os.path.getsize(path)
    except FileNotFoundError:
        size = 0
    if size < length:
        raise MillstreamError(
            f"FileSink: {path} has {size} bytes, but {length} were acknowledged; "
            "the disk has lost data, so the job must go on from its last checkpoint."
        )
    return open(path, "rb")


def copy_start(path: str, length: int, target: str) -> None:
    """Copy what was acknowledged of a file into a new one."""
    create(target)
    with open_start(path, length) as source, open(target, "r+b") as out:
        while length:
            length -= out.write(source.read(min(length, _COPY_BYTES)))


def sync(path: str) -> None:
    """See a file or a directory onto the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directories(paths: Iterable[str], base: str) -> None:
    """See onto the disk that files are where they are: their directories, up to the base path."""
    directories: set[str] = set()
    for directory in {os.path.dirname(path) for path in paths}:
        directories.add(directory)
        while directory.startswith(f"{base}/"):
            directory = os.path.dirname(directory)
            directories.add(directory)
    for directory in directories:
        sync(directory)
