"""Part files on their way: hidden while they are written, renamed when they count, deleted when they never will.

A hidden file is called `.{name}.inprogress.{transaction}`, after the transaction in which it was started. Nobody but
the writer that started it ever writes to it. A task that is believed dead may still be that writer, and what it writes
follows the file under any name. So a file is only renamed after its own writer has closed it; what was acknowledged of
any other file is copied.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import BinaryIO

from millstream.common.errors import MillstreamError
from millstream.datastream.connectors.base import CommitContext, Committer

log = logging.getLogger("millstream")

_HIDDEN = ".inprogress."
_COPY_BYTES = 1 << 20


@dataclass(frozen=True)
class PartFile:
    """A hidden file, and what it will be called.

    Attributes:
        hidden: its path now.
        final: its path once it is finished.
        length: how many of its bytes count.
    """

    hidden: str
    final: str
    length: int


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
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as file:
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


class FileCommitter(Committer):
    """Renames part files when their checkpoint is complete."""

    def __init__(self, base: str, context: CommitContext) -> None:
        self._base = base
        self._context = context

    def commit(self, committables: list[tuple[int, StagedParts]]) -> None:
        for _, staged in committables:
            for part in staged.files:
                _finish(part)
        sync_directories((part.final for _, staged in committables for part in staged.files), self._base)
        for _, staged in committables:
            for path in staged.obsolete:
                with suppress(FileNotFoundError):
                    os.unlink(path)

    def recover(self, committables: list[tuple[int, StagedParts]], former_job_id: str) -> None:
        self.commit([(subtask, _without_gone(staged)) for subtask, staged in committables])
        prefixes = (self._context.prefix(former_job_id), self._context.prefix())
        for directory, _, names in os.walk(self._base):
            for name in names:
                transaction = transaction_of(name)
                if transaction is not None and transaction.startswith(prefixes):
                    with suppress(FileNotFoundError):
                        os.unlink(os.path.join(directory, name))


def _without_gone(staged: StagedParts) -> StagedParts:
    """Leave out files that were finished before and have been taken away since."""
    there = tuple(p for p in staged.files if os.path.exists(p.hidden) or os.path.exists(p.final))
    for part in staged.files:
        if part not in there:
            log.warning(
                "FileSink: %s is not there any more: it was finished before the restart, and moved.", part.final
            )
    return replace(staged, files=there)


def _finish(part: PartFile) -> None:
    try:
        size = os.path.getsize(part.hidden)
        if size > part.length:
            # Whatever is behind what was acknowledged belongs to no epoch that counts.
            os.truncate(part.hidden, part.length)
            sync(part.hidden)
        if size >= part.length:
            os.rename(part.hidden, part.final)
            return
    except FileNotFoundError:
        # It was renamed before, by this job or the one before; its name is nobody else's.
        with suppress(FileNotFoundError):
            if os.path.getsize(part.final) == part.length:
                return
    raise MillstreamError(
        f"FileSink: {part.final} cannot be finished, because neither it nor {part.hidden} "
        f"has the {part.length} bytes that were written; was it moved, or has the disk lost it?"
    )
