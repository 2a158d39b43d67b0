"""Converts PostgreSQL's texts to Python values, by type. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal

from millstream.common.aliases import Value
from millstream.common.tags import tagged

__all__ = ["PostgresType", "converter", "is_known"]

# The oids of built-in types.
_BOOL, _BYTEA, _CHAR = 16, 17, 18
_INTEGERS = (20, 21, 23, 26)
_FLOATS = (700, 701)
_DATE, _TIME, _TIMESTAMP, _TIMESTAMPTZ, _TIMETZ, _NUMERIC = 1082, 1083, 1114, 1184, 1266, 1700
# The oids of array types, with those of their elements.
_ELEMENTS = {
    1000: 16, 1001: 17, 1005: 21, 1007: 23, 1016: 20, 1021: 700, 1022: 701, 1182: 1082, 1183: 1083, 1115: 1114,
    1185: 1184, 1231: 1700, 1009: 25, 1014: 1042, 1015: 1043, 2951: 2950, 199: 114, 3807: 3802, 1003: 19, 1028: 26,
    1270: 1266, 1041: 869, 1187: 1186,
}  # fmt: skip


@tagged("postgres-type")
@dataclass(frozen=True)
class PostgresType:
    """A type of the catalog.

    Attributes:
        base: the type under a domain.
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


def _temporal(parse: Callable[[str], Value]) -> Callable[[bytes], Value]:
    def convert(data: bytes) -> Value:
        text = data.decode()
        try:
            return parse(text)
        except ValueError:
            # Infinity, and years that Python does not have, stay texts.
            return text

    return convert


_timestamp, _time = _temporal(datetime.fromisoformat), _temporal(time.fromisoformat)
_BY_OID: dict[int, Callable[[bytes], Value]] = {
    **dict.fromkeys(_INTEGERS, int),
    **dict.fromkeys(_FLOATS, float),
    _BOOL: _bool,
    _BYTEA: _bytea,
    _NUMERIC: _numeric,
    _DATE: _temporal(date.fromisoformat),
    _TIME: _time,
    _TIMETZ: _time,
    _TIMESTAMP: _timestamp,
    _TIMESTAMPTZ: _timestamp,
}
# Types of text, and vectors, whose text is not that of an array.
_TEXTS = (18, 19, 22, 25, 30, 114, 1042, 1043, 2950, 3802)


def is_known(oid: int) -> bool:
    """Return whether a type's values can be read without querying the catalog."""
    return oid in _BY_OID or oid in _ELEMENTS or oid in _TEXTS


def converter(oid: int, types: Mapping[int, PostgresType]) -> Callable[[bytes], Value]:
    """Return a function that converts the text of a field; types without an equivalent in Python stay texts.

    Example:
        >>> converter(1007, {})(b"{1,NULL,3}")
        [1, None, 3]
    """
    known = _BY_OID.get(oid)
    if known is not None:
        return known
    if oid in _ELEMENTS:
        return _array_of(converter(_ELEMENTS[oid], types), ",")
    entry = types.get(oid)
    if entry is not None and entry.base is not None:
        return converter(entry.base, types)
    if entry is not None and entry.element is not None:
        return _array_of(converter(entry.element, types), entry.delimiter)
    return _text


def _array_of(element: Callable[[bytes], Value], delimiter: str) -> Callable[[bytes], Value]:
    def convert(data: bytes) -> list[Value]:
        text = data.decode()
        if text[0] == "[":
            # Explicit bounds, which a list cannot express.
            text = text[text.index("=") + 1 :]
        return _elements(iter(text[1:]), element, delimiter)

    return convert


def _elements(text: Iterator[str], element: Callable[[bytes], Value], delimiter: str) -> list[Value]:
    """Read the elements of an array up to its closing brace."""
    elements: list[Value] = []
    item: list[str] = []
    quoted = False
    for c in text:
        if c == "{":
            elements.append(_elements(text, element, delimiter))
        elif c == '"':
            quoted = True
            item += _quoted(text)
        elif c == "\\":
            quoted = True
            item.append(next(text))
        elif c in (delimiter, "}"):
            if item or quoted:
                whole = "".join(item)
                elements.append(None if whole == "NULL" and not quoted else element(whole.encode()))
            item, quoted = [], False
            if c == "}":
                break
        else:
            item.append(c)
    return elements


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
    decoded = [first]
    parts = iter(others)
    for part in parts:
        if part:
            decoded.append(_ESCAPES.get(part[:1], part[:1]) + part[1:])
        else:
            # A doubled backslash is one backslash.
            decoded.append(b"\\" + next(parts, b""))
    return b"".join(decoded)
