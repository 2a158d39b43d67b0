"""The messages of PostgreSQL's logical replication, in the protocol of pgoutput, version 1. Pure."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from millstream.common.aliases import Value
from millstream.common.tags import tagged

__all__ = [
    "Begin",
    "Column",
    "Commit",
    "Relation",
    "Unchanged",
    "begin",
    "commit",
    "key_of",
    "relation",
    "split_update",
]

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
# The offset of the letter after the oid, and of a row after that letter.
_KIND, _ROW = 5, 6


class Unchanged:
    """A large value that an UPDATE left unchanged; the log omits it."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = Unchanged()

# The text of a field; None for NULL.
Text: TypeAlias = bytes | Unchanged | None


@tagged("postgres-begin")
class Begin(NamedTuple):
    """The beginning of a transaction.

    Attributes:
        lsn: the log offset of its commit.
        ms: the commit time in milliseconds.
        xid: its number.
    """

    lsn: int
    ms: int
    xid: int


class Commit(NamedTuple):
    """The end of a transaction.

    Attributes:
        end: the log offset after it.
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
    """A table as the log describes it, valid for the next changes.

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
    lsn, time, xid = _BEGIN.unpack_from(message, 1)
    return Begin(lsn, time // 1000 + _EPOCH_MS, xid)


def commit(message: bytes) -> Commit:
    _, lsn, end, time = _COMMIT.unpack_from(message, 1)
    return Commit(lsn, end, time // 1000 + _EPOCH_MS)


def relation(message: bytes) -> Relation:
    (oid,) = _RELATION.unpack_from(message, 1)
    schema, offset = _string(message, 5)
    name, offset = _string(message, offset)
    identity = chr(message[offset])
    (count,) = _SHORT.unpack_from(message, offset + 1)
    offset += 3
    columns = []
    for _ in range(count):
        is_key = bool(message[offset] & 1)
        column, offset = _string(message, offset + 1)
        oid_of_type, _ = _COLUMN.unpack_from(message, offset)
        columns.append(Column(column, oid_of_type, is_key))
        offset += 8
    # An empty schema means pg_catalog.
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _string(message: bytes, start: int) -> tuple[str, int]:
    end = message.index(0, start)
    return message[start:end].decode(), end + 1


def oid_of(message: bytes) -> int:
    """Return the table of an INSERT, UPDATE or DELETE."""
    return int.from_bytes(message[1:5], "big")


def truncated(message: bytes) -> tuple[int, ...]:
    """Return the tables of a TRUNCATE."""
    (count,) = _RELATION.unpack_from(message, 1)
    return struct.unpack_from(f">{count}I", message, 6)


def texts(message: bytes, offset: int) -> tuple[list[Text], int]:
    """Return the fields of a row as texts, and the offset of its end."""
    (count,) = _SHORT.unpack_from(message, offset)
    offset += 2
    fields: list[Text] = []
    for _ in range(count):
        kind = message[offset]
        if kind == _TEXT:
            end = offset + 5 + int.from_bytes(message[offset + 1 : offset + 5], "big")
            fields.append(message[offset + 5 : end])
            offset = end
        else:
            fields.append(None if kind == _NULL else UNCHANGED)
            offset += 1
    return fields, offset


class Images(NamedTuple):
    """A row before and after a change, as texts.

    Attributes:
        is_before_complete: whether `before` has all columns, not only those of the key.
    """

    before: list[Text] | None
    after: list[Text] | None
    is_before_complete: bool


def images(message: bytes) -> Images:
    """Read an INSERT, UPDATE or DELETE."""
    kind = message[_KIND]
    if kind == _NEW:
        return Images(None, texts(message, _ROW)[0], False)
    before, end = texts(message, _ROW)
    after = texts(message, end + 1)[0] if message[0] == UPDATE else None
    return Images(before, after, kind == _OLD)


def key_of(row: Images, indexes: tuple[int, ...]) -> tuple[tuple[Text, ...] | None, tuple[Text, ...] | None]:
    """Return the key before and after a change, as texts; None if there is no row.

    An UPDATE that does not change the key returns it twice, even if the log omits the old row.
    """
    before, after = row.before, row.after
    if after is None:
        assert before is not None
        return tuple(before[i] for i in indexes), None
    if before is None:
        key = tuple(after[i] for i in indexes)
        return key, key
    old = tuple(before[i] for i in indexes)
    return old, tuple(before[i] if after[i] is UNCHANGED else after[i] for i in indexes)


def split_update(message: bytes) -> tuple[bytes, bytes]:
    """Split an UPDATE that has the old row into a DELETE and an INSERT, which includes unchanged values."""
    before, end = texts(message, _ROW)
    after, _ = texts(message, end + 1)
    if message[_KIND] == _OLD:
        after = [b if a is UNCHANGED else a for b, a in zip(before, after, strict=True)]
    return b"D" + message[1:end], b"I" + message[1:5] + b"N" + encoded(after)


def encoded(fields: list[Text]) -> bytes:
    """Return the bytes of a row."""
    parts = [_SHORT.pack(len(fields))]
    for field in fields:
        if isinstance(field, bytes):
            parts += [b"t", _LENGTH.pack(len(field)), field]
        else:
            parts.append(b"n" if field is None else b"u")
    return b"".join(parts)


# Converts the text of a field to its value.
Converter: TypeAlias = Callable[[bytes], Value]
# Reads the row at an offset of a message; returns its values and the offset of its end.
RowReader: TypeAlias = Callable[[bytes, int], tuple[list[Value], int]]


def row_reader(converters: list[Converter]) -> RowReader:
    """Return a function that reads a row of a table; large unchanged values are UNCHANGED."""
    width = len(converters)
    from_bytes = int.from_bytes

    def read(message: bytes, offset: int) -> tuple[list[Value], int]:
        offset += 2
        values: list[Value] = [None] * width
        for i, convert in enumerate(converters):
            kind = message[offset]
            if kind == _TEXT:
                end = offset + 5 + from_bytes(message[offset + 1 : offset + 5], "big")
                values[i] = convert(message[offset + 5 : end])
                offset = end
            else:
                if kind == _UNCHANGED:
                    values[i] = UNCHANGED
                offset += 1
        return values, offset

    return read
