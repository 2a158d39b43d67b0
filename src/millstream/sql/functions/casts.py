"""CAST and TRY_CAST, dispatched by the two types."""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.aliases import Value
from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql import type_rules
from millstream.sql import types as t
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.numpy_arrays import NumpyColumn
from millstream.sql.columns.value_text import to_text
from millstream.sql.errors import TableException
from millstream.sql.functions import cast_times
from millstream.sql.functions.function import Arguments, Datum, EvaluationContext, Function, Site
from millstream.sql.functions.vectors import as_array, from_numpy, to_numpy

_EXACT = decimal.Context(prec=200)


@fast_dataclass
class Cast:
    """A cast between types in a time zone; lenient casts return null on failure."""

    source: t.DataType
    target: t.DataType
    context: EvaluationContext
    lenient: bool = False


def cast_value(
    value: Datum, source: t.DataType, target: t.DataType, context: EvaluationContext, lenient: bool = False
) -> Datum:
    """Return a value cast to another type.

    Raises:
        TableException: the value is not castable, and `lenient` is false.
    """
    if isinstance(value, pa.Scalar):
        return cast_column(as_array(value, 1), source, target, context, lenient)[0]
    return cast_column(value, source, target, context, lenient)


def cast_column(
    column: pa.Array, source: t.DataType, target: t.DataType, context: EvaluationContext, lenient: bool = False
) -> pa.Array:
    """Return a column cast to another type."""
    if source.is_same_but_null(target):
        return column
    if isinstance(source, t.NullType):
        return pa.nulls(len(column), arrow_type(target))
    cast = Cast(source, target, context, lenient)
    if type_rules.is_string(target):
        return _to_string(column, cast)
    for takes, kernel in _KERNELS:
        if takes(source, target):
            return kernel(column, cast)
    if type(source) is type(target) and arrow_type(source) == arrow_type(target):
        return column
    raise TableException(f"Unsupported cast from '{source}' to '{target}'.")


# --- to text


def _to_string(column: pa.Array, cast: Cast) -> pa.Array:
    target = cast.target
    assert isinstance(target, (t.CharType, t.VarCharType))
    text = to_text(column, cast.source, cast.context.time_zone)
    fits = isinstance(cast.source, t.VarCharType | t.CharType) and cast.source.length <= target.length
    if target.length != t.MAX_LENGTH and not fits:
        text = pc.utf8_slice_codeunits(text, 0, target.length)
    if isinstance(target, t.CharType) and not (
        isinstance(cast.source, t.CharType) and fits and cast.source.length == target.length
    ):
        text = pc.utf8_rpad(text, target.length, " ")
    return text


# --- to numbers

_RANGES = {8: (-(2**31), 2**31 - 1), 16: (-(2**31), 2**31 - 1), 32: (-(2**31), 2**31 - 1), 64: (-(2**63), 2**63 - 1)}


def _integral_to_integral(column: pa.Array, cast: Cast) -> pa.Array:
    return column.cast(arrow_type(cast.target), safe=False)


def _float_to_integral(column: pa.Array, cast: Cast) -> pa.Array:
    """Truncate to an integer; overflow saturates, as in Java."""
    assert isinstance(cast.target, t.IntegralType)
    low, high = _RANGES[cast.target.bits]
    values = np.trunc(np.nan_to_num(to_numpy(column).astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
    wide = np.int64
    with np.errstate(invalid="ignore"):
        result = np.clip(values, low, float(high)).astype(wide)
    result[values >= float(high)] = high
    target = arrow_type(cast.target)
    return from_numpy(result.astype(target.to_pandas_dtype()), target, [column])


def _decimal_to_integral(column: pa.Array, cast: Cast) -> pa.Array:
    return column.cast(pa.int64(), safe=False).cast(arrow_type(cast.target), safe=False)


def _to_float(column: pa.Array, cast: Cast) -> pa.Array:
    target = arrow_type(cast.target)
    if isinstance(cast.source, t.DecimalType):
        return _decimal_to_float(column, cast.source).cast(target, safe=False)
    values = to_numpy(column)
    with np.errstate(all="ignore"):
        return from_numpy(values.astype(target.to_pandas_dtype()), target, [column])


def _decimal_to_float(column: pa.Array, source: t.DecimalType) -> pa.Array:
    if source.precision <= 15:
        # Both are exact as DOUBLE, so the quotient is the nearest one.
        unscaled = to_unscaled(column)
        return from_numpy(unscaled / float(10**source.scale), pa.float64(), [column])
    return pa.array([None if v is None else float(v) for v in column.to_pylist()], pa.float64())


def to_unscaled(column: pa.Array) -> NumpyColumn:
    """Return the unscaled values of decimals with at most 18 digits."""
    buffer = column.buffers()[1]
    words = np.frombuffer(buffer, np.int64, 2 * len(column), column.offset * 16)
    return words[::2]


def _integral_to_decimal(column: pa.Array, cast: Cast) -> pa.Array:
    exact = type_rules.as_decimal(cast.source)
    assert exact is not None
    assert isinstance(cast.target, t.DecimalType)
    return rescaled_decimal(column.cast(arrow_type(exact)), cast.target)


def _decimal_to_decimal(column: pa.Array, cast: Cast) -> pa.Array:
    assert isinstance(cast.target, t.DecimalType)
    return rescaled_decimal(column, cast.target)


def _float_to_decimal(column: pa.Array, cast: Cast) -> pa.Array:
    assert isinstance(cast.target, t.DecimalType)
    return pa.array([_decimal_of_float(v, cast) for v in column.to_pylist()], arrow_type(cast.target))


def _decimal_of_float(value: float | None, cast: Cast) -> decimal.Decimal | None:
    assert isinstance(cast.target, t.DecimalType)
    if value is None:
        return None
    result = decimal.Decimal(repr(value))
    if not result.is_finite():
        if cast.lenient:
            return None
        raise TableException("NumberFormatException: Infinite or NaN")
    return rounded(result, cast.target)


def rounded(value: decimal.Decimal, kind: t.DecimalType) -> decimal.Decimal | None:
    """Return a number rounded half up to a type's scale; None if it does not fit."""
    # Skip rounding of numbers that are far too large.
    if value and value.adjusted() > 40:
        return None
    if value and value.adjusted() < -60:
        value = decimal.Decimal(0)
    result = value.quantize(decimal.Decimal(1).scaleb(-kind.scale), decimal.ROUND_HALF_UP, _EXACT)
    # abs() would round to the thread's decimal context.
    return result if result.copy_abs() < decimal.Decimal(10) ** (kind.precision - kind.scale) else None


def rescaled_decimal(value: Datum, kind: t.DecimalType) -> Datum:
    """Return decimals rounded half up to a type's scale; null on overflow."""
    precision, scale = value.type.precision, value.type.scale
    if scale > kind.scale:
        value = value.cast(_decimal(precision + 1, scale))
        value = pc.round(value, ndigits=kind.scale, round_mode="half_towards_infinity")
        precision, scale = precision + 1 - (scale - kind.scale), kind.scale
        value = value.cast(_decimal(max(precision, scale), scale))
    elif scale < kind.scale:
        precision, scale = precision + kind.scale - scale, kind.scale
        if precision > 76:
            return _rescaled_by_row(value, kind)
        value = value.cast(_decimal(precision, scale))
    if precision > kind.precision:
        bound = decimal.Decimal(10) ** (kind.precision - kind.scale)
        limit = pa.scalar(bound, _decimal(kind.precision - kind.scale + 1, 0))
        low = pa.scalar(-bound, _decimal(kind.precision - kind.scale + 1, 0))
        fits = pc.and_(pc.less(value, limit), pc.greater(value, low))
        if pc.all(fits).as_py() is False:
            value = pc.if_else(fits, value, pa.scalar(None, value.type))
    return value.cast(arrow_type(kind))


def _rescaled_by_row(value: Datum, kind: t.DecimalType) -> Datum:
    target = arrow_type(kind)
    if isinstance(value, pa.Scalar):
        return pa.scalar(None if not value.is_valid else rounded(value.as_py(), kind), target)
    return pa.array([None if v is None else rounded(v, kind) for v in value.to_pylist()], target)


def _decimal(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(min(precision, 76), scale)


def _boolean_to_number(column: pa.Array, cast: Cast) -> pa.Array:
    whole = column.cast(pa.int32())
    return cast_column(whole, t.DataTypes.INT(), cast.target, cast.context)


def _number_to_boolean(column: pa.Array, cast: Cast) -> pa.Array:
    zero = pa.scalar(decimal.Decimal(0)) if isinstance(cast.source, t.DecimalType) else 0
    return pc.not_equal(column, zero)


def _number_to_interval(column: pa.Array, cast: Cast) -> pa.Array:
    """Interpret a number as the milliseconds or months of an interval."""
    return column.cast(pa.int64(), safe=False).cast(arrow_type(cast.target), safe=False)


# --- from text


def _each_text(column: pa.Array, cast: Cast, read: Callable[[str, Cast], Value]) -> pa.Array:
    """Parse each distinct text once."""
    texts = column.to_pylist()
    known: dict[str | None, Value] = {None: None}
    for text in set(texts) - {None}:
        try:
            known[text] = read(text, cast)
        except TableException:
            if not cast.lenient:
                raise
            known[text] = None
    return pa.array([known[text] for text in texts], arrow_type(cast.target))


_INTEGER = re.compile(r"([+-]?)([0-9]+)(\.[0-9]*)?|([+-]?)(\.[0-9]*)")


def _string_to_integral(column: pa.Array, cast: Cast) -> pa.Array:
    if len(column) and pc.all(pc.match_substring_regex(column, r"^-?[0-9]{1,18}$")).as_py() is not False:
        target = arrow_type(cast.target)
        try:
            return column.cast(target)
        except pa.ArrowInvalid:
            pass
    return _each_text(column, cast, _read_integer)


def _read_integer(text: str, cast: Cast) -> int:
    assert isinstance(cast.target, t.IntegralType)
    trimmed = text.strip(" ")
    result = _INTEGER.fullmatch(trimmed)
    if not trimmed or result is None:
        raise _not_a_number(text)
    value = int(f"{result.group(1)}{result.group(2)}") if result.group(2) else 0
    limit = 1 << (cast.target.bits - 1)
    if not -limit <= value < limit:
        raise TableException(f"NumberFormatException: For input string: '{text}'. Overflow.")
    return value


def _not_a_number(text: str) -> TableException:
    return TableException(f"NumberFormatException: For input string: '{text}'. Invalid character found.")


_FLOAT = re.compile(
    r"[+-]?(NaN|Infinity|((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*[pP][+-]?\d+)[fFdD]?)"
)


def _string_to_float(column: pa.Array, cast: Cast) -> pa.Array:
    if (
        len(column)
        and pc.all(pc.match_substring_regex(column, r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$")).as_py() is not False
    ):
        return column.cast(pa.float64()).cast(arrow_type(cast.target), safe=False)
    return _each_text(column, cast, _read_float)


def read_double(text: str) -> float | None:
    """Parse a number as Java's Double.parseDouble does; None if invalid."""
    trimmed = text.strip()
    if _FLOAT.fullmatch(trimmed) is None:
        return None
    lower = trimmed.lower()
    if "0x" in lower:
        return float.fromhex(lower.rstrip("fd") if "p" in lower else lower)
    if "n" in lower:
        return float(lower)
    return float(trimmed.rstrip("fFdD"))


def _read_float(text: str, cast: Cast) -> float:
    result = read_double(text)
    if result is None:
        trimmed = text.strip()
        words = "empty String" if not trimmed else f'For input string: "{trimmed}"'
        raise TableException(f"NumberFormatException: {words}")
    return float(np.float32(result)) if isinstance(cast.target, t.FloatType) else result


_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?")


def _string_to_decimal(column: pa.Array, cast: Cast) -> pa.Array:
    return _each_text(column, cast, _read_decimal)


def _read_decimal(text: str, cast: Cast) -> decimal.Decimal:
    assert isinstance(cast.target, t.DecimalType)
    trimmed = text.strip(" ")
    if _DECIMAL.fullmatch(trimmed) is None:
        raise _not_a_number(text)
    result = rounded(decimal.Decimal(trimmed), cast.target)
    if result is None:
        raise TableException(f"NumberFormatException: For input string: '{text}'. Overflow.")
    return result


_TRUE = frozenset(["t", "true", "y", "yes", "1"])
_FALSE = frozenset(["f", "false", "n", "no", "0"])


def _string_to_boolean(column: pa.Array, cast: Cast) -> pa.Array:
    return _each_text(column, cast, _read_boolean)


def _read_boolean(text: str, cast: Cast) -> bool:
    word = text.lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise TableException(f"Cannot parse '{text}' as BOOLEAN.")


# --- bytes


def _string_to_binary(column: pa.Array, cast: Cast) -> pa.Array:
    return _sized(column.cast(pa.binary()), cast.target)


def _binary_to_binary(column: pa.Array, cast: Cast) -> pa.Array:
    return _sized(column, cast.target)


def _sized(column: pa.Array, target: t.DataType) -> pa.Array:
    assert isinstance(target, (t.BinaryType, t.VarBinaryType))
    if target.length == t.MAX_LENGTH:
        return column
    column = pc.binary_slice(column, 0, target.length)
    if not isinstance(target, t.BinaryType) or pc.min(pc.binary_length(column)).as_py() in (None, target.length):
        return column
    return pa.array([None if v is None else v.ljust(target.length, b"\0") for v in column.to_pylist()], pa.binary())


# --- nested types


def _list_to_list(column: pa.Array, cast: Cast) -> pa.Array:
    source, target = cast.source, cast.target
    assert isinstance(source, t.ArrayType)
    assert isinstance(target, t.ArrayType)
    column = _from_start(column)
    inner = cast_column(column.values, source.element_type, target.element_type, cast.context, cast.lenient)
    return pa.ListArray.from_arrays(column.offsets, inner, mask=_null_mask(column))


def _map_to_map(column: pa.Array, cast: Cast) -> pa.Array:
    source, target = cast.source, cast.target
    column = _from_start(column)
    of_source = _members_of(source)
    of_target = _members_of(target)
    keys = cast_column(column.keys, of_source[0], of_target[0], cast.context, cast.lenient)
    items = cast_column(column.items, of_source[1], of_target[1], cast.context, cast.lenient)
    return pa.MapArray.from_arrays(column.offsets, keys, items, mask=_null_mask(column))


def _members_of(kind: t.DataType) -> tuple[t.DataType, t.DataType]:
    if isinstance(kind, t.MultisetType):
        return kind.element_type, t.DataTypes.INT()
    assert isinstance(kind, t.MapType)
    return kind.key_type, kind.value_type


def _row_to_row(column: pa.Array, cast: Cast) -> pa.Array:
    source, target = cast.source, cast.target
    assert isinstance(source, t.RowType)
    assert isinstance(target, t.RowType)
    pairs = zip(source.field_types(), target.field_types(), strict=True)
    fields = [cast_column(column.field(i), a, b, cast.context, cast.lenient) for i, (a, b) in enumerate(pairs)]
    return pa.StructArray.from_arrays(fields, fields=list(arrow_type(target)), mask=_null_mask(column))


def _null_mask(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None


def _from_start(column: pa.Array) -> pa.Array:
    """Return the same column without an offset, which a null mask does not support."""
    return pa.concat_arrays([column, column.slice(0, 0)]) if column.offset else column


# --- dispatch

_FLOATS = (t.FloatType, t.DoubleType)
_Test = Callable[[t.DataType, t.DataType], bool]
_Types: TypeAlias = "type[t.DataType] | tuple[type[t.DataType], ...]"


def _pair(source: _Types, target: _Types) -> _Test:
    return lambda a, b: isinstance(a, source) and isinstance(b, target)


_STRINGS = (t.CharType, t.VarCharType)
_BYTES = (t.BinaryType, t.VarBinaryType)
_INTERVALS = (t.DayTimeIntervalType, t.YearMonthIntervalType)
_KERNELS: list[tuple[_Test, Callable[[pa.Array, Cast], pa.Array]]] = [
    (_pair(t.IntegralType, t.IntegralType), _integral_to_integral),
    (_pair(_FLOATS, t.IntegralType), _float_to_integral),
    (_pair(t.DecimalType, t.IntegralType), _decimal_to_integral),
    (_pair(t.NumericType, _FLOATS), _to_float),
    (_pair(t.IntegralType, t.DecimalType), _integral_to_decimal),
    (_pair(t.DecimalType, t.DecimalType), _decimal_to_decimal),
    (_pair(_FLOATS, t.DecimalType), _float_to_decimal),
    (_pair((t.IntegralType, t.DecimalType), _INTERVALS), _number_to_interval),
    (_pair(t.BooleanType, t.NumericType), _boolean_to_number),
    (_pair(t.NumericType, t.BooleanType), _number_to_boolean),
    (_pair(_STRINGS, t.IntegralType), _string_to_integral),
    (_pair(_STRINGS, _FLOATS), _string_to_float),
    (_pair(_STRINGS, t.DecimalType), _string_to_decimal),
    (_pair(_STRINGS, t.BooleanType), _string_to_boolean),
    (_pair(_STRINGS, _BYTES), _string_to_binary),
    (_pair(_BYTES, _BYTES), _binary_to_binary),
    (
        cast_times.takes,
        lambda column, cast: cast_times.cast(column, cast.source, cast.target, cast.context, cast.lenient),
    ),
    (_pair(t.ArrayType, t.ArrayType), _list_to_list),
    (_pair((t.MapType, t.MultisetType), (t.MapType, t.MultisetType)), _map_to_map),
    (_pair(t.RowType, t.RowType), _row_to_row),
]


def can_fail(source: t.DataType, target: t.DataType) -> bool:
    """Return whether some value of a type cannot be cast to another."""
    if type_rules.is_string(target):
        return False
    return type_rules.is_string(source) or isinstance(source, (t.ArrayType, t.MapType, t.RowType, *_FLOATS))


_NESTED = (t.ArrayType, t.MapType, t.MultisetType, t.RowType)


def _cast(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    return cast_value(values[0], site.types[0], site.type, site.context)


def _try_cast(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    (value,), source, target = values, site.types[0], site.type
    if not isinstance(source, _NESTED) or not isinstance(target, _NESTED):
        return cast_value(value, source, target, site.context, lenient=True)
    try:
        return cast_value(value, source, target, site.context)
    except TableException:
        # As in Flink, an element that cannot be cast makes the whole value null.
        fixed = isinstance(value, pa.Scalar)
        column = as_array(value, 1 if fixed else rows)
        result = pa.concat_arrays([_cast_or_null(column.slice(i, 1), site) for i in range(len(column))])
        return result[0] if fixed else result


def _cast_or_null(column: pa.Array, site: Site) -> pa.Array:
    try:
        return cast_column(column, site.types[0], site.type, site.context)
    except TableException:
        return pa.nulls(1, arrow_type(site.type))


def _no_rule(arguments: Arguments) -> None:
    """Reject: the target type is not an argument, see `resolve.cast`."""


FUNCTIONS = [
    Function("CAST", _no_rule, _cast, api="cast", fails=True),
    Function("TRY_CAST", _no_rule, _try_cast, api="try_cast"),
]
