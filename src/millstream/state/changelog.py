"""The changelog: immutable files of state changes, and the pure logic of chaining them.

A file holds the changes of one operator's subtask in one epoch (a delta), or its complete state (a base). The name
identifies the writer. The footer repeats it, and lists the files before it with the checksums of their footers. So a
handle is one name, and no file can be mistaken for another:

    MSCL | version u16 | sections | footer (JSON) | its length u32 | its checksum u32 | MSCL

A section is a pickled dict of rows of one state table. A large table has several, so that neither writing nor reading
needs more memory than one. A section of a table of columns is a sequence of Arrow streams, whose lengths are in the
footer: they are written without a copy. A retry or a speculative copy of a task writes under its own name, and only the
name that the driver acknowledged counts.
"""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from zlib import compress, decompress

from millstream.common.aliases import Json, Key, Value
from millstream.common.checksums import Checksum, Summing, checksum_of, crc32, is_digest, matches
from millstream.common.errors import DamagedStateError, InvalidProgramError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.pickles import dump
from millstream.state.kinds import COLUMNS, StateKind, kind_named

# Rows of a table by their addresses.
Rows = dict[Key, Value]

_MAGIC = b"MSCL"
_VERSION = 3
_HEAD = struct.Struct(">4sH")
_TAIL = struct.Struct(">II4s")

# Unpickles bytes.
Loads = Callable[["bytes | memoryview"], Value]

# Maximum rows of a section.
SECTION_ROWS = 2_000

# A chain is folded into a new base when it has MAX_CHAIN files, or when its deltas are MAX_DELTA_WEIGHT times as large
# as the base. If the state is known to be large, a chain may have one file per MIN_FILE bytes of state, and it is not
# folded below MAX_WASTE times the size of the state: rows were only added, so folding would save nothing.
MAX_CHAIN = 64
MAX_DELTA_WEIGHT = 2
MIN_FILE = 16 << 20
MAX_WASTE = 2


@fast_dataclass
class StoredState:
    """The location of a subtask's state: the last file of its chain, or its part of a savepoint, with the checksum."""

    file: str
    checksum: Checksum | None = None

    @property
    def is_part(self) -> bool:
        """Whether it is a part of a savepoint."""
        return self.file.endswith(".parquet")


@fast_dataclass
class FileRef:
    """A file of a chain; `checksum` is that of its footer, if known."""

    name: str
    size: int
    is_base: bool
    checksum: Checksum | None = None


@dataclass
class Chain:
    """The files of a subtask's state: a base and the deltas after it."""

    files: list[FileRef] = field(default_factory=list)

    def wants_rebase(self, live: int = 0) -> bool:
        """Return whether the next file should be a base.

        Args:
            live: a lower bound of the size of the state in bytes.
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
    rows: Rows


def sections(table: str, kind: StateKind, address: str, rows: Iterable[tuple[Key, Value]]) -> Iterator[Section]:
    """Split the rows of a table into sections."""
    left = iter(rows)
    while part := dict(islice(left, SECTION_ROWS)):
        yield Section(table, kind, address, part)


@fast_dataclass
class FileHeader:
    """The writer of a file, and the files before it."""

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
            f"State {section.table!r} holds an object that cannot be pickled ({e}): store plain data."
        ) from None


def encode(
    header: FileHeader,
    content: Iterable[Section],
    compressed: bool = False,
    on_end: Callable[[Checksum], None] = lambda checksum: None,
    digest: bool = False,
) -> Iterator[bytes]:
    """Yield a file's bytes, one section after the other; `on_end` gets the checksum of the footer.

    The footer has the checksums of all sections, so that its checksum covers the whole file. With `digest`, checksums
    are cryptographic, so that no other file can be made to match them.
    """
    yield _HEAD.pack(_MAGIC, _VERSION)
    index: list[dict[str, Json]] = []
    for section in content:
        entry = {"name": section.table, "kind": section.kind.name, "address": section.address, "zlib": compressed}
        if section.kind is COLUMNS:
            # Lazy: jobs without columns do not load Arrow.
            from millstream.state.column_files import streams_of

            body, entry["streams"] = streams_of(section.rows)
        else:
            body = [_pickled(section)]
        if compressed:
            body = [compress(b"".join(body), 1)]
        length, summing = 0, Summing(digest)
        for piece in body:
            length += len(piece)
            summing.add(piece)
            yield piece
        index.append({**entry, "length": length, "crc": summing.checksum()})
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
    """A file with its footer read; sections are read one by one."""

    name: str
    size: int
    header: FileHeader
    checksum: Checksum
    _index: list[dict[str, Json]]
    _data: bytes | memoryview

    def sections(
        self, only_check: bool = False, loads: Loads = pickle.loads, only: str | None = None
    ) -> Iterator[Section]:
        """Yield the sections; raise an error that names the file if one is damaged.

        Args:
            only_check: whether to verify checksums only, and leave out the rows.
            loads: reads pickles.
            only: the table to read; None for all.
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
        """Yield the sections without their rows, each with its size in bytes."""
        for entry in self._index:
            yield self._section(entry, {}), entry["length"]

    def _section(self, entry: dict[str, Json], rows: Rows) -> Section:
        kind = kind_named(entry["kind"], f"Table {entry['name']!r} of state file {self.name}")
        return Section(entry["name"], kind, entry["address"], rows)


def _rows(entry: dict[str, Json], body: bytes | memoryview, loads: Loads) -> Rows:
    if entry["zlib"]:
        body = decompress(body)
    if "streams" in entry:
        from millstream.state.column_files import changes_of

        return changes_of(body, entry["streams"])
    return loads(body)  # type: ignore[no-any-return]


def decode(name: str, data: bytes | memoryview, expected: Checksum | None = None) -> ChangelogFile:
    """Read a file's footer.

    Args:
        name: the file's name.
        data: its contents.
        expected: the checksum of its footer, if known.

    Raises:
        DamagedStateError: the file is damaged, or is another file under this name.
    """
    try:
        magic, version = _HEAD.unpack_from(data)
    except struct.error as e:
        raise DamagedStateError(f"State file {name} is damaged: it is too short ({e}).") from e
    if magic != _MAGIC:
        raise DamagedStateError(f"State file {name} is not a millstream state file.")
    if version != _VERSION:
        raise DamagedStateError(
            f"State file {name} has format {version}; this version of millstream reads format {_VERSION}."
        )
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
        file = ChangelogFile(name, len(data), header, checksum, footer["sections"], data)
    except (struct.error, ValueError, KeyError, TypeError) as e:
        raise DamagedStateError(f"State file {name} is damaged: its footer cannot be read ({e}).") from e
    if header.name not in (None, name.rpartition("/")[2]) or expected not in (None, checksum):
        raise DamagedStateError(
            f"State file {name} is not the file that this checkpoint wrote: it was replaced by another file, written "
            f"as {header.name}."
        )
    return file


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
