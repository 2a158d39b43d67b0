"""Blocks and frames: how a batch of elements travels between subtasks.

A block holds records of one layout and the control elements between them. A frame is a block, or anything else one
slot has to say to another, with an address in front. A message is frames end to end: what Spark's shuffle moves,
as opaque bytes.

That a block is a flat list is known here and nowhere else. Records as Arrow columns would be another layout with a
block of its own, beside `Layout` and `Block` and with their methods; which layout an edge has is said where the edge
is made (`graph/job_graph.py`).
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from millstream.common.pickles import dump
from millstream.operators.codegen import CodeWriter, Key, Var

# Control elements: (number of records before it, kind, value)
Control = tuple[int, int, int]
WATERMARK = 0
END_OF_INPUT = 1
# Nothing is to be expected from this channel for now; the next watermark ends that.
IDLE = 2

# Key, value and timestamp; None for a key or timestamp that the layout does not carry.
Record = tuple[Any, Any, int | None]

_FRAME = struct.Struct(">IHIIII")


@dataclass(frozen=True)
class Layout:
    """What an edge carries of each record, and how that lies in a block: key, value, timestamp, then the next record.

    Attributes:
        has_key: whether the key travels with the record. One that is only a part of the record is cheaper found anew.
        has_timestamp: whether the timestamp travels with the record.
    """

    has_key: bool
    has_timestamp: bool

    @cached_property
    def _stride(self) -> int:
        """How many list items one record takes."""
        return 1 + self.has_key + self.has_timestamp

    def new_block(self) -> Block:
        """Return a block that holds nothing yet."""
        return Block(self, [], [])

    def block_of(self, records: Iterable[Record]) -> Block:
        """Return a block of records."""
        items: list[Any] = []
        for key, value, timestamp in records:
            if self.has_key:
                items.append(key)
            items.append(value)
            if self.has_timestamp:
                items.append(timestamp)
        return Block(self, items, [])

    def decode(self, body: bytes | memoryview) -> Block:
        """Read what `Block.encode` wrote."""
        items, controls = pickle.loads(body)
        return Block(self, items, controls)

    def full(self, blocks: list[Block], records: int) -> list[int]:
        """Return the places of the blocks that hold so many records or more."""
        # In one go: it is asked of all buckets after every batch.
        limit = records * self._stride
        return [i for i, block in enumerate(blocks) if len(block._items) >= limit]

    def append_code(self, w: CodeWriter, append: str, key: str | None, value: Var) -> None:
        """Write how a record gets into a block, whose `Block.append` is in a variable."""
        if self.has_key:
            w.line(f"{append}({key})")
        w.line(f"{append}({value.name})")
        if self.has_timestamp:
            w.line(f"{append}({value.timestamp})")

    @contextmanager
    def loop(self, w: CodeWriter) -> Iterator[tuple[Key | None, Var]]:
        """Write the head of the loop over a block, whose `Block.content` is in the variable `batch`.

        What is written inside the `with` is the loop's body; it is given the record and, if that came along, its key.
        """
        names = ["k"] * self.has_key + ["x"] + ["t"] * self.has_timestamp
        head = "for x in batch:"
        if len(names) > 1:
            w.line("it = iter(batch)")
            head = f"for {', '.join(names)} in zip({', '.join(['it'] * len(names))}):"
        with w.block(head):
            key = Key("k", hashable=True) if self.has_key else None
            yield key, Var("x", "t" if self.has_timestamp else None, detached=True)


class Block:
    """Records of one layout, and the control elements between them."""

    __slots__ = ("_controls", "_items", "_layout", "_stride")

    def __init__(self, layout: Layout, items: list[Any], controls: list[Control]) -> None:
        self._layout = layout
        self._stride = layout._stride
        self._items = items
        self._controls = controls

    def __len__(self) -> int:
        """Return how many records it holds."""
        return len(self._items) // self._stride

    @property
    def is_empty(self) -> bool:
        """Whether it holds neither a record nor a control element."""
        return not self._items and not self._controls

    @property
    def append(self) -> Callable[[Any], None]:
        """What the lines of `Layout.append_code` call; good for as long as the block is."""
        return self._items.append

    @property
    def content(self) -> Any:
        """What the loop of `Layout.loop` runs over."""
        return self._items

    @property
    def width(self) -> int:
        """How many items of its content a record takes."""
        return self._stride

    def add_control(self, kind: int, value: int) -> None:
        """Put a control element behind the records there are."""
        self._controls.append((len(self), kind, value))

    def columns(self) -> tuple[list[Any], list[Any], list[int | None]]:
        """Return the keys, the values and the timestamps of the records."""
        layout, items, stride = self._layout, self._items, self._stride
        keys = items[::stride] if layout.has_key else [None] * len(self)
        timestamps = items[stride - 1 :: stride] if layout.has_timestamp else [None] * len(self)
        return keys, items[layout.has_key :: stride], timestamps

    def records(self) -> Iterator[Record]:
        """Return the records, one by one."""
        return zip(*self.columns(), strict=True)

    @property
    def controls(self) -> Sequence[Control]:
        """Its control elements, in order."""
        return self._controls

    def part(self, start: int, end: int) -> Block:
        """Return some of its records, without the control elements."""
        whole = start == 0 and end == len(self)
        return Block(self._layout, self._items if whole else self._items[start * self._stride : end * self._stride], [])

    def rest(self, at: int, controls: int) -> Block:
        """Return what is left of it behind so many records and control elements."""
        left = [(place - at, kind, value) for place, kind, value in self._controls[controls:]]
        return Block(self._layout, self._items[at * self._stride :], left)

    def encode(self) -> bytes:
        """Write it, for `Layout.decode` to read."""
        return dump((self._items, self._controls))

    def clear(self) -> None:
        """Take out all there is; `append` still adds to it."""
        self._items.clear()
        self._controls.clear()


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
