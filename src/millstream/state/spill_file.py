"""A file for what does not fit into memory: it has no name, so it is gone with its process, however that ends."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable

from millstream.common.private_files import scratch

# Where something lies in the file, and how many bytes it has.
FileExtent = tuple[int, int]


class SpillFile:
    """What is written is only appended, and read piece by piece.

    Attributes:
        written: how many bytes were written in all.
        files: how many files there were.
    """

    def __init__(self, directory: str | None = None) -> None:
        """Make one; there is no file before something is written.

        Args:
            directory: where it is to be; None for where this process may put what nobody needs later.
        """
        self._directory = directory
        self._descriptor: int | None = None
        self._close: Callable[[], object] = _nothing
        self._end = 0
        self.written = 0
        self.files = 0

    def write(self, body: bytes | memoryview) -> FileExtent:
        """Append something; return where it lies."""
        if self._descriptor is None:
            self._open()
        assert self._descriptor is not None
        at, rest = self._end, memoryview(body)
        while rest:
            count = os.pwrite(self._descriptor, rest, self._end)
            self._end += count
            rest = rest[count:]
        self.written += len(body)
        return at, len(body)

    def read(self, place: FileExtent) -> bytes:
        """Return what lies somewhere."""
        assert self._descriptor is not None
        at, size = place
        parts: list[bytes] = []
        while size:
            part = os.pread(self._descriptor, size, at)
            if not part:
                raise EOFError("A file of what does not fit into memory ends too early.")
            parts.append(part)
            at, size = at + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _open(self) -> None:
        with tempfile.TemporaryFile(prefix="millstream-spill-", dir=self._directory or scratch()) as file:
            self._descriptor = os.dup(file.fileno())
        # Also when whoever has it is simply forgotten, after a failure.
        self._close = weakref.finalize(self, os.close, self._descriptor)
        self.files += 1

    def clear(self) -> None:
        """Forget all that was written; the disk has room for it again."""
        self._close()
        self._descriptor, self._close, self._end = None, _nothing, 0


def _nothing() -> None:
    """Do nothing."""
