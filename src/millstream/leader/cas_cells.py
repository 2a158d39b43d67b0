"""Cells: small values that job managers share. Each has a version, which the next write to it must name.

An election and the fence need only this of a service: if several processes write after the same version, on any
machines, exactly one write succeeds and the others fail. Storage implements it by creating a file only if there is
none, ZooKeeper by the versions of its nodes, Kubernetes by the resourceVersion of its objects.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

from millstream.checkpoint.storage import Storage
from millstream.common.errors import DamagedStateError, MillstreamError

# The version of a cell that was never written. Other versions depend on the service.
NEVER_WRITTEN: Hashable = 0


class OvertakenError(MillstreamError):
    """Another process has written the cell since the version that a write named."""


class Cell(Protocol):
    """One cell. After an error other than OvertakenError a write may or may not be done, now or later."""

    def read(self) -> tuple[bytes | None, Hashable]:
        """Return the last value, None if there is none, and its version."""
        ...

    def write(self, data: bytes, version: Hashable) -> Hashable:
        """Write a value after a version and return the new version; OvertakenError if there is a later one."""
        ...


class Cells(Protocol):
    """All cells of a cluster."""

    def cell(self, name: str) -> Cell:
        """Return a cell; its name has letters, digits and `-`."""
        ...

    def watch(self, on_lost: Callable[[str], None]) -> None:
        """Register a function that is called with the reason when the session with the service is lost."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


# Number of retained versions: a concurrent reader still finds one.
_MAX_VERSIONS = 5
_DIGITS = 20
# Attempts to read a cell whose last version is deleted meanwhile.
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
                # Other processes have written several versions since, so this one is deleted.
                continue
            finally:
                self._storage.drop_local_copies([path])
        raise MillstreamError(f"{self._storage.url}/{self._name} changes faster than it can be read.")

    def write(self, data: bytes, version: Hashable) -> Hashable:
        assert isinstance(version, int)
        if not self._storage.create(self._path(version + 1), data):
            raise OvertakenError(f"{self._storage.url}/{self._path(version + 1)} was written by another process.")
        versions = self._versions()
        # A deleted old version could be created again, but the last version is never deleted.
        if versions[-1] > version + 1:
            self._storage.delete(self._path(version + 1))
            raise OvertakenError(f"{self._storage.url}/{self._name} is at version {versions[-1]} already.")
        for old in versions[:-_MAX_VERSIONS]:
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
