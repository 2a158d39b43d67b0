"""The input of a subtask that is not a source: runs the chain's loops on the blocks that its channels received.

`InputGate` (`input_gate.py`) has the blocks by channel, and `ReadyChannels` returns the channels in turn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from millstream.common.aliases import Value
from millstream.operators.diagnostics.subtask_diagnostics import DiagnosticsCollector
from millstream.operators.reduce import ReduceOperator
from millstream.operators.runtime.batch_input import BatchInput
from millstream.operators.runtime.blocks import AddressedBlock
from millstream.operators.runtime.input_gate import InputGate, ReadyChannels
from millstream.operators.runtime.runtime_snapshot import PendingBlocks, RuntimeSnapshot
from millstream.operators.runtime.subtask_chain import Outgoing, SubtaskChain
from millstream.operators.runtime.subtask_input import SubtaskInput


class ChannelInput(SubtaskInput):
    """Processes the blocks that the channels of a subtask received."""

    def __init__(self, chain: SubtaskChain, diagnostics: DiagnosticsCollector) -> None:
        super().__init__(chain, diagnostics)
        self._channels = chain.channels
        self._broadcast = [c for c in self._channels.values() if c.edge.partitioner.broadcasts]
        self._input_gate = InputGate(self._channels)
        self._batch = _batch_input(chain)
        # True before the first input is processed.
        self._is_start = True

    @property
    def pending_blocks(self) -> Sequence[PendingBlocks]:
        return self._input_gate.pending

    def restore(self, snapshot: RuntimeSnapshot) -> None:
        self._input_gate.restore(snapshot.pending_blocks)
        super().restore(snapshot)

    def _splits_with_input(self) -> Collection[Value]:
        return [None] if self._input_gate.pending or self.recovered.pending else []

    def process(self, blocks: list[AddressedBlock], seconds: float) -> Iterator[Outgoing]:
        """Process input for a number of seconds: first the pending blocks, then those of this epoch."""
        self._chain.announce_watermarks()
        self.bytes_in = sum(len(b.body) for b in blocks)
        for state in self._chain.states.by_id.values():
            state.add_input(self.bytes_in)
        self._advance_time()
        channels = self._input_gate.open(blocks)
        until = self.requests.deadline = self._read_stopwatch() + seconds
        if self._waits_for_broadcast():
            yield from self._process_channels(channels, until, only_broadcast=True)
        if not self._waits_for_broadcast():
            is_all = yield from self._process_recovered(until)
            yield from self._process_channels(channels, until, only_broadcast=not is_all)
        self._input_gate.leave(channels)
        self._finish_requests()
        if not self.ended:
            self._emit_periodic_watermarks(self.records_in)
            self._advance_time()
        yield from self._chain.flush()

    def _waits_for_broadcast(self) -> bool:
        """Return whether, in BATCH, broadcast input must end first; keyed input is buffered anyway."""
        waits_for_broadcast = self._chain.settings.batch and 0 < len(self._broadcast) < len(self._channels)
        return waits_for_broadcast and self._batch is None and not all(c.ended for c in self._broadcast)

    def _process_channels(self, channels: ReadyChannels, until: float, only_broadcast: bool) -> Iterator[Outgoing]:
        if not only_broadcast:
            # Where all channels had ended before the restore, no end marker arrives again.
            yield from self._end_if_all_ended()
        broadcast_first = self._is_start or self._chain.settings.batch
        must_stop = not self.requests.wait()
        # Broadcast input is never left over: all subtasks must have seen the same at the end of an epoch.
        while (queue := channels.next(must_stop or only_broadcast, broadcast_first)) is not None:
            self._is_start = False
            channel, edges = queue.channel, channels.edges()
            # Several inputs alternate by equal numbers of records: the smallest chunk size of all.
            max_records = None if len(edges) == 1 else min(self._chunk_sizers[edge.id].size for edge in edges)
            self._process_queue(self._chain.loop, channel.edge, queue, until, max_records)
            yield from self._chain.full_blocks()
            control = queue.take_control()
            if control is not None:
                self._chain.time.take(channel, control)
                self._read_stopwatch()
                yield from self._end_if_all_ended()
            channels.rotate(queue)
            must_stop = self._now >= until or not self.requests.wait()

    def _end_if_all_ended(self) -> Iterator[Outgoing]:
        if self.ended or not all(c.ended for c in self._channels.values()):
            return
        if not self._chain.time.has_ended:
            self._chain.time.combine()
        self._emit_periodic_watermarks(self.records_in)
        yield from self._end()


def _batch_input(chain: SubtaskChain) -> BatchInput | None:
    """Return the buffer for input that must be complete before it is processed; None if none is needed."""
    head, edges = chain.vertex.head, chain.vertex.in_edges
    if not (chain.settings.batch and head.operator.keyed) or head.operator.takes_batches:
        return None
    # A reduce over records without timestamps has the same result in arrival order.
    if isinstance(head.operator, ReduceOperator) and not any(e.layout.has_timestamp for e in edges):
        return None
    return BatchInput(chain.states.by_id[head.id], edges)
