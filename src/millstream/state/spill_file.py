"""A file for data that does not fit into memory; it has no name, so the system deletes it with the process."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable

from millstream.common.private_files import scratch

# The offset of data in the file, and its length.
FileExtent = tuple[int, int]


class SpillFile:
    """An append-only file that is read by extents.

    Attributes:
        written: the total number of bytes written.
        files: the number of files created.
    """

    def __init__(self, directory: str | None = None) -> None:
        """Create a spill file; the first write creates the file on disk.

        Args:
            directory: the directory of the file; None for this process's directory of temporary files.
        """
        self._directory = directory
        self._descriptor: int | None = None
        self._close: Callable[[], object] = _no_op
        self._end = 0
        self.written = 0
        self.files = 0

    def write(self, body: bytes | memoryview) -> FileExtent:
        """Append bytes; return their extent."""
        if self._descriptor is None:
            self._open()
        assert self._descriptor is not None
        start, rest = self._end, memoryview(body)
        while rest:
            count = os.pwrite(self._descriptor, rest, self._end)
            self._end += count
            rest = rest[count:]
        self.written += len(body)
        return start, len(body)

    def read(self, extent: FileExtent) -> bytes:
        """Return the bytes of an extent."""
        assert self._descriptor is not None
        offset, size = extent
        parts: list[bytes] = []
        while size:
            part = os.pread(self._descriptor, size, offset)
            if not part:
                raise EOFError("A spill file ends before the end of an extent.")
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _open(self) -> None:
        with tempfile.TemporaryFile(prefix="millstream-spill-", dir=self._directory or scratch()) as file:
            self._descriptor = os.dup(file.fileno())
        # Also closes the file if its owner is garbage-collected after a failure.
        self._close = weakref.finalize(self, os.close, self._descriptor)
        self.files += 1

    def clear(self) -> None:
        """Discard all data and free its disk space."""
        self._close()
        self._descriptor, self._close, self._end = None, _no_op, 0


def _no_op() -> None:
    """Do nothing."""
