"""Event time of a subtask: combines the watermarks of channels and passes them through the chain."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.operators.diagnostics.user_code_guard import Guard
from millstream.operators.runtime.blocks import END_OF_INPUT, IDLE, WATERMARK, Control
from millstream.operators.runtime.chain import ChainNode
from millstream.operators.runtime.record_writer import Channel, EdgeWriter


def _ignore(watermark: int) -> None:
    pass


class EventTime:
    """The event time of a subtask.

    Args:
        nodes: its chain.
        channels: its input channels.
        writers: its record writers, by edge.
        guard: calls user functions.

    Attributes:
        before_watermark: called with each new watermark before the operators.
        watermark: the watermark at the first operator.
        is_idle: whether all channels are idle.
    """

    def __init__(
        self,
        nodes: Sequence[ChainNode],
        channels: Collection[Channel],
        writers: Mapping[int, EdgeWriter],
        guard: Guard,
    ) -> None:
        self.watermark = MIN_WATERMARK
        self.is_idle = False
        self._nodes = nodes
        self._channels = channels
        self._writers = writers
        self._guard = guard
        self.before_watermark: Callable[[int], None] = _ignore
        # The outputs of each operator: indexes in the chain, and edges as ~id.
        self._outputs = [
            list(dict.fromkeys(o.node if o.node is not None else ~o.edge for o in n.outputs)) for n in nodes
        ]

    @property
    def has_ended(self) -> bool:
        """Whether the final watermark has arrived."""
        return self.watermark == MAX_WATERMARK

    def take(self, channel: Channel, control: Control) -> None:
        """Process a watermark, idle or end marker of a channel."""
        _, kind, value = control
        if kind == END_OF_INPUT:
            channel.ended = True
        elif kind == IDLE:
            channel.idle = True
            self.combine()
        elif kind == WATERMARK:
            channel.idle = False
            if value > channel.watermark:
                channel.watermark = value
            self.combine()

    def combine(self) -> None:
        """Advance to the minimum watermark of all channels that are not idle."""
        active = [c.watermark for c in self._channels if not c.idle]
        if not active:
            self._become_idle()
            return
        lowest = min(active)
        if lowest > self.watermark:
            self.is_idle = False
            self.advance(lowest)
        elif self.is_idle:
            self.is_idle = False
            self.announce()

    def _become_idle(self) -> None:
        if not self.is_idle:
            # Idle channels do not delay event time, regardless of the order in which they became idle.
            highest = max((c.watermark for c in self._channels), default=MIN_WATERMARK)
            if highest > self.watermark:
                self.advance(highest)
            self.is_idle = True
            self._arrive(0, None)

    def advance(self, watermark: int) -> None:
        """Advance the watermark."""
        self.before_watermark(watermark)
        self.watermark = watermark
        self._arrive(0, watermark)

    def announce(self) -> None:
        """Emit the current watermark again."""
        self._arrive(0, self.watermark)

    def pass_on(self, index: int, watermark: int | None) -> None:
        """Emit a watermark, or None for idle, after an operator."""
        for output in self._outputs[index]:
            self._arrive(output, watermark)

    def _arrive(self, index: int, watermark: int | None) -> None:
        """Pass a watermark, or None for idle, to an operator or edge (~id) and on to its outputs.

        Outputs receive the watermark that the operator returns.
        """
        # Not recursive: a chain may be longer than Python's stack is deep.
        pending = [(index, watermark)]
        while pending:
            index, watermark = pending.pop()
            if index < 0:
                writer = self._writers[~index]
                writer.idle() if watermark is None else writer.watermark(watermark)
                continue
            node = self._nodes[index]
            if watermark is None:
                must_continue = self._guard.call(node.operator.on_idle, node)
            else:
                watermark = self._guard.call(partial(node.operator.on_watermark, watermark), node)
                must_continue = watermark is not None
            if must_continue:
                pending += [(output, watermark) for output in reversed(self._outputs[index])]

    def begin_channels(self, ended_edges: frozenset[int]) -> None:
        """Reset the channels after a restore: all are at the subtask's watermark, except those of ended edges."""
        for channel in self._channels:
            channel.ended = channel.edge.id in ended_edges
            channel.watermark, channel.idle = MAX_WATERMARK if channel.ended else self.watermark, False
