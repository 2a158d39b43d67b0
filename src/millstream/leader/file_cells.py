"""Cells on storage that the machines share: each write makes a file of the next number, if there is none.

<storageDir>/<cluster-id>/<cell>/00000000000000000041   the version before the last
<storageDir>/<cluster-id>/<cell>/00000000000000000042   what the cell holds
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from millstream.checkpoint.storage import Storage
from millstream.common.errors import DamagedStateError, MillstreamError
from millstream.leader.cas_cells import OvertakenError

# So many versions are left: who reads one while others write still finds it.
_KEPT = 5
_DIGITS = 20
# How often a cell is looked up anew whose last version is deleted before it can be read.
_TRIES = 10


class StorageCell:
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


class StorageCells:
    """The cells of a cluster, in a directory or an object store."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def cell(self, name: str) -> StorageCell:
        return StorageCell(self._storage, name)

    def watch(self, on_lost: Callable[[str], None]) -> None:
        """Do nothing: there is no session."""

    def close(self) -> None:
        """Do nothing: nothing is open."""
