"""Storage for state files."""

from __future__ import annotations

import contextlib
import os

from millstream.common.errors import MillstreamError


class DirectoryStorage:
    """State files in a directory that all workers of a job can see."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def read(self, name: str) -> bytes:
        try:
            with open(os.path.join(self._directory, name), "rb") as f:
                return f.read()
        except FileNotFoundError:
            raise MillstreamError(f"State file {name} is missing in {self._directory}.") from None

    def write(self, name: str, data: bytes) -> None:
        path = os.path.join(self._directory, name)
        try:
            with open(path, "wb") as f:
                f.write(data)
        except FileNotFoundError:
            raise MillstreamError(
                f"State cannot be written: the directory {self._directory} does not exist on this worker. "
                "Set 'io.tmp.dirs' to a directory that the driver and all workers share."
            ) from None

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._directory, name))
