"""Blocks and frames: how a batch of elements travels between subtasks.

A block is a flat list of records (`key, value, timestamp` after one another, those that the edge carries) and the
control elements between them. A frame is a block, or anything else one slot has to say to another, with
an address in front. A message is frames end to end: what Spark's shuffle moves, as opaque bytes.
"""

from __future__ import annotations

import io
import marshal
import pickle
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import cloudpickle

# Control elements: (number of records before it, kind, value)
Control = tuple[int, int, int]
WATERMARK = 0
END_OF_INPUT = 1

_FRAME = struct.Struct(">IHIIII")
_MARSHAL = b"m"
_PICKLE = b"p"


def encode_block(records: list[Any], controls: list[Control]) -> bytes:
    """Write a block.

    marshal takes plain builtin values only, exactly as they are, and is several times as fast as pickle,
    which takes the rest. Both ends run the same Python. Version 2 of its format, and pickle's fast mode, write an
    object anew each time they meet it: two records never become one object that a later operator could change twice.
    """
    try:
        return _MARSHAL + marshal.dumps((records, controls), 2)
    except ValueError:
        return _PICKLE + dump((records, controls))


def dump(value: Any) -> bytes:
    """Pickle a value: plainly if that does, else with the code of classes that only the driver's script defines."""
    out = io.BytesIO()
    pickler = pickle.Pickler(out, 5)
    pickler.fast = True
    try:
        pickler.dump(value)
        return out.getvalue()
    except (pickle.PicklingError, AttributeError, TypeError, ValueError, RecursionError):
        # Also values that contain themselves, which only full pickling can write.
        data: bytes = cloudpickle.dumps(value, 5)
        return data


def decode_block(body: memoryview) -> tuple[list[Any], list[Control]]:
    """Read a block."""
    load = marshal.loads if body[:1] == _MARSHAL else pickle.loads
    block: tuple[list[Any], list[Control]] = load(body[1:])
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
