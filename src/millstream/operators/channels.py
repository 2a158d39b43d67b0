"""Channels: what one sender sends to one receiver, and in which order a receiver takes from several."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.operators.blocks import Block, Control, Frame, Layout
from millstream.operators.edges import Edge


class Channel:
    """One sender's elements, as seen by a receiver: how far its time has come, and whether it has ended."""

    __slots__ = ("edge", "ended", "idle", "number", "watermark")

    def __init__(self, edge: Edge, number: int) -> None:
        self.edge = edge
        self.number = number
        self.watermark = MIN_WATERMARK
        self.idle = False
        self.ended = False


def merge(
    channels: dict[tuple[int, int], Channel], frames: list[Frame]
) -> Iterator[tuple[Channel, Block, Control | None]]:
    """Yield records and control elements of all channels, the channel with the lowest watermark first."""
    by_channel: dict[tuple[int, int], list[Frame]] = {}
    for frame in frames:
        by_channel.setdefault((frame.edge, frame.channel), []).append(frame)
    waiting = [
        (channels[address], _elements(channels[address].edge.layout, sorted(found, key=lambda f: f.number)))
        for address, found in sorted(by_channel.items())
    ]
    while waiting:
        channel, elements = min(waiting, key=lambda w: w[0].watermark)
        for block, control in elements:
            yield channel, block, control
            if control is not None:
                break
        else:
            waiting.remove((channel, elements))


def _elements(layout: Layout, frames: list[Frame]) -> Iterator[tuple[Block, Control | None]]:
    """Yield one channel's records, cut where a control element stands."""
    for frame in frames:
        yield from layout.decode(frame.body).cut()
