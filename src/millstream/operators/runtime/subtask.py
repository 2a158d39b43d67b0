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

# With more keys than this for each record, an epoch's keys count as mostly new.
MANY_NEW_KEYS = 0.1

# So often timers that are due are looked for while records are processed, where there can be any.
LOOK_SECONDS = 0.002

# So long an epoch waits for an answer when no more requests can be made, within its slice; then it ends without.
ROOM_SECONDS = 0.1

# So many batches of rows go through a loop at once, at most.
FEW_BATCHES = 4

# So many records a source's subtask reads before it is worth to have numbers go through columns.
VECTORIZE_AFTER = 1 << 20

Loop = Callable[[Iterable[Any]], None]
# Finds the loop over blocks of some layout that came over an edge.
FindLoop = Callable[[Edge, Layout], Loop]
# By the edge that records come over and their layout in a block.
Loops = dict[tuple[int, Layout], Loop]

_DONE = object()

# An address of an outgoing block: (edge, target subtask).
Outgoing = tuple[Edge, int, bytes]


class Subtask:
    """Runs one subtask's share of an epoch."""

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
        # The last that was carried out of here, to see whether it is still what counts.
        self._carried = b""
        self._attempt = ""
        self._notified = 0
        self._must_announce = False
        self._opened = False
        self._records_in = self._bytes_in = 0
        self._nodes = vertex.nodes
        self._operators = [(n.id, n.operator) for n in vertex.nodes]
        self._metrics: dict[str, MetricGroup] = {}
        self._states = SubtaskState(index, storage, services.clock, settings)
        self._passed = EpochInputLog(vertex, settings.batch)
        self._guard = Guard(vertex, index, settings, self._states.by_id, self._passed)
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
        # The loops, for epochs of few keys and for epochs of many new ones.
        self._loops: dict[bool, Loops] = {False: {}, True: {}}
        self._inputs = self._loops[False]
        self._read = self._compiler.source_function() if vertex.is_source else None
        self._until_columns = VECTORIZE_AFTER
        self._batch = self._batch_input()
        self._markers = [n.operator for n in self._nodes if isinstance(n.operator, WatermarkOperator)]
        self._asking = [(n.operator, n) for n in self._nodes if isinstance(n.operator, AsyncOperator)]
        # In BATCH time stands still.
        self._follows_clock = not settings.batch and any(n.operator.follows_clock for n in self._nodes)
        # How many records go through each loop at once, and the time when it was last looked at. Between two pieces
        # somebody looks whether there is room for another.
        most = sorted(o.capacity for o, _ in self._asking)[:1]
        first = vertex.head.operator
        if first.takes_batches or (first.emits_batches and vertex.is_source):
            # The next batch may have a thousand times the rows of the one before.
            most = [min(FEW_BATCHES, *most)] if most else [FEW_BATCHES]
        self._paces = defaultdict[int, ChunkSizer](partial(ChunkSizer, services.stopwatch, *most))
        self._now = 0.0
        self._sinks = [n.operator.taken for n in self._nodes if isinstance(n.operator, (SinkOperator, InvokeOperator))]
        self._look_again = -math.inf
        self._unfinished = PendingSplitRanges()
        self._todo: list[OpenSplitRange] = []
        # Until when, by the stopwatch, this epoch waits for operators that are full.
        self._patient_until = -math.inf
        self._inbox = InputGate(self._channels)
        self._observer = DiagnosticsCollector(self._operators, services, index, vertex.parallelism)
        self._earlier = RecoveredInput(vertex, index)
        self._way: RecoveredInputChain | None = None
        self._broadcast = [c for c in self._channels.values() if c.edge.partitioner.broadcasts]
        # Until it has processed anything.
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
                OperatorSetup(
                    context, state, _not_emitting, self._settings.batch, self._surroundings, own, self._budget
                )
            )
        compiler.survey(self.vertex.in_edges)
        for place, node in enumerate(self._nodes):
            if isinstance(node.operator, AsyncOperator) or node.operator.makes_watermarks:
                node.operator.advance = partial(self._time.pass_on, place)
            if node.operator.emits_later:
                node.operator.setup.emit = compiler.emit_function(node)
        return compiler

    def _loop(self, edge: Edge, layout: Layout) -> Loop:
        """Return the loop over blocks of some layout that come over an edge."""
        found = self._inputs.get((edge.id, layout))
        if found is None:
            many_new_keys = self._inputs is self._loops[True]
            found = self._inputs[edge.id, layout] = self._compiler.input_function(edge, layout, many_new_keys)
        return found

    def _batch_input(self) -> BatchInput | None:
        """Return where input waits until all has come; None when it need not."""
        head, edges = self.vertex.head, self.vertex.in_edges
        if not (self._settings.batch and head.operator.keyed) or head.operator.takes_batches:
            return None
        # A reduce over records without timestamps gives the same in arrival order.
        if isinstance(head.operator, ReduceOperator) and not any(e.layout.has_timestamp for e in edges):
            return None
        return BatchInput(self._states.by_id[head.id], edges)

    # --- life

    def catch_up(self, carried: bytes) -> None:
        """Take up what an acknowledged epoch, here or in another process, has left."""
        if carried != self._carried:
            self._restore(carried)

    def begin(self, task: LevelTask, attempt: str) -> None:
        """Start an epoch at the acknowledged state."""
        self._task, self._attempt = task, attempt
        self._guard.epoch = task.epoch
        self._records_in = self._bytes_in = 0
        for writer in self._writers.values():
            writer.records_out = writer.bytes_out = 0
        for taken in self._sinks:
            taken.records = 0 if taken.records is not None else None
        self._load_state(task.held_epoch)
        self._passed.begin(self._states.by_id.get(self.vertex.head.id), self.vertex.head.operator.watermark)
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
        """It has ended: write what state it has left, where that is wanted, and have functions do nothing."""
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
            runtime_snapshot=self._carried,
            next_wake=None,
            aligned={},
            ended=True,
            tables={},
            exported=self._states.export(task, attempt, self.vertex.max_parallelism),
        )

    def read_shares(self, shares: list[SplitRange], ends: bool, seconds: float) -> Iterator[Outgoing]:
        """Read a source's shares for so long: first what is unread from before, then those of this epoch."""
        operator = self.vertex.head.operator
        assert isinstance(operator, SourceOperator)
        self._announce()
        self._todo = self._unfinished.open(operator.reader)
        self._let_time_pass()
        todo = self._todo
        todo += [OpenSplitRange(operator.reader, operator.reader.split_of(share), share, 0) for share in shares]
        until = self._patient_until = self._look() + seconds
        may_read = (yield from self._take_earlier(until)) and seconds > 0
        waiting: list[tuple[OpenSplitRange, int, bool]] = []
        self._begin_splits(operator, todo if may_read else [])
        while todo and may_read and self._has_room():
            before = self._records_in
            for marker in self._markers:
                marker.start_split(todo[0].split)
            is_read = yield from self._read_share(todo[0], until)
            waiting.append((todo[0], self._records_in - before, is_read))
            if not ends:
                self._share_passed(operator, *waiting.pop())
            if is_read:
                del todo[0]
            if self._look() >= until:
                break
        self._unfinished.leave(todo)
        if ends and todo:
            # At the end of input the last watermark says all there is to say, but this is not the end.
            for passed in waiting:
                for marker in self._markers:
                    marker.start_split(passed[0].split)
                self._share_passed(operator, *passed)
        self._let_time_pass()
        self._finish_requests()
        if ends and not todo and not self._earlier.pending and not self._time.is_over:
            self._time.advance(MAX_WATERMARK)
        if self._time.is_over:
            yield from self._end()
        self._flush()
        yield from self._drain()

    def _begin_splits(self, operator: SourceOperator, todo: list[OpenSplitRange]) -> None:
        """Have the time of splits waited for that are read beside one another, before any of them is read."""
        for share in todo:
            if share.split is not None and not operator.reader.in_turn(share.share):
                for marker in self._markers:
                    marker.start_split(share.split)

    def _source_loop(self) -> Loop:
        """Return the loop over a source's records; after many of them, one that takes columns where it can."""
        assert self._read is not None
        if self._until_columns <= 0:
            self._until_columns = 1 << 62
            self._read = self._compiler.column_function(self._read)
        return self._read

    def _read_share(self, share: OpenSplitRange, until: float) -> Generator[Outgoing, None, bool]:
        """Read a share until the stopwatch has come so far; tell whether it is read to its end."""
        run, head = self._source_loop(), self.vertex.head
        while (batch := self._guard.call(share.batch, head)) is not None:
            before = share.at
            at = self._run_pieces(run, self._paces[SPLIT_RANGES], batch, before, len(batch), until)
            read = share.took(at)
            self._until_columns -= read
            self._records_in += sum(map(len, batch[before:at])) if head.operator.emits_batches else read
            yield from self._full_blocks()
            if self._look() >= until or self._is_full():
                return self._guard.call(share.batch, head) is None
        return True

    def _share_passed(self, operator: SourceOperator, share: OpenSplitRange, records: int, is_read: bool) -> None:
        """Records of a share have passed: let watermarks follow, and its split end if it does."""
        self._tick(records)
        if is_read and operator.reader.ends_split(share.share):
            for marker in self._markers:
                marker.end_split(share.split)

    def take_frames(self, frames: list[Frame], seconds: float) -> Iterator[Outgoing]:
        """Process for so long what channels have brought: first what waits from before, then this epoch's."""
        self._announce()
        self._bytes_in = sum(len(f.body) for f in frames)
        for state in self._states.by_id.values():
            state.took(self._bytes_in)
        self._let_time_pass()
        turns = self._inbox.open(frames)
        until = self._patient_until = self._look() + seconds
        if self._waits_for_broadcast():
            yield from self._take_turns(turns, until, only_broadcast=True)
        if not self._waits_for_broadcast():
            is_all = yield from self._take_earlier(until)
            yield from self._take_turns(turns, until, only_broadcast=not is_all)
        self._inbox.leave(turns)
        self._finish_requests()
        if not self.ended:
            self._tick(self._records_in)
            self._let_time_pass()
        self._flush()
        yield from self._drain()

    def _waits_for_broadcast(self) -> bool:
        """Tell whether, in BATCH, no other input may be processed yet; with keys it waits until all has come anyway."""
        is_beside_others = self._settings.batch and 0 < len(self._broadcast) < len(self._channels)
        return is_beside_others and self._batch is None and not all(c.ended for c in self._broadcast)

    def _take_turns(self, turns: ReadyChannels, until: float, only_broadcast: bool) -> Iterator[Outgoing]:
        if not only_broadcast:
            # Where all had ended before the channels were made anew, nobody will say so again.
            yield from self._end_if_all_ended()
        broadcast_first, is_over = self._is_start or self._settings.batch, not self._has_room()
        # What is broadcast is never left: all subtasks must have seen the same of it when an epoch ends.
        while (queue := turns.next(is_over or only_broadcast, broadcast_first)) is not None:
            self._is_start = False
            channel, inputs = queue.channel, turns.edges()
            # Where several inputs wait, so many records of each in turn: as many as are quick for all of them.
            most = None if len(inputs) == 1 else min(self._paces[edge.id].size for edge in inputs)
            self._take_records(self._loop, channel.edge, queue, until, most)
            yield from self._full_blocks()
            control = queue.take_control()
            if control is not None:
                self._time.take(channel, control)
                self._look()
                yield from self._end_if_all_ended()
            turns.had_turn(queue)
            is_over = self._now >= until or not self._has_room()

    def _take_earlier(self, until: float) -> Generator[Outgoing, None, bool]:
        """Process what came over channels that are no more; tell whether that was all."""
        queues, is_over = self._earlier.open(), not self._has_room()
        while queues and not is_over:
            queue, way = queues[0], self._earlier_way()
            while not queue.is_empty and not is_over:
                self._take_records(partial(way.loop, queue.place), queue.edge, queue, until)
                # Before anything that is said of how far time has come.
                yield from way.drain()
                yield from self._full_blocks()
                is_over = self._now >= until or not self._has_room()
            if queue.is_empty:
                del queues[0]
        self._earlier.leave(queues)
        return not queues

    def _earlier_way(self) -> RecoveredInputChain:
        if self._way is None:
            writers = {i: self._writer(w.edge, self._parallelisms[w.edge.target]) for i, w in self._writers.items()}
            self._way = RecoveredInputChain(
                ChainCompiler(self._nodes, writers, self._settings.inlining), writers.values()
            )
        return self._way

    def report(self) -> SubtaskReport:
        """Close the epoch: write state, stage output, and say what was done."""
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
            # In a source's chain, time begins where watermarks are made.
            watermark=max(
                [self._time.watermark, *(n.operator.sent for n in self._nodes if n.operator.makes_watermarks)]
            ),
            metrics={name: value for group in self._metrics.values() for name, value in group.values()},
            runtime_snapshot=self._carry(),
            next_wake=None if self.ended else self._next_wake(),
            poll_after_seconds=min(filter(None, [o.poll_after_seconds() for o, _ in self._asking]), default=None),
            at_capacity=self._is_full(),
            holds_state=self.ended and not task.writes_state and bool(files),
            aligned={
                group: Progress(watermark, splits)
                for group, watermark, splits in (m.progress() for m in self._markers if m.strategy.alignment)
            },
            ended=self.ended,
            tables=self.tables() if task.checkpoint is not None else {},
            exported=exported,
            sink_records=None if None in counts else sum(filter(None, counts)),
            bytes_in=self._bytes_in,
            diagnostics=self._observer.look(self._channels.values(), self._states.by_id, self.ended),
            state_was_local=self._states.was_here(),
        )

    def _save_state(self, keep: bool) -> dict[str, Version]:
        """Write what has changed in the state to files, or hold it in memory; return the last files."""
        if keep or self.ended:
            # One that has ended is not asked again when others want its state.
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
        """Return what tables of state there are, by state id."""
        return self._states.describe()

    def end_requests(self) -> None:
        """End the requests in flight, and make no more."""
        for operator, _ in self._asking:
            operator.end_requests()

    def close(self) -> None:
        """Close the functions, once."""
        if self._opened:
            self._opened = False
            for node in self._nodes:
                self._guard.call(node.operator.close, node)

    def states(self) -> Iterator[tuple[str, KeyedState]]:
        """Yield the states of its operators, each with its id."""
        yield from self._states.by_id.items()

    # --- inside an epoch

    def _take_records(self, loop: FindLoop, edge: Edge, queue: Queue, until: float, most: int | None = None) -> None:
        """Process the records of a queue that come before a control element, or so many of them."""
        block, at, end = queue.records()
        if at == end:
            return
        if edge.partitioner.by_key:
            self._observer.saw(edge, block, at, end)
        passed = self._passed
        if passed.is_on:
            passed.take(edge, queue.layout, queue.body, at)
            passed.at = at
        if self._batch is not None and not edge.partitioner.broadcasts:
            self._batch.add(edge, block.part(at, end), self._task.epoch)
        elif until == math.inf and not self._follows_clock:
            self._guard.loop(loop(edge, block.layout), block.part(at, end).content)
        else:
            end = end if most is None else min(end, at + most)
            run, pace = loop(edge, block.layout), self._paces[edge.id]
            end = self._run_pieces(run, pace, block.content, at, end, until, block.width)
        self._records_in += block.layout.count(block, at, end)
        queue.took(end)
        if passed.is_on:
            passed.took(end)

    def _run_pieces(
        self, run: Loop, pace: ChunkSizer, records: Sequence[Any], at: int, end: int, until: float, width: int = 1
    ) -> int:
        """Run a loop over records piece by piece, and let time pass in between.

        Args:
            run: the loop.
            pace: how many records go through it at once.
            records: what can be sliced.
            at: how many of the records were processed before.
            end: how many of them shall have been then.
            until: stop when the stopwatch has come so far; at least one piece is processed.
            width: how many items a record takes.

        Returns:
            how many of the records have been processed.
        """
        items = len(records)
        pace.begin()
        while at < end:
            to = min(at + pace.size, end)
            self._passed.at = at
            self._guard.loop(run, records if (to - at) * width == items else records[at * width : to * width])
            now = self._now = pace.went(to - at)
            at = to
            if self._follows_clock and now >= self._look_again:
                for marker in self._markers:
                    marker.goes_on()
                self._let_time_pass()
                self._look_again = now + LOOK_SECONDS
            if now >= until or (not self._has_room() and until < math.inf):
                break
        return at

    def _is_full(self) -> bool:
        """Tell whether an operator can take no more records for now."""
        return any(o.is_full for o, _ in self._asking)

    def _has_room(self) -> bool:
        """Let operators that are full have answers, as long as some come; tell whether more records may come.

        What was sent here waits meanwhile, but for what is broadcast. Who sends is told by the driver to wait.
        """
        while (full := next((o for o, _ in self._asking if o.is_full), None)) is not None:
            left = self._patient_until - self._surroundings.stopwatch()
            if left <= 0 or not full.wait(left if left == math.inf else min(left, ROOM_SECONDS)):
                self._patient_until = -math.inf
                return False
            self._emit_answers()
        return True

    def _finish_requests(self) -> None:
        """Where nothing waits for the end of the epoch, or the next one must not know of this one, let requests end."""
        if self._task.slice == math.inf:
            for operator, node in self._asking:
                self._guard.call(operator.finish, node)

    def _emit_answers(self) -> None:
        for operator, node in self._asking:
            self._guard.call(operator.emit_answers, node)

    def _look(self) -> float:
        """Look at the stopwatch."""
        self._now = self._surroundings.stopwatch()
        return self._now

    def _let_time_pass(self) -> None:
        """Fire timers that are due; where input waits, nothing is silent."""
        waits = bool(self._inbox.pending or self._earlier.pending)
        expected = [share.split for share in self._todo] + [None] * waits
        # Those that wait for slower ones are not silent either.
        expected += self._task.paused_splits.get(self.vertex.id, ())
        for marker in self._markers:
            marker.expects(expected)
        self._on_processing_time()

    def _before_watermark(self, watermark: int) -> None:
        if watermark == MAX_WATERMARK and self._batch is not None:
            self._replay_batch(self._batch)
        if self._passed.is_on:
            self._passed.advance(watermark)

    def _on_processing_time(self) -> None:
        for node in self._nodes:
            self._guard.call(node.operator.on_processing_time, node)

    def _tick(self, records: int) -> None:
        """Let periodic watermark generators emit."""
        for marker in self._markers:
            marker.end_share(records)

    def _end_if_all_ended(self) -> Iterator[Outgoing]:
        if self.ended or not all(c.ended for c in self._channels.values()):
            return
        if not self._time.is_over:
            self._time.combine()
        self._tick(self._records_in)
        yield from self._end()

    def _end(self) -> Iterator[Outgoing]:
        """The input has ended: finish. Where the next epoch can wait for requests in flight, this one does not."""
        self._emit_answers()
        if self._has_requests() and self._task.slice < math.inf:
            return
        self.ended = True
        # Timers of the wall clock that are due fire though no more input comes; those that are not never will.
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
        """Have operators emit what they hold back: it is no state, and must not be lost with this process."""
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

    def _replay_batch(self, batch: BatchInput) -> None:
        head = self.vertex.head
        for blocks in batch.by_key():
            for edge, block in blocks:
                self._guard.loop(self._loop(edge, block.layout), block.content)
                self._has_room()
            self._guard.call(head.operator.on_end_of_key, head)

    # --- what outlives the process

    def _has_requests(self) -> bool:
        return any(o.is_in_flight for o, _ in self._asking)

    def _carry(self) -> bytes:
        self._carried = encode(
            watermark=self._time.watermark,
            idle=self._time.is_idle,
            ended=self.ended,
            channels=self._channels,
            operators={i: data for i, o in self._operators if (data := o.carry()) is not None},
            watermarks={i: o.watermark for i, o in self._operators},
            pending_ranges=self._unfinished.pending,
            pending_blocks=self._inbox.pending,
            recovered_blocks=self._earlier.pending,
            requests=self._has_requests(),
        )
        return self._carried

    def _restore(self, carried: bytes) -> None:
        left = decode(carried)
        self._time.watermark, self._time.is_idle, self.ended = left.watermark, left.idle, left.ended
        if left.ended_edges is None:
            for address, before in left.channels.items():
                channel = self._channels[address]
                channel.watermark, channel.idle, channel.ended = before.watermark, before.idle, before.ended
        else:
            self._time.begin_channels(left.ended_edges)
            # Those behind do not know yet how far each of their new channels has come.
            self._must_announce = not left.ended
            if self.vertex.is_source and not left.ended:
                # It was told to end, and will be again, so that the last watermark comes behind requests in flight.
                self._time.watermark = MIN_WATERMARK
        self._restore_operators(left)
        self._unfinished.restore(left.pending_ranges)
        self._inbox.restore(left.pending_blocks)
        self._guard.call(partial(self._earlier.restore, left.recovered_blocks), self.vertex.head)
        self._carried = carried

    def _restore_operators(self, left: RuntimeSnapshot) -> None:
        for operator_id, operator in self._operators:
            operator.watermark = left.watermarks.get(operator_id, MIN_WATERMARK)
            if left.operators.get(operator_id) is not None:
                operator.restore(left.operators[operator_id])

    def _announce(self) -> None:
        if not self._must_announce:
            return
        self._must_announce = False
        if not self.vertex.is_source and self._time.watermark > MIN_WATERMARK:
            self._time.say()
        for node in self._nodes:
            if node.operator.makes_watermarks:
                node.operator.announce()


def _not_emitting(batch: Iterable[Any], timestamp: int | None = None) -> None:
    raise AssertionError("this operator has not announced that it emits outside the loop")
