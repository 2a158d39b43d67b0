"""Blocks and frames: how a batch of elements travels between subtasks.

A block is a flat list of records (`key, value, timestamp` after one another, those that the edge carries) and the
control elements between them. A frame is a block, or anything else one slot has to say to another, with
an address in front. A message is frames end to end: what Spark's shuffle moves, as opaque bytes.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from millstream.common.pickles import dump

# Control elements: (number of records before it, kind, value)
Control = tuple[int, int, int]
WATERMARK = 0
END_OF_INPUT = 1
# Nothing is to be expected from this channel for now; the next watermark ends that.
IDLE = 2

_FRAME = struct.Struct(">IHIIII")


def encode_block(records: list[Any], controls: list[Control]) -> bytes:
    """Write a block."""
    return dump((records, controls))


def decode_block(body: memoryview) -> tuple[list[Any], list[Control]]:
    """Read a block."""
    block: tuple[list[Any], list[Control]] = pickle.loads(body)
    return block


@dataclass(frozen=True)
class Frame:
    """An addressed piece of a message.

    Attributes:
        level: the level it is for; a level that is passed on the way hands it on unread.
        slot: the slot it is for.
        edge: the edge it belongs to, or ACK_EDGE.
        channel: the sending subtask.
        number: its place among the frames of that channel in this epoch.
        body: the block.
    """

    level: int
    slot: int
    edge: int
    channel: int
    number: int
    body: bytes | memoryview


# The address of acknowledgements on their way to the last level.
ACK_EDGE = 0xFFFFFFFF


def join_frames(frames: Iterable[Frame]) -> bytes:
    """Write frames into one message."""
    parts: list[bytes | memoryview] = []
    for f in frames:
        parts.append(_FRAME.pack(len(f.body), f.level, f.slot, f.edge, f.channel, f.number))
        parts.append(f.body)
    return b"".join(parts)


def split_frames(message: bytes) -> Iterator[Frame]:
    """Read the frames of a message without copying their bodies."""
    view, position, end = memoryview(message), 0, len(message)
    while position < end:
        length, level, slot, edge, channel, number = _FRAME.unpack_from(message, position)
        position += _FRAME.size
        yield Frame(level, slot, edge, channel, number, view[position : position + length])
        position += length
