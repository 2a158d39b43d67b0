"""Part files: hidden while they are written, renamed when they are committed, deleted when they are aborted.

A hidden file is named `.{name}.inprogress.{transaction}`, after the transaction that created it. Only the writer that
created it writes to it. That writer may be a task that is presumed dead, and its writes follow the file under any name.
So a file is renamed only after its own writer has closed it; of any other file the acknowledged bytes are copied.
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
    """A hidden file and its final name.

    Attributes:
        hidden: its current path.
        final: its path when finished.
        length: its acknowledged bytes.
        waited: the checkpoints that it has waited, closed, for compaction.
    """

    hidden: str
    final: str
    length: int
    waited: int = 0


@tagged("staged-parts")
@dataclass(frozen=True)
class StagedParts:
    """A writer's committable of an epoch.

    Attributes:
        files: closed files to rename.
        obsolete: hidden files whose contents are now in `files`.
    """

    files: tuple[PartFile, ...]
    obsolete: tuple[str, ...] = ()


def hidden_path(directory: str, name: str, transaction: str) -> str:
    return os.path.join(directory, f".{name}{_HIDDEN}{transaction}")


def transaction_of(name: str) -> str | None:
    """Return the transaction of a hidden file, or None for any other file."""
    start, marker, transaction = name.rpartition(_HIDDEN)
    return transaction if marker and start.startswith(".") else None


def create(path: str) -> None:
    """Create a hidden file, and its directory if missing."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb"):
        pass


def append(path: str, data: bytes) -> None:
    """Append to an existing file; a deleted file must not reappear."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    except FileNotFoundError:
        raise MillstreamError(
            f"FileSink: {path} no longer exists: it was deleted or moved under the running job, which must restore "
            "its last checkpoint."
        ) from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def open_start(path: str, length: int) -> BinaryIO:
    """Open a file to read its acknowledged bytes."""
    try:
        size = os.path.getsize(path)
    except FileNotFoundError:
        size = 0
    if size < length:
        raise MillstreamError(
            f"FileSink: {path} has {size} bytes, but {length} were acknowledged; "
            "the disk has lost data, so the job must restore its last checkpoint."
        )
    return open(path, "rb")


def copy_start(path: str, length: int, target: str) -> None:
    """Copy the acknowledged bytes of a file into a new one."""
    create(target)
    with open_start(path, length) as source, open(target, "r+b") as out:
        while length:
            length -= out.write(source.read(min(length, _COPY_BYTES)))


def sync(path: str) -> None:
    """Flush a file or a directory to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directories(paths: Iterable[str], base: str) -> None:
    """Flush the directories of files, up to the base path, to disk."""
    directories: set[str] = set()
    for directory in {os.path.dirname(path) for path in paths}:
        directories.add(directory)
        while directory.startswith(f"{base}/"):
            directory = os.path.dirname(directory)
            directories.add(directory)
    for directory in directories:
        sync(directory)
