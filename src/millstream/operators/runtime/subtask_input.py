"""The input side of a subtask: runs the loops on records chunk by chunk within a time slice, and advances time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from functools import partial

from millstream.common.aliases import Value
from millstream.common.watermark_strategy import MAX_WATERMARK
from millstream.operators.async_io import AsyncOperator
from millstream.operators.diagnostics.subtask_diagnostics import DiagnosticsCollector
from millstream.operators.diagnostics.user_code_guard import Guard
from millstream.operators.runtime.batch_input import BatchInput
from millstream.operators.runtime.blocks import Layout
from millstream.operators.runtime.chain import ChainNode
from millstream.operators.runtime.input_gate import Queue
from millstream.operators.runtime.messages import LevelTask
from millstream.operators.runtime.record_writer import Edge
from millstream.operators.runtime.recovered_input import RecoveredInput
from millstream.operators.runtime.runtime_snapshot import PendingBlocks, PendingRange, RuntimeSnapshot
from millstream.operators.runtime.subtask_chain import Loop, Outgoing, SubtaskChain

# Target duration of a chunk: hundreds of times the cost of starting one and reading the clock. Not longer, because a
# started chunk has to be finished even if records suddenly become slow.
_TARGET_SECONDS = 0.0002
_MAX_RECORDS = 2048


class ChunkSizer:
    """Adapts the number of records per call of a generated loop to the time they take.

    Args:
        stopwatch: returns elapsed seconds.
        max_records: the maximum number of records.
    """

    def __init__(self, stopwatch: Callable[[], float], max_records: int = _MAX_RECORDS) -> None:
        self._stopwatch = stopwatch
        self._max_records = min(max_records, _MAX_RECORDS)
        # The cost of a record is unknown before the first.
        self.size = 1
        self._start = 0.0

    def begin(self) -> float:
        """Start a chunk; return the time."""
        self._start = self._stopwatch()
        return self._start

    def finish(self, records: int) -> float:
        """Finish a chunk and start the next; return the time."""
        now = self._stopwatch()
        seconds, self._start = now - self._start, now
        if seconds > _TARGET_SECONDS:
            self.size = max(int(records * _TARGET_SECONDS / seconds), 1)
        elif seconds < _TARGET_SECONDS / 2 and records == self.size < self._max_records:
            self.size = min(2 * self.size, self._max_records)
        return now


# Maximum wait of an epoch, within its slice, for a response when async operators are at capacity.
_WAIT_SECONDS = 0.1


class RequestCapacity:
    """The async operators of a subtask.

    Attributes:
        deadline: the time of the stopwatch until which this epoch waits for operators at capacity.
    """

    def __init__(self, nodes: Sequence[ChainNode], guard: Guard, stopwatch: Callable[[], float]) -> None:
        self._operators = [(n.operator, n) for n in nodes if isinstance(n.operator, AsyncOperator)]
        self._guard = guard
        self._stopwatch = stopwatch
        self.deadline = -math.inf

    @property
    def max_chunk(self) -> int | None:
        """The maximum number of records per chunk, because capacity is checked between two chunks; None: no limit."""
        return min((operator.capacity for operator, _ in self._operators), default=None)

    @property
    def is_exhausted(self) -> bool:
        """Whether an operator is at capacity."""
        return any(operator.is_full for operator, _ in self._operators)

    @property
    def has_requests(self) -> bool:
        """Whether requests are in flight."""
        return any(operator.is_in_flight for operator, _ in self._operators)

    def wait(self) -> bool:
        """Wait for responses while operators are at capacity; return whether more records may be processed.

        Pending input waits meanwhile, except broadcast input. The driver pauses the sources.
        """
        while (full := next((o for o, _ in self._operators if o.is_full), None)) is not None:
            seconds = self.deadline - self._stopwatch()
            if seconds <= 0 or not full.wait(seconds if seconds == math.inf else min(seconds, _WAIT_SECONDS)):
                self.deadline = -math.inf
                return False
            self.emit_responses()
        return True

    def emit_responses(self) -> None:
        """Emit the responses that have arrived."""
        for operator, node in self._operators:
            self._guard.call(operator.emit_responses, node)

    def finish(self) -> None:
        """Wait for all requests and emit their responses."""
        for operator, node in self._operators:
            self._guard.call(operator.finish, node)

    def cancel(self) -> None:
        """Cancel the requests in flight and start no more."""
        for operator, _ in self._operators:
            operator.end_requests()

    def poll_after_seconds(self) -> float | None:
        """Return when to poll requests in flight; None without requests."""
        return min(filter(None, [o.poll_after_seconds() for o, _ in self._operators]), default=None)


# Interval between polls of processing-time timers while records are processed.
TIMER_POLL_SECONDS = 0.002

# Maximum batches of rows per call of a generated loop.
MAX_BATCHES_PER_CHUNK = 4

# Returns the loop over blocks of a layout that arrive over an edge.
FindLoop = Callable[[Edge, Layout], Loop]


class SubtaskInput(ABC):
    """The input of a subtask: split ranges of a source, or blocks of its channels.

    Attributes:
        ended: whether all input has ended and the operators have finished.
        records_in: the number of records processed in this epoch.
        bytes_in: the number of bytes received in this epoch.
        requests: the requests in flight of async operators.
        recovered: in-flight input of channels that no longer exist.
    """

    _task: LevelTask
    # Input that must be complete before it is processed.
    _batch: BatchInput | None = None

    def __init__(self, chain: SubtaskChain, diagnostics: DiagnosticsCollector) -> None:
        self.ended = False
        self.records_in = self.bytes_in = 0
        self._chain = chain
        self._guard = chain.guard
        self._head = chain.vertex.head
        self._input_log = chain.input_log
        self._diagnostics = diagnostics
        self._stopwatch = chain.services.stopwatch
        self._watermark_operators = chain.watermark_operators
        self._follows_clock = chain.follows_clock
        self.requests = RequestCapacity(chain.nodes, chain.guard, self._stopwatch)
        self.recovered = RecoveredInput(chain.vertex, chain.index)
        # The chunk sizer of each loop.
        self._chunk_sizers = defaultdict[int, ChunkSizer](self._chunk_sizer())
        self._now = 0.0
        self._next_timer_poll = -math.inf

    def _chunk_sizer(self) -> Callable[[], ChunkSizer]:
        limits = [] if self.requests.max_chunk is None else [self.requests.max_chunk]
        if self._head.operator.takes_batches or (self._head.operator.emits_batches and self._chain.vertex.is_source):
            # A batch may have a thousand times the rows of the previous one.
            limits = [min(MAX_BATCHES_PER_CHUNK, *limits)] if limits else [MAX_BATCHES_PER_CHUNK]
        return partial(ChunkSizer, self._stopwatch, *limits)

    def begin(self, task: LevelTask) -> None:
        """Start an epoch."""
        self._task = task
        self.records_in = self.bytes_in = 0

    # --- the input that one epoch leaves to the next

    @property
    def pending_ranges(self) -> Sequence[PendingRange]:
        """Assigned split ranges that the source has not read."""
        return ()

    @property
    def pending_blocks(self) -> Sequence[PendingBlocks]:
        """Received input that is not processed."""
        return ()

    def restore(self, snapshot: RuntimeSnapshot) -> None:
        """Restore pending input from a runtime snapshot."""
        self.ended = snapshot.ended
        self._guard.call(partial(self.recovered.restore, snapshot.recovered_blocks), self._head)

    # --- records

    def _process_recovered(self, until: float) -> Generator[Outgoing, None, bool]:
        """Process recovered input; return whether all of it is processed."""
        queues, must_stop = self.recovered.open(), not self.requests.wait()
        while queues and not must_stop:
            queue, chain = queues[0], self._chain.recovered_input_chain()
            while not queue.is_empty and not must_stop:
                self._process_queue(partial(chain.loop, queue.node_index), queue.edge, queue, until)
                # Before any watermark.
                yield from chain.drain()
                yield from self._chain.full_blocks()
                must_stop = self._now >= until or not self.requests.wait()
            if queue.is_empty:
                del queues[0]
        self.recovered.leave(queues)
        return not queues

    def _process_queue(
        self, find_loop: FindLoop, edge: Edge, queue: Queue, until: float, max_records: int | None = None
    ) -> None:
        """Process the records of a queue before its next control element."""
        block, start, end = queue.records()
        if start == end:
            return
        if edge.partitioner.by_key:
            self._diagnostics.sample_keys(edge, block, start, end)
        log = self._input_log
        if log.is_on:
            log.begin_block(edge, queue.layout, queue.body, start)
            log.offset = start
        if self._batch is not None and not edge.partitioner.broadcasts:
            self._batch.add(edge, block.part(start, end), self._task.epoch)
        elif until == math.inf and not self._follows_clock:
            self._guard.loop(find_loop(edge, block.layout), block.part(start, end).content)
        else:
            end = end if max_records is None else min(end, start + max_records)
            loop, sizer = find_loop(edge, block.layout), self._chunk_sizers[edge.id]
            end = self._run_chunks(loop, sizer, block.content, start, end, until, block.width)
        self.records_in += block.layout.count(block, start, end)
        queue.advance(end)
        if log.is_on:
            log.end_block(end)

    def _run_chunks(
        self,
        loop: Loop,
        sizer: ChunkSizer,
        records: Sequence[Value],
        start: int,
        end: int,
        until: float,
        width: int = 1,
    ) -> int:
        """Run a loop over records in chunks, and fire timers in between.

        Args:
            loop: the loop.
            sizer: the chunk sizer of the loop.
            records: a sequence that can be sliced.
            start: the number of records already processed.
            end: the number of records to process up to.
            until: the time of the stopwatch at which to stop, after at least one chunk.
            width: the number of items per record.

        Returns:
            The number of records processed.
        """
        items = len(records)
        sizer.begin()
        while start < end:
            stop = min(start + sizer.size, end)
            self._input_log.offset = start
            self._guard.loop(
                loop, records if (stop - start) * width == items else records[start * width : stop * width]
            )
            now = self._now = sizer.finish(stop - start)
            start = stop
            if self._follows_clock and now >= self._next_timer_poll:
                for operator in self._watermark_operators:
                    operator.keep_active()
                self._advance_time()
                self._next_timer_poll = now + TIMER_POLL_SECONDS
            if now >= until or (not self.requests.wait() and until < math.inf):
                break
        return start

    # --- time

    def _read_stopwatch(self) -> float:
        self._now = self._stopwatch()
        return self._now

    @abstractmethod
    def _splits_with_input(self) -> Collection[Value]:
        """Return the splits that have pending input; None is input without a split."""

    def _advance_time(self) -> None:
        """Fire due timers; splits with pending input are not idle."""
        expected = list(self._splits_with_input())
        # Splits that wait for slower ones (alignment) are not idle either.
        expected += self._task.paused_splits.get(self._chain.vertex.id, ())
        for operator in self._watermark_operators:
            operator.expect_input(expected)
        self._chain.on_processing_time()

    def before_watermark(self, watermark: int) -> None:
        """Process the retained input of BATCH before the final watermark."""
        if watermark == MAX_WATERMARK and self._batch is not None:
            self._process_batch_input(self._batch)
        if self._input_log.is_on:
            self._input_log.add_watermark(watermark)

    def _process_batch_input(self, batch: BatchInput) -> None:
        for blocks in batch.by_key():
            for edge, block in blocks:
                self._guard.loop(self._chain.loop(edge, block.layout), block.content)
                self.requests.wait()
            self._guard.call(self._head.operator.on_end_of_key, self._head)

    def _emit_periodic_watermarks(self, records: int) -> None:
        for operator in self._watermark_operators:
            operator.end_range(records)

    # --- the end of an epoch, and of the input

    def _finish_requests(self) -> None:
        """Complete all requests if the slice is infinite: the next epoch must not depend on this one."""
        if self._task.slice == math.inf:
            self.requests.finish()

    def _end(self) -> Iterator[Outgoing]:
        """Finish at the end of input, unless requests are in flight and the next epoch can wait for them."""
        self.requests.emit_responses()
        if self.requests.has_requests and self._task.slice < math.inf:
            return
        self.ended = True
        # Due processing-time timers still fire; later ones never do.
        self._chain.on_processing_time()
        yield from self._chain.finish()
