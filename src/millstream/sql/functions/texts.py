"""More string functions: parts, padding, splitting, formatting, tests."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.aliases import Value
from millstream.sql import type_rules
from millstream.sql import types as t
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.errors import TableException
from millstream.sql.functions.cast_times import UNITS
from millstream.sql.functions.function import Arguments, Datum, Function, Kernel, Resolved, Site
from millstream.sql.functions.java_format import BadFormat, formatted
from millstream.sql.functions.java_regex import BadPattern, java_pattern
from millstream.sql.functions.rules import (
    BOOLEAN,
    INT,
    STRING,
    any_integer,
    any_type,
    either,
    integer,
    same_as,
    takes,
    text,
    text_or_binary,
)
from millstream.sql.functions.strings import varying
from millstream.sql.functions.vectors import by_row

# --- parts and padding


def _left(value: str, count: int) -> str:
    return value[:count] if count > 0 else ""


def _right(value: str, count: int) -> str:
    return value[-count:] if count > 0 else ""


def _ends(function: Callable[[str, int], str], left: bool) -> Kernel:
    def kernel(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
        value, count = values
        if isinstance(count, pa.Scalar) and count.is_valid and not isinstance(value, pa.Scalar) and count.as_py() > 0:
            n = count.as_py()
            return pc.utf8_slice_codeunits(value, 0, n) if left else pc.utf8_slice_codeunits(value, -n)
        return by_row(function)(site, rows, values)

    return kernel


def _padded(left: bool) -> Callable[[str, int, str], str | None]:
    def pad(value: str, length: int, by: str) -> str | None:
        if length < 0 or not by:
            return None
        missing = length - len(value)
        if missing <= 0:
            return value[:length]
        filling = (by * (missing // len(by) + 1))[:missing]
        return filling + value if left else value + filling

    return pad


def _pad_kernel(left: bool) -> Kernel:
    operation = pc.utf8_lpad if left else pc.utf8_rpad

    def kernel(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
        value, length, by = values
        constant = isinstance(length, pa.Scalar) and isinstance(by, pa.Scalar) and length.is_valid and by.is_valid
        if constant and not isinstance(value, pa.Scalar) and length.as_py() >= 0 and len(by.as_py()) == 1:
            prefix = pc.utf8_slice_codeunits(value, 0, length.as_py())
            return operation(prefix, length.as_py(), by.as_py())
        return by_row(_padded(left))(site, rows, values)

    return kernel


def _repeat(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    return by_row(lambda v, n: v * max(n, 0))(site, rows, values)


def _reverse(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    return pc.utf8_reverse(values[0])


_WORD = re.compile(r"[a-zA-Z0-9]+")


def _initcap(value: str) -> str:
    """Capitalize each word, where words consist of ASCII letters and digits."""
    return _WORD.sub(lambda match: match.group().capitalize(), value)


def _overlay(value: str, by: str, start: int, length: int | None = None) -> str:
    if start <= 0 or start > len(value):
        return value
    size = len(by) if length is None else length
    if start + size > len(value) or size < 0:
        return value[: start - 1] + by
    return value[: start - 1] + by + value[start - 1 + size :]


def _overlaid(arguments: Arguments) -> t.DataType:
    lengths = [varying(kind).length for kind in arguments.types[:2]]  # type: ignore[attr-defined]
    return t.VarCharType(1).with_length(min(sum(lengths), t.MAX_LENGTH))


def _translate(value: str | None, source: str | None, target: str | None) -> str | None:
    if not source or value is None:
        return value
    table: dict[int, int | None] = {}
    for i, c in enumerate(source):
        table.setdefault(ord(c), ord(target[i]) if target is not None and i < len(target) else None)
    return value.translate(table)


def _locate(needle: str, value: str, start: int = 1) -> int:
    return value.find(needle, max(start - 1, 0)) + 1 if needle else 1


def _instr(value: str, needle: str, start: int = 1, occurrence: int = 1) -> int:
    """Return the position of the n-th occurrence; a negative start searches backwards."""
    if occurrence < 1:
        raise TableException("INSTR: nthAppearance must be positive!")
    if start < 0:
        result = _instr(value[::-1], needle[::-1], -start, occurrence)
        return len(value) - len(needle) - result + 2 if result else 0
    if start == 0 or not needle:
        return 1 if start else 0
    position = start - 2
    for _ in range(occurrence):
        position = value.find(needle, position + 1)
        if position < 0:
            return 0
    return position + 1


def _split(value: str, delimiter: str) -> list[str]:
    return list(value) if not delimiter else value.split(delimiter)


def _split_index(value: str, separator: str | int, index: int) -> str | None:
    if index < 0:
        return None
    if isinstance(separator, int):
        if not 0 < separator <= 255:
            return None
        separator = chr(separator)
    parts = _split_preserving(value, separator)
    return parts[index] if index < len(parts) else None


def _split_index_kernel(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    value, separator, index = values
    if isinstance(separator, pa.Scalar) and isinstance(index, pa.Scalar) and not isinstance(value, pa.Scalar):
        between, position = separator.as_py(), index.as_py()
        between = chr(between) if isinstance(between, int) and 0 < between < 128 else between
        if (
            isinstance(between, str)
            and len(between) == 1
            and between.isascii()
            and position is not None
            and position >= 0
        ):
            return _nth_part(value, ord(between), position)
    return by_row(_split_index)(site, rows, values)


def _nth_part(column: pa.Array, separator: int, index: int) -> pa.Array:
    """Return the n-th part of each text split by a single-byte separator."""
    _, offsets, letters = column.buffers()
    offset_of = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    begin = int(offset_of[0])
    body = np.frombuffer(letters or b"", np.uint8)[begin : int(offset_of[-1])]
    separators = np.append(np.flatnonzero(body == separator), 0)
    # Per row the first separator at or after its start.
    first = np.searchsorted(separators[:-1], offset_of - begin)
    count = np.diff(first)
    starts, ends = offset_of[:-1].astype(np.int64), offset_of[1:].astype(np.int64)
    if index:
        has_start = count >= index
        starts = np.where(has_start, separators[np.where(has_start, first[:-1] + index - 1, -1)] + begin + 1, ends)
    has_end = count > index
    ends = np.where(has_end, separators[np.where(has_end, first[:-1] + index, -1)] + begin, ends)
    # One column of all slices between these positions; every other one is a part.
    positions = np.empty(2 * len(column), np.int32)
    positions[::2], positions[1::2] = starts, ends
    pieces = pa.StringArray.from_buffers(max(len(positions) - 1, 0), pa.py_buffer(positions), letters)
    missing = (count < index) | (np.diff(offset_of) == 0)
    if column.null_count:
        missing |= column.is_null().to_numpy(zero_copy_only=False)
    return pieces.take(pa.array(np.arange(0, len(positions), 2), mask=missing))


def _split_preserving(value: str, separator: str) -> list[str]:
    if not value:
        return []
    return value.split(separator) if separator else re.split(r"\s+", value)


def _str_to_map(value: str, of_list: str = ",", of_pair: str = "=") -> list[tuple[str, str | None]] | None:
    if not value:
        return []
    result: dict[str, str | None] = {}
    try:
        between, within = java_pattern(of_list).python, java_pattern(of_pair).python
    except BadPattern:
        return None
    for part in _java_split(value, between, 0):
        pair = _java_split(part, within, 2)
        result[pair[0]] = pair[1] if len(pair) > 1 else None
    return list(result.items())


def _java_split(value: str, pattern: re.Pattern[str], limit: int) -> list[str]:
    parts: list[str] = []
    end = 0
    for match in pattern.finditer(value):
        if limit and len(parts) == limit - 1:
            break
        if match.end() == 0:
            continue
        parts.append(value[end : match.start()])
        end = match.end()
    if not parts:
        return [value]
    parts.append(value[end:])
    while not limit and len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def _elt(index: int, *values: Value) -> Value:
    return values[index - 1] if 1 <= index <= len(values) else None


def _elt_kernel(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    return by_row(lambda i, *v: None if i is None else _elt(i, *v), keep_nulls=True)(site, rows, values)


def _elt_rule(arguments: Arguments) -> Resolved | None:
    if len(arguments) < 2 or any_integer(arguments.types[0]) is None:
        return None
    kinds = arguments.types[1:]
    result = type_rules.common_type(kinds)
    if result is None or text_or_binary(result) is None or (arguments.constant(0) or 0) < 0:
        return None
    return Resolved(result.nullable(), (arguments.types[0], *(result.with_nullability(k.is_nullable) for k in kinds)))


def _ascii(value: str) -> int:
    encoded = value.encode()
    return encoded[0] - 256 if encoded and encoded[0] > 127 else encoded[0] if encoded else 0


def _chr(value: int) -> str:
    if value < 0:
        return ""
    code = value & 0xFF
    return chr(code)


_EPOCH = dt.datetime(1970, 1, 1)


def _as_java_has_it(value: Value, kind: t.DataType) -> Value:
    """Return a timestamp's text as Java's LocalDateTime does."""
    if value is None or not isinstance(kind, (t.TimestampType, t.LocalZonedTimestampType)):
        return value
    second, rest = divmod(value, UNITS[arrow_type(kind).unit])
    nanos = rest * (1_000_000_000 // UNITS[arrow_type(kind).unit])
    time = _EPOCH + dt.timedelta(seconds=second)
    digits = f"{nanos:09}"
    fraction = (
        "" if not nanos else f".{digits[:3] if nanos % 1_000_000 == 0 else digits[:6] if nanos % 1000 == 0 else digits}"
    )
    seconds = f"{time:%S}{fraction}"
    return f"{time:%Y-%m-%dT%H:%M}" + (f":{seconds}" if seconds != "00" else "")


def _printf(site: Site, pattern: str | None, *arguments: Value) -> str | None:
    if pattern is None:
        return None
    try:
        return formatted(pattern, [_as_java_has_it(a, k) for a, k in zip(arguments, site.types[1:], strict=True)])
    except BadFormat:
        return None


# --- tests of text


def _test(name: str, test: Callable[[str], bool]) -> Function:
    def kernel(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
        if isinstance(site.types[0], (t.CharType, t.VarCharType)):
            return by_row(lambda v: v is not None and test(v), keep_nulls=True)(site, rows, values)
        return by_row(lambda v: name != "IS_ALPHA" and v is not None, keep_nulls=True)(site, rows, values)

    return Function(name, takes(any_type, to=BOOLEAN, nulls="never"), kernel)


_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?|[+-]?(NaN|Infinity)")

FUNCTIONS = [
    Function(
        "LEFT", takes(text, integer, to=lambda a: varying(a.types[0]), nulls="always"), _ends(_left, True), api="left"
    ),
    Function(
        "RIGHT",
        takes(text, integer, to=lambda a: varying(a.types[0]), nulls="always"),
        _ends(_right, False),
        api="right",
    ),
    Function("LPAD", takes(text, integer, text, to=STRING), _pad_kernel(True), api="lpad"),
    Function("RPAD", takes(text, integer, text, to=STRING), _pad_kernel(False), api="rpad"),
    Function("REPEAT", takes(text, integer, to=STRING), _repeat, api="repeat"),
    Function("REVERSE", takes(text, to=STRING, nulls="always"), _reverse, api="reverse"),
    Function("INITCAP", takes(text, to=same_as(0)), by_row(_initcap), api="init_cap"),
    Function("OVERLAY", takes(text, text, integer, integer, to=_overlaid, optional=1), by_row(_overlay), api="overlay"),
    Function("TRANSLATE", takes(text, text, text, to=STRING), by_row(_translate, keep_nulls=True), api="translate"),
    Function("LOCATE", takes(text, text, integer, to=INT, optional=1), by_row(_locate), api="locate"),
    Function("INSTR", takes(text, text, integer, integer, to=INT, optional=2), by_row(_instr), api="instr", fails=True),
    Function("SPLIT", takes(text, text, to=t.ArrayType(STRING)), by_row(_split), api="split"),
    Function(
        "SPLIT_INDEX",
        takes(text, either(text, integer), integer, to=STRING, nulls="always"),
        _split_index_kernel,
        api="split_index",
    ),
    Function(
        "STR_TO_MAP",
        takes(text, text, text, to=t.MapType(STRING, STRING), optional=2, nulls="always"),
        by_row(_str_to_map),
        api="str_to_map",
    ),
    Function("ELT", _elt_rule, _elt_kernel, api="elt"),
    Function("ASCII", takes(text, to=INT), by_row(_ascii), api="ascii"),
    Function("CHR", takes(any_integer, to=STRING, nulls="always"), by_row(_chr), api="chr"),
    Function(
        "PRINTF",
        takes(text, rest=any_type, to=STRING, nulls="always"),
        by_row(_printf, keep_nulls=True, with_site=True),
        api="printf",
    ),
    _test("IS_ALPHA", lambda v: bool(v) and v.isalpha()),
    _test("IS_DIGIT", lambda v: bool(v) and v.isdigit()),
    _test("IS_DECIMAL", lambda v: bool(v) and _DECIMAL.fullmatch(v) is not None),
]
