"""JSON functions.

The options of JSON_VALUE, JSON_QUERY, JSON_EXISTS, JSON_OBJECT and JSON_ARRAY are (RETURNING type, ON EMPTY, ON ERROR,
wrapper, null handling), each None where missing. ON EMPTY and ON ERROR are a keyword (NULL, ERROR, TRUE, FALSE,
UNKNOWN, EMPTY ARRAY, EMPTY OBJECT) or an expression for DEFAULT.
"""

from __future__ import annotations

import base64
import decimal
import re
from collections.abc import Callable, Sequence

import pyarrow as pa

from millstream.common.aliases import Json, Value
from millstream.sql import types as t
from millstream.sql.columns.value_text import to_text
from millstream.sql.errors import TableException, ValidationException
from millstream.sql.expressions import Constant, Option
from millstream.sql.functions.casts import rounded
from millstream.sql.functions.evaluate import folded
from millstream.sql.functions.function import (
    JSON_CONSTRUCTORS,
    Arguments,
    Datum,
    Function,
    Kernel,
    Resolved,
    Site,
)
from millstream.sql.functions.json_path import PathError, is_json, parsed, path_of, scalar_text, written
from millstream.sql.functions.rules import BOOLEAN, STRING, any_type, takes, text
from millstream.sql.functions.vectors import as_array, by_row

_MODE = re.compile(r"\s*(?P<mode>strict|lax)\s+(?P<path>.+)", re.IGNORECASE | re.DOTALL)


class _PathResult:
    """The value at a path, or an error."""

    def __init__(self, strict: bool, value: Json = None, error: str | None = None) -> None:
        self.strict = strict
        self.value = value
        self.error = error


def _look_up(document: str, path: str) -> _PathResult:
    mode = _MODE.fullmatch(path)
    strict = mode is None or mode.group("mode").lower() == "strict"
    spec = path if mode is None else mode.group("path")
    try:
        value = parsed(document)
    except (ValueError, RecursionError) as e:
        return _PathResult(True, error=f"Illegal JSON: {e}") if strict else _PathResult(False)
    try:
        result = path_of(spec)
    except PathError as e:
        return _PathResult(True, error=f"Illegal jsonpath spec '{spec}': {e}")
    try:
        return _PathResult(strict, result.find(value))
    except PathError as e:
        if strict:
            return _PathResult(True, error=str(e))
        return _PathResult(False, None if result.definite else [])


def _is_scalar(value: Json) -> bool:
    return not isinstance(value, (dict, list))


def _clause(options: Sequence[Option], index: int) -> Option:
    return options[index] if index < len(options) else None


def _default(clause: Option) -> Value:
    """Return the value of a DEFAULT."""
    if isinstance(clause, Constant):
        return clause.value
    result = folded(clause)
    if not isinstance(result, Constant):
        raise TableException("The DEFAULT of a JSON function must be a constant.")
    return result.value


# --- JSON_VALUE


def _value_rule(arguments: Arguments) -> Resolved | None:
    returning = _clause(arguments.options, 0) or STRING
    return takes(text, text, to=returning.nullable(), nulls="own")(arguments)


def _json_value(site: Site, document: str, path: str) -> Value:
    on_empty, on_error = _clause(site.options, 1), _clause(site.options, 2)
    result = _look_up(document, path)
    error = result.error
    if error is None:
        if result.value is None or (not result.strict and not _is_scalar(result.value)):
            return _emptied(site, on_empty, "JSON_VALUE")
        if _is_scalar(result.value):
            try:
                return _returned(result.value, site.type)
            except ValueError as e:
                error = str(e)
        else:
            error = f"Strict jsonpath mode requires scalar value, and the actual value is: '{written(result.value)}'"
    if on_error == "ERROR":
        raise TableException(error)
    return None if on_error in (None, "NULL") else _converted(_default(on_error), site.type)


def _emptied(site: Site, clause: Option, name: str) -> Value:
    if clause == "ERROR":
        raise TableException(f"Empty result of {name} function is not allowed")
    return None if clause in (None, "NULL") else _converted(_default(clause), site.type)


def _returned(value: Json, kind: t.DataType) -> Value:
    if isinstance(kind, (t.CharType, t.VarCharType)):
        return scalar_text(value)
    if isinstance(kind, t.BooleanType):
        if not isinstance(value, bool):
            raise ValueError(f"not a BOOLEAN: {value}")
        return value
    if isinstance(value, bool) or not isinstance(value, (int, decimal.Decimal)):
        raise ValueError(f"not a number: {value}")
    if isinstance(kind, t.IntegralType):
        if isinstance(value, decimal.Decimal) or not -(1 << (kind.bits - 1)) <= value < 1 << (kind.bits - 1):
            raise ValueError(f"not of type {kind}: {value}")
        return value
    return rounded(decimal.Decimal(value), kind) if isinstance(kind, t.DecimalType) else float(value)


def _converted(value: Value, kind: t.DataType) -> Value:
    """Return the value of a DEFAULT cast to the RETURNING type."""
    if value is None:
        return None
    if isinstance(kind, (t.CharType, t.VarCharType)):
        return scalar_text(value) if not isinstance(value, decimal.Decimal) else str(value)
    if isinstance(kind, (t.DoubleType, t.FloatType)):
        return float(value)
    return int(value) if isinstance(kind, t.IntegralType) else value


# --- JSON_QUERY


def _query_rule(arguments: Arguments) -> Resolved | None:
    returning = _clause(arguments.options, 0) or STRING
    if isinstance(returning, t.ArrayType):
        _check_returned_array(returning, arguments.options)
    return takes(text, text, to=returning.nullable(), nulls="own")(arguments)


def _check_returned_array(returning: t.ArrayType, options: Sequence[Option]) -> None:
    if not isinstance(returning.element_type, (t.CharType, t.VarCharType)):
        raise ValidationException(
            f"Unsupported array element type '{returning.element_type}' for RETURNING ARRAY in JSON_QUERY()"
        )
    for index, when in ((1, "empty"), (2, "error")):
        if _clause(options, index) == "EMPTY OBJECT":
            raise ValidationException(f"Illegal on {when} behavior 'EMPTY OBJECT' for return type: {returning}")


def _json_query(site: Site, document: str, path: str) -> str | list[str | None] | None:
    on_empty, on_error, wrapper = (_clause(site.options, i) for i in (1, 2, 3))
    result = _look_up(document, path)
    error = result.error
    if error is None:
        value = _wrapped(result.value, wrapper)
        if value is None or (not result.strict and _is_scalar(value)):
            return _of_query(site, on_empty, "Empty result of JSON_QUERY function is not allowed")
        if not _is_scalar(value):
            return _query_result(value, site.type)
        error = f"Strict jsonpath mode requires array or object value, and the actual value is: '{written(value)}'"
    return _of_query(site, on_error, error)


def _wrapped(value: Json, wrapper: str | None) -> Json:
    if value is None or wrapper in (None, "WITHOUT"):
        return value
    if wrapper == "UNCONDITIONAL" or not isinstance(value, list):
        return [value]
    return value


def _of_query(site: Site, clause: Option, error: str) -> str | list[str | None] | None:
    if clause == "ERROR":
        raise TableException(error)
    if clause == "EMPTY ARRAY":
        return _query_result([], site.type)
    if clause == "EMPTY OBJECT":
        return _query_result({}, site.type)
    return None


def _query_result(value: Json, kind: t.DataType) -> str | list[str | None] | None:
    if not isinstance(kind, t.ArrayType):
        return written(value)
    if not isinstance(value, list):
        return None
    return [None if v is None else scalar_text(v) if _is_scalar(v) else written(v) for v in value]


# --- JSON_EXISTS, IS JSON


def _json_exists(site: Site, document: str, path: str) -> bool | None:
    result = _look_up(document, path)
    if result.error is None:
        return result.value is not None
    clause = _clause(site.options, 2)
    if clause == "ERROR":
        raise TableException(result.error)
    return {"TRUE": True, "UNKNOWN": None}.get(clause or "FALSE", False)


_KINDS: dict[str, Callable[[Json], bool]] = {
    "VALUE": lambda v: True,
    "OBJECT": lambda v: isinstance(v, dict),
    "ARRAY": lambda v: isinstance(v, list),
    "SCALAR": _is_scalar,
}


def _is_json(kind: str, negated: bool) -> Kernel:
    def test(value: str | None) -> bool:
        if value is None:
            return negated
        fits, document = is_json(value)
        return (fits and _KINDS[kind](document)) != negated

    return by_row(test, keep_nulls=True)


# --- constructors


def _values_of(value: Datum, kind: t.DataType, rows: int, zone: str, is_constructed: bool) -> list[Json]:
    """Return values as `written` expects them; text that is JSON is parsed."""
    column = as_array(value, rows)
    if is_constructed:
        return [None if v is None else _read(v) for v in column.to_pylist()]
    return _jsonable(column, kind, zone)


def _read(text: str) -> Json:
    if not text.strip():
        return None
    try:
        return parsed(text)
    except (ValueError, RecursionError):
        raise TableException(f"Invalid JSON string in JSON() function: {text}") from None


def _jsonable(column: pa.Array, kind: t.DataType, zone: str) -> list[Json]:
    if isinstance(kind, (t.CharType, t.VarCharType, t.BooleanType, t.IntegralType)):
        return column.to_pylist()  # type: ignore[no-any-return]
    if isinstance(kind, (t.FloatType, t.DoubleType, t.DecimalType)):
        return [None if v is None else _number(v) for v in to_text(column, kind).to_pylist()]
    if isinstance(kind, (t.BinaryType, t.VarBinaryType)):
        return [None if v is None else base64.b64encode(v).decode() for v in column.to_pylist()]
    if isinstance(kind, (t.ArrayType, t.MapType, t.MultisetType)):
        return _jsonable_members(column, kind, zone)
    if isinstance(kind, t.RowType):
        fields = [_jsonable(column.field(i), f.data_type, zone) for i, f in enumerate(kind)]
        valid = column.is_valid().to_pylist()
        rows = zip(*fields, strict=True)
        return [dict(zip(kind.names, r, strict=True)) if ok else None for r, ok in zip(rows, valid, strict=True)]
    texts: list[str | None] = to_text(column, kind, zone).to_pylist()
    if isinstance(kind, (t.TimestampType, t.LocalZonedTimestampType)):
        zoned = "Z" if isinstance(kind, t.LocalZonedTimestampType) else ""
        return [None if v is None else v.replace(" ", "T") + zoned for v in texts]
    return texts


def _number(text: str) -> decimal.Decimal | str:
    number = decimal.Decimal(text)
    # JSON has no NaN or infinity.
    return number if number.is_finite() else text


def _jsonable_members(column: pa.Array, kind: t.DataType, zone: str) -> list[Json]:
    ends, valid = column.offsets.to_pylist(), column.is_valid().to_pylist()
    if isinstance(kind, t.ArrayType):
        inner = _jsonable(column.values, kind.element_type, zone)
        return [inner[ends[i] : ends[i + 1]] if ok else None for i, ok in enumerate(valid)]
    if isinstance(kind, t.MultisetType):
        key, value = kind.element_type, t.DataTypes.INT()
    else:
        assert isinstance(kind, t.MapType)
        key, value = kind.key_type, kind.value_type  # type: ignore[assignment]
    keys = to_text(column.keys, key, zone).to_pylist()
    items = _jsonable(column.items, value, zone)
    pairs = list(zip(keys, items, strict=True))
    return [dict(pairs[ends[i] : ends[i + 1]]) if ok else None for i, ok in enumerate(valid)]


def _members(site: Site, rows: int, values: Sequence[Datum]) -> tuple[int, list[list[Json]]]:
    fixed = all(isinstance(v, pa.Scalar) for v in values)
    count = 1 if fixed else rows
    zone = site.context.time_zone
    result = [name in JSON_CONSTRUCTORS for name in site.callers] or [False] * len(values)
    columns = [_values_of(v, k, count, zone, m) for v, k, m in zip(values, site.types, result, strict=True)]
    return count, columns


def _object(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    keep_nulls = _clause(site.options, 4) != "ABSENT"
    count, columns = _members(site, rows, values)
    texts = []
    if any(key is None for keys in columns[::2] for key in keys):
        raise TableException("A key of JSON_OBJECT is null: JSON has no such keys.")
    for row in range(count):
        pairs = {columns[i][row]: columns[i + 1][row] for i in range(0, len(columns), 2)}
        texts.append(written({k: v for k, v in pairs.items() if keep_nulls or v is not None}))
    return pa.scalar(texts[0]) if _all_scalars(values) else pa.array(texts, pa.string())


def _array(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    keep_nulls = _clause(site.options, 4) == "NULL"
    count, columns = _members(site, rows, values)
    texts = [written([c[row] for c in columns if keep_nulls or c[row] is not None]) for row in range(count)]
    return pa.scalar(texts[0]) if _all_scalars(values) else pa.array(texts, pa.string())


def _all_scalars(values: Sequence[Datum]) -> bool:
    return all(isinstance(v, pa.Scalar) for v in values)


def _string(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    fixed = isinstance(values[0], pa.Scalar)
    is_constructed = bool(site.callers) and site.callers[0] in JSON_CONSTRUCTORS
    result = _values_of(values[0], site.types[0], 1 if fixed else rows, site.context.time_zone, is_constructed)
    texts = [None if v is None else written(v) for v in result]
    return pa.scalar(texts[0], pa.string()) if fixed else pa.array(texts, pa.string())


def _raw(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    return values[0]


def _object_rule(arguments: Arguments) -> Resolved | None:
    if len(arguments) % 2 or any(text(k) is None for k in arguments.types[::2]):
        return None
    return Resolved(STRING.not_null(), arguments.types)


def _array_rule(arguments: Arguments) -> Resolved:
    return Resolved(STRING.not_null(), arguments.types)


# --- quotes

_ASCII_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "/": "\\/"}


def _quote(value: str) -> str:
    out = []
    for c in value:
        if c in _ASCII_ESCAPES:
            out.append(_ASCII_ESCAPES[c])
        elif " " <= c <= "~":
            out.append(c)
        else:
            encoded = c.encode("utf-16-be")
            out += [f"\\u{encoded[i]:02x}{encoded[i + 1]:02x}" for i in range(0, len(encoded), 2)]
    return f'"{"".join(out)}"'


_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.?)", re.DOTALL)
_UNESCAPED = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def _unquote(value: str) -> str:
    if len(value) < 2 or value[0] != '"' or value[-1] != '"':
        return value
    inner, last, content = [], 0, value[1:-1]
    # As in Flink, also for invalid JSON: inner quotes stay.
    for escape in _ESCAPE.finditer(content):
        word = escape.group(1)
        if word not in _UNESCAPED and len(word) < len("u0041"):
            return value
        inner.append(content[last : escape.start()] + (_UNESCAPED.get(word) or chr(int(word[1:], 16))))
        last = escape.end()
    return "".join([*inner, content[last:]]).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_VALUE_FUNCTIONS = {
    "JSON_VALUE": (_value_rule, _json_value, "json_value"),
    "JSON_QUERY": (_query_rule, _json_query, "json_query"),
}

FUNCTIONS = [
    *(
        Function(name, rule, by_row(one, with_site=True), api=api, fails=True)
        for name, (rule, one, api) in _VALUE_FUNCTIONS.items()
    ),
    Function(
        "JSON_EXISTS",
        takes(text, text, to=BOOLEAN, nulls="always"),
        by_row(_json_exists, with_site=True),
        api="json_exists",
        fails=True,
    ),
    *(
        Function(
            f"IS {'NOT ' if negated else ''}JSON {kind}",
            takes(text, to=BOOLEAN, nulls="never"),
            _is_json(kind, negated),
            api="is_json" if kind == "VALUE" and not negated else "",
        )
        for kind in _KINDS
        for negated in (False, True)
    ),
    Function("JSON_OBJECT", _object_rule, _object, api="json_object"),
    Function("JSON_ARRAY", _array_rule, _array, api="json_array"),
    Function("JSON_STRING", takes(any_type, to=STRING), _string, api="json_string"),
    Function("JSON", takes(text, to=STRING), _raw, api="json"),
    Function("JSON_QUOTE", takes(text, to=STRING), by_row(_quote), api="json_quote"),
    Function("JSON_UNQUOTE", takes(text, to=STRING), by_row(_unquote), api="json_unquote"),
]
