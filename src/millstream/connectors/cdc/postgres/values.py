"""Python values of PostgreSQL's text form, by type. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from millstream.common.tags import tagged

__all__ = ["PostgresType", "converter", "is_known"]

# Types by the oid that every PostgreSQL has.
_BOOL, _BYTEA, _CHAR = 16, 17, 18
_INTEGERS = (20, 21, 23, 26)
_FLOATS = (700, 701)
_DATE, _TIME, _TIMESTAMP, _TIMESTAMPTZ, _TIMETZ, _NUMERIC = 1082, 1083, 1114, 1184, 1266, 1700
# Arrays of those, and of the commonest others.
_ELEMENTS = {
    1000: 16, 1001: 17, 1005: 21, 1007: 23, 1016: 20, 1021: 700, 1022: 701, 1182: 1082, 1183: 1083, 1115: 1114,
    1185: 1184, 1231: 1700, 1009: 25, 1014: 1042, 1015: 1043, 2951: 2950, 199: 114, 3807: 3802, 1003: 19, 1028: 26,
    1270: 1266, 1041: 869, 1187: 1186,
}  # fmt: skip


@tagged("postgres-type")
@dataclass(frozen=True)
class PostgresType:
    """What the catalog says of a type.

    Attributes:
        base: the type it is a domain over.
        element: the type of its elements, if it is an array.
        delimiter: the separator of elements.
    """

    base: int | None = None
    element: int | None = None
    delimiter: str = ","


def _text(data: bytes) -> str:
    return data.decode()


def _bool(data: bytes) -> bool:
    return data == b"t"


def _bytea(data: bytes) -> bytes:
    return bytes.fromhex(data[2:].decode())


def _numeric(data: bytes) -> Decimal:
    return Decimal(data.decode())


def _when(parse: Callable[[str], Any]) -> Callable[[bytes], Any]:
    def convert(data: bytes) -> Any:
        text = data.decode()
        try:
            return parse(text)
        except ValueError:
            # Infinity, and years that Python does not have: as PostgreSQL writes them.
            return text

    return convert


def _converters() -> dict[int, Callable[[bytes], Any]]:
    found: dict[int, Callable[[bytes], Any]] = dict.fromkeys(_INTEGERS, int)
    found |= dict.fromkeys(_FLOATS, float)
    found |= {_BOOL: _bool, _BYTEA: _bytea, _NUMERIC: _numeric}
    found |= {_DATE: _when(date.fromisoformat), _TIME: _when(time.fromisoformat), _TIMETZ: _when(time.fromisoformat)}
    return found | {_TIMESTAMP: _when(datetime.fromisoformat), _TIMESTAMPTZ: _when(datetime.fromisoformat)}


_BY_OID = _converters()


# Of text, as it is; and vectors, which are written as no array is.
_TEXTS = (18, 19, 22, 25, 30, 114, 1042, 1043, 2950, 3802)


def is_known(oid: int) -> bool:
    """Tell whether a type's values can be read without asking the catalog."""
    return oid in _BY_OID or oid in _ELEMENTS or oid in _TEXTS


def converter(oid: int, notes: Mapping[int, PostgresType]) -> Callable[[bytes], Any]:
    """Return what makes a value of a field's text; what has no type of Python's own stays text.

    Example:
        >>> converter(1007, {})(b"{1,NULL,3}")
        [1, None, 3]
    """
    known = _BY_OID.get(oid)
    if known is not None:
        return known
    if oid in _ELEMENTS:
        return _array_of(converter(_ELEMENTS[oid], notes), ",")
    note = notes.get(oid)
    if note is not None and note.base is not None:
        return converter(note.base, notes)
    if note is not None and note.element is not None:
        return _array_of(converter(note.element, notes), note.delimiter)
    return _text


def _array_of(element: Callable[[bytes], Any], delimiter: str) -> Callable[[bytes], Any]:
    def convert(data: bytes) -> list[Any]:
        text = data.decode()
        if text[0] == "[":
            # Bounds that are not the usual ones, which a list has no place for.
            text = text[text.index("=") + 1 :]
        return _elements(iter(text[1:]), element, delimiter)

    return convert


def _elements(text: Iterator[str], element: Callable[[bytes], Any], delimiter: str) -> list[Any]:
    """Read the elements of an array up to its closing brace."""
    found: list[Any] = []
    word: list[str] = []
    quoted = False
    for c in text:
        if c == "{":
            found.append(_elements(text, element, delimiter))
        elif c == '"':
            quoted = True
            word += _quoted(text)
        elif c == "\\":
            quoted = True
            word.append(next(text))
        elif c in (delimiter, "}"):
            if word or quoted:
                whole = "".join(word)
                found.append(None if whole == "NULL" and not quoted else element(whole.encode()))
            word, quoted = [], False
            if c == "}":
                break
        else:
            word.append(c)
    return found


def _quoted(text: Iterator[str]) -> Iterator[str]:
    for c in text:
        if c == '"':
            return
        yield next(text) if c == "\\" else c


_ESCAPES = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def copied_row(line: bytes) -> list[bytes | None]:
    """Read a line of COPY's text format: its fields, None for NULL.

    Example:
        >>> copied_row(b"1\\tx\\\\ny\\t\\\\N")
        [b'1', b'x\\ny', None]
    """
    fields = line.split(b"\t")
    if b"\\" not in line:
        return fields  # type: ignore[return-value]
    return [None if field == b"\\N" else _unescaped(field) for field in fields]


def _unescaped(field: bytes) -> bytes:
    first, *others = field.split(b"\\")
    if not others:
        return first
    found = [first]
    parts = iter(others)
    for part in parts:
        if part:
            found.append(_ESCAPES.get(part[:1], part[:1]) + part[1:])
        else:
            # A doubled backslash is one backslash.
            found.append(b"\\" + next(parts, b""))
    return b"".join(found)
