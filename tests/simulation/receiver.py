"""The receiving end of an exchange: a counter's subtask, which leaves a part of its input to the next epoch."""

from __future__ import annotations

import math
from collections.abc import Iterator

from millstream.operators.runtime.blocks import END_OF_INPUT, WATERMARK, Frame
from millstream.operators.runtime.channels import Channel
from millstream.operators.runtime.input_gate import InputGate, Queue, ReadyChannels
from millstream.operators.runtime.messages import LevelTask
from millstream.operators.runtime.recovered_input import RecoveredInput
from millstream.operators.runtime.runtime_snapshot import decode, encode
from millstream.operators.runtime.vertex import Vertex

from .program import Record
from .world import World


class Receiver:
    """Takes records as `Subtask` does, and sees that none is behind the time that it was told."""

    def __init__(self, world: World, vertex: Vertex, subtask: int, senders: int, task: LevelTask) -> None:
        self._world = world
        self._task = task
        edge = vertex.in_edges[0]
        self._channels = {(edge.id, sender): Channel(edge, sender) for sender in range(senders)}
        self._inbox, self._earlier = InputGate(self._channels), RecoveredInput(vertex, subtask)
        self._watermark = -1
        before = task.runtime_snapshots.get((vertex.id, subtask))
        if not before:
            return
        left = decode(before)
        self._watermark = left.watermark
        for address, channel in self._channels.items():
            if left.ended_edges is None:
                channel.watermark, channel.ended = left.channels[address].watermark, left.channels[address].ended
            else:
                channel.ended = edge.id in left.ended_edges
                channel.watermark = task.epoch if channel.ended else left.watermark
        self._inbox.restore(left.pending_blocks)
        self._earlier.restore(left.recovered_blocks)

    @property
    def has_ended(self) -> bool:
        return all(c.ended for c in self._channels.values()) and not self._earlier.pending

    def take(self, frames: list[Frame]) -> list[Record]:
        """Process what was left and what has come, or a part of it; return the records."""
        turns, queues = self._inbox.open(frames), self._earlier.open()
        taken: list[Record] = []
        is_over = False
        # At least one record, so that the job gets to its end.
        for element in self._elements(queues, turns):  # type: ignore[arg-type]
            taken += element
            is_over = bool(taken) and self._task.slice < math.inf and self._world.random.random() < 0.2
            if is_over:
                break
        self._earlier.leave([q for q in queues if not q.is_empty])
        self._inbox.leave(turns)
        return taken

    def _elements(self, queues: list[Queue], turns: ReadyChannels) -> Iterator[list[Record]]:
        for queue in queues:
            while not queue.is_empty:
                yield self._record(queue)
        while (queue := turns.next(False, False)) is not None:  # type: ignore[assignment]
            found = self._record(queue)
            while (control := queue.take_control()) is not None:
                self._told(queue.channel, *control[1:])
            turns.rotate(queue)
            yield found

    def _record(self, queue: Queue) -> list[Record]:
        block, at, end = queue.records()
        if at == end:
            return []
        queue.advance(at + 1)
        [(_, record, sent)] = block.part(at, at + 1).records()
        if sent is not None and sent <= self._watermark:
            self._world.violate(f"{record} was sent in epoch {sent}, and time was at {self._watermark} already")
        return [record]

    def _told(self, channel: Channel, kind: int, value: int) -> None:
        if kind == END_OF_INPUT:
            channel.ended = True
        elif kind == WATERMARK:
            channel.watermark = max(channel.watermark, value)
        self._watermark = max(self._watermark, min(c.watermark for c in self._channels.values()))

    def runtime_snapshot(self) -> bytes:
        return encode(
            watermark=self._watermark,
            idle=False,
            ended=self.has_ended,
            channels=self._channels,
            operators={},
            watermarks={},
            pending_blocks=self._inbox.pending,
            recovered_blocks=self._earlier.pending,
        )
