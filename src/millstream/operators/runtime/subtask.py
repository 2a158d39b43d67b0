"""A subtask: one parallel instance of a vertex, with its chain, its channels and its state."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from millstream.common.errors import RecordTooLargeError
from millstream.common.faults import fault_point
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.operators.async_io import AsyncOperator
from millstream.operators.base import OperatorSetup, RuntimeServices
from millstream.operators.diagnostics.epoch_input_log import EpochInputLog
from millstream.operators.diagnostics.subtask_diagnostics import DiagnosticsCollector
from millstream.operators.diagnostics.user_code_guard import Guard
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.functions.metrics import MetricGroup
from millstream.operators.reduce import ReduceOperator
from millstream.operators.runtime.batch_input import BatchInput
from millstream.operators.runtime.blocks import Frame, Layout
from millstream.operators.runtime.budget import Budget
from millstream.operators.runtime.chain import ChainCompiler
from millstream.operators.runtime.channels import Channel
from millstream.operators.runtime.event_time import EventTime
from millstream.operators.runtime.input_gate import InputGate, Queue, ReadyChannels
from millstream.operators.runtime.messages import LevelTask, Progress, SubtaskReport
from millstream.operators.runtime.partitioners import PartitionerContext
from millstream.operators.runtime.pending_splits import OpenSplitRange, PendingSplitRanges
from millstream.operators.runtime.record_writer import Edge, EdgeWriter
from millstream.operators.runtime.recovered_input import RecoveredInput, RecoveredInputChain
from millstream.operators.runtime.runtime_snapshot import SPLIT_RANGES, RuntimeSnapshot, decode, encode
from millstream.operators.runtime.subtask_state import SubtaskState
from millstream.operators.runtime.time_slice import ChunkSizer
from millstream.operators.runtime.vertex import JobSettings, Vertex
from millstream.operators.sink import InvokeOperator, SinkOperator
from millstream.operators.source import SourceOperator, SplitRange
from millstream.operators.watermarks import WatermarkOperator
from millstream.state.keyed import KeyedState, StateStorage, Version

# Above this ratio of keys to records, an epoch's keys count as mostly new.
MANY_NEW_KEYS = 0.1

# Interval between polls of processing-time timers while records are processed.
TIMER_POLL_SECONDS = 0.002

# Maximum wait of an epoch, within its slice, for a response when async operators are at capacity.
CAPACITY_WAIT_SECONDS = 0.1

# Maximum batches of rows per call of a generated loop.
MAX_BATCHES_PER_CHUNK = 4

# Number of records after which a source subtask compiles a vectorized loop over number ranges.
VECTORIZE_AFTER = 1 << 20

Loop = Callable[[Iterable[Any]], None]
# Returns the loop over blocks of a layout that arrive over an edge.
FindLoop = Callable[[Edge, Layout], Loop]
# Loops by edge and block layout.
Loops = dict[tuple[int, Layout], Loop]

_DONE = object()

# An outgoing block: edge, target subtask, block.
Outgoing = tuple[Edge, int, bytes]


class Subtask:
    """Runs one parallel instance of a vertex, epoch by epoch."""

    _task: LevelTask

    def __init__(
        self,
        vertex: Vertex,
        index: int,
        parallelisms: dict[int, tuple[int, int]],
        settings: JobSettings,
        storage: StateStorage,
        services: RuntimeServices,
        budget: Budget | None = None,
    ) -> None:
        self._budget = budget or Budget()
        self.vertex = vertex
        self.index = index
        self.ended = False
        self._settings = settings
        self._surroundings = services
        # The last runtime snapshot of this process, to detect that another process has run since.
        self._last_snapshot = b""
        self._attempt = ""
        self._notified = 0
        self._must_reannounce = False
        self._opened = False
        self._records_in = self._bytes_in = 0
        self._nodes = vertex.nodes
        self._operators = [(n.id, n.operator) for n in vertex.nodes]
        self._metrics: dict[str, MetricGroup] = {}
        self._states = SubtaskState(index, storage, services.clock, settings)
        self._input_log = EpochInputLog(vertex, settings.batch)
        self._guard = Guard(vertex, index, settings, self._states.by_id, self._input_log)
        self._channels = {
            (edge.id, sender): Channel(edge, sender)
            for edge in vertex.in_edges
            for sender in range(parallelisms[edge.source][0])
            if index in edge.partitioner.targets(sender, parallelisms[edge.source][0], vertex.parallelism)
        }
        self._parallelisms = parallelisms
        self._writers = {e.id: self._writer(e, parallelisms[e.target]) for e in vertex.out_edges}
        self._time = EventTime(
            self._nodes, self._channels.values(), self._writers, self._guard, before=self._before_watermark
        )
        self._compiler = self._prepare()
        # The loops for epochs with few keys, and for epochs with many new keys.
        self._loops: dict[bool, Loops] = {False: {}, True: {}}
        self._inputs = self._loops[False]
        self._read = self._compiler.source_function() if vertex.is_source else None
        self._until_columns = VECTORIZE_AFTER
        self._batch = self._batch_input()
        self._watermark_operators = [n.operator for n in self._nodes if isinstance(n.operator, WatermarkOperator)]
        self._async_operators = [(n.operator, n) for n in self._nodes if isinstance(n.operator, AsyncOperator)]
        # In BATCH there is no processing time.
        self._follows_clock = not settings.batch and any(n.operator.follows_clock for n in self._nodes)
        # The chunk sizer of each loop. Async operators check their capacity between two chunks.
        most = sorted(o.capacity for o, _ in self._async_operators)[:1]
        first = vertex.head.operator
        if first.takes_batches or (first.emits_batches and vertex.is_source):
            # A batch may have a thousand times the rows of the previous one.
            most = [min(MAX_BATCHES_PER_CHUNK, *most)] if most else [MAX_BATCHES_PER_CHUNK]
        self._chunk_sizers = defaultdict[int, ChunkSizer](partial(ChunkSizer, services.stopwatch, *most))
        self._now = 0.0
        self._sinks = [n.operator.taken for n in self._nodes if isinstance(n.operator, (SinkOperator, InvokeOperator))]
        self._next_timer_poll = -math.inf
        self._pending_splits = PendingSplitRanges()
        self._todo: list[OpenSplitRange] = []
        # Until when, by the stopwatch, this epoch waits for operators at capacity.
        self._capacity_deadline = -math.inf
        self._input_gate = InputGate(self._channels)
        self._diagnostics = DiagnosticsCollector(self._operators, services, index, vertex.parallelism)
        self._recovered = RecoveredInput(vertex, index)
        self._recovered_chain: RecoveredInputChain | None = None
        self._broadcast = [c for c in self._channels.values() if c.edge.partitioner.broadcasts]
        # True before the first input is processed.
        self._is_start = True

    def _writer(self, edge: Edge, next_vertex: tuple[int, int]) -> EdgeWriter:
        parallelism, max_parallelism = next_vertex
        targets = edge.partitioner.targets(self.index, self.vertex.parallelism, parallelism)
        return EdgeWriter(edge, targets, PartitionerContext(self.index, parallelism, max_parallelism))

    def _prepare(self) -> ChainCompiler:
        compiler = ChainCompiler(self._nodes, self._writers, self._settings.inlining)
        for node in self._nodes:
            state, own = self._states.keyed(node), self._states.own(node)
            metrics = self._metrics[node.id] = MetricGroup((node.name,))
            context = RuntimeContext(
                node.name,
                self.index,
                self.vertex.parallelism,
                1 if self.vertex.non_parallel else self.vertex.max_parallelism,
                self._settings.attempt,
                self._settings.job_parameters,
                metrics,
                state,
            )
            node.operator.prepare(
                OperatorSetup(context, state, _reject_emit, self._settings.batch, self._surroundings, own, self._budget)
            )
        compiler.survey(self.vertex.in_edges)
        for place, node in enumerate(self._nodes):
            if isinstance(node.operator, AsyncOperator) or node.operator.makes_watermarks:
                node.operator.advance = partial(self._time.pass_on, place)
            if node.operator.emits_later:
                node.operator.setup.emit = compiler.emit_function(node)
        return compiler

    def _loop(self, edge: Edge, layout: Layout) -> Loop:
        """Return the loop over blocks of a layout that arrive over an edge."""
        found = self._inputs.get((edge.id, layout))
        if found is None:
            many_new_keys = self._inputs is self._loops[True]
            found = self._inputs[edge.id, layout] = self._compiler.input_function(edge, layout, many_new_keys)
        return found

    def _batch_input(self) -> BatchInput | None:
        """Return the buffer for input that must be complete before it is processed; None if none is needed."""
        head, edges = self.vertex.head, self.vertex.in_edges
        if not (self._settings.batch and head.operator.keyed) or head.operator.takes_batches:
            return None
        # A reduce over records without timestamps has the same result in arrival order.
        if isinstance(head.operator, ReduceOperator) and not any(e.layout.has_timestamp for e in edges):
            return None
        return BatchInput(self._states.by_id[head.id], edges)

    # --- life cycle

    def catch_up(self, carried: bytes) -> None:
        """Restore the snapshot of the last acknowledged epoch if it ran in another process."""
        if carried != self._last_snapshot:
            self._restore(carried)

    def begin(self, task: LevelTask, attempt: str) -> None:
        """Start an epoch from the acknowledged state."""
        self._task, self._attempt = task, attempt
        self._guard.epoch = task.epoch
        self._records_in = self._bytes_in = 0
        for writer in self._writers.values():
            writer.records_out = writer.bytes_out = 0
        for taken in self._sinks:
            taken.records = 0 if taken.records is not None else None
        self._load_state(task.held_epoch)
        self._input_log.begin(self._states.by_id.get(self.vertex.head.id), self.vertex.head.operator.watermark)
        if not self._opened:
            self._opened = True
            for node in self._nodes:
                self._guard.call(node.operator.open, node)
        name = f"{self.index}-{task.epoch}-{attempt}"
        for node in self._nodes:
            if isinstance(node.operator, SinkOperator):
                transaction = f"{self._settings.writes_as}-{node.id}-{name}"
                self._guard.call(partial(node.operator.writer.begin, transaction), node)
            if task.last_checkpoint > self._notified:
                self._guard.call(partial(node.operator.notify_checkpoint_complete, task.last_checkpoint), node)
        self._notified = task.last_checkpoint

    def _load_state(self, in_memory: int | None) -> None:
        self._states.load(self._task.state_files.get((self.vertex.id, self.index), {}), in_memory, self._guard)

    def keep_state(self, task: LevelTask, attempt: str) -> SubtaskReport:
        """Write the remaining state of a finished subtask if required, without calling functions."""
        self._task, self._attempt, self._guard.epoch = task, attempt, task.epoch
        self._load_state(task.held_state_epochs.get((self.vertex.id, self.index)))
        files = self._states.write(task, attempt, True, self._guard)
        return SubtaskReport(
            vertex=self.vertex.id,
            subtask=self.index,
            records_in=0,
            records_out=0,
            bytes_out=0,
            state_files=files,
            state_checksums=self._states.checksums(files),
            state_bytes=self._states.take_written(),
            committables={},
            watermark=self._time.watermark,
            metrics={name: value for group in self._metrics.values() for name, value in group.values()},
            runtime_snapshot=self._last_snapshot,
            next_wake=None,
            aligned={},
            ended=True,
            tables={},
            exported=self._states.export(task, attempt, self.vertex.max_parallelism),
        )

    def read_splits(self, ranges: list[SplitRange], ends: bool, seconds: float) -> Iterator[Outgoing]:
        """Read split ranges for a number of seconds: first the pending ones, then those of this epoch."""
        operator = self.vertex.head.operator
        assert isinstance(operator, SourceOperator)
        self._announce()
        self._todo = self._pending_splits.open(operator.reader)
        self._advance_time()
        todo = self._todo
        todo += [
            OpenSplitRange(operator.reader, operator.reader.split_of(split_range), split_range, 0)
            for split_range in ranges
        ]
        until = self._capacity_deadline = self._read_stopwatch() + seconds
        may_read = (yield from self._process_recovered(until)) and seconds > 0
        waiting: list[tuple[OpenSplitRange, int, bool]] = []
        self._register_splits(operator, todo if may_read else [])
        while todo and may_read and self._await_capacity():
            before = self._records_in
            for generator in self._watermark_operators:
                generator.start_split(todo[0].split)
            is_read = yield from self._read_range(todo[0], until)
            waiting.append((todo[0], self._records_in - before, is_read))
            if not ends:
                self._after_range(operator, *waiting.pop())
            if is_read:
                del todo[0]
            if self._read_stopwatch() >= until:
                break
        self._pending_splits.leave(todo)
        if ends and todo:
            # At the end of input the final watermark would suffice, but this is not the end.
            for passed in waiting:
                for generator in self._watermark_operators:
                    generator.start_split(passed[0].split)
                self._after_range(operator, *passed)
        self._advance_time()
        self._finish_requests()
        if ends and not todo and not self._recovered.pending and not self._time.is_over:
            self._time.advance(MAX_WATERMARK)
        if self._time.is_over:
            yield from self._end()
        self._flush()
        yield from self._drain()

    def _register_splits(self, operator: SourceOperator, todo: list[OpenSplitRange]) -> None:
        """Register splits that are read concurrently before any is read, so that watermarks wait for them."""
        for split_range in todo:
            if split_range.split is not None and not operator.reader.in_turn(split_range.split_range):
                for generator in self._watermark_operators:
                    generator.start_split(split_range.split)

    def _source_loop(self) -> Loop:
        """Return the loop over a source's records; after many records a vectorized one where possible."""
        assert self._read is not None
        if self._until_columns <= 0:
            self._until_columns = 1 << 62
            self._read = self._compiler.column_function(self._read)
        return self._read

    def _read_range(self, split_range: OpenSplitRange, until: float) -> Generator[Outgoing, None, bool]:
        """Read a split range until a time of the stopwatch; return whether it is read to its end."""
        run, head = self._source_loop(), self.vertex.head
        while (batch := self._guard.call(split_range.batch, head)) is not None:
            before = split_range.at
            at = self._run_chunks(run, self._chunk_sizers[SPLIT_RANGES], batch, before, len(batch), until)
            read = split_range.took(at)
            self._until_columns -= read
            self._records_in += sum(map(len, batch[before:at])) if head.operator.emits_batches else read
            yield from self._full_blocks()
            if self._read_stopwatch() >= until or self._at_capacity():
                return self._guard.call(split_range.batch, head) is None
        return True

    def _after_range(self, operator: SourceOperator, split_range: OpenSplitRange, records: int, is_read: bool) -> None:
        """Advance watermarks after records of a split range, and end its split if it was the last range."""
        self._tick(records)
        if is_read and operator.reader.ends_split(split_range.split_range):
            for generator in self._watermark_operators:
                generator.end_split(split_range.split)

    def take_frames(self, frames: list[Frame], seconds: float) -> Iterator[Outgoing]:
        """Process input for a number of seconds: first the pending blocks, then those of this epoch."""
        self._announce()
        self._bytes_in = sum(len(f.body) for f in frames)
        for state in self._states.by_id.values():
            state.took(self._bytes_in)
        self._advance_time()
        turns = self._input_gate.open(frames)
        until = self._capacity_deadline = self._read_stopwatch() + seconds
        if self._waits_for_broadcast():
            yield from self._process_channels(turns, until, only_broadcast=True)
        if not self._waits_for_broadcast():
            is_all = yield from self._process_recovered(until)
            yield from self._process_channels(turns, until, only_broadcast=not is_all)
        self._input_gate.leave(turns)
        self._finish_requests()
        if not self.ended:
            self._tick(self._records_in)
            self._advance_time()
        self._flush()
        yield from self._drain()

    def _waits_for_broadcast(self) -> bool:
        """Return whether, in BATCH, broadcast input must end first; keyed input is buffered anyway."""
        is_beside_others = self._settings.batch and 0 < len(self._broadcast) < len(self._channels)
        return is_beside_others and self._batch is None and not all(c.ended for c in self._broadcast)

    def _process_channels(self, turns: ReadyChannels, until: float, only_broadcast: bool) -> Iterator[Outgoing]:
        if not only_broadcast:
            # Where all channels had ended before the restore, no end generator arrives again.
            yield from self._end_if_all_ended()
        broadcast_first, is_over = self._is_start or self._settings.batch, not self._await_capacity()
        # Broadcast input is never left over: all subtasks must have seen the same at the end of an epoch.
        while (queue := turns.next(is_over or only_broadcast, broadcast_first)) is not None:
            self._is_start = False
            channel, inputs = queue.channel, turns.edges()
            # Several inputs alternate by equal numbers of records: the smallest chunk size of all.
            most = None if len(inputs) == 1 else min(self._chunk_sizers[edge.id].size for edge in inputs)
            self._take_records(self._loop, channel.edge, queue, until, most)
            yield from self._full_blocks()
            control = queue.take_control()
            if control is not None:
                self._time.take(channel, control)
                self._read_stopwatch()
                yield from self._end_if_all_ended()
            turns.had_turn(queue)
            is_over = self._now >= until or not self._await_capacity()

    def _process_recovered(self, until: float) -> Generator[Outgoing, None, bool]:
        """Process recovered input; return whether all of it is processed."""
        queues, is_over = self._recovered.open(), not self._await_capacity()
        while queues and not is_over:
            queue, way = queues[0], self._recovered_input_chain()
            while not queue.is_empty and not is_over:
                self._take_records(partial(way.loop, queue.place), queue.edge, queue, until)
                # Before any watermark.
                yield from way.drain()
                yield from self._full_blocks()
                is_over = self._now >= until or not self._await_capacity()
            if queue.is_empty:
                del queues[0]
        self._recovered.leave(queues)
        return not queues

    def _recovered_input_chain(self) -> RecoveredInputChain:
        if self._recovered_chain is None:
            writers = {i: self._writer(w.edge, self._parallelisms[w.edge.target]) for i, w in self._writers.items()}
            self._recovered_chain = RecoveredInputChain(
                ChainCompiler(self._nodes, writers, self._settings.inlining), writers.values()
            )
        return self._recovered_chain

    def report(self) -> SubtaskReport:
        """Finish the epoch: write state, stage output, and report."""
        for node in self._nodes:
            node.operator.settle()
        head = self._states.by_id.get(self.vertex.head.id)
        if head is not None:
            self._inputs = self._loops[head.new_keys() > MANY_NEW_KEYS * self._records_in]
        task = self._task
        files = self._save_state(task.writes_state)
        exported = self._states.export(task, self._attempt, self.vertex.max_parallelism)
        staged: dict[str, Any] = {}
        for node in self._nodes:
            if isinstance(node.operator, SinkOperator):
                prepare = partial(node.operator.writer.prepare_commit, task.flush or self.ended)
                committable = self._guard.call(prepare, node)
                if committable is not None:
                    staged[node.id] = committable
        fault_point("task.after-stage")
        if self.ended:
            self.close()
        counts = [taken.records for taken in self._sinks]
        return SubtaskReport(
            vertex=self.vertex.id,
            subtask=self.index,
            records_in=self._records_in,
            records_out=sum(w.records_out for w in self._writers.values()),
            bytes_out=sum(w.bytes_out for w in self._writers.values()),
            state_files=files,
            state_checksums=self._states.checksums(files),
            state_bytes=self._states.take_written(),
            committables=staged,
            # In a source's chain, event time starts at the watermark operator.
            watermark=max(
                [self._time.watermark, *(n.operator.sent for n in self._nodes if n.operator.makes_watermarks)]
            ),
            metrics={name: value for group in self._metrics.values() for name, value in group.values()},
            runtime_snapshot=self._snapshot(),
            next_wake=None if self.ended else self._next_wake(),
            poll_after_seconds=min(
                filter(None, [o.poll_after_seconds() for o, _ in self._async_operators]), default=None
            ),
            at_capacity=self._at_capacity(),
            holds_state=self.ended and not task.writes_state and bool(files),
            aligned={
                group: Progress(watermark, splits)
                for group, watermark, splits in (
                    m.progress() for m in self._watermark_operators if m.strategy.alignment
                )
            },
            ended=self.ended,
            tables=self.tables() if task.checkpoint is not None else {},
            exported=exported,
            sink_records=None if None in counts else sum(filter(None, counts)),
            bytes_in=self._bytes_in,
            diagnostics=self._diagnostics.look(self._channels.values(), self._states.by_id, self.ended),
            state_was_local=self._states.was_here(),
        )

    def _save_state(self, keep: bool) -> dict[str, Version]:
        """Write state changes to files or hold them in memory; return the latest files."""
        if keep or self.ended:
            # A finished subtask is not called again when its state is needed later.
            for node in self._nodes:
                self._guard.call(partial(node.operator.snapshot, self._task.epoch), node)
            fault_point("task.before-delta")
        files = self._states.write(self._task, self._attempt, keep, self._guard)
        if keep:
            fault_point("task.after-delta")
        return files

    def _next_wake(self) -> int | None:
        return min(filter(None, [n.operator.next_wake() for n in self._nodes]), default=None)

    def tables(self) -> dict[str, dict[str, dict[str, str]]]:
        """Return the state tables, by state id."""
        return self._states.describe()

    def end_requests(self) -> None:
        """Cancel the requests in flight and start no more."""
        for operator, _ in self._async_operators:
            operator.end_requests()

    def close(self) -> None:
        """Close the functions once."""
        if self._opened:
            self._opened = False
            for node in self._nodes:
                self._guard.call(node.operator.close, node)

    def states(self) -> Iterator[tuple[str, KeyedState]]:
        """Yield the states of its operators with their ids."""
        yield from self._states.by_id.items()

    # --- inside an epoch

    def _take_records(self, loop: FindLoop, edge: Edge, queue: Queue, until: float, most: int | None = None) -> None:
        """Process the records of a queue before its next control element, at most `most`."""
        block, at, end = queue.records()
        if at == end:
            return
        if edge.partitioner.by_key:
            self._diagnostics.saw(edge, block, at, end)
        passed = self._input_log
        if passed.is_on:
            passed.take(edge, queue.layout, queue.body, at)
            passed.at = at
        if self._batch is not None and not edge.partitioner.broadcasts:
            self._batch.add(edge, block.part(at, end), self._task.epoch)
        elif until == math.inf and not self._follows_clock:
            self._guard.loop(loop(edge, block.layout), block.part(at, end).content)
        else:
            end = end if most is None else min(end, at + most)
            run, sizer = loop(edge, block.layout), self._chunk_sizers[edge.id]
            end = self._run_chunks(run, sizer, block.content, at, end, until, block.width)
        self._records_in += block.layout.count(block, at, end)
        queue.took(end)
        if passed.is_on:
            passed.took(end)

    def _run_chunks(
        self, run: Loop, sizer: ChunkSizer, records: Sequence[Any], at: int, end: int, until: float, width: int = 1
    ) -> int:
        """Run a loop over records in chunks, and fire timers in between.

        Args:
            run: the loop.
            sizer: the chunk sizer of the loop.
            records: a sequence that can be sliced.
            at: the number of records already processed.
            end: the number of records to process up to.
            until: the time of the stopwatch at which to stop, after at least one chunk.
            width: the number of items per record.

        Returns:
            The number of records processed.
        """
        items = len(records)
        sizer.begin()
        while at < end:
            to = min(at + sizer.size, end)
            self._input_log.at = at
            self._guard.loop(run, records if (to - at) * width == items else records[at * width : to * width])
            now = self._now = sizer.went(to - at)
            at = to
            if self._follows_clock and now >= self._next_timer_poll:
                for generator in self._watermark_operators:
                    generator.goes_on()
                self._advance_time()
                self._next_timer_poll = now + TIMER_POLL_SECONDS
            if now >= until or (not self._await_capacity() and until < math.inf):
                break
        return at

    def _at_capacity(self) -> bool:
        """Return whether an operator is at capacity."""
        return any(o.is_full for o, _ in self._async_operators)

    def _await_capacity(self) -> bool:
        """Wait for responses while operators are at capacity; return whether more records may be processed.

        Pending input waits meanwhile, except broadcast input. The driver pauses the sources.
        """
        while (full := next((o for o, _ in self._async_operators if o.is_full), None)) is not None:
            left = self._capacity_deadline - self._surroundings.stopwatch()
            if left <= 0 or not full.wait(left if left == math.inf else min(left, CAPACITY_WAIT_SECONDS)):
                self._capacity_deadline = -math.inf
                return False
            self._emit_responses()
        return True

    def _finish_requests(self) -> None:
        """Complete all requests if the slice is infinite or the next epoch must not depend on this one."""
        if self._task.slice == math.inf:
            for operator, node in self._async_operators:
                self._guard.call(operator.finish, node)

    def _emit_responses(self) -> None:
        for operator, node in self._async_operators:
            self._guard.call(operator.emit_answers, node)

    def _read_stopwatch(self) -> float:
        """Read the stopwatch."""
        self._now = self._surroundings.stopwatch()
        return self._now

    def _advance_time(self) -> None:
        """Fire due timers; splits with pending input are not idle."""
        waits = bool(self._input_gate.pending or self._recovered.pending)
        expected = [split_range.split for split_range in self._todo] + [None] * waits
        # Splits that wait for slower ones (alignment) are not idle either.
        expected += self._task.paused_splits.get(self.vertex.id, ())
        for generator in self._watermark_operators:
            generator.expects(expected)
        self._on_processing_time()

    def _before_watermark(self, watermark: int) -> None:
        if watermark == MAX_WATERMARK and self._batch is not None:
            self._process_batch_input(self._batch)
        if self._input_log.is_on:
            self._input_log.advance(watermark)

    def _on_processing_time(self) -> None:
        for node in self._nodes:
            self._guard.call(node.operator.on_processing_time, node)

    def _tick(self, records: int) -> None:
        """Let periodic watermark generators emit."""
        for generator in self._watermark_operators:
            generator.end_share(records)

    def _end_if_all_ended(self) -> Iterator[Outgoing]:
        if self.ended or not all(c.ended for c in self._channels.values()):
            return
        if not self._time.is_over:
            self._time.combine()
        self._tick(self._records_in)
        yield from self._end()

    def _end(self) -> Iterator[Outgoing]:
        """Finish at the end of input, unless requests are in flight and the next epoch can wait for them."""
        self._emit_responses()
        if self._has_requests() and self._task.slice < math.inf:
            return
        self.ended = True
        # Due processing-time timers still fire; later ones never do.
        self._on_processing_time()
        for node in self._nodes:
            steps = self._guard.call(node.operator.finishing, node)
            while self._guard.call(partial(next, steps, _DONE), node) is not _DONE:
                yield from self._full_blocks()
            yield from self._full_blocks()
        for writer in self._writers.values():
            writer.end()

    def _full_blocks(self) -> Iterator[Outgoing]:
        for writer in self._writers.values():
            yield from self._sent(writer, writer.full_blocks())

    def _flush(self) -> None:
        """Flush buffered output: it is not state, and must not be lost with this process."""
        for node in self._nodes:
            if node.operator.holds_back:
                self._guard.call(node.operator.flush, node)

    def _drain(self) -> Iterator[Outgoing]:
        for writer in self._writers.values():
            yield from self._sent(writer, writer.drain())

    def _sent(self, writer: EdgeWriter, blocks: Iterator[tuple[int, bytes]]) -> Iterator[Outgoing]:
        try:
            for target, block in blocks:
                yield writer.edge, target, block
        except RecordTooLargeError as e:
            sender = next(n for n in self._nodes if any(o.edge == writer.edge.id for o in n.outputs))
            raise self._guard.failed(e, sender) from e

    def _process_batch_input(self, batch: BatchInput) -> None:
        head = self.vertex.head
        for blocks in batch.by_key():
            for edge, block in blocks:
                self._guard.loop(self._loop(edge, block.layout), block.content)
                self._await_capacity()
            self._guard.call(head.operator.on_end_of_key, head)

    # --- runtime snapshots

    def _has_requests(self) -> bool:
        return any(o.is_in_flight for o, _ in self._async_operators)

    def _snapshot(self) -> bytes:
        self._last_snapshot = encode(
            watermark=self._time.watermark,
            idle=self._time.is_idle,
            ended=self.ended,
            channels=self._channels,
            operators={i: data for i, o in self._operators if (data := o.carry()) is not None},
            watermarks={i: o.watermark for i, o in self._operators},
            pending_ranges=self._pending_splits.pending,
            pending_blocks=self._input_gate.pending,
            recovered_blocks=self._recovered.pending,
            requests=self._has_requests(),
        )
        return self._last_snapshot

    def _restore(self, carried: bytes) -> None:
        left = decode(carried)
        self._time.watermark, self._time.is_idle, self.ended = left.watermark, left.idle, left.ended
        if left.ended_edges is None:
            for address, before in left.channels.items():
                channel = self._channels[address]
                channel.watermark, channel.idle, channel.ended = before.watermark, before.idle, before.ended
        else:
            self._time.begin_channels(left.ended_edges)
            # Downstream does not know the watermarks of its new channels yet.
            self._must_reannounce = not left.ended
            if self.vertex.is_source and not left.ended:
                # The source ends again, so that the final watermark follows the requests in flight.
                self._time.watermark = MIN_WATERMARK
        self._restore_operators(left)
        self._pending_splits.restore(left.pending_ranges)
        self._input_gate.restore(left.pending_blocks)
        self._guard.call(partial(self._recovered.restore, left.recovered_blocks), self.vertex.head)
        self._last_snapshot = carried

    def _restore_operators(self, left: RuntimeSnapshot) -> None:
        for operator_id, operator in self._operators:
            operator.watermark = left.watermarks.get(operator_id, MIN_WATERMARK)
            if left.operators.get(operator_id) is not None:
                operator.restore(left.operators[operator_id])

    def _announce(self) -> None:
        if not self._must_reannounce:
            return
        self._must_reannounce = False
        if not self.vertex.is_source and self._time.watermark > MIN_WATERMARK:
            self._time.say()
        for node in self._nodes:
            if node.operator.makes_watermarks:
                node.operator.announce()


def _reject_emit(batch: Iterable[Any], timestamp: int | None = None) -> None:
    raise AssertionError("This operator emits outside of its loop without setting emits_later.")
