"""Type rules: arithmetic results, comparability, common types, casts.

Flink's rules, with their asymmetries: FLOAT + DOUBLE is a FLOAT, DOUBLE + FLOAT a DOUBLE; `a % b` has the type of `b`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from millstream.sql.types import (
    MAX_LENGTH,
    MAX_PRECISION,
    ArrayType,
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DataTypes,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    IntType,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    NullType,
    NumericType,
    RowField,
    RowType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)

# Maximum digits of integer types.
_DIGITS: dict[type[DataType], int] = {TinyIntType: 3, SmallIntType: 5, IntType: 10, BigIntType: 19}
# Minimum scale that is kept when a decimal result exceeds the maximum precision.
_MIN_SCALE = 6

# Intervals are all milliseconds or all months.
MILLISECONDS = DataTypes.INTERVAL(DataTypes.SECOND(3))
MONTHS = DataTypes.INTERVAL(DataTypes.MONTH())

_INTERVALS = (DayTimeIntervalType, YearMonthIntervalType)
_ONE_UNIT = frozenset(
    [
        YearMonthIntervalType.YearMonthResolution.YEAR,
        YearMonthIntervalType.YearMonthResolution.MONTH,
        DayTimeIntervalType.DayTimeResolution.DAY,
        DayTimeIntervalType.DayTimeResolution.HOUR,
        DayTimeIntervalType.DayTimeResolution.MINUTE,
        DayTimeIntervalType.DayTimeResolution.SECOND,
    ]
)
_APPROXIMATE = (FloatType, DoubleType)
_STRINGS = (CharType, VarCharType)
_BYTES = (BinaryType, VarBinaryType)
_TIMESTAMPS = (TimestampType, LocalZonedTimestampType)
_TIMES = (DateType, TimeType, *_TIMESTAMPS)


def is_numeric(t: DataType) -> bool:
    """Return whether a type is numeric."""
    return isinstance(t, NumericType)


def is_string(t: DataType) -> bool:
    """Return whether a type is text."""
    return isinstance(t, _STRINGS)


def is_binary(t: DataType) -> bool:
    """Return whether a type is binary."""
    return isinstance(t, _BYTES)


def is_interval(t: DataType) -> bool:
    """Return whether a type is an interval."""
    return isinstance(t, _INTERVALS)


def is_of_one_unit(t: DataType) -> bool:
    """Return whether an interval has a single unit: DAY, not DAY TO HOUR."""
    return t.resolution in _ONE_UNIT if isinstance(t, _INTERVALS) else False


def is_temporal(t: DataType) -> bool:
    """Return whether a type is a date, time or timestamp."""
    return isinstance(t, _TIMES)


def as_decimal(t: DataType) -> DecimalType | None:
    """Return the decimal type that holds all values of an exact numeric type."""
    if isinstance(t, DecimalType):
        return t
    return DecimalType(_DIGITS[type(t)], 0) if isinstance(t, IntegralType) else None


_Merge = Callable[[DataType, DataType], DataType | None]

# --- arithmetic


def arithmetic(operator: str, left: DataType, right: DataType) -> DataType | None:
    """Return the type of `left operator right` for one of + - * / %; None if undefined."""
    nullable = left.is_nullable or right.is_nullable
    if isinstance(left, NullType) or isinstance(right, NullType):
        other = right if isinstance(left, NullType) else left
        return arithmetic(operator, other, other) if is_numeric(other) else None
    if is_numeric(left) and is_numeric(right):
        result = _of_numbers(operator, left, right)
    else:
        result = _of_times(operator, left, right)
    return None if result is None else result.with_nullability(nullable)


def _of_numbers(operator: str, left: DataType, right: DataType) -> DataType | None:
    approximate = [t for t in (left, right) if isinstance(t, _APPROXIMATE)]
    if approximate:
        if operator == "%":
            return None
        if isinstance(left, DecimalType) or isinstance(right, DecimalType):
            return DoubleType()
        return approximate[0]
    if isinstance(left, IntegralType) and isinstance(right, IntegralType):
        if operator == "%":
            return right
        return left if left.bits >= right.bits else right
    a, b = as_decimal(left), as_decimal(right)
    assert a is not None
    assert b is not None
    if operator == "%" and not a.scale and not b.scale:
        # As for integers, the remainder has the divisor's type.
        return right
    return _of_decimals(operator, a, b)


def _of_decimals(operator: str, a: DecimalType, b: DecimalType) -> DataType:
    before = a.precision - a.scale, b.precision - b.scale
    if operator in "+-":
        scale = max(a.scale, b.scale)
        return bounded_decimal(max(before) + scale + 1, scale)
    if operator == "*":
        return bounded_decimal(a.precision + b.precision + 1, a.scale + b.scale)
    if operator == "/":
        scale = max(_MIN_SCALE, a.scale + b.precision + 1)
        return bounded_decimal(before[0] + b.scale + scale, scale)
    scale = max(a.scale, b.scale)
    return bounded_decimal(min(before) + scale, scale)


def bounded_decimal(precision: int, scale: int) -> DecimalType:
    """Return a decimal type, with a reduced scale if the precision is too large."""
    if precision > MAX_PRECISION:
        scale = max(MAX_PRECISION - (precision - scale), min(scale, _MIN_SCALE))
        precision = MAX_PRECISION
    return DecimalType(precision, scale)


def _of_times(operator: str, left: DataType, right: DataType) -> DataType | None:
    if operator in "+-" and is_temporal(left) and is_interval(right):
        return left
    if operator == "+" and is_interval(left) and is_temporal(right):
        return right
    if operator in "+-" and is_interval(left) and type(left) is type(right):
        return _plain(left)
    if operator in "*/" and is_interval(left) and is_numeric(right):
        return _plain(left)
    if operator == "*" and is_numeric(left) and is_interval(right):
        return _plain(right)
    return None


def _plain(interval: DataType) -> DataType:
    return MONTHS if isinstance(interval, YearMonthIntervalType) else MILLISECONDS


# --- comparing


def is_ordered(left: DataType, right: DataType) -> bool:
    """Return whether two types are comparable with `<`."""
    mixed = is_string(left) != is_string(right) and (is_interval(left) or is_interval(right))
    return (
        is_comparable(left, right) and not mixed and not isinstance(left, (ArrayType, MapType, MultisetType, RowType))
    )


def is_comparable(left: DataType, right: DataType) -> bool:
    """Return whether two types are comparable with `=`."""
    if isinstance(left, NullType) or isinstance(right, NullType):
        return True
    if is_string(left) or is_string(right):
        other = right if is_string(left) else left
        return is_string(other) or _is_read_from_strings(other)
    if isinstance(left, _TIMESTAMPS):
        return isinstance(right, _TIMESTAMPS)
    if isinstance(left, (ArrayType, MultisetType)) and isinstance(right, (ArrayType, MultisetType)):
        return type(left) is type(right) and is_comparable(left.element_type, right.element_type)
    if isinstance(left, MapType) and isinstance(right, MapType):
        return is_comparable(left.key_type, right.key_type) and is_comparable(left.value_type, right.value_type)
    if isinstance(left, RowType) and isinstance(right, RowType):
        pairs = zip(left.field_types(), right.field_types(), strict=False)
        return len(left) == len(right) and all(is_comparable(a, b) for a, b in pairs)
    return _family(left) == _family(right)


def _is_read_from_strings(t: DataType) -> bool:
    return isinstance(t, (NumericType, BooleanType, *_TIMES, *_INTERVALS))


def _family(t: DataType) -> object:
    if is_numeric(t):
        return NumericType
    return BinaryType if is_binary(t) else type(t)


# --- common types


def common_type(types: Iterable[DataType]) -> DataType | None:
    """Return the common type for COALESCE and other functions, or None."""
    return _merged(types, _common_of_function)


def least_restrictive(types: Iterable[DataType]) -> DataType | None:
    """Return the common type for CASE, set operations and VALUES, or None."""
    return _merged(types, _common_of_query)


def _merged(types: Iterable[DataType], merge: _Merge) -> DataType | None:
    result = list(types)
    known = [t for t in result if not isinstance(t, NullType)]
    if not known:
        return NullType() if result else None
    common: DataType | None = known[0]
    for kind in known[1:]:
        common = None if common is None else merge(common, kind)
    return None if common is None else common.with_nullability(any(t.is_nullable for t in result))


def _common_of_function(left: DataType, right: DataType) -> DataType | None:
    if is_numeric(left) and is_numeric(right):
        return _common_number(left, right)
    if is_temporal(left) and is_temporal(right):
        return _common_time(left, right)
    return _common_other(left, right, _common_of_function)


def _common_of_query(left: DataType, right: DataType) -> DataType | None:
    if isinstance(left, _APPROXIMATE) or isinstance(right, _APPROXIMATE):
        # As for addition.
        return _of_numbers("+", left, right) if is_numeric(left) and is_numeric(right) else None
    if isinstance(left, _TIMESTAMPS) and isinstance(right, _TIMESTAMPS):
        return type(left)(max(left.precision, right.precision))
    if is_temporal(left) and is_temporal(right) and type(left) is not type(right):
        return None
    return _common_of_function(left, right) if is_numeric(left) else _common_other(left, right, _common_of_query)


def _common_other(left: DataType, right: DataType, merge: _Merge) -> DataType | None:
    if is_string(left) and is_string(right):
        return _common_sized(left, right, CharType, VarCharType)
    if is_binary(left) and is_binary(right):
        return _common_sized(left, right, BinaryType, VarBinaryType)
    if is_interval(left) and type(left) is type(right):
        return _plain(left)
    if isinstance(left, TimeType) and isinstance(right, TimeType):
        return TimeType(max(left.precision, right.precision))
    return _common_collection(left, right, merge)


def _common_number(left: DataType, right: DataType) -> DataType:
    if isinstance(left, IntegralType) and isinstance(right, IntegralType):
        return left if left.bits >= right.bits else right
    if isinstance(right, _APPROXIMATE):
        return left if isinstance(left, DoubleType) else right
    if isinstance(left, _APPROXIMATE):
        return DoubleType() if isinstance(right, DecimalType) else left
    a, b = as_decimal(left), as_decimal(right)
    assert a is not None
    assert b is not None
    scale = max(a.scale, b.scale)
    return bounded_decimal(max(a.precision - a.scale, b.precision - b.scale) + scale, scale)


def _common_sized(left: DataType, right: DataType, fixed: type[DataType], varying: type[DataType]) -> DataType:
    lengths: list[int] = [left.length, right.length]  # type: ignore[attr-defined]
    same = type(left) is type(right) is fixed and lengths[0] == lengths[1]
    kind = fixed if same else varying
    # A text literal may be empty, although no such type can be declared.
    return kind().with_length(max(lengths))  # type: ignore[attr-defined, no-any-return]


def _common_time(left: DataType, right: DataType) -> DataType | None:
    if isinstance(left, _TIMESTAMPS) and isinstance(right, _TIMESTAMPS):
        zoned = isinstance(left, LocalZonedTimestampType) or isinstance(right, LocalZonedTimestampType)
        return (LocalZonedTimestampType if zoned else TimestampType)(max(left.precision, right.precision))
    if isinstance(left, TimeType) and isinstance(right, TimeType):
        return TimeType(max(left.precision, right.precision))
    if type(left) is type(right):
        return left
    # Flink compares a date with a timestamp.
    plain = [t for t in (left, right) if isinstance(t, (DateType, TimeType))]
    other = right if plain and plain[0] is left else left
    return plain[0] if len(plain) == 1 and isinstance(other, TimestampType) else None


def _common_collection(left: DataType, right: DataType, merge: _Merge) -> DataType | None:
    if left.is_same_but_null(right):
        return left
    if isinstance(left, ArrayType) and isinstance(right, ArrayType):
        element = _merged([left.element_type, right.element_type], merge)
        return None if element is None else ArrayType(element)
    if isinstance(left, MapType) and isinstance(right, MapType):
        key = _merged([left.key_type, right.key_type], merge)
        value = _merged([left.value_type, right.value_type], merge)
        return None if key is None or value is None else MapType(key, value)
    if isinstance(left, RowType) and isinstance(right, RowType) and len(left) == len(right):
        pairs = zip(left.field_types(), right.field_types(), strict=True)
        members = [_merged(pair, merge) for pair in pairs]
        if all(m is not None for m in members):
            return RowType([RowField(f.name, m) for f, m in zip(left, members, strict=True) if m is not None])
    return None


# --- text


def concatenated(left: DataType, right: DataType) -> DataType | None:
    """Return the type of `left || right`."""
    nullable = left.is_nullable or right.is_nullable
    if isinstance(left, ArrayType) and isinstance(right, ArrayType):
        result = common_type([left, right])
        return None if result is None else result.with_nullability(nullable)
    for fixed, varying in ((CharType, VarCharType), (BinaryType, VarBinaryType)):
        if isinstance(left, (fixed, varying)) and isinstance(right, (fixed, varying)):
            length = min(left.length + right.length, MAX_LENGTH)
            both = isinstance(left, fixed) and isinstance(right, fixed)
            return (fixed if both else varying)(length, nullable)
    return None


# --- casts


def can_cast(source: DataType, target: DataType) -> bool:
    """Return whether CAST between two types is allowed; values are checked at run time."""
    if isinstance(source, NullType) or is_string(target):
        return True
    if is_string(source):
        return not isinstance(target, (ArrayType, MapType, MultisetType, RowType, *_INTERVALS))
    if isinstance(source, (NumericType, BooleanType)):
        if is_interval(target):
            return as_decimal(source) is not None and is_of_one_unit(target)
        return isinstance(target, (NumericType, BooleanType))
    if is_temporal(source):
        pair = {type(source), type(target)}
        return is_temporal(target) and pair != {DateType, TimeType}
    if is_binary(source):
        return is_binary(target)
    if is_interval(source):
        return type(source) is type(target)
    return _can_cast_members(source, target)


def _can_cast_members(source: DataType, target: DataType) -> bool:
    if isinstance(source, (ArrayType, MultisetType)) and isinstance(target, (ArrayType, MultisetType)):
        return type(source) is type(target) and can_cast(source.element_type, target.element_type)
    if isinstance(source, MapType) and isinstance(target, MapType):
        return can_cast(source.key_type, target.key_type) and can_cast(source.value_type, target.value_type)
    if isinstance(source, RowType) and isinstance(target, RowType) and len(source) == len(target):
        return all(map(can_cast, source.field_types(), target.field_types()))
    return source.is_same_but_null(target)


def can_store(source: DataType, target: DataType) -> bool:
    """Return whether a query's column may be written to a table's without loss."""
    if isinstance(source, NullType):
        return target.is_nullable
    if isinstance(source, IntegralType) and isinstance(target, IntegralType):
        return source.bits <= target.bits
    if is_numeric(source) and is_numeric(target):
        wide = isinstance(target, _APPROXIMATE) or not isinstance(source, _APPROXIMATE)
        return wide and not (isinstance(source, DoubleType) and isinstance(target, FloatType))
    if is_string(source) or is_binary(source):
        is_same_family = (is_string(source) and is_string(target)) or (is_binary(source) and is_binary(target))
        grows = isinstance(source, (VarCharType, VarBinaryType)) and isinstance(target, (CharType, BinaryType))
        return is_same_family and not grows
    if isinstance(source, TimestampType) and isinstance(target, (DateType, TimeType)):
        return True
    if isinstance(source, _TIMESTAMPS) and isinstance(target, _TIMESTAMPS):
        return True
    if isinstance(source, TimeType) and isinstance(target, TimeType):
        return True
    if isinstance(source, ArrayType) and isinstance(target, ArrayType):
        return can_store(source.element_type, target.element_type)
    if isinstance(source, MapType) and isinstance(target, MapType):
        return can_store(source.key_type, target.key_type) and can_store(source.value_type, target.value_type)
    if isinstance(source, RowType) and isinstance(target, RowType) and len(source) == len(target):
        return all(map(can_store, source.field_types(), target.field_types()))
    return source.is_same_but_null(target)
