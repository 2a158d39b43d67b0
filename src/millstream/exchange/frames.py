"""What is said over a connection, one frame after the other.

frame = kind u8 | epoch u64 | level u16 | length u64 | payload
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

HEAD = struct.Struct(">BQHQ")
# How many blocks an END closes off.
COUNT = struct.Struct(">I")
# Ahead of an epoch's tasks: for how many seconds before it the driver had nothing to ask for.
PAUSE = struct.Struct(">d")
# Behind it: how many bytes follow that are for one slot alone; the tasks of all come behind these.
OWN = struct.Struct(">I")


class ProtocolError(Exception):
    """Somebody said what must not be said at this moment."""


class Kind(IntEnum):
    """The kinds of frames, by who sends them to whom."""

    # From a slot to the driver: who I am; I am connected to all others; all I did in an epoch; what went wrong; a
    # connection to another slot broke, or (at the end of this list) could not be made.
    HELLO = 1
    MET = 2
    REPORT = 3
    FAILED = 4
    LOST = 5
    # From the process that holds slots to the driver: this connection is their lifeline; one of them is frozen and is
    # killed (at the end of this list).
    HOLD = 6
    # From the driver to a slot: where the others are; an epoch; the end.
    ROSTER = 7
    EPOCH = 8
    STOP = 9
    # From slot to slot: who I am; blocks for a level of an epoch; there are no more of them (the barrier).
    MEET = 10
    DATA = 11
    END = 12
    CUT_OFF = 13
    FROZEN = 14


class Frame(NamedTuple):
    """One thing said. The payload is nobody's to change."""

    kind: Kind
    epoch: int = 0
    level: int = 0
    payload: bytes = b""


def end_of(epoch: int, level: int, blocks: int) -> Frame:
    """Return the frame that says that so many blocks were all."""
    return Frame(Kind.END, epoch, level, COUNT.pack(blocks))
