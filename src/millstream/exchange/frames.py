"""Frames of the exchange protocol.

frame = kind u8 | epoch u64 | level u16 | length u64 | payload
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

HEAD = struct.Struct(">BQHQ")
# The number of blocks that an END closes.
COUNT = struct.Struct(">I")
# Before an epoch's tasks: the seconds that the driver was idle before it.
PAUSE = struct.Struct(">d")
# After it: the length of the part for this slot alone; the common tasks follow.
OWN = struct.Struct(">I")


class ProtocolError(Exception):
    """A frame that is not allowed at this point."""


class Kind(IntEnum):
    """The kinds of frames, by sender and receiver."""

    # From a slot to the driver: registration; connected to all slots; epoch report; failure; lost connection to
    # another slot, or (last in this list) failure to connect to one.
    REGISTER = 1
    CONNECTED = 2
    REPORT = 3
    FAILED = 4
    LOST = 5
    # From the host process of slots to the driver: this connection is their lifeline; one of them is frozen and is
    # killed (last in this list).
    REGISTER_HOST = 6
    # From the driver to a slot: the addresses of all slots; an epoch; stop.
    ROSTER = 7
    EPOCH = 8
    STOP = 9
    # From slot to slot: introduction; blocks for a level of an epoch; no more blocks (the barrier).
    INTRODUCE = 10
    DATA = 11
    END = 12
    UNREACHABLE = 13
    FROZEN = 14


class Frame(NamedTuple):
    """One frame. The payload is read-only."""

    kind: Kind
    epoch: int = 0
    level: int = 0
    payload: bytes = b""


def end_of(epoch: int, level: int, blocks: int) -> Frame:
    """Return the frame that ends a level with its number of blocks."""
    return Frame(Kind.END, epoch, level, COUNT.pack(blocks))
