"""The changelog: immutable files of state changes, and the pure logic of chaining them.

A file holds what one operator's subtask changed in one epoch (a delta), or all it holds (a base). Its name
says who wrote it; its footer says the same, and which files come before it with the checksums of their footers, so a
handle is one name, and no file can take the place of another:

    MSCL | version u16 | sections | footer (JSON) | its length u32 | its checksum u32 | MSCL

A section is a pickled dict of rows of one state table; a large table has several, so that neither writing nor reading
needs more memory than one. Of a table of columns it is streams of Arrow one behind the other, which the footer tells
apart: they are written from where they are, without a copy. A retry or a twin writes under a name of its own, and only
the name that the driver acknowledged counts.
"""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from zlib import compress, decompress

from millstream.common.checksums import Checksum, Summing, checksum_of, crc32, is_digest, matches
from millstream.common.errors import DamagedStateError, InvalidProgramError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.pickles import dump
from millstream.state.kinds import COLUMNS, StateKind, kind_named

_MAGIC = b"MSCL"
_VERSION = 3
_HEAD = struct.Struct(">4sH")
_TAIL = struct.Struct(">II4s")

# Makes objects of pickled bytes.
Loads = Callable[[Any], Any]

# So many rows go into one section.
SECTION_ROWS = 2_000

# A chain is folded into a new base when it gets this long, or when its deltas outweigh the base this much. If the state
# is known to be large, a chain is as long as its files would have so many bytes each, and is not folded as long as it
# has hardly more than the state: then there is nothing to be folded, rows have only come.
MAX_CHAIN = 64
MAX_DELTA_WEIGHT = 2
MIN_FILE = 16 << 20
MAX_WASTE = 2


@fast_dataclass
class FileRef:
    """A file of a chain: its name, its size, whether it is a base, and the checksum of its footer, if that is known."""

    name: str
    size: int
    is_base: bool
    checksum: Checksum | None = None


@dataclass
class Chain:
    """The files that together are a subtask's state: a base and the deltas after it."""

    files: list[FileRef] = field(default_factory=list)

    def wants_rebase(self, live: int = 0) -> bool:
        """Tell whether the next file should be a base.

        Args:
            live: how many bytes the state is known to have; it may have more.
        """
        if len(self.files) >= max(MAX_CHAIN, live // MIN_FILE):
            return True
        base = sum(f.size for f in self.files if f.is_base)
        deltas = sum(f.size for f in self.files if not f.is_base)
        outweighs = len(self.files) > 2 and deltas > MAX_DELTA_WEIGHT * max(base, 1 << 20)
        return outweighs and base + deltas > MAX_WASTE * live

    def then(self, ref: FileRef) -> Chain:
        return Chain([ref]) if ref.is_base else Chain([*self.files, ref])


@fast_dataclass
class Section:
    """Rows of a table inside a file."""

    table: str
    kind: StateKind
    address: str
    rows: dict[Any, Any]


def sections(table: str, kind: StateKind, address: str, rows: Iterable[tuple[Any, Any]]) -> Iterator[Section]:
    """Cut the rows of a table into sections."""
    left = iter(rows)
    while part := dict(islice(left, SECTION_ROWS)):
        yield Section(table, kind, address, part)


@fast_dataclass
class FileHeader:
    """Who wrote a file, and what comes before it."""

    operator: str
    subtask: int
    epoch: int
    is_base: bool
    parents: list[FileRef]
    name: str | None = None


def _pickled(section: Section) -> bytes:
    try:
        return dump(section.rows)
    except Exception as e:
        raise InvalidProgramError(
            f"State {section.table!r} holds something that cannot be pickled: {e}. Keep plain data in state."
        ) from None


def encode(
    header: FileHeader,
    content: Iterable[Section],
    compressed: bool = False,
    on_end: Callable[[Checksum], None] = lambda checksum: None,
    digest: bool = False,
) -> Iterator[bytes]:
    """Yield a file's bytes, one section after the other; `on_end` is given the checksum of its footer.

    The footer has the checksums of all sections, so that its own stands for the whole file. With `digest` they are
    such that nobody can make another file for them.
    """
    yield _HEAD.pack(_MAGIC, _VERSION)
    index: list[dict[str, Any]] = []
    for section in content:
        about = {"name": section.table, "kind": section.kind.name, "address": section.address, "zlib": compressed}
        if section.kind is COLUMNS:
            # Arrow is not loaded by jobs that have no columns.
            from millstream.state.column_files import streams_of

            body, about["streams"] = streams_of(section.rows)
        else:
            body = [_pickled(section)]
        if compressed:
            body = [compress(b"".join(body), 1)]
        length, summing = 0, Summing(digest)
        for piece in body:
            length += len(piece)
            summing.add(piece)
            yield piece
        index.append({**about, "length": length, "crc": summing.checksum()})
    footer = json.dumps(
        {
            "operator": header.operator,
            "subtask": header.subtask,
            "epoch": header.epoch,
            "base": header.is_base,
            "parents": [[p.name, p.size, p.is_base, p.checksum] for p in header.parents],
            "name": header.name,
            "sections": index,
        }
    ).encode()
    yield footer
    on_end(checksum_of(footer, digest))
    yield _TAIL.pack(len(footer), crc32(footer), _MAGIC)


@fast_dataclass
class ChangelogFile:
    """A file whose footer has been read; its sections are read one by one."""

    name: str
    size: int
    header: FileHeader
    checksum: Checksum
    _index: list[dict[str, Any]]
    _data: bytes | memoryview

    def sections(
        self, only_check: bool = False, loads: Loads = pickle.loads, only: str | None = None
    ) -> Iterator[Section]:
        """Yield the sections; a damaged one is an error that names the file.

        Args:
            only_check: whether to leave their rows out.
            loads: reads pickles.
            only: the one table that is wanted; without it, all are.
        """
        start = _HEAD.size
        for entry in self._index:
            if only is not None and entry["name"] != only:
                start += entry["length"]
                continue
            body = self._data[start : start + entry["length"]]
            if len(body) != entry["length"] or not matches(body, entry["crc"]):
                raise DamagedStateError(
                    f"State file {self.name} is damaged: table {entry['name']!r} fails its checksum."
                )
            yield self._section(entry, {} if only_check else _rows(entry, body, loads))
            start += entry["length"]

    def index(self) -> Iterator[tuple[Section, int]]:
        """Yield the sections without their rows, and how many bytes each takes."""
        for entry in self._index:
            yield self._section(entry, {}), entry["length"]

    def _section(self, entry: dict[str, Any], rows: dict[Any, Any]) -> Section:
        kind = kind_named(entry["kind"], f"Table {entry['name']!r} of state file {self.name}")
        return Section(entry["name"], kind, entry["address"], rows)


def _rows(entry: dict[str, Any], body: bytes | memoryview, loads: Loads) -> dict[Any, Any]:
    if entry["zlib"]:
        body = decompress(body)
    if "streams" in entry:
        from millstream.state.column_files import changes_of

        return changes_of(body, entry["streams"])
    return loads(body)  # type: ignore[no-any-return]


def decode(name: str, data: bytes | memoryview, expected: Checksum | None = None) -> ChangelogFile:
    """Read a file's footer; a damaged file is an error that names it, and so is one in the place of another.

    Args:
        name: the file's name.
        data: its contents.
        expected: the checksum of its footer, where whoever names the file knows it.
    """
    try:
        magic, version = _HEAD.unpack_from(data)
    except struct.error as e:
        raise DamagedStateError(f"State file {name} is damaged: it is too short ({e}).") from e
    if magic != _MAGIC:
        raise DamagedStateError(f"State file {name} is not a millstream state file.")
    if version != _VERSION:
        raise DamagedStateError(f"State file {name} has format {version}; this millstream reads {_VERSION}.")
    try:
        length, crc, end_magic = _TAIL.unpack_from(data, len(data) - _TAIL.size)
        if end_magic != _MAGIC:
            raise ValueError("its end is missing")
        text = bytes(data[len(data) - _TAIL.size - length : len(data) - _TAIL.size])
        if crc32(text) != crc:
            raise ValueError("it fails its checksum")
        checksum = checksum_of(text, is_digest(expected))
        footer = json.loads(text)
        header = FileHeader(
            footer["operator"],
            footer["subtask"],
            footer["epoch"],
            footer["base"],
            [FileRef(*p) for p in footer["parents"]],
            footer["name"],
        )
        found = ChangelogFile(name, len(data), header, checksum, footer["sections"], data)
    except (struct.error, ValueError, KeyError, TypeError) as e:
        raise DamagedStateError(f"State file {name} is damaged: its footer cannot be read ({e}).") from e
    if header.name not in (None, name.rpartition("/")[2]) or expected not in (None, checksum):
        raise DamagedStateError(
            f"State file {name} is not the one that was written for this checkpoint: another file, written as "
            f"{header.name}, is in its place."
        )
    return found


def replay(
    name: str, read: Callable[[str], bytes | memoryview], expected: Checksum | None = None
) -> tuple[Chain, Iterator[ChangelogFile]]:
    """Return the chain that ends in `name`, and its files, oldest first; `expected` is as in `decode`."""
    last = decode(name, read(name), expected)
    ref = FileRef(name, last.size, last.header.is_base, last.checksum)
    if last.header.is_base:
        return Chain([ref]), iter([last])
    parents = last.header.parents
    return Chain([*parents, ref]), (
        decode(f.name, read(f.name), f.checksum) if f.name != name else last for f in [*parents, ref]
    )
