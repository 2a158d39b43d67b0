"""Channels: the connection from one sender to one receiver, as the receiver sees it."""

from __future__ import annotations

from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.operators.runtime.record_writer import Edge


class Channel:
    """The progress of one sender: its watermark, whether it is idle, whether it has ended."""

    __slots__ = ("edge", "ended", "idle", "number", "watermark")

    def __init__(self, edge: Edge, number: int) -> None:
        self.edge = edge
        self.number = number
        self.watermark = MIN_WATERMARK
        self.idle = False
        self.ended = False
