"""Parses types: `DECIMAL(10, 2) NOT NULL`, `ROW<a INT, b ARRAY<STRING>>`."""

from __future__ import annotations

from collections.abc import Callable

from millstream.sql.language.lexer import Kind
from millstream.sql.language.reader import Reader
from millstream.sql.types import (
    MAX_LENGTH,
    ArrayType,
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DataTypes,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    NullType,
    RawType,
    Resolution,
    RowField,
    RowType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
)

_PLAIN: dict[str, Callable[[], DataType]] = {
    "BOOLEAN": BooleanType,
    "TINYINT": TinyIntType,
    "SMALLINT": SmallIntType,
    "INT": IntType,
    "INTEGER": IntType,
    "BIGINT": BigIntType,
    "FLOAT": FloatType,
    "REAL": FloatType,
    "DATE": DateType,
    "NULL": NullType,
    "STRING": DataTypes.STRING,
    "BYTES": DataTypes.BYTES,
}
_SIZED: dict[str, tuple[Callable[[int], DataType], int]] = {
    "CHAR": (CharType, 1),
    "VARCHAR": (VarCharType, 1),
    "BINARY": (BinaryType, 1),
    "VARBINARY": (VarBinaryType, 1),
}
_UNITS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")


def read_type(r: Reader, intervals: bool = False) -> DataType:
    """Parse a type with its nullability and the suffixes ARRAY and MULTISET.

    Args:
        r: the reader.
        intervals: whether INTERVAL types are allowed: in a CAST, not in a column.
    """
    position = r.position
    if not intervals and r.next_is("INTERVAL"):
        r.refuse_at(position, "An INTERVAL cannot be stored: Encountered 'INTERVAL'")
    try:
        result = _nullability(r, _bare(r))
    except ValueError as e:
        r.refuse_at(position, str(e).rstrip("."))
    # `INT ARRAY`, the standard's form.
    while (word := r.take_one_of("ARRAY", "MULTISET")) is not None:
        result = _nullability(r, ArrayType(result) if word == "ARRAY" else MultisetType(result))
    return result


def _nullability(r: Reader, type_: DataType) -> DataType:
    if r.take("NOT", "NULL"):
        return type_.not_null()
    # `RETURNING INT NULL ON ERROR`: NULL does not belong to the type.
    if r.ahead(1).upper != "ON":
        r.take("NULL")
    return type_


def _bare(r: Reader) -> DataType:
    word = r.token.upper
    if word in _PLAIN:
        r.skip()
        return _PLAIN[word]()
    if word in _SIZED or word == "CHARACTER":
        return _sized(r, r.skip().upper)
    parse = _PARAMETERIZED.get(word)
    if parse is None:
        if r.token.kind in (Kind.WORD, Kind.QUOTED):
            r.refuse_at(r.position, f"Encountered {r.token.text!r}, which is not a type")
        r.need_one_of("a type")
    r.skip()
    assert parse is not None
    return parse(r)


def _sized(r: Reader, word: str) -> DataType:
    if word == "CHARACTER":
        word = "CHAR"
    if r.take("VARYING"):
        word = {"CHAR": "VARCHAR", "BINARY": "VARBINARY"}.get(word) or r.refuse()
    make, length = _SIZED[word]
    if r.take("("):
        length = r.whole_number()
        r.need(")")
    elif word.startswith("VAR"):
        # As in Flink, no length means unbounded.
        length = MAX_LENGTH
    return make(min(length, MAX_LENGTH))


def _decimal(r: Reader) -> DataType:
    precision, scale = 10, 0
    if r.take("("):
        precision = r.whole_number()
        if r.take(","):
            scale = r.whole_number()
        r.need(")")
    return DecimalType(precision, scale)


def _precision(r: Reader, otherwise: int) -> int:
    if not r.take("("):
        return otherwise
    precision = r.whole_number()
    r.need(")")
    return precision


def _double(r: Reader) -> DataType:
    r.take("PRECISION")
    return DoubleType()


def _time(r: Reader) -> DataType:
    precision = _precision(r, 0)
    r.take("WITHOUT", "TIME", "ZONE")
    return TimeType(precision)


def _timestamp(r: Reader) -> DataType:
    precision = _precision(r, 6)
    if r.take("WITH", "LOCAL", "TIME", "ZONE"):
        return LocalZonedTimestampType(precision)
    if r.next_is("WITH", "TIME", "ZONE"):
        r.refuse_at(r.position, "TIMESTAMP WITH TIME ZONE is not supported, use TIMESTAMP_LTZ: Encountered 'WITH'")
    r.take("WITHOUT", "TIME", "ZONE")
    return TimestampType(precision)


def _timestamp_ltz(r: Reader) -> DataType:
    return LocalZonedTimestampType(_precision(r, 6))


def _interval(r: Reader) -> DataType:
    first = _resolution(r)
    last = _resolution(r) if r.take("TO") else None
    return DataTypes.INTERVAL(first, last)


def _resolution(r: Reader) -> Resolution:
    unit = r.need_one_of(*_UNITS)
    default = {"YEAR": 2, "DAY": 2, "SECOND": 6}.get(unit, -1)
    return Resolution(Resolution.IntervalUnit[unit], _precision(r, default) if default > 0 else -1)


def _array(r: Reader) -> DataType:
    return ArrayType(_between_angles(r, read_type))


def _multiset(r: Reader) -> DataType:
    return MultisetType(_between_angles(r, read_type))


def _map(r: Reader) -> DataType:
    def pair(r: Reader) -> DataType:
        key = read_type(r)
        r.need(",")
        return MapType(key, read_type(r))

    return _between_angles(r, pair)


def _row(r: Reader) -> DataType:
    if r.take("<>"):
        return RowType()
    close = ">" if r.take("<") else ")"
    if close == ")":
        r.need("(")
    fields: list[RowField] = []
    if not r.take(close):
        fields = r.list_of(lambda: _field(r))
        r.need(close)
    return RowType(fields)


def _field(r: Reader) -> RowField:
    name, kind = r.name("the name of a field"), read_type(r)
    return RowField(name, kind, r.string() if r.token.kind is Kind.STRING else None)


def _between_angles(r: Reader, read: Callable[[Reader], DataType]) -> DataType:
    r.need("<")
    result = read(r)
    r.need(">")
    return result


def _raw(r: Reader) -> DataType:
    if r.take("("):
        r.list_of(r.string)
        r.need(")")
    return RawType()


_PARAMETERIZED: dict[str, Callable[[Reader], DataType]] = {
    "DECIMAL": _decimal,
    "DEC": _decimal,
    "NUMERIC": _decimal,
    "DOUBLE": _double,
    "TIME": _time,
    "TIMESTAMP": _timestamp,
    "TIMESTAMP_LTZ": _timestamp_ltz,
    "INTERVAL": _interval,
    "ARRAY": _array,
    "MULTISET": _multiset,
    "MAP": _map,
    "ROW": _row,
    "RAW": _raw,
}
