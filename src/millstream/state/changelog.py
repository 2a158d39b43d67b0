"""The changelog: immutable files of state changes, and the pure logic of chaining them.

A file holds what one operator's subtask changed in one epoch (a delta), or all it holds (a base). Its name
says who wrote it; its header says which files come before it, so a handle is one name:

    MSCL | version u16 | header length u32 | header (JSON) | sections

A section is the pickled dict of one state table. A retry or a twin writes under a name of its own, and only the name
that the driver acknowledged counts.
"""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from millstream.common.errors import MillstreamError
from millstream.common.pickles import dump

_MAGIC = b"MSCL"
_VERSION = 1
_HEAD = struct.Struct(">4sHI")

# A chain is folded into a new base when it gets this long, or when its deltas outweigh the base this much.
MAX_CHAIN = 64
MAX_DELTA_WEIGHT = 2


@dataclass(frozen=True)
class FileRef:
    """A file of a chain: its name, its size, and whether it is a base."""

    name: str
    size: int
    is_base: bool


@dataclass
class Chain:
    """The files that together are a subtask's state: a base and the deltas after it."""

    files: list[FileRef] = field(default_factory=list)

    def wants_rebase(self) -> bool:
        """Tell whether the next file should be a base."""
        if len(self.files) >= MAX_CHAIN:
            return True
        base = sum(f.size for f in self.files if f.is_base)
        deltas = sum(f.size for f in self.files if not f.is_base)
        return len(self.files) > 2 and deltas > MAX_DELTA_WEIGHT * max(base, 1 << 20)

    def then(self, ref: FileRef) -> Chain:
        return Chain([ref]) if ref.is_base else Chain([*self.files, ref])


@dataclass(frozen=True)
class Table:
    """A table's content inside a file."""

    kind: str
    rows: dict[Any, Any]


@dataclass(frozen=True)
class ChangelogFile:
    """A decoded file."""

    operator: str
    subtask: int
    epoch: int
    is_base: bool
    parents: list[FileRef]
    tables: dict[str, Table]


def encode(file: ChangelogFile) -> bytes:
    """Write a file's bytes."""
    bodies = [dump(t.rows) for t in file.tables.values()]
    header = json.dumps(
        {
            "operator": file.operator,
            "subtask": file.subtask,
            "epoch": file.epoch,
            "base": file.is_base,
            "parents": [[p.name, p.size, p.is_base] for p in file.parents],
            "tables": [
                {"name": name, "kind": table.kind, "length": len(body), "crc": crc32(body)}
                for (name, table), body in zip(file.tables.items(), bodies, strict=True)
            ],
        }
    ).encode()
    return b"".join([_HEAD.pack(_MAGIC, _VERSION, len(header)), header, *bodies])


def decode(name: str, data: bytes) -> ChangelogFile:
    """Read a file's bytes; a damaged file is an error that names it."""
    try:
        magic, version, length = _HEAD.unpack_from(data)
        header = json.loads(data[_HEAD.size : _HEAD.size + length])
    except (struct.error, ValueError) as e:
        raise MillstreamError(f"State file {name} is damaged: its header cannot be read ({e}).") from e
    if magic != _MAGIC:
        raise MillstreamError(f"State file {name} is not a millstream state file.")
    if version > _VERSION:
        raise MillstreamError(f"State file {name} has format {version}; this millstream reads up to {_VERSION}.")
    tables: dict[str, Table] = {}
    start = _HEAD.size + length
    for entry in header["tables"]:
        body = data[start : start + entry["length"]]
        if len(body) != entry["length"] or crc32(body) != entry["crc"]:
            raise MillstreamError(f"State file {name} is damaged: table {entry['name']!r} fails its checksum.")
        tables[entry["name"]] = Table(entry["kind"], pickle.loads(body))
        start += entry["length"]
    return ChangelogFile(
        header["operator"],
        header["subtask"],
        header["epoch"],
        header["base"],
        [FileRef(*p) for p in header["parents"]],
        tables,
    )


def replay(name: str, read: Callable[[str], bytes]) -> tuple[Chain, list[ChangelogFile]]:
    """Read the chain that ends in `name`, oldest file first."""
    last_bytes = read(name)
    last = decode(name, last_bytes)
    ref = FileRef(name, len(last_bytes), last.is_base)
    if last.is_base:
        return Chain([ref]), [last]
    earlier = [decode(p.name, read(p.name)) for p in last.parents]
    return Chain([*last.parents, ref]), [*earlier, last]
