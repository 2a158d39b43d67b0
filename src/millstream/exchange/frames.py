"""Frames of the exchange protocol, between the driver, hosts and slots.

The payload of a DATA frame is a message of blocks (`operators/runtime/blocks.py`), which the exchange does not read.

frame = kind u8 | epoch u64 | level u16 | length u64 | payload
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

HEAD = struct.Struct(">BQHQ")
# The number of messages that an END closes.
COUNT = struct.Struct(">I")
# Before an epoch's tasks: the seconds that the driver was idle before it.
PAUSE = struct.Struct(">d")
# After it: the length of the part for this slot alone; the common tasks follow.
SLOT_PART = struct.Struct(">I")


class ProtocolError(Exception):
    """A frame that is not allowed at this point."""


class Kind(IntEnum):
    """The kinds of frames, by sender and receiver."""

    # From a slot to the driver: it has registered; it is connected to all other slots; its report of an epoch; its
    # failure; it has lost the connection to another slot; it could not connect to one.
    REGISTER = 1
    CONNECTED = 2
    REPORT = 3
    FAILED = 4
    LOST = 5
    UNREACHABLE = 13
    # From the host process of slots to the driver: this connection lives as long as its slots; a slot is frozen, and is
    # killed.
    REGISTER_HOST = 6
    FROZEN = 14
    # From the driver to a slot: the addresses of all slots; an epoch; stop.
    ROSTER = 7
    EPOCH = 8
    STOP = 9
    # From slot to slot: introduction; a message for a level of an epoch; no more messages for it (the barrier).
    INTRODUCE = 10
    DATA = 11
    END = 12


class Frame(NamedTuple):
    """One frame. The payload is read-only."""

    kind: Kind
    epoch: int = 0
    level: int = 0
    payload: bytes = b""


def end_of(epoch: int, level: int, messages: int) -> Frame:
    """Return the frame that ends a level with its number of messages."""
    return Frame(Kind.END, epoch, level, COUNT.pack(messages))
