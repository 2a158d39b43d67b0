"""The receiving end of an exchange: a counter's subtask, which leaves part of its input pending for the next epoch."""

from __future__ import annotations

import math
from collections.abc import Iterator

from millstream.operators.runtime.blocks import END_OF_INPUT, WATERMARK, AddressedBlock
from millstream.operators.runtime.input_gate import InputGate, Queue, ReadyChannels
from millstream.operators.runtime.messages import LevelTask
from millstream.operators.runtime.record_writer import Channel
from millstream.operators.runtime.recovered_input import RecoveredInput
from millstream.operators.runtime.runtime_snapshot import decode, encode
from millstream.operators.runtime.vertex import Vertex

from .program import Record
from .world import World


class Receiver:
    """Takes records like `Subtask`, and checks that no record is behind the received watermark."""

    def __init__(self, world: World, vertex: Vertex, subtask: int, senders: int, task: LevelTask) -> None:
        self._world = world
        self._task = task
        edge = vertex.in_edges[0]
        self._channels = {(edge.id, sender): Channel(edge, sender) for sender in range(senders)}
        self._input_gate, self._recovered = InputGate(self._channels), RecoveredInput(vertex, subtask)
        self._watermark = -1
        before = task.runtime_snapshots.get((vertex.id, subtask))
        if not before:
            return
        snapshot = decode(before)
        self._watermark = snapshot.watermark
        for address, channel in self._channels.items():
            if snapshot.ended_edges is None:
                channel.watermark, channel.ended = (
                    snapshot.channels[address].watermark,
                    snapshot.channels[address].ended,
                )
            else:
                channel.ended = edge.id in snapshot.ended_edges
                channel.watermark = task.epoch if channel.ended else snapshot.watermark
        self._input_gate.restore(snapshot.pending_blocks)
        self._recovered.restore(snapshot.recovered_blocks)

    @property
    def has_ended(self) -> bool:
        return all(c.ended for c in self._channels.values()) and not self._recovered.pending

    def take(self, blocks: list[AddressedBlock]) -> list[Record]:
        """Process the pending and the new input, or part of it; return the records."""
        channels, queues = self._input_gate.open(blocks), self._recovered.open()
        processed: list[Record] = []
        has_ended = False
        # At least one record, so that the job ends.
        for element in self._elements(queues, channels):  # type: ignore[arg-type]
            processed += element
            has_ended = bool(processed) and self._task.slice < math.inf and self._world.random.random() < 0.2
            if has_ended:
                break
        self._recovered.leave([q for q in queues if not q.is_empty])
        self._input_gate.leave(channels)
        return processed

    def _elements(self, queues: list[Queue], channels: ReadyChannels) -> Iterator[list[Record]]:
        for queue in queues:
            while not queue.is_empty:
                yield self._record(queue)
        while (queue := channels.next(False, False)) is not None:  # type: ignore[assignment]
            element = self._record(queue)
            while (control := queue.take_control()) is not None:
                self._on_control(queue.channel, *control[1:])
            channels.rotate(queue)
            yield element

    def _record(self, queue: Queue) -> list[Record]:
        block, start, end = queue.records()
        if start == end:
            return []
        queue.advance(start + 1)
        [(_, record, epoch)] = block.part(start, start + 1).records()
        if epoch is not None and epoch <= self._watermark:
            self._world.violate(f"{record} was sent in epoch {epoch}, after watermark {self._watermark}")
        return [record]

    def _on_control(self, channel: Channel, kind: int, value: int) -> None:
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
            pending_blocks=self._input_gate.pending,
            recovered_blocks=self._recovered.pending,
        )
