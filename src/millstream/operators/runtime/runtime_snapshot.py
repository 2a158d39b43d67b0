"""The runtime snapshot of a subtask: what it passes to the next epoch besides state, and its codec.

The driver receives it at the end of each epoch, sends it with the next, and stores it in checkpoints and savepoints;
another process or a later version of millstream may read it. A header that can be read alone precedes a pickle of plain
data, which contains the pickled snapshots of operators and split ranges of sources.

    version u8 | whether requests are in flight u8 | number of inputs u16 | inputs with pending input i32 .. | pickle
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from millstream.common.errors import DamagedStateError
from millstream.common.pickles import dump
from millstream.operators.base import OperatorSnapshot, Split
from millstream.operators.source import SplitRange

# The manifest version that introduced this format.
VERSION = 3
_HEAD = struct.Struct(">BBH")

# A split range that is not read to its end: its split, the range, and the number of records read.
PendingRange = tuple[Split, SplitRange, int]

# An edge and the index of the sending subtask.
ChannelAddress = tuple[int, int]

# Encoded blocks: whether records have keys, whether they have timestamps, and the blocks.
Blocks = tuple[bool, bool, list[bytes]]

# Pending input of a channel: the channel, the index of the input it leads to, and the blocks.
PendingBlocks = tuple[ChannelAddress, int, Blocks]

# In-flight input of a channel that no longer exists: the operator id, the index of its input, and the blocks.
RecoveredBlocks = tuple[str, int, Blocks]

# Ids of pending input that belongs to no edge: split ranges of a source, and recovered input.
SPLIT_RANGES = -1
RECOVERED = -2


class ChannelState(Protocol):
    """The progress of a channel."""

    @property
    def watermark(self) -> int: ...

    @property
    def idle(self) -> bool: ...

    @property
    def ended(self) -> bool: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelSnapshot:
    """The progress of a channel at the end of an epoch."""

    watermark: int
    idle: bool
    ended: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeSnapshot:
    """The runtime state of a subtask at the end of an epoch.

    Attributes:
        watermark: the watermark of its input.
        idle: whether its input is idle.
        ended: whether its input has ended.
        channels: its channels.
        operators: the snapshots of operators, by operator id.
        watermarks: the watermark of each operator, by operator id.
        ended_edges: None for a subtask with unchanged channels. After a change of graph or parallelism, the channels of
            these edges have ended, all others start at `watermark`, and downstream has yet to be notified.
            `checkpoint.restore` creates such snapshots.
        pending_ranges: assigned split ranges that its source has not read, in reading order.
        requests: whether requests are in flight.
        pending_blocks: received input that it has not processed, in processing order.
        recovered_blocks: in-flight input of channels that no longer exist; processed first.
    """

    watermark: int
    idle: bool
    ended: bool
    channels: Mapping[ChannelAddress, ChannelSnapshot]
    operators: Mapping[str, OperatorSnapshot]
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
    operators: Mapping[str, OperatorSnapshot],
    watermarks: Mapping[str, int],
    ended_edges: frozenset[int] | None = None,
    pending_ranges: Sequence[PendingRange] = (),
    requests: bool = False,
    pending_blocks: Sequence[PendingBlocks] = (),
    recovered_blocks: Sequence[RecoveredBlocks] = (),
) -> bytes:
    """Encode a runtime snapshot.

    Takes the fields instead of a `RuntimeSnapshot`: each subtask encodes one per epoch, and creating the object would
    add a third to the cost.
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
    """Return the inputs (edges, SPLIT_RANGES, RECOVERED) with pending input; reads only the header."""
    if not data:
        return frozenset()
    return frozenset(struct.unpack_from(f">{_HEAD.unpack_from(data)[2]}i", data, _HEAD.size))


def has_pending_input(data: bytes) -> bool:
    """Return whether there is pending input; reads only the header."""
    return bool(pending_inputs(data))


def has_requests(data: bytes) -> bool:
    """Return whether requests are in flight; reads only the header."""
    return bool(data) and bool(data[1])


def decode(data: bytes) -> RuntimeSnapshot:
    """Decode a runtime snapshot; the classes of operator snapshots must be importable."""
    if data[0] != VERSION:
        raise DamagedStateError(
            f"The runtime snapshot has format {data[0]}; this version of millstream reads format {VERSION}."
        )
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
