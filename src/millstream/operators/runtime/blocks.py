"""Blocks: how a batch of elements travels between subtasks.

A block contains records of one layout and the control elements between them. An addressed block is a block, or a slot's
report, with its target. A message is a sequence of addressed blocks for one slot, which either exchange moves as opaque
bytes.

Only this module knows that a block is a flat list. Records as Arrow columns would be another layout and block class;
`graph/job_graph.py` chooses the layout of an edge.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Protocol

from millstream.common.aliases import Key as UserKey
from millstream.common.aliases import Value
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.inferred_types import ANYTHING, Anything, Fixed, InferredType, constant, inferred_type_of
from millstream.common.pickles import dump
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var

# Control elements: (number of records before it, kind, value)
Control = tuple[int, int, int]
WATERMARK = 0
END_OF_INPUT = 1
# The channel is idle until its next watermark.
IDLE = 2

# Key, value and timestamp; None for a key or timestamp that the layout does not transport.
Record = tuple[UserKey, Value, int | None]

_ADDRESS = struct.Struct(">IHIIII")

# Longer tuples are sent whole: that is faster than rebuilding them from members.
_MAX_MEMBERS = 8


@fast_dataclass
class Pieces:
    """How a sender splits records that are tuples of a known size into members.

    Attributes:
        constants: for each member its constant int value, None for a member that is sent.
        timestamp: the member that is also the record's timestamp, if any.
    """

    constants: tuple[int | None, ...]
    timestamp: int | None = None

    @classmethod
    def of(cls, inferred_type: InferredType, timestamp: int | None) -> Pieces | None:
        """Return how records of an inferred type are split, None if they are not tuples of known members."""
        if (
            not isinstance(inferred_type, Fixed)
            or inferred_type.null
            or not 0 < len(inferred_type.members) <= _MAX_MEMBERS
        ):
            return None
        constants = [constant(m) for m in inferred_type.members]
        if None not in constants:
            # At least one member must be sent, or records could not be counted.
            constants[0] = None
        return cls(tuple(constants), timestamp)

    @cached_property
    def sent(self) -> list[int]:
        """The members that are sent."""
        return [i for i, value in enumerate(self.constants) if value is None]

    def inferred_type(self, known: InferredType) -> InferredType:
        """Return the inferred type of received records."""
        members = [ANYTHING if c is None else inferred_type_of(c) for c in self.constants]
        if isinstance(known, Fixed) and len(known.members) == len(members):
            members = [k if isinstance(m, Anything) else m for m, k in zip(members, known.members, strict=True)]
        return Fixed(tuple(members))


@fast_dataclass
class Layout:
    """The parts of a record that an edge transports, and their order in a block: key, value, timestamp.

    Attributes:
        has_key: whether the key is sent. A key that is a member of the record is cheaper to extract again.
        has_timestamp: whether the timestamp is sent.
        pieces: how the value is split, None for whole values. Each sender chooses its own and stores it in its blocks.
    """

    has_key: bool
    has_timestamp: bool
    pieces: Pieces | None = None

    @cached_property
    def _stride(self) -> int:
        """The number of list items per record."""
        value = 1 if self.pieces is None else len(self.pieces.sent)
        return self.has_key + value + self._sends_timestamp

    @property
    def _sends_timestamp(self) -> bool:
        """Whether the timestamp is a separate item."""
        return self.has_timestamp and (self.pieces is None or self.pieces.timestamp is None)

    def new_block(self) -> Block:
        """Return an empty block."""
        return Block(self, [], [])

    def block_of(self, records: Iterable[Record]) -> Block:
        """Return a block of records."""
        items: list[Value] = []
        for key, value, timestamp in records:
            if self.has_key:
                items.append(key)
            items += [value] if self.pieces is None else [value[i] for i in self.pieces.sent]
            if self._sends_timestamp:
                items.append(timestamp)
        return Block(self, items, [])

    def decode(self, body: bytes | memoryview) -> Block:
        """Decode what `Block.encode` wrote with this layout, with or without pieces."""
        items, controls, *pieces = pickle.loads(body)
        return Block(_layout(self.has_key, self.has_timestamp, *pieces) if pieces else self, items, controls)

    def count(self, block: Block, start: int, end: int) -> int:
        """Return the number of records between two offsets of a block, for metrics."""
        return end - start

    def full(self, blocks: list[Block], records: int) -> list[int]:
        """Return the indexes of blocks with at least this many records."""
        # One pass over all buckets, since it runs after every batch.
        limit = records * self._stride
        return [i for i, block in enumerate(blocks) if len(block._items) >= limit]

    def append_code(self, w: CodeWriter, append: str, key: str | None, value: Var) -> None:
        """Write how a record is appended to a block whose `Block.append` is in a variable."""
        if self.has_key:
            w.line(f"{append}({key})")
        for text in [value.name] if self.pieces is None else self._texts(w, value.name, self.pieces):
            w.line(f"{append}({text})")
        if self._sends_timestamp:
            w.line(f"{append}({value.timestamp})")

    def _texts(self, w: CodeWriter, name: str, pieces: Pieces) -> list[str]:
        """Return the expressions of the members that are sent."""
        return [w.member(name, i) or f"{name}[{i}]" for i in pieces.sent]

    @contextmanager
    def loop(self, w: CodeWriter) -> Iterator[tuple[Key | None, Var]]:
        """Write the head of the loop over a block whose `Block.content` is in the variable `batch`.

        Lines written inside the `with` are the loop's body; yields the record and, if it was sent, its key.
        """
        values = ["x"] if self.pieces is None else [f"x{i}" for i in self.pieces.sent]
        names = ["k"] * self.has_key + values + ["t"] * self._sends_timestamp
        head = f"for {names[0]} in batch:"
        if len(names) > 1:
            w.line("it = iter(batch)")
            head = f"for {', '.join(names)} in zip({', '.join(['it'] * len(names))}):"
        with w.block(head):
            key = Key("k", hashable=True) if self.has_key else None
            yield key, self._value(w)

    def _value(self, w: CodeWriter) -> Var:
        stamp = "t" if self.has_timestamp else None
        if self.pieces is None:
            return Var("x", stamp, detached=True)
        members = [f"x{i}" if c is None else f"({c})" for i, c in enumerate(self.pieces.constants)]
        w.tuple_of("x", tuple(members))
        if not self._sends_timestamp and self.pieces.timestamp is not None and self.has_timestamp:
            stamp = members[self.pieces.timestamp]
        return Var("x", stamp, detached=True)


# Cached, since loops are looked up by layout.
@cache
def _layout(has_key: bool, has_timestamp: bool, constants: tuple[int | None, ...], timestamp: int | None) -> Layout:
    return Layout(has_key, has_timestamp, Pieces(constants, timestamp))


# A block of batches is sent at about this many rows or bytes.
_BLOCK_ROWS = 1 << 16
_BLOCK_BYTES = 1 << 20


@fast_dataclass
class BatchLayout(Layout):
    """The layout of records that are batches of rows; it counts rows."""

    def count(self, block: Block, start: int, end: int) -> int:
        return sum(map(len, block._items[start * self._stride : end * self._stride : self._stride]))

    def full(self, blocks: list[Block], records: int) -> list[int]:
        return [i for i, block in enumerate(blocks) if block._items and self._is_full(block)]

    def _is_full(self, block: Block) -> bool:
        return (
            self.count(block, 0, len(block)) >= _BLOCK_ROWS
            or sum(batch.nbytes for batch in block._items[:: self._stride]) >= _BLOCK_BYTES
        )


class Block:
    """Records of one layout, and the control elements between them."""

    __slots__ = ("_controls", "_items", "_stride", "layout")

    def __init__(self, layout: Layout, items: list[Value], controls: list[Control]) -> None:
        self.layout = layout
        self._stride = layout._stride
        self._items = items
        self._controls = controls

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._items) // self._stride

    @property
    def is_empty(self) -> bool:
        """Whether it contains neither records nor control elements."""
        return not self._items and not self._controls

    @property
    def append(self) -> Callable[[Value], None]:
        """The function that `Layout.append_code` calls; valid as long as the block."""
        return self._items.append

    @property
    def content(self) -> list[Value]:
        """The items that the loop of `Layout.loop` iterates over."""
        return self._items

    @property
    def width(self) -> int:
        """The number of items per record."""
        return self._stride

    def add_control(self, kind: int, value: int) -> None:
        """Append a control element."""
        self._controls.append((len(self), kind, value))

    def columns(self) -> tuple[list[UserKey], list[Value], list[int | None]]:
        """Return the keys, the values and the timestamps of the records."""
        layout, items, stride = self.layout, self._items, self._stride
        keys = items[::stride] if layout.has_key else [None] * len(self)
        if layout.pieces is None:
            timestamps = items[stride - 1 :: stride] if layout.has_timestamp else [None] * len(self)
            return keys, items[layout.has_key :: stride], timestamps
        return keys, *self._put_together(layout.pieces)

    def _put_together(self, pieces: Pieces) -> tuple[list[Value], list[int | None]]:
        """Return the values and timestamps of split records."""
        layout, items, stride, count = self.layout, self._items, self._stride, len(self)
        columns: list[list[Value]] = [[value] * count for value in pieces.constants]
        for offset, member in enumerate(pieces.sent, int(layout.has_key)):
            columns[member] = items[offset::stride]
        timestamps: list[int | None] = [None] * count
        if layout.has_timestamp:
            timestamps = items[stride - 1 :: stride] if pieces.timestamp is None else columns[pieces.timestamp]
        return list(zip(*columns, strict=True)), timestamps

    def records(self) -> Iterator[Record]:
        """Iterate over the records."""
        return zip(*self.columns(), strict=True)

    @property
    def controls(self) -> Sequence[Control]:
        """Its control elements, in order."""
        return self._controls

    def part(self, start: int, end: int) -> Block:
        """Return a range of its records, without control elements."""
        whole = start == 0 and end == len(self)
        return Block(self.layout, self._items if whole else self._items[start * self._stride : end * self._stride], [])

    def rest(self, start: int, controls: int) -> Block:
        """Return the block after a number of records and control elements."""
        remaining = [(offset - start, kind, value) for offset, kind, value in self._controls[controls:]]
        return Block(self.layout, self._items[start * self._stride :], remaining)

    def halves(self) -> tuple[Block, Block]:
        """Return the two halves of its records with their control elements."""
        middle = len(self) // 2
        first, second = self.part(0, middle), self.part(middle, len(self))
        first._controls += [c for c in self._controls if c[0] <= middle]
        second._controls += [(n - middle, kind, value) for n, kind, value in self._controls if n > middle]
        return first, second

    def encode(self) -> bytes:
        """Encode it for `Layout.decode`."""
        pieces = self.layout.pieces
        if pieces is None:
            return dump((self._items, self._controls))
        return dump((self._items, self._controls, pieces.constants, pieces.timestamp))

    def clear(self) -> None:
        """Remove all content; `append` stays valid."""
        self._items.clear()
        self._controls.clear()


class Stored(Protocol):
    """A block on disk."""

    def __len__(self) -> int:
        """Return its size in bytes."""
        ...

    def __bytes__(self) -> bytes:
        """Read it."""
        ...


Body = bytes | memoryview | Stored


def in_memory(body: Body) -> bytes | memoryview:
    """Return a block, read from disk if necessary."""
    return body if isinstance(body, (bytes, memoryview)) else bytes(body)


@fast_dataclass
class AddressedBlock:
    """A block with its address, as a part of a message.

    Attributes:
        level: the target level; levels in between forward it unread.
        slot: the target slot.
        edge: its edge, or ACK_EDGE.
        channel: the sending subtask.
        number: its sequence number on that channel in this epoch.
        body: the block.
    """

    level: int
    slot: int
    edge: int
    channel: int
    number: int
    body: Body


# The pseudo edge of reports on their way to the last level.
ACK_EDGE = 0xFFFFFFFF


def join_blocks(blocks: Iterable[AddressedBlock]) -> bytes:
    """Write addressed blocks into one message."""
    parts: list[bytes | memoryview] = []
    for block in blocks:
        parts.append(_ADDRESS.pack(len(block.body), block.level, block.slot, block.edge, block.channel, block.number))
        parts.append(in_memory(block.body))
    return b"".join(parts)


def split_blocks(message: bytes) -> Iterator[AddressedBlock]:
    """Read the addressed blocks of a message without copying their bodies."""
    view, position, end = memoryview(message), 0, len(message)
    while position < end:
        length, level, slot, edge, channel, number = _ADDRESS.unpack_from(message, position)
        position += _ADDRESS.size
        yield AddressedBlock(level, slot, edge, channel, number, view[position : position + length])
        position += length
