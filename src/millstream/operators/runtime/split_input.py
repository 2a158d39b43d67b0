"""The input of a source subtask: reads split ranges with the source's reader, and runs the chain's loop on the records.

Ranges that are not read within the time slice are pending: the next epoch reads them first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Generator, Iterator, Sequence

from millstream.common.aliases import Value
from millstream.common.watermark_strategy import MAX_WATERMARK
from millstream.operators.base import Split
from millstream.operators.diagnostics.subtask_diagnostics import DiagnosticsCollector
from millstream.operators.runtime.runtime_snapshot import SPLIT_RANGES, PendingRange, RuntimeSnapshot
from millstream.operators.runtime.subtask_chain import Loop, Outgoing, SubtaskChain
from millstream.operators.runtime.subtask_input import SubtaskInput
from millstream.operators.source import SourceOperator, SourceReader, SplitRange


class OpenSplitRange:
    """A split range that is being read.

    Attributes:
        read: the number of records read.
        offset: the number of records read of the current batch.
    """

    def __init__(self, reader: SourceReader, split: Split, split_range: SplitRange, read: int) -> None:
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


def _can_be_sliced(batch: object) -> bool:
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


# Number of records after which a source subtask compiles a vectorized loop over number ranges.
VECTORIZE_AFTER = 1 << 20


class SplitInput(SubtaskInput):
    """Reads the split ranges of a source."""

    def __init__(self, chain: SubtaskChain, diagnostics: DiagnosticsCollector, operator: SourceOperator) -> None:
        super().__init__(chain, diagnostics)
        self._operator = operator
        self._loop = chain.compiler.source_function()
        self._records_until_vectorized = VECTORIZE_AFTER
        self._pending_splits = PendingSplitRanges()
        # The ranges that this epoch has still to read.
        self._ranges: list[OpenSplitRange] = []

    @property
    def pending_ranges(self) -> Sequence[PendingRange]:
        return self._pending_splits.pending

    def restore(self, snapshot: RuntimeSnapshot) -> None:
        super().restore(snapshot)
        self._pending_splits.restore(snapshot.pending_ranges)

    def _splits_with_input(self) -> Collection[Value]:
        splits = [split_range.split for split_range in self._ranges]
        return [*splits, None] if self.recovered.pending else splits

    def read(self, new_ranges: list[SplitRange], ends: bool, seconds: float) -> Iterator[Outgoing]:
        """Read split ranges for a number of seconds: first the pending ones, then those of this epoch."""
        reader, time = self._operator.reader, self._chain.time
        self._chain.announce_watermarks()
        self._ranges = self._pending_splits.open(reader)
        self._advance_time()
        ranges = self._ranges
        ranges += [OpenSplitRange(reader, reader.split_of(new), new, 0) for new in new_ranges]
        until = self.requests.deadline = self._read_stopwatch() + seconds
        may_read = (yield from self._process_recovered(until)) and seconds > 0
        self._register_splits(ranges if may_read else [])
        # At the end of input the final watermark replaces those of the ranges.
        deferred: list[tuple[OpenSplitRange, int, bool]] = []
        while ranges and may_read and self.requests.wait():
            records_before = self.records_in
            self._start_split(ranges[0])
            is_read = yield from self._read_range(ranges[0], until)
            deferred.append((ranges[0], self.records_in - records_before, is_read))
            if not ends:
                self._end_range(*deferred.pop())
            if is_read:
                del ranges[0]
            if self._read_stopwatch() >= until:
                break
        self._pending_splits.leave(ranges)
        if ends and ranges:
            # Ranges are left, so that this is not the end yet.
            for split_range, records, is_read in deferred:
                self._start_split(split_range)
                self._end_range(split_range, records, is_read)
        self._advance_time()
        self._finish_requests()
        if ends and not ranges and not self.recovered.pending and not time.has_ended:
            time.advance(MAX_WATERMARK)
        if time.has_ended:
            yield from self._end()
        yield from self._chain.flush()

    def _start_split(self, split_range: OpenSplitRange) -> None:
        for operator in self._watermark_operators:
            operator.start_split(split_range.split)

    def _register_splits(self, ranges: list[OpenSplitRange]) -> None:
        """Register splits that are read concurrently before any is read, so that watermarks wait for them."""
        for split_range in ranges:
            if split_range.split is not None and not self._operator.reader.in_turn(split_range.split_range):
                self._start_split(split_range)

    def _current_loop(self) -> Loop:
        """Return the loop over the source's records; after many records a vectorized one where possible."""
        if self._records_until_vectorized <= 0:
            self._records_until_vectorized = 1 << 62
            self._loop = self._chain.compiler.column_function(self._loop)
        return self._loop

    def _read_range(self, split_range: OpenSplitRange, until: float) -> Generator[Outgoing, None, bool]:
        """Read a split range until a time of the stopwatch; return whether it is read to its end."""
        loop, head = self._current_loop(), self._head
        while (batch := self._guard.call(split_range.batch, head)) is not None:
            start = split_range.offset
            end = self._run_chunks(loop, self._chunk_sizers[SPLIT_RANGES], batch, start, len(batch), until)
            records = split_range.advance(end)
            self._records_until_vectorized -= records
            self.records_in += sum(map(len, batch[start:end])) if head.operator.emits_batches else records
            yield from self._chain.full_blocks()
            if self._read_stopwatch() >= until or self.requests.is_exhausted:
                return self._guard.call(split_range.batch, head) is None
        return True

    def _end_range(self, split_range: OpenSplitRange, records: int, is_read: bool) -> None:
        """Advance watermarks after records of a split range, and end its split if it was the last range."""
        self._emit_periodic_watermarks(records)
        if is_read and self._operator.reader.ends_split(split_range.split_range):
            for operator in self._watermark_operators:
                operator.end_split(split_range.split)
