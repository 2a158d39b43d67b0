"""Split ranges that are assigned to a source subtask and not read yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from millstream.common.aliases import Value
from millstream.operators.runtime.runtime_snapshot import PendingRange
from millstream.operators.source import SourceReader, SplitRange


class OpenSplitRange:
    """A split range that is being read.

    Attributes:
        read: the number of records read.
        offset: the number of records read of the current batch.
    """

    def __init__(self, reader: SourceReader, split: Any, split_range: SplitRange, read: int) -> None:
        self._reader = reader
        self.split = split
        self.split_range = split_range
        self.read = read
        self.offset = 0
        self._batches: Iterator[Value] | None = None
        self._batch: Sequence[Value] = ()

    def batch(self) -> Sequence[Value] | None:
        """Return the current batch, or the next one when it has been read; None at the end of the range."""
        if self._batches is None:
            reader = self._reader
            self._batches = iter(
                reader.rest(self.split_range, self.read) if self.read else reader.read(self.split_range)
            )
        while self.offset >= len(self._batch):
            batch = next(self._batches, None)
            if batch is None:
                return None
            self._batch, self.offset = batch if _can_be_sliced(batch) else list(batch), 0
        return self._batch

    def advance(self, offset: int) -> int:
        """Advance to an offset of the current batch; return the number of records read."""
        records = offset - self.offset
        self.offset = offset
        self.read += records
        return records


def _can_be_sliced(batch: Any) -> bool:
    return isinstance(batch, Sequence) and not isinstance(batch, deque)


class PendingSplitRanges:
    """The split ranges that one epoch leaves to the next, which may run in another process."""

    def __init__(self) -> None:
        self.pending: Sequence[PendingRange] = ()
        # The reader of the first range, so that its records need not be read again. An epoch takes it out; a failed
        # epoch does not put it back.
        self._open: OpenSplitRange | None = None

    def restore(self, ranges: Sequence[PendingRange]) -> None:
        """Set the ranges that an epoch in another process has left."""
        self.pending, self._open = ranges, None

    def open(self, reader: SourceReader) -> list[OpenSplitRange]:
        """Return the pending ranges, open for reading."""
        open_range, self._open = self._open, None
        ranges = [OpenSplitRange(reader, split, split_range, read) for split, split_range, read in self.pending]
        if open_range is not None:
            ranges[0] = open_range
        return ranges

    def leave(self, ranges: list[OpenSplitRange]) -> None:
        """Retain the ranges that this epoch has not finished."""
        self.pending = [(s.split, s.split_range, s.read) for s in ranges]
        self._open = ranges[0] if ranges else None
