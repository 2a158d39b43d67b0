"""The messages of PostgreSQL's logical replication, as its plugin pgoutput writes them (version 1). Pure."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from millstream.common.tags import tagged

__all__ = ["Begin", "Column", "Commit", "Relation", "Unchanged", "begin", "commit", "cut_update", "key_of", "relation"]

_BEGIN = struct.Struct(">qqI")
_COMMIT = struct.Struct(">Bqqq")
_RELATION = struct.Struct(">I")
_COLUMN = struct.Struct(">Ii")
_SHORT = struct.Struct(">H")
_LENGTH = struct.Struct(">i")

BEGIN, COMMIT, RELATION, INSERT, UPDATE, DELETE, TRUNCATE = b"BCRIUDT"
_NULL, _UNCHANGED, _TEXT = b"nut"
_NEW, _KEY, _OLD = b"NKO"

# PostgreSQL counts from 2000, in microseconds.
_EPOCH_MS = 946_684_800_000
# The parts of an oid and of the letter behind it.
_ROW = 5


class Unchanged:
    """Stands for a large value that an UPDATE did not touch, which the log does not have."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = Unchanged()

# The text of a field; None for NULL.
Text = bytes | Unchanged | None


@tagged("postgres-begin")
class Begin(NamedTuple):
    """A transaction begins.

    Attributes:
        lsn: where its commit is in the log.
        ms: when it was committed.
        xid: its number.
    """

    lsn: int
    ms: int
    xid: int


class Commit(NamedTuple):
    """A transaction ends.

    Attributes:
        end: the log offset behind it.
    """

    lsn: int
    end: int
    ms: int


@tagged("postgres-column")
@dataclass(frozen=True)
class Column:
    """A column as the log describes it.

    Attributes:
        type: the oid of its type.
        is_key: whether it is part of the replica identity.
    """

    name: str
    type: int
    is_key: bool


@tagged("postgres-relation")
@dataclass(frozen=True)
class Relation:
    """A table as the log describes it, from some transaction on.

    Attributes:
        identity: the table's replica identity: d (default), n (nothing), f (full), i (an index).
    """

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[Column, ...]

    @property
    def table(self) -> str:
        return f"{self.schema}.{self.name}"


def begin(message: bytes) -> Begin:
    lsn, at, xid = _BEGIN.unpack_from(message, 1)
    return Begin(lsn, at // 1000 + _EPOCH_MS, xid)


def commit(message: bytes) -> Commit:
    _, lsn, end, at = _COMMIT.unpack_from(message, 1)
    return Commit(lsn, end, at // 1000 + _EPOCH_MS)


def relation(message: bytes) -> Relation:
    (oid,) = _RELATION.unpack_from(message, 1)
    schema, at = _string(message, 5)
    name, at = _string(message, at)
    identity = chr(message[at])
    (count,) = _SHORT.unpack_from(message, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        is_key = bool(message[at] & 1)
        column, at = _string(message, at + 1)
        oid_of_type, _ = _COLUMN.unpack_from(message, at)
        columns.append(Column(column, oid_of_type, is_key))
        at += 8
    # An empty schema stands for pg_catalog.
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _string(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(0, at)
    return message[at:end].decode(), end + 1


def oid_of(message: bytes) -> int:
    """Return which table an INSERT, UPDATE or DELETE is about."""
    return int.from_bytes(message[1:5], "big")


def truncated(message: bytes) -> tuple[int, ...]:
    """Return which tables a TRUNCATE is about."""
    (count,) = _RELATION.unpack_from(message, 1)
    return struct.unpack_from(f">{count}I", message, 6)


def texts(message: bytes, at: int) -> tuple[list[Text], int]:
    """Read a row; return its fields as text, and where it ends."""
    (count,) = _SHORT.unpack_from(message, at)
    at += 2
    fields: list[Text] = []
    for _ in range(count):
        kind = message[at]
        if kind == _TEXT:
            end = at + 5 + int.from_bytes(message[at + 1 : at + 5], "big")
            fields.append(message[at + 5 : end])
            at = end
        else:
            fields.append(None if kind == _NULL else UNCHANGED)
            at += 1
    return fields, at


class Images(NamedTuple):
    """What a message says of a row before and after, as texts.

    Attributes:
        whole: whether `before` has all columns, not only those of the key.
    """

    before: list[Text] | None
    after: list[Text] | None
    whole: bool


def images(message: bytes) -> Images:
    """Read an INSERT, UPDATE or DELETE."""
    kind = message[_ROW]
    if kind == _NEW:
        return Images(None, texts(message, 6)[0], False)
    before, at = texts(message, 6)
    after = texts(message, at + 1)[0] if message[0] == UPDATE else None
    return Images(before, after, kind == _OLD)


def key_of(found: Images, indexes: tuple[int, ...]) -> tuple[tuple[Any, ...] | None, tuple[Any, ...] | None]:
    """Return the key before and after, as texts; None where there is no row.

    Of an UPDATE that leaves the key alone both are the same, whether or not the log has a row from before.
    """
    before, after = found.before, found.after
    if after is None:
        assert before is not None
        return tuple(before[p] for p in indexes), None
    if before is None:
        key = tuple(after[p] for p in indexes)
        return key, key
    old = tuple(before[p] for p in indexes)
    return old, tuple(before[p] if after[p] is UNCHANGED else after[p] for p in indexes)


def cut_update(message: bytes) -> tuple[bytes, bytes]:
    """Write an UPDATE that has a row from before as a DELETE and an INSERT that has what did not change."""
    before, at = texts(message, 6)
    after, _ = texts(message, at + 1)
    if message[_ROW] == _OLD:
        after = [b if a is UNCHANGED else a for b, a in zip(before, after, strict=True)]
    return b"D" + message[1:at], b"I" + message[1:5] + b"N" + written(after)


def written(fields: list[Text]) -> bytes:
    """Write a row."""
    parts = [_SHORT.pack(len(fields))]
    for field in fields:
        if isinstance(field, bytes):
            parts += [b"t", _LENGTH.pack(len(field)), field]
        else:
            parts.append(b"n" if field is None else b"u")
    return b"".join(parts)


# Makes values of the text of fields.
Converter = Callable[[bytes], Any]


def row_reader(converters: list[Converter]) -> Callable[[bytes, int], tuple[list[Any], int]]:
    """Return what reads a row of a table, with its values converted; large ones that did not change are UNCHANGED."""
    width = len(converters)
    from_bytes = int.from_bytes

    def read(message: bytes, at: int) -> tuple[list[Any], int]:
        at += 2
        values: list[Any] = [None] * width
        for i, convert in enumerate(converters):
            kind = message[at]
            if kind == _TEXT:
                end = at + 5 + from_bytes(message[at + 1 : at + 5], "big")
                values[i] = convert(message[at + 5 : end])
                at = end
            else:
                if kind == _UNCHANGED:
                    values[i] = UNCHANGED
                at += 1
        return values, at

    return read
