"""The input gate of a subtask: received blocks, and the order in which they are processed.

The inputs of an operator alternate chunk by chunk, the channels of an input block by block. That is the arrival order
of equally fast senders, and unlike the arrival order it is the same when an epoch is repeated. Input that is not
processed within a time slice stays here and is part of the runtime snapshot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from millstream.operators.runtime.blocks import AddressedBlock, Block, Body, Control, Layout, in_memory
from millstream.operators.runtime.record_writer import Channel, Edge
from millstream.operators.runtime.runtime_snapshot import Blocks, ChannelAddress, PendingBlocks


class Queue:
    """Blocks in processing order; the first may be partly processed."""

    def __init__(self, layout: Layout, bodies: Iterable[Body] = ()) -> None:
        self._layout = layout
        self._bodies: deque[Body] = deque(bodies)
        self._block = layout.new_block()
        # The encoded form of the current block.
        self.body: bytes | memoryview = b""
        # The number of records of the current block that are processed, and the index of its next control element.
        self._offset = 0
        self._next_control = 0

    def add(self, body: Body) -> None:
        """Append a block."""
        self._bodies.append(body)

    @property
    def layout(self) -> Layout:
        """The layout of its blocks."""
        return self._layout

    @property
    def is_empty(self) -> bool:
        return not self._bodies and self.is_between_blocks

    @property
    def is_between_blocks(self) -> bool:
        """Whether the current block is processed."""
        return self._next_control == len(self._block.controls) and self._offset == len(self._block)

    def records(self) -> tuple[Block, int, int]:
        """Return the current block and the range of its records up to the next control element."""
        if self.is_between_blocks:
            self.body = in_memory(self._bodies.popleft())
            self._block, self._offset, self._next_control = self._layout.decode(self.body), 0, 0
        controls = self._block.controls
        end = controls[self._next_control][0] if self._next_control < len(controls) else len(self._block)
        return self._block, self._offset, end

    def advance(self, offset: int) -> None:
        """Mark the records before an offset as processed."""
        self._offset = offset

    def take_control(self) -> Control | None:
        """Return and pass the next control element; None if records are next."""
        controls = self._block.controls
        if self._next_control == len(controls) or controls[self._next_control][0] > self._offset:
            return None
        self._next_control += 1
        return controls[self._next_control - 1]

    def remaining(self) -> Blocks:
        """Return the unprocessed blocks, as they are stored in a runtime snapshot."""
        # Copied once: views would keep the whole received messages in memory.
        bodies = [bytes(body) for body in self._bodies]
        self._bodies = deque(bodies)
        if not self.is_between_blocks:
            bodies.insert(0, self._block.rest(self._offset, self._next_control).encode())
        return self._layout.has_key, self._layout.has_timestamp, bodies


class ChannelQueue(Queue):
    """The pending blocks of one channel."""

    def __init__(self, channel: Channel, bodies: Iterable[Body] = ()) -> None:
        super().__init__(channel.edge.layout, bodies)
        self.channel = channel


class ReadyChannels:
    """The channels with pending blocks, in round-robin order."""

    def __init__(self, queues: Iterable[ChannelQueue]) -> None:
        # The channels of each input, and the inputs, in round-robin order. Broadcast input is an input of its own.
        self._inputs: deque[deque[ChannelQueue]] = deque()
        self._by_input: dict[tuple[int, bool], deque[ChannelQueue]] = {}
        for queue in queues:
            self._join(queue)

    def _join(self, queue: ChannelQueue) -> None:
        key = _input(queue)
        channels = self._by_input.get(key)
        if channels is None:
            channels = self._by_input[key] = deque()
            self._inputs.append(channels)
        channels.append(queue)

    def edges(self) -> list[Edge]:
        """Return the edge of the next channel of each input."""
        return [channels[0].channel.edge for channels in self._inputs]

    def next(self, only_broadcast: bool, broadcast_first: bool) -> ChannelQueue | None:
        """Return the next channel, or None."""
        if only_broadcast or broadcast_first:
            for channels in self._inputs:
                if channels[0].channel.edge.partitioner.broadcasts:
                    return channels[0]
        return self._inputs[0][0] if self._inputs and not only_broadcast else None

    def rotate(self, queue: ChannelQueue) -> None:
        """Move on to the next input and, after a block, to the next channel."""
        channels = self._by_input[_input(queue)]
        if len(self._inputs) > 1:
            self._inputs.remove(channels)
            self._inputs.append(channels)
        if queue.is_between_blocks:
            channels.popleft()
            if not queue.is_empty:
                channels.append(queue)
            elif not channels:
                self._inputs.remove(channels)
                del self._by_input[_input(queue)]

    def __iter__(self) -> Iterator[ChannelQueue]:
        """Yield all channels in processing order."""
        return (queue for channels in self._inputs for queue in channels)


def _pending_blocks(queue: ChannelQueue) -> PendingBlocks:
    edge = queue.channel.edge
    return (edge.id, queue.channel.number), edge.input_index, queue.remaining()


def _input(queue: ChannelQueue) -> tuple[int, bool]:
    edge = queue.channel.edge
    return edge.input_index, edge.partitioner.broadcasts


class InputGate:
    """The received input that one epoch leaves to the next, which may run in another process."""

    def __init__(self, channels: Mapping[ChannelAddress, Channel]) -> None:
        self._channels = channels
        self.pending: Sequence[PendingBlocks] = ()
        # The same input with its read offsets, see `PendingSplitRanges`.
        self._open: ReadyChannels | None = None

    def restore(self, pending: Sequence[PendingBlocks]) -> None:
        """Set the pending input that an epoch in another process has left."""
        self.pending, self._open = pending, None

    def open(self, received: list[AddressedBlock]) -> ReadyChannels:
        """Return the pending input followed by the received blocks."""
        pending: Iterable[ChannelQueue] | None = self._open
        self._open = None
        if pending is None:
            pending = [ChannelQueue(self._channels[address], bodies) for address, _, (_, _, bodies) in self.pending]
        queues = {(q.channel.edge.id, q.channel.number): q for q in pending}
        for block in sorted(received, key=self._order):
            address = block.edge, block.channel
            if address not in queues:
                queues[address] = ChannelQueue(self._channels[address])
            queues[address].add(block.body)
        return ReadyChannels(queues.values())

    def _order(self, block: AddressedBlock) -> tuple[bool, int, int, int]:
        edge = self._channels[block.edge, block.channel].edge
        return not edge.partitioner.broadcasts, block.edge, block.channel, block.number

    def leave(self, channels: ReadyChannels) -> None:
        """Retain the input that this epoch has not processed."""
        self.pending = [_pending_blocks(queue) for queue in channels]
        self._open = channels
