"""What a subtask carries from one epoch to the next besides state: the record, and its one codec.

The driver is given it at the end of each epoch, gives it to the next, and keeps it in checkpoints and savepoints: who
reads it may be another process, and another version of millstream. It is written as a byte that says the version, and a
pickle of plain data; what operators carry is pickled within, and so are shares of sources.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Protocol

from millstream.common.errors import DamagedStateError
from millstream.common.pickles import dump

# The version of manifests with which this form has come.
VERSION = 2
_FRONT = bytes([VERSION])
# The same with input that is not read: who knows nothing of that must not go on from it.
WITH_UNREAD = 3
_FRONT_WITH_UNREAD = bytes([WITH_UNREAD])
# The same with more: input that came through the exchange and waits, requests in flight, whose inputs are in the
# operator's state, or both. Behind the version stand whether there are requests, and of which inputs something waits.
WITH_MORE = 4
_MORE = struct.Struct(">BBH")

# A share that was dealt out and is not read to its end: its split, the share, and how many of its records were read.
Unread = tuple[Any, Any, int]

# An edge, and the number of the subtask that sends.
ChannelAddress = tuple[int, int]

# Blocks as they came: whether records have their keys with them, whether their timestamps, and the blocks.
Blocks = tuple[bool, bool, list[bytes]]

# What came over a channel and was not processed: the channel, the number of the input it leads to, and the blocks.
Waiting = tuple[ChannelAddress, int, Blocks]

# The same of a channel that is no more: the operator it led to, the number of that operator's input, and the blocks.
Earlier = tuple[str, int, Blocks]

# What is not processed is input of an edge, shares of a source, or what came before the channels there are.
SHARES = -1
EARLIER = -2


class ChannelState(Protocol):
    """How far a channel has come."""

    @property
    def watermark(self) -> int: ...

    @property
    def idle(self) -> bool: ...

    @property
    def ended(self) -> bool: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class CarriedChannel:
    """How far a channel had come."""

    watermark: int
    idle: bool
    ended: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Carried:
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
        unread: in the order in which it is to be read, what its source was dealt out and did not get to read.
        requests: whether there are requests in flight.
        waiting: in the order of their turns, what its channels have brought and it did not get to process.
        earlier: what is to be processed before all else, because the channels are no more that brought it.
    """

    watermark: int
    idle: bool
    ended: bool
    channels: Mapping[ChannelAddress, CarriedChannel]
    operators: Mapping[str, Any]
    watermarks: Mapping[str, int]
    ended_edges: frozenset[int] | None = None
    unread: Sequence[Unread] = ()
    requests: bool = False
    waiting: Sequence[Waiting] = ()
    earlier: Sequence[Earlier] = ()


def encode(
    *,
    watermark: int,
    idle: bool,
    ended: bool,
    channels: Mapping[ChannelAddress, ChannelState],
    operators: Mapping[str, Any],
    watermarks: Mapping[str, int],
    ended_edges: frozenset[int] | None = None,
    unread: Sequence[Unread] = (),
    requests: bool = False,
    waiting: Sequence[Waiting] = (),
    earlier: Sequence[Earlier] = (),
) -> bytes:
    """Write a record.

    It takes what is in a `Carried` and not the object: each subtask does this in each epoch, and to make one would cost
    as much as a third of all the rest.
    """
    rows = [(edge, sender, c.watermark, c.idle, c.ended) for (edge, sender), c in channels.items()]
    record = watermark, idle, ended, rows, operators, watermarks, ended_edges
    if waiting or earlier or requests:
        inputs = {edge for (edge, _), _, _ in waiting} | {EARLIER for _ in earlier} | {SHARES for _ in unread}
        front = _MORE.pack(WITH_MORE, requests, len(inputs)) + struct.pack(f">{len(inputs)}i", *sorted(inputs))
        return front + dump((*record, list(unread), list(waiting), list(earlier)))
    return _FRONT_WITH_UNREAD + dump((*record, list(unread))) if unread else _FRONT + dump(record)


def unread_inputs(data: bytes) -> frozenset[int]:
    """Return of which inputs (edges, SHARES, EARLIER) a record has what is not processed; the rest is not read."""
    if not data or data[0] not in (WITH_UNREAD, WITH_MORE):
        return frozenset()
    if data[0] == WITH_UNREAD:
        return frozenset({SHARES})
    return frozenset(struct.unpack_from(f">{_MORE.unpack_from(data)[2]}i", data, _MORE.size))


def has_unread(data: bytes) -> bool:
    """Tell whether a record says that there is input that is not processed, without reading it."""
    return bool(unread_inputs(data))


def has_requests(data: bytes) -> bool:
    """Tell whether a record says that there are requests in flight, without reading it."""
    return data[:1] == bytes([WITH_MORE]) and bool(_MORE.unpack_from(data)[1])


def decode(data: bytes) -> Carried:
    """Read a record; the classes of what operators carry must be here."""
    version = data[0]
    if version == 1:
        return _decode_1(data[1:])
    if version not in (VERSION, WITH_UNREAD, WITH_MORE):
        raise DamagedStateError(
            f"What a subtask carries is of format {version}; this millstream knows 1 to {WITH_MORE}."
        )
    front = 1 if version != WITH_MORE else _MORE.size + 4 * _MORE.unpack_from(data)[2]
    record = pickle.loads(memoryview(data)[front:])
    watermark, idle, ended, rows, operators, watermarks, ended_edges, *left = record
    unread, waiting, earlier = (*left, (), (), ())[:3]
    return Carried(
        watermark=watermark,
        idle=idle,
        ended=ended,
        channels={(edge, sender): CarriedChannel(watermark=w, idle=i, ended=e) for edge, sender, w, i, e in rows},
        operators=operators,
        watermarks=watermarks,
        ended_edges=ended_edges,
        unread=tuple(unread),
        waiting=tuple(waiting),
        earlier=tuple(earlier),
        requests=has_requests(data),
    )


# --- version 1: a pickle that did not say so, of a tuple or of an object


def mark_version_1(data: bytes) -> bytes:
    """Let a record of version 1 say what it is. It is not read: the classes of what is in it may not be here."""
    return bytes([1]) + data if data else data


def _decode_1(data: bytes) -> Carried:
    left = _Unpickler1(BytesIO(data)).load()
    if isinstance(left, _TakenOver1):
        return Carried(idle=False, channels={}, **vars(left))
    watermark, idle, ended, channels, operators, watermarks = left
    return Carried(
        watermark=watermark,
        idle=idle,
        ended=ended,
        channels={a: CarriedChannel(watermark=w, idle=i, ended=e) for a, (w, i, e) in channels.items()},
        operators=operators,
        watermarks=watermarks,
    )


class _TakenOver1:
    """The object that stood for a record with `ended_edges`: it had no `idle` and no `channels`."""


class _Unpickler1(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name, global_name) == ("millstream.operators.report", "TakenOver"):
            return _TakenOver1
        return super().find_class(module_name, global_name)
