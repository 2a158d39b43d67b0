"""The chain of a subtask: operators with their state, event time, channels, record writers and generated loops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from millstream.common.aliases import Value
from millstream.common.checksums import Checksum
from millstream.common.errors import RecordTooLargeError
from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.operators.async_io import AsyncOperator
from millstream.operators.base import OperatorSetup, RuntimeServices
from millstream.operators.diagnostics.epoch_input_log import EpochInputLog
from millstream.operators.diagnostics.user_code_guard import Guard
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.functions.metrics import MetricGroup
from millstream.operators.runtime.blocks import Layout
from millstream.operators.runtime.budget import Budget
from millstream.operators.runtime.chain import ChainCompiler, ChainNode
from millstream.operators.runtime.event_time import EventTime
from millstream.operators.runtime.messages import LevelTask
from millstream.operators.runtime.partitioners import PartitionerContext
from millstream.operators.runtime.record_writer import Channel, Edge, EdgeWriter
from millstream.operators.runtime.recovered_input import RecoveredInputChain
from millstream.operators.runtime.runtime_snapshot import RuntimeSnapshot
from millstream.operators.runtime.vertex import JobSettings, Vertex
from millstream.operators.sink import InvokeOperator, SinkOperator
from millstream.operators.watermarks import WatermarkEmitter, WatermarkOperator
from millstream.state.changelog import StoredState
from millstream.state.keyed import KeyedState, StateStorage, Version


class SubtaskState:
    """The states of a subtask's operators.

    Attributes:
        by_id: the states by id: keyed state has its operator's id, operator state that id and `.operator`.
    """

    def __init__(self, index: int, storage: StateStorage, clock: Callable[[], int], settings: JobSettings) -> None:
        self.by_id: dict[str, KeyedState] = {}
        self._index = index
        self._storage = storage
        self._clock = clock
        self._settings = settings
        self._nodes: dict[str, ChainNode] = {}

    def keyed(self, node: ChainNode) -> KeyedState | None:
        """Create the keyed state of an operator, if it has any."""
        if not node.operator.keyed:
            return None
        state = KeyedState(
            node.id,
            self._index,
            self._storage,
            self._clock,
            self._settings.state_backend,
            self._settings.compressed,
            self._settings.digests,
        )
        return self._add(node.id, state, node)

    def operator_state(self, node: ChainNode) -> KeyedState | None:
        """Create the operator state of an operator, if it has any."""
        if not node.operator.has_operator_state:
            return None
        state_id = f"{node.id}.operator"
        state = KeyedState(state_id, self._index, self._storage, self._clock, digests=self._settings.digests)
        return self._add(state_id, state, node)

    def _add(self, state_id: str, state: KeyedState, node: ChainNode) -> KeyedState:
        self.by_id[state_id], self._nodes[state_id] = state, node
        return state

    def load(self, files: dict[str, Version], held_epoch: int | None, guard: Guard) -> None:
        """Load the state of the latest files and start an epoch."""
        for state_id, state in self.by_id.items():
            guard.call(partial(state.prepare, files.get(state_id), held_epoch), self._nodes[state_id])
            state.begin()

    def was_local(self) -> bool | None:
        """Return whether all state was in memory at the start of the epoch; None if there was none."""
        local = [state.was_local for state in self.by_id.values() if state.was_local is not None]
        return all(local) if local else None

    def write(self, task: LevelTask, attempt: str, to_files: bool, guard: Guard) -> dict[str, Version]:
        """Write state changes to files or hold them in memory; return the latest files."""
        files: dict[str, Version] = {}
        for state_id, state in self.by_id.items():
            save: Callable[[], Version] = partial(state.hold, task.epoch)
            if to_files or not state.can_hold:
                save = partial(state.write_delta, task.epoch, attempt, task.whole_state)
            files[state_id] = guard.call(save, self._nodes[state_id])
        return files

    def checksums(self, files: dict[str, Version]) -> dict[str, Checksum]:
        """Return the checksums of the latest files, by state id."""
        checksums = {i: self.by_id[i].checksum for i, file in files.items() if isinstance(file, str)}
        return {i: checksum for i, checksum in checksums.items() if checksum is not None}

    def export(self, task: LevelTask, attempt: str, max_parallelism: int) -> dict[str, StoredState]:
        """Export the state for a savepoint, if one is taken."""
        if task.savepoint is None:
            return {}
        parts = {i: s.export(task.savepoint, max_parallelism, attempt) for i, s in self.by_id.items()}
        return {i: part for i, part in parts.items() if part is not None}

    def take_written(self) -> int:
        """Return the number of bytes written since the last call."""
        return sum(s.take_written() for s in self.by_id.values())

    def describe(self) -> dict[str, dict[str, dict[str, str]]]:
        """Return the state tables, by state id."""
        return {i: s.describe() for i, s in self.by_id.items()}


# Above this ratio of keys to records, an epoch's keys count as mostly new.
MANY_NEW_KEYS = 0.1

Loop = Callable[[Iterable[Value]], None]
# Loops by edge and block layout.
Loops = dict[tuple[int, Layout], Loop]

# An outgoing block: edge, target subtask, block.
Outgoing = tuple[Edge, int, bytes]

# The parallelism and maximum parallelism of each vertex.
Parallelisms = dict[int, tuple[int, int]]

_DONE = object()


class SubtaskChain:
    """The operators of one subtask, ready to run.

    Attributes:
        nodes: the operators with their outputs.
        operators: the operators with their ids.
        states: the states of the operators.
        input_log: the order in which this epoch has processed its input.
        guard: calls user functions.
        channels: the input channels, by edge and sender.
        writers: the record writers, by edge.
        time: event time.
        compiler: generates the loops.
        watermark_operators: the operators with a watermark strategy.
        follows_clock: whether an operator needs calls when processing time advances.
    """

    def __init__(
        self,
        vertex: Vertex,
        index: int,
        parallelisms: Parallelisms,
        settings: JobSettings,
        storage: StateStorage,
        services: RuntimeServices,
        budget: Budget,
    ) -> None:
        self.vertex = vertex
        self.index = index
        self.settings = settings
        self.services = services
        self.nodes = vertex.nodes
        self.operators = [(n.id, n.operator) for n in vertex.nodes]
        self.states = SubtaskState(index, storage, services.clock, settings)
        self.input_log = EpochInputLog(vertex, settings.batch)
        self.guard = Guard(vertex, index, settings, self.states.by_id, self.input_log)
        self._parallelisms = parallelisms
        self.channels = {
            (edge.id, sender): Channel(edge, sender)
            for edge in vertex.in_edges
            for sender in range(parallelisms[edge.source][0])
            if index in edge.partitioner.targets(sender, parallelisms[edge.source][0], vertex.parallelism)
        }
        self.writers = {e.id: self._writer(e) for e in vertex.out_edges}
        self._watermark_emitters = [n.operator for n in self.nodes if isinstance(n.operator, WatermarkEmitter)]
        self.time = EventTime(self.nodes, self.channels.values(), self.writers, self.guard)
        self._metrics = {n.id: MetricGroup((n.name,)) for n in vertex.nodes}
        self.compiler = self._prepare(budget)
        # The loops for epochs with few keys, and for epochs with many new keys.
        self._loops: dict[bool, Loops] = {False: {}, True: {}}
        self._current_loops = self._loops[False]
        self._recovered_chain: RecoveredInputChain | None = None
        self.watermark_operators = [n.operator for n in self.nodes if isinstance(n.operator, WatermarkOperator)]
        # In BATCH there is no processing time.
        self.follows_clock = not settings.batch and any(n.operator.follows_clock for n in self.nodes)
        self._sinks = [n.operator.taken for n in self.nodes if isinstance(n.operator, (SinkOperator, InvokeOperator))]
        self._is_open = False
        self._must_reannounce = False

    def _writer(self, edge: Edge) -> EdgeWriter:
        parallelism, max_parallelism = self._parallelisms[edge.target]
        targets = edge.partitioner.targets(self.index, self.vertex.parallelism, parallelism)
        return EdgeWriter(edge, targets, PartitionerContext(self.index, parallelism, max_parallelism))

    def _prepare(self, budget: Budget) -> ChainCompiler:
        compiler = ChainCompiler(self.nodes, self.writers, self.settings.inlining)
        for node in self.nodes:
            node.operator.prepare(self._setup(node, budget))
        compiler.infer_types(self.vertex.in_edges)
        for index, node in enumerate(self.nodes):
            if isinstance(node.operator, (AsyncOperator, WatermarkEmitter)):
                node.operator.advance = partial(self.time.pass_on, index)
            if node.operator.emits_later:
                node.operator.setup.emit = compiler.emit_function(node)
        return compiler

    def _setup(self, node: ChainNode, budget: Budget) -> OperatorSetup:
        state, operator_state = self.states.keyed(node), self.states.operator_state(node)
        context = RuntimeContext(
            node.name,
            self.index,
            self.vertex.parallelism,
            1 if self.vertex.non_parallel else self.vertex.max_parallelism,
            self.settings.attempt,
            self.settings.job_parameters,
            self._metrics[node.id],
            state,
        )
        return OperatorSetup(context, state, _reject_emit, self.settings.batch, self.services, operator_state, budget)

    # --- loops

    def loop(self, edge: Edge, layout: Layout) -> Loop:
        """Return the loop over blocks of a layout that arrive over an edge."""
        loop = self._current_loops.get((edge.id, layout))
        if loop is None:
            many_new_keys = self._current_loops is self._loops[True]
            loop = self.compiler.input_function(edge, layout, many_new_keys)
            self._current_loops[edge.id, layout] = loop
        return loop

    def choose_loops(self, records: int) -> None:
        """Choose the loops of the next epoch by the ratio of new keys to records in this one."""
        state = self.states.by_id.get(self.vertex.head.id)
        if state is not None:
            self._current_loops = self._loops[state.new_keys() > MANY_NEW_KEYS * records]

    def recovered_input_chain(self) -> RecoveredInputChain:
        """Return the chain for recovered input, created on first use."""
        if self._recovered_chain is None:
            writers = {edge_id: self._writer(writer.edge) for edge_id, writer in self.writers.items()}
            compiler = ChainCompiler(self.nodes, writers, self.settings.inlining)
            self._recovered_chain = RecoveredInputChain(compiler, writers.values())
        return self._recovered_chain

    # --- life cycle of the operators

    def begin(self) -> None:
        """Start an epoch: reset its counters, and open the functions before the first."""
        for writer in self.writers.values():
            writer.records_out = writer.bytes_out = 0
        for sink in self._sinks:
            sink.records = 0 if sink.records is not None else None
        self.input_log.begin(self.states.by_id.get(self.vertex.head.id), self.vertex.head.operator.watermark)
        if not self._is_open:
            self._is_open = True
            for node in self.nodes:
                self.guard.call(node.operator.open, node)

    def on_processing_time(self) -> None:
        """Fire due processing-time timers."""
        for node in self.nodes:
            self.guard.call(node.operator.on_processing_time, node)

    def next_wake(self) -> int | None:
        """Return the wall-clock time of the next timer."""
        return min(filter(None, [n.operator.next_wake() for n in self.nodes]), default=None)

    def finish(self) -> Iterator[Outgoing]:
        """Emit the remaining output at the end of input."""
        for node in self.nodes:
            steps = self.guard.call(node.operator.finishing, node)
            while self.guard.call(partial(next, steps, _DONE), node) is not _DONE:
                yield from self.full_blocks()
            yield from self.full_blocks()
        for writer in self.writers.values():
            writer.end()

    def close(self) -> None:
        """Close the functions once."""
        if self._is_open:
            self._is_open = False
            for node in self.nodes:
                self.guard.call(node.operator.close, node)

    # --- output

    def full_blocks(self) -> Iterator[Outgoing]:
        """Yield the blocks that are full."""
        for writer in self.writers.values():
            yield from self._outgoing(writer, writer.full_blocks())

    def flush(self) -> Iterator[Outgoing]:
        """Flush buffered output and yield all blocks: they are not state, and must not be lost with this process."""
        for node in self.nodes:
            if node.operator.buffers_output:
                self.guard.call(node.operator.flush, node)
        for writer in self.writers.values():
            yield from self._outgoing(writer, writer.drain())

    def _outgoing(self, writer: EdgeWriter, blocks: Iterator[tuple[int, bytes]]) -> Iterator[Outgoing]:
        try:
            for target, block in blocks:
                yield writer.edge, target, block
        except RecordTooLargeError as e:
            sender = next(n for n in self.nodes if any(o.edge == writer.edge.id for o in n.outputs))
            raise self.guard.failed(e, sender) from e

    # --- metrics

    @property
    def output_watermark(self) -> int:
        """The highest watermark in the chain: in a source's chain, event time starts at the watermark operator."""
        return max([self.time.watermark, *(o.emitted_watermark for o in self._watermark_emitters)])

    def metric_values(self) -> dict[str, Value]:
        """Return the values of the metrics that user functions registered, by name."""
        return {name: value for group in self._metrics.values() for name, value in group.values()}

    def sink_records(self) -> int | None:
        """Return the number of records that the sinks received in this epoch; None if not counted."""
        counts = [sink.records for sink in self._sinks]
        return None if None in counts else sum(filter(None, counts))

    # --- restore

    def restore(self, snapshot: RuntimeSnapshot) -> None:
        """Restore event time, channels and operators from a runtime snapshot."""
        self.time.watermark, self.time.is_idle = snapshot.watermark, snapshot.idle
        if snapshot.ended_edges is None:
            for address, progress in snapshot.channels.items():
                channel = self.channels[address]
                channel.watermark, channel.idle, channel.ended = progress.watermark, progress.idle, progress.ended
        else:
            self.time.begin_channels(snapshot.ended_edges)
            # Downstream does not know the watermarks of its new channels yet.
            self._must_reannounce = not snapshot.ended
            if self.vertex.is_source and not snapshot.ended:
                # The source ends again, so that the final watermark follows the requests in flight.
                self.time.watermark = MIN_WATERMARK
        for operator_id, operator in self.operators:
            operator.watermark = snapshot.watermarks.get(operator_id, MIN_WATERMARK)
            if snapshot.operators.get(operator_id) is not None:
                operator.restore(snapshot.operators[operator_id])

    def announce_watermarks(self) -> None:
        """Emit the current watermarks again if a restore has created new channels."""
        if not self._must_reannounce:
            return
        self._must_reannounce = False
        if not self.vertex.is_source and self.time.watermark > MIN_WATERMARK:
            self.time.announce()
        for operator in self._watermark_emitters:
            operator.announce()


def _reject_emit(batch: Iterable[Value], timestamp: int | None = None) -> None:
    raise AssertionError("This operator emits outside of its loop without setting emits_later.")
