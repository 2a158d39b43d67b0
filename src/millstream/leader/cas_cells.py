"""Cells: small values that job managers share. Each has a version, which the next write to it must name.

That is all that an election and the fence need of a service: of several who write behind the same version, on whatever
machines, one is written, and the others learn that they were not. Storage does it by making a file only if there is
none, ZooKeeper by the versions of its nodes, Kubernetes by the resourceVersion of its objects.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

from millstream.checkpoint.storage import Storage
from millstream.common.errors import DamagedStateError, MillstreamError

# The version of a cell that was never written. Others are whatever the service has.
NEVER_WRITTEN: Hashable = 0


class OvertakenError(MillstreamError):
    """A cell was written by somebody else since the version that a write has named."""


class Cell(Protocol):
    """One of them. An error other than OvertakenError says nothing: a write may have been done, or be done later."""

    def read(self) -> tuple[bytes | None, Hashable]:
        """Return what was written last, None if nothing ever was, and the version of that."""
        ...

    def write(self, data: bytes, version: Hashable) -> Hashable:
        """Write behind a version, and return the new one; OvertakenError if that is not the last any more."""
        ...


class Cells(Protocol):
    """All cells of a cluster."""

    def cell(self, name: str) -> Cell:
        """Return a cell; its name has letters, digits and `-`."""
        ...

    def watch(self, on_lost: Callable[[str], None]) -> None:
        """Have a function called, with the reason, when the service gives this process up."""
        ...

    def close(self) -> None:
        """End what is open."""
        ...


# So many versions are left: who reads one while others write still finds it.
_KEPT = 5
_DIGITS = 20
# How often a cell is looked up anew whose last version is deleted before it can be read.
_TRIES = 10


class FileCell:
    """A directory of versions."""

    def __init__(self, storage: Storage, name: str) -> None:
        self._storage = storage
        self._name = name

    def _versions(self) -> list[int]:
        return sorted(int(name) for name in self._storage.list(self._name) if name.isdecimal() and len(name) == _DIGITS)

    def _path(self, version: int) -> str:
        return f"{self._name}/{version:0{_DIGITS}d}"

    def read(self) -> tuple[bytes | None, Hashable]:
        for _ in range(_TRIES):
            versions = self._versions()
            if not versions:
                return None, 0
            path = self._path(versions[-1])
            try:
                return bytes(self._storage.read(path)), versions[-1]
            except DamagedStateError:
                # Others have written so often meanwhile that it is deleted.
                continue
            finally:
                self._storage.forget([path])
        raise MillstreamError(f"{self._storage.url}/{self._name} changes faster than it can be read.")

    def write(self, data: bytes, version: Hashable) -> Hashable:
        assert isinstance(version, int)
        if not self._storage.create(self._path(version + 1), data):
            raise OvertakenError(f"{self._storage.url}/{self._path(version + 1)} was written by another process.")
        versions = self._versions()
        # One that was there, long ago, and is deleted, could be made again; but the last is never deleted.
        if versions[-1] > version + 1:
            self._storage.delete(self._path(version + 1))
            raise OvertakenError(f"{self._storage.url}/{self._name} is at version {versions[-1]} already.")
        for old in versions[:-_KEPT]:
            self._storage.delete(self._path(old))
        return version + 1


class FileCells:
    """The cells of a cluster, in a directory or an object store."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def cell(self, name: str) -> FileCell:
        return FileCell(self._storage, name)

    def watch(self, on_lost: Callable[[str], None]) -> None:
        """Do nothing: there is no session."""

    def close(self) -> None:
        """Do nothing: nothing is open."""
