"""What a subtask carries from one epoch to the next besides state: the record, and its one codec.

The driver is given it at the end of each epoch, gives it to the next, and keeps it in checkpoints and savepoints: who
reads it may be another process, and another version of millstream. It is written as a head, which can be read alone,
and a pickle of plain data; what operators carry is pickled within, and so are shares of sources.

    version u8 | whether requests are in flight u8 | number of inputs u16 | inputs with pending input i32 .. | pickle
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from millstream.common.errors import DamagedStateError
from millstream.common.pickles import dump

# The version of manifests with which this form has come.
VERSION = 3
_HEAD = struct.Struct(">BBH")

# A share that was dealt out and is not read to its end: its split, the share, and how many of its records were read.
PendingRange = tuple[Any, Any, int]

# An edge, and the number of the subtask that sends.
ChannelAddress = tuple[int, int]

# Blocks as they came: whether records have their keys with them, whether their timestamps, and the blocks.
Blocks = tuple[bool, bool, list[bytes]]

# What came over a channel and was not processed: the channel, the number of the input it leads to, and the blocks.
PendingBlocks = tuple[ChannelAddress, int, Blocks]

# The same of a channel that is no more: the operator it led to, the number of that operator's input, and the blocks.
RecoveredBlocks = tuple[str, int, Blocks]

# What is not processed is input of an edge, shares of a source, or what came before the channels there are.
SPLIT_RANGES = -1
RECOVERED = -2


class ChannelState(Protocol):
    """How far a channel has come."""

    @property
    def watermark(self) -> int: ...

    @property
    def idle(self) -> bool: ...

    @property
    def ended(self) -> bool: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelSnapshot:
    """How far a channel had come."""

    watermark: int
    idle: bool
    ended: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeSnapshot:
    """What a subtask carries.

    Attributes:
        watermark: how far the time of its input has come.
        idle: whether nothing is to be expected of its input for now.
        ended: whether its input has ended.
        channels: its channels.
        operators: what each operator carries, by operator id.
        watermarks: how far each operator's time has come, by operator id.
        ended_edges: None for a subtask that goes on as it was. Where the graph or the parallelism was another, its
            channels are new ones: those of these edges have ended, the others stand at `watermark`, and those behind it
            do not know that yet. `checkpoint.restore` makes such records.
        pending_ranges: in the order in which it is to be read, what its source was dealt out and did not get to read.
        requests: whether there are requests in flight.
        pending_blocks: in the order of their turns, what its channels have brought and it did not get to process.
        recovered_blocks: what is to be processed before all else, because the channels are no more that brought it.
    """

    watermark: int
    idle: bool
    ended: bool
    channels: Mapping[ChannelAddress, ChannelSnapshot]
    operators: Mapping[str, Any]
    watermarks: Mapping[str, int]
    ended_edges: frozenset[int] | None = None
    pending_ranges: Sequence[PendingRange] = ()
    requests: bool = False
    pending_blocks: Sequence[PendingBlocks] = ()
    recovered_blocks: Sequence[RecoveredBlocks] = ()


def encode(
    *,
    watermark: int,
    idle: bool,
    ended: bool,
    channels: Mapping[ChannelAddress, ChannelState],
    operators: Mapping[str, Any],
    watermarks: Mapping[str, int],
    ended_edges: frozenset[int] | None = None,
    pending_ranges: Sequence[PendingRange] = (),
    requests: bool = False,
    pending_blocks: Sequence[PendingBlocks] = (),
    recovered_blocks: Sequence[RecoveredBlocks] = (),
) -> bytes:
    """Write a record.

    It takes what is in a `RuntimeSnapshot` and not the object: each subtask does this in each epoch, and to make one would cost
    as much as a third of all the rest.
    """
    rows = [(edge, sender, c.watermark, c.idle, c.ended) for (edge, sender), c in channels.items()]
    inputs = (
        {edge for (edge, _), _, _ in pending_blocks}
        | {RECOVERED for _ in recovered_blocks}
        | {SPLIT_RANGES for _ in pending_ranges}
    )
    head = _HEAD.pack(VERSION, requests, len(inputs)) + struct.pack(f">{len(inputs)}i", *sorted(inputs))
    return head + dump(
        (
            watermark,
            idle,
            ended,
            rows,
            operators,
            watermarks,
            ended_edges,
            list(pending_ranges),
            list(pending_blocks),
            list(recovered_blocks),
        )
    )


def pending_inputs(data: bytes) -> frozenset[int]:
    """Return of which inputs (edges, SPLIT_RANGES, RECOVERED) a record has what is not processed; the rest is not read."""
    if not data:
        return frozenset()
    return frozenset(struct.unpack_from(f">{_HEAD.unpack_from(data)[2]}i", data, _HEAD.size))


def has_pending_input(data: bytes) -> bool:
    """Tell whether a record says that there is input that is not processed, without reading it."""
    return bool(pending_inputs(data))


def has_requests(data: bytes) -> bool:
    """Tell whether a record says that there are requests in flight, without reading it."""
    return bool(data) and bool(data[1])


def decode(data: bytes) -> RuntimeSnapshot:
    """Read a record; the classes of what operators carry must be here."""
    if data[0] != VERSION:
        raise DamagedStateError(f"What a subtask carries is of format {data[0]}; this millstream reads {VERSION}.")
    record = pickle.loads(memoryview(data)[_HEAD.size + 4 * _HEAD.unpack_from(data)[2] :])
    watermark, idle, ended, rows, operators, watermarks, ended_edges, ranges, blocks, recovered = record
    return RuntimeSnapshot(
        watermark=watermark,
        idle=idle,
        ended=ended,
        channels={(edge, sender): ChannelSnapshot(watermark=w, idle=i, ended=e) for edge, sender, w, i, e in rows},
        operators=operators,
        watermarks=watermarks,
        ended_edges=ended_edges,
        pending_ranges=tuple(ranges),
        pending_blocks=tuple(blocks),
        recovered_blocks=tuple(recovered),
        requests=has_requests(data),
    )
