"""Channels: what one sender sends to one receiver, and how far its time has come."""

from __future__ import annotations

from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.operators.runtime.record_writer import Edge


class Channel:
    """One sender's elements, as seen by a receiver: how far its time has come, and whether it has ended."""

    __slots__ = ("edge", "ended", "idle", "number", "watermark")

    def __init__(self, edge: Edge, number: int) -> None:
        self.edge = edge
        self.number = number
        self.watermark = MIN_WATERMARK
        self.idle = False
        self.ended = False
