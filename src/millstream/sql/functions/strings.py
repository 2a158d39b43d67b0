"""String functions. Positions count from 1; invalid arguments return null."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from millstream.sql import type_rules
from millstream.sql import types as t
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.errors import TableException
from millstream.sql.functions.function import Arguments, Datum, Function, Kernel, Resolved, Site
from millstream.sql.functions.rules import (
    BOOLEAN,
    INT,
    STRING,
    any_integer,
    binary,
    integer,
    same_as,
    takes,
    text,
)
from millstream.sql.functions.vectors import as_array, by_row


def simple(operation: Callable[..., Datum]) -> Kernel:
    """Return the kernel of an Arrow function of all arguments."""
    return lambda site, rows, values: operation(*values)


def is_ascii(value: Datum) -> bool:
    """Return whether all characters are ASCII."""
    if isinstance(value, pa.Scalar):
        return value.as_py() is None or value.as_py().isascii()
    return bool(pc.all(pc.string_is_ascii(value)).as_py() is not False)


def _upper(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    if is_ascii(values[0]):
        return pc.ascii_upper(values[0])
    return by_row(str.upper)(site, rows, values)


def _lower(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    if is_ascii(values[0]):
        return pc.ascii_lower(values[0])
    return by_row(str.lower)(site, rows, values)


def _length(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    return pc.utf8_length(values[0])


def _concatenated(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    if isinstance(site.type, t.ArrayType):
        return by_row(lambda *lists: [v for some in lists for v in some])(site, rows, values)
    empty = pa.scalar("" if type_rules.is_string(site.type) else b"", values[0].type)
    if all(isinstance(v, pa.Scalar) for v in values):
        joined = [v.as_py() for v in values]
        return pa.scalar(None if None in joined else empty.as_py().join(joined), arrow_type(site.type))
    return pc.binary_join_element_wise(*values, empty)


def _concat_rule(arguments: Arguments) -> Resolved | None:
    if len(arguments) != 2:
        return None
    left, right = (STRING if isinstance(k, t.NullType) else k for k in arguments.types)
    result = type_rules.concatenated(left, right)
    if result is None:
        return None
    if isinstance(result, t.ArrayType):
        return Resolved(result, (result.with_nullability(left.is_nullable), result.with_nullability(right.is_nullable)))
    return Resolved(result, (left, right))


def _concat_ws(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    separator, *rest = values
    if not rest:
        return by_row(lambda s: "")(site, rows, values)
    columns = [as_array(v, rows) for v in rest]
    missing = [pc.is_null(c) for c in columns]
    all_missing = reduce(pc.and_, missing)
    # Arrow's kernel drops rows without any value, which would shift the others.
    columns[0] = pc.if_else(all_missing, "", columns[0])
    between = as_array(separator, rows)
    joined = pc.binary_join_element_wise(*columns, pc.fill_null(between, ""), null_handling="skip")
    return pc.if_else(pc.is_valid(between), joined, pa.scalar(None, pa.string()))


# --- parts


def substring(value: str, start: int, length: int | None = None) -> str | None:
    """Return a substring by Flink's rules; a negative start counts from the end."""
    if length is not None and length < 0:
        return None
    begin = start - 1 if start > 0 else 0 if start == 0 else len(value) + start
    if begin < 0:
        return ""
    return value[begin:] if length is None else value[begin : begin + length]


def _substring(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    value, *bounds = values
    fixed = [p.as_py() for p in bounds if isinstance(p, pa.Scalar)]
    if isinstance(value, pa.Scalar) or len(fixed) < len(bounds) or None in fixed:
        return by_row(substring)(site, rows, values)
    start, length = (*fixed, None)[:2]
    if start < 0 or (length is not None and length < 0):
        return by_row(substring)(site, rows, values)
    begin = max(start - 1, 0)
    return pc.utf8_slice_codeunits(value, begin, None if length is None else begin + length)


def _trim(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    side = site.options[0] if site.options else "BOTH"
    characters, value = values
    if isinstance(characters, pa.Scalar) and characters.is_valid and characters.as_py():
        return _TRIMS[side](value, characters.as_py())
    strip = {"BOTH": str.strip, "LEADING": str.lstrip, "TRAILING": str.rstrip}[side]
    return by_row(lambda w, v: strip(v, w) if w else v)(site, rows, values)


_TRIMS: dict[str, Callable[[Datum, str], Datum]] = {
    "BOTH": lambda value, characters: pc.utf8_trim(value, characters),
    "LEADING": lambda value, characters: pc.utf8_ltrim(value, characters),
    "TRAILING": lambda value, characters: pc.utf8_rtrim(value, characters),
}


def _one_sided(side: str) -> Kernel:
    strip = {"BOTH": str.strip, "LEADING": str.lstrip, "TRAILING": str.rstrip}[side]

    def kernel(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
        if len(values) == 1:
            return _TRIMS[side](values[0], " ")
        if isinstance(values[1], pa.Scalar) and values[1].as_py():
            return _TRIMS[side](values[0], values[1].as_py())
        return by_row(lambda v, w: strip(v, w) if w else v)(site, rows, values)

    return kernel


def _trim_type(arguments: Arguments) -> t.DataType:
    return varying(arguments.types[1])


def _part_type(arguments: Arguments) -> t.DataType:
    return varying(arguments.types[0])


def varying(kind: t.DataType) -> t.DataType:
    """Return the type of a substring."""
    assert isinstance(kind, (t.CharType, t.VarCharType))
    return t.VarCharType(1).with_length(kind.length)


def _replace(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    value, search, by = values
    if isinstance(search, pa.Scalar) and isinstance(by, pa.Scalar) and search.as_py() and by.is_valid:
        return pc.replace_substring(value, search.as_py(), by.as_py())
    return by_row(str.replace)(site, rows, values)


def _position(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    needle, value, *start = values
    if not start and isinstance(needle, pa.Scalar) and needle.as_py() and is_ascii(value):
        return pc.add(pc.find_substring(value, needle.as_py()), 1).cast(pa.int32())
    return by_row(_index_of)(site, rows, values)


def _index_of(needle: str, value: str, start: int = 1) -> int:
    if start < 1:
        return 0
    if not needle:
        return 1
    return value.find(needle, start - 1) + 1


# --- LIKE


def like_pattern(pattern: str, escape: str | None) -> list[str | None]:
    """Return the pieces of a LIKE pattern: text, None for `%`, and empty text for `_`."""
    if escape is not None and (len(escape) > 1 or escape == "\0"):
        raise TableException(f"Invalid escape character '{escape}'")
    pieces: list[str | None] = []
    position = 0
    while position < len(pattern):
        c = pattern[position]
        if escape is not None and c == escape:
            position += 1
            if pattern[position : position + 1] not in ("%", "_", escape):
                raise TableException(f"Invalid escape sequence '{pattern}', {position - 1}")
            pieces.append(pattern[position])
        elif c == "%":
            pieces.append(None)
        elif c == "_":
            pieces.append("")
        else:
            pieces.append(c)
        position += 1
    return pieces


def like_regex(pattern: str, escape: str | None) -> str:
    """Return a regular expression for a LIKE pattern, valid in Python and RE2."""
    pieces = like_pattern(pattern, escape)
    return "".join(".*" if p is None else "." if p == "" else re.escape(p) for p in pieces)


def _like_with(value: Datum, pattern: str, escape: str | None) -> Datum:
    pieces = like_pattern(pattern, escape)
    if "" not in pieces and isinstance(value, pa.Array):
        inner = [p for p in pieces if p is not None]
        ends = [i for i, p in enumerate(pieces) if p is None]
        literal = "".join(inner)
        if not ends:
            return pc.equal(value, literal)
        if ends == [len(pieces) - 1]:
            return pc.starts_with(value, literal)
        if ends == [0]:
            return pc.ends_with(value, literal)
        if ends == [0, len(pieces) - 1]:
            return pc.match_substring(value, literal)
    if isinstance(value, pa.Scalar):
        result = re.fullmatch(like_regex(pattern, escape), value.as_py(), re.DOTALL) if value.is_valid else None
        return pa.scalar(result is not None if value.is_valid else None, pa.bool_())
    quoted = "".join(".*" if p is None else "." if p == "" else _re2_quoted(p) for p in pieces)
    return pc.match_substring_regex(value, f"(?s)^{quoted}$")


def _re2_quoted(c: str) -> str:
    return c if c.isalnum() or ord(c) > 127 else f"\\{c}" if c.isprintable() else f"\\x{{{ord(c):x}}}"


def _like(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    value, pattern, *escape = values
    constant = isinstance(pattern, pa.Scalar) and all(isinstance(e, pa.Scalar) for e in escape)
    if constant and pattern.is_valid:
        return _like_with(value, pattern.as_py(), escape[0].as_py() if escape else None)
    return by_row(_like_one)(site, rows, values)


def _like_one(value: str, pattern: str, escape: str | None = None) -> bool:
    return re.fullmatch(like_regex(pattern, escape), value, re.DOTALL) is not None


def _edge(operation: Callable[..., Datum], test: Callable[[str, str], bool]) -> Kernel:
    def kernel(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
        value, edge = values
        if isinstance(edge, pa.Scalar) and edge.is_valid and not isinstance(value, pa.Scalar):
            return operation(value, edge.as_py())
        return by_row(test)(site, rows, values)

    return kernel


def _both_text_or_binary(arguments: Arguments) -> Resolved | None:
    result = takes(text, text, to=BOOLEAN)(arguments)
    return takes(binary, binary, to=BOOLEAN)(arguments) if result is None else result


FUNCTIONS = [
    Function("UPPER", takes(text, to=same_as(0)), _upper, ("UPPER(<CHARACTER>)",), "upper_case"),
    Function("LOWER", takes(text, to=same_as(0)), _lower, ("LOWER(<CHARACTER>)",), "lower_case"),
    Function("CHAR_LENGTH", takes(text, to=INT), _length, ("CHAR_LENGTH(<CHARACTER>)",), "char_length"),
    Function("CHARACTER_LENGTH", takes(text, to=INT), _length, ("CHARACTER_LENGTH(<CHARACTER>)",)),
    Function("||", _concat_rule, _concatenated, ("<CHARACTER> || <CHARACTER>",)),
    Function("CONCAT", takes(text, rest=text, to=STRING), _concatenated, api="concat"),
    Function("CONCAT_WS", takes(text, rest=text, to=STRING), _concat_ws, api="concat_ws"),
    *(
        Function(
            name, takes(text, any_integer, any_integer, to=_part_type, optional=1, nulls="always"), _substring, api=api
        )
        for name, api in (("SUBSTRING", "substring"), ("SUBSTR", "substr"))
    ),
    Function("TRIM", takes(text, text, to=_trim_type), _trim, api="trim"),
    *(
        Function(
            name, takes(text, text, to=lambda a: varying(a.types[0]), optional=1), _one_sided(side), api=name.lower()
        )
        for name, side in (("LTRIM", "LEADING"), ("RTRIM", "TRAILING"))
    ),
    Function("BTRIM", takes(text, text, to=STRING, optional=1), _one_sided("BOTH"), api="btrim"),
    Function("REPLACE", takes(text, text, text, to=STRING), _replace, api="replace"),
    Function("POSITION", takes(text, text, integer, to=INT, optional=1), _position, api="position"),
    Function("LIKE", takes(text, text, text, to=BOOLEAN, optional=1), _like, api="like"),
    Function(
        "STARTSWITH",
        _both_text_or_binary,
        _edge(pc.starts_with, lambda v, e: v.startswith(e)),
        api="starts_with",
    ),
    Function(
        "ENDSWITH",
        _both_text_or_binary,
        _edge(pc.ends_with, lambda v, e: v.endswith(e)),
        api="ends_with",
    ),
]
