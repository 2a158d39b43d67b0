"""The inbox of a subtask: what came through the exchange, and in which order it is processed.

The inputs of an operator take turns piece by piece, the channels of an input block by block, as Flink reads what is
there. That is the order in which blocks arrive when senders are equally fast, and unlike that order it is the same when
an epoch is run again. What is not processed when a slice is over waits here, and is part of what the subtask carries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from millstream.operators.runtime.blocks import Block, Body, Control, Frame, Layout, in_memory
from millstream.operators.runtime.channels import Channel
from millstream.operators.runtime.record_writer import Edge
from millstream.operators.runtime.runtime_snapshot import Blocks, ChannelAddress, PendingBlocks


class Queue:
    """Blocks that are to be processed one after the other; the first of them may have been in part."""

    def __init__(self, layout: Layout, bodies: Iterable[Body] = ()) -> None:
        self._layout = layout
        self._bodies: deque[Body] = deque(bodies)
        self._block = layout.new_block()
        # What it was read from.
        self.body: bytes | memoryview = b""
        # How much of it was processed: records, and control elements.
        self._at = 0
        self._passed = 0

    def add(self, body: Body) -> None:
        """Put a block behind the others."""
        self._bodies.append(body)

    @property
    def layout(self) -> Layout:
        """The layout by which its blocks are read."""
        return self._layout

    @property
    def is_empty(self) -> bool:
        return not self._bodies and self.is_between_blocks

    @property
    def is_between_blocks(self) -> bool:
        """Whether the block in hand is done with."""
        return self._passed == len(self._block.controls) and self._at == len(self._block)

    def records(self) -> tuple[Block, int, int]:
        """Return the block in hand and which of its records are next: those before its next control element."""
        if self.is_between_blocks:
            self.body = in_memory(self._bodies.popleft())
            self._block, self._at, self._passed = self._layout.decode(self.body), 0, 0
        controls = self._block.controls
        end = controls[self._passed][0] if self._passed < len(controls) else len(self._block)
        return self._block, self._at, end

    def took(self, at: int) -> None:
        """The records before this place were processed."""
        self._at = at

    def take_control(self) -> Control | None:
        """Return the control element that is next, which then counts as processed; None when records are next."""
        controls = self._block.controls
        if self._passed == len(controls) or controls[self._passed][0] > self._at:
            return None
        self._passed += 1
        return controls[self._passed - 1]

    def left(self) -> Blocks:
        """Return what is not processed, as it is carried."""
        # Copied once: what is left must not keep the whole messages in memory that brought it.
        bodies = [bytes(body) for body in self._bodies]
        self._bodies = deque(bodies)
        if not self.is_between_blocks:
            bodies.insert(0, self._block.rest(self._at, self._passed).encode())
        return self._layout.has_key, self._layout.has_timestamp, bodies


class ChannelQueue(Queue):
    """What one channel has brought."""

    def __init__(self, channel: Channel, bodies: Iterable[Body] = ()) -> None:
        super().__init__(channel.edge.layout, bodies)
        self.channel = channel


class ReadyChannels:
    """Whose turn it is among the channels that have brought something."""

    def __init__(self, queues: Iterable[ChannelQueue]) -> None:
        # The channels of each input, in turn; and the inputs in turn. What is broadcast is an input of its own.
        self._inputs: deque[deque[ChannelQueue]] = deque()
        self._by_input: dict[tuple[int, bool], deque[ChannelQueue]] = {}
        for queue in queues:
            self._join(queue)

    def _join(self, queue: ChannelQueue) -> None:
        of = _input(queue)
        found = self._by_input.get(of)
        if found is None:
            found = self._by_input[of] = deque()
            self._inputs.append(found)
        found.append(queue)

    def edges(self) -> list[Edge]:
        """Return the edges of which it is the turn in each input."""
        return [channels[0].channel.edge for channels in self._inputs]

    def next(self, only_broadcast: bool, broadcast_first: bool) -> ChannelQueue | None:
        """Return whose turn it is, None when it is nobody's."""
        if only_broadcast or broadcast_first:
            for channels in self._inputs:
                if channels[0].channel.edge.partitioner.broadcasts:
                    return channels[0]
        return self._inputs[0][0] if self._inputs and not only_broadcast else None

    def had_turn(self, queue: ChannelQueue) -> None:
        """It is another input's turn now and, behind a block, another channel's."""
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
        """Yield all, those first whose turn comes first."""
        return (queue for channels in self._inputs for queue in channels)


def _carried(queue: ChannelQueue) -> PendingBlocks:
    edge = queue.channel.edge
    return (edge.id, queue.channel.number), edge.input_index, queue.left()


def _input(queue: ChannelQueue) -> tuple[int, bool]:
    edge = queue.channel.edge
    return edge.input_index, edge.partitioner.broadcasts


class InputGate:
    """What came through the exchange and one epoch leaves to the next, which may run in another process."""

    def __init__(self, channels: Mapping[ChannelAddress, Channel]) -> None:
        self._channels = channels
        self.pending: Sequence[PendingBlocks] = ()
        # The same as it was left, see `reading.PendingSplitRanges`.
        self._left: ReadyChannels | None = None

    def restore(self, waiting: Sequence[PendingBlocks]) -> None:
        """Take up what an epoch in another process has left."""
        self.pending, self._left = waiting, None

    def open(self, frames: list[Frame]) -> ReadyChannels:
        """Return what was left and, behind it, what has come."""
        left: Iterable[ChannelQueue] | None = self._left
        self._left = None
        if left is None:
            left = [ChannelQueue(self._channels[address], blocks) for address, _, (_, _, blocks) in self.pending]
        queues = {(q.channel.edge.id, q.channel.number): q for q in left}
        for frame in sorted(frames, key=self._place):
            address = frame.edge, frame.channel
            if address not in queues:
                queues[address] = ChannelQueue(self._channels[address])
            queues[address].add(frame.body)
        return ReadyChannels(queues.values())

    def _place(self, frame: Frame) -> tuple[Any, ...]:
        edge = self._channels[frame.edge, frame.channel].edge
        return not edge.partitioner.broadcasts, frame.edge, frame.channel, frame.number

    def leave(self, turns: ReadyChannels) -> None:
        """The epoch ends, and this is not processed."""
        self.pending = [_carried(queue) for queue in turns]
        self._left = turns
