"""Storage for state files."""

from __future__ import annotations

import contextlib
import mmap
import os
import uuid
from collections.abc import Iterable

from millstream.common.errors import MillstreamError


class DirectoryStorage:
    """State files in a directory that all workers of a job can see."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def read(self, name: str) -> memoryview:
        """Return a file's bytes, mapped rather than read: a large file takes no memory of its own."""
        try:
            with open(os.path.join(self._directory, name), "rb") as f:
                return memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))
        except FileNotFoundError:
            raise MillstreamError(f"State file {name} is missing in {self._directory}.") from None
        except ValueError:
            raise MillstreamError(f"State file {name} in {self._directory} is damaged: it is empty.") from None

    def write(self, name: str, parts: Iterable[bytes]) -> int:
        """Write a file from its parts; return its size."""
        path = os.path.join(self._directory, name)
        try:
            with open(path, "wb") as f:
                for part in parts:
                    f.write(part)
                return f.tell()
        except FileNotFoundError:
            raise MillstreamError(
                f"State cannot be written: the directory {self._directory} does not exist on this worker. "
                "Set 'io.tmp.dirs' to a directory that the driver and all workers share."
            ) from None

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._directory, name))

    def scratch(self, name: str) -> str:
        """Return a fresh directory for files that no other process needs."""
        path = os.path.join(self._directory, "scratch", f"{name}-{uuid.uuid4().hex[:8]}")
        os.makedirs(path)
        return path
