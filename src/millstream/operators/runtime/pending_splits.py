"""What a source's subtask was dealt out and has not read yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from millstream.operators.runtime.runtime_snapshot import PendingRange
from millstream.operators.source import SourceReader, SplitRange


class OpenSplitRange:
    """A share that is being read.

    Attributes:
        read: how many of its records were read.
        at: how many of the batch in hand were.
    """

    def __init__(self, reader: SourceReader, split: Any, share: SplitRange, read: int) -> None:
        self._reader = reader
        self.split = split
        self.share = share
        self.read = read
        self.at = 0
        self._batches: Iterator[Any] | None = None
        self._batch: Sequence[Any] = ()

    def batch(self) -> Sequence[Any] | None:
        """Return the batch in hand, or the next one when that has been read; None at the end of the share."""
        if self._batches is None:
            reader = self._reader
            self._batches = iter(reader.rest(self.share, self.read) if self.read else reader.read(self.share))
        while self.at >= len(self._batch):
            batch = next(self._batches, None)
            if batch is None:
                return None
            self._batch, self.at = batch if _can_be_sliced(batch) else list(batch), 0
        return self._batch

    def took(self, at: int) -> int:
        """Records of the batch in hand were read up to a place; return how many."""
        records = at - self.at
        self.at = at
        self.read += records
        return records


def _can_be_sliced(batch: Any) -> bool:
    return isinstance(batch, Sequence) and not isinstance(batch, deque)


class PendingSplitRanges:
    """The shares that one epoch leaves to the next, which may run in another process."""

    def __init__(self) -> None:
        self.pending: Sequence[PendingRange] = ()
        # The first of them as it was left. It saves reading again what was read, no more: an epoch takes it out, and
        # one that fails does not put it back.
        self._open: OpenSplitRange | None = None

    def restore(self, shares: Sequence[PendingRange]) -> None:
        """Take up what an epoch in another process has left."""
        self.pending, self._open = shares, None

    def open(self, reader: SourceReader) -> list[OpenSplitRange]:
        """Return what was left."""
        left, self._open = self._open, None
        found = [OpenSplitRange(reader, split, share, read) for split, share, read in self.pending]
        if left is not None:
            found[0] = left
        return found

    def leave(self, shares: list[OpenSplitRange]) -> None:
        """The epoch ends, and these are not read to their end."""
        self.pending = [(s.split, s.share, s.read) for s in shares]
        self._open = shares[0] if shares else None
