"""SQL data types without parts, under PyFlink's names."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from copy import copy
from enum import Enum
from typing import ClassVar, TypeVar

from millstream.common.errors import InvalidProgramError
from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.unsupported import missing_function

_Type = TypeVar("_Type", bound="DataType")
INSIDE = "it is internal to PyFlink"
# The length of STRING and BYTES.
MAX_LENGTH = 2147483647
MAX_PRECISION = 38
MAX_SECOND_DIGITS = 9


class DataType:
    """An immutable SQL data type.

    Example:
        >>> str(IntType().not_null())
        'INT NOT NULL'
    """

    # Flink's type root, and the factory of the type in a DataStream.
    root: ClassVar[str] = ""
    streamed: ClassVar[Callable[[], TypeInformation] | None] = None

    def __init__(self, nullable: bool = True) -> None:
        self._nullable = nullable
        self._conversion_class = ""

    @property
    def is_nullable(self) -> bool:
        """Whether it is nullable."""
        return self._nullable

    def not_null(self: _Type) -> _Type:
        """Return the type as NOT NULL."""
        return self.with_nullability(False)

    def nullable(self: _Type) -> _Type:
        """Return the type as nullable."""
        return self.with_nullability(True)

    def with_nullability(self: _Type, nullable: bool) -> _Type:
        """Return the type with a nullability."""
        if nullable == self._nullable:
            return self
        changed = copy(self)
        changed._nullable = nullable
        return changed

    def bridged_to(self: _Type, conversion_cls: str) -> _Type:
        """Record a Java conversion class, which has no effect."""
        self._conversion_class = conversion_cls
        return self

    @classmethod
    def type_name(cls) -> str:
        """Return the name of the type class."""
        return cls.__name__[:-4].upper()

    @property
    def text(self) -> str:
        """The SQL text without nullability."""
        return self.root

    def parameters(self) -> tuple[object, ...]:
        """Return the parameters that distinguish types of one class."""
        return ()

    def __str__(self) -> str:
        return self.text if self._nullable else f"{self.text} NOT NULL"

    def __repr__(self) -> str:
        shown = [repr(p) for p in self.parameters()] + [str(self._nullable).lower()]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return False
        assert isinstance(other, DataType)
        return self._nullable == other._nullable and self.parameters() == other.parameters()

    def __hash__(self) -> int:
        return hash((type(self), self._nullable, self.parameters()))

    need_conversion = missing_function("need_conversion", INSIDE)
    to_sql_type = missing_function("to_sql_type", INSIDE)
    from_sql_type = missing_function("from_sql_type", INSIDE)

    def type_information(self) -> TypeInformation:
        """Return the type information in a DataStream; lengths and nullability are lost."""
        make = type(self).streamed
        if make is None:
            raise InvalidProgramError(f"There is no type of Types for {self}.")
        return make()

    def is_same_but_null(self, other: DataType) -> bool:
        """Return whether two types differ at most in nullability."""
        return self.nullable() == other.nullable()


class AtomicType(DataType):
    """A type without parts."""


class NullType(AtomicType):
    """The type of an untyped NULL."""

    root = "NULL"

    def __init__(self) -> None:
        super().__init__(True)


class NumericType(AtomicType):
    """A numeric type."""


class IntegralType(NumericType):
    """An integer type; arithmetic wraps around."""

    bits: ClassVar[int] = 0


class FractionalType(NumericType):
    """A numeric type with fractions."""


class _Sized(AtomicType):
    """A type with a length."""

    def __init__(self, length: int = 1, nullable: bool = True) -> None:
        super().__init__(nullable)
        if not 1 <= length <= MAX_LENGTH:
            raise ValueError(f"{self.root} length must be between 1 and {MAX_LENGTH} (both inclusive).")
        self.length = length

    def with_length(self: _Type, length: int) -> _Type:
        """Return the type with another length, which may be 0 for literals."""
        changed = copy(self)
        changed.length = length  # type: ignore[attr-defined]
        return changed

    def parameters(self) -> tuple[object, ...]:
        return (self.length,)

    @property
    def text(self) -> str:
        return f"{self.root}({self.length})"


class CharType(_Sized):
    """Fixed-length text, padded with blanks."""

    root = "CHAR"
    streamed = staticmethod(Types.STRING)


class VarCharType(_Sized):
    """Variable-length text."""

    root = "VARCHAR"
    streamed = staticmethod(Types.STRING)

    @property
    def text(self) -> str:
        return "STRING" if self.length == MAX_LENGTH else super().text


class BinaryType(_Sized):
    """Fixed-length bytes."""

    root = "BINARY"
    streamed = staticmethod(lambda: Types.PRIMITIVE_ARRAY(Types.BYTE()))


class VarBinaryType(_Sized):
    """Variable-length bytes."""

    root = "VARBINARY"
    streamed = staticmethod(lambda: Types.PRIMITIVE_ARRAY(Types.BYTE()))

    @property
    def text(self) -> str:
        return "BYTES" if self.length == MAX_LENGTH else super().text


class BooleanType(AtomicType):
    """Boolean."""

    root = "BOOLEAN"
    streamed = staticmethod(Types.BOOLEAN)


class TinyIntType(IntegralType):
    """8-bit integer."""

    root, bits = "TINYINT", 8
    streamed = staticmethod(Types.BYTE)


class SmallIntType(IntegralType):
    """16-bit integer."""

    root, bits = "SMALLINT", 16
    streamed = staticmethod(Types.SHORT)


class IntType(IntegralType):
    """32-bit integer."""

    root, bits = "INT", 32
    streamed = staticmethod(Types.INT)


class BigIntType(IntegralType):
    """64-bit integer."""

    root, bits = "BIGINT", 64
    streamed = staticmethod(Types.LONG)


class FloatType(FractionalType):
    """32-bit floating point number."""

    root = "FLOAT"
    streamed = staticmethod(Types.FLOAT)


class DoubleType(FractionalType):
    """64-bit floating point number."""

    root = "DOUBLE"
    streamed = staticmethod(Types.DOUBLE)


class DecimalType(FractionalType):
    """Decimal number with precision and scale."""

    root = "DECIMAL"
    streamed = staticmethod(Types.BIG_DEC)
    has_precision_info = True

    def __init__(self, precision: int = 10, scale: int = 0, nullable: bool = True) -> None:
        super().__init__(nullable)
        if not 1 <= precision <= MAX_PRECISION:
            raise ValueError(f"Decimal precision must be between 1 and {MAX_PRECISION} (both inclusive).")
        if not 0 <= scale <= precision:
            raise ValueError(f"Decimal scale must be between 0 and the precision {precision} (both inclusive).")
        self.precision = precision
        self.scale = scale

    def parameters(self) -> tuple[object, ...]:
        return self.precision, self.scale

    @property
    def text(self) -> str:
        return f"DECIMAL({self.precision}, {self.scale})"


class DateType(AtomicType):
    """Date."""

    root = "DATE"
    # Python's ordinal of 1970-01-01.
    EPOCH_ORDINAL = datetime.date(1970, 1, 1).toordinal()
    streamed = staticmethod(Types.SQL_DATE)


class _Precise(AtomicType):
    """A time type with a fractional-second precision."""

    def __init__(self, precision: int = 0, nullable: bool = True) -> None:
        super().__init__(nullable)
        if not 0 <= precision <= MAX_SECOND_DIGITS:
            raise ValueError(f"{self.root} precision must be between 0 and {MAX_SECOND_DIGITS} (both inclusive).")
        self.precision = precision

    def parameters(self) -> tuple[object, ...]:
        return (self.precision,)

    @property
    def text(self) -> str:
        return f"{self.root}({self.precision})"


class TimeType(_Precise):
    """Time of day."""

    root = "TIME"
    # Python's ordinal of 1970-01-01.
    EPOCH_ORDINAL = datetime.date(1970, 1, 1).toordinal()
    streamed = staticmethod(Types.SQL_TIME)


class TimestampType(_Precise):
    """Timestamp without time zone."""

    root = "TIMESTAMP"
    streamed = staticmethod(Types.SQL_TIMESTAMP)

    def __init__(self, precision: int = 6, nullable: bool = True) -> None:
        super().__init__(precision, nullable)


class LocalZonedTimestampType(_Precise):
    """Timestamp with local time zone: an instant, shown in the session time zone."""

    root = "TIMESTAMP_LTZ"
    # Python's ordinal of 1970-01-01.
    EPOCH_ORDINAL = datetime.date(1970, 1, 1).toordinal()
    streamed = staticmethod(Types.INSTANT)

    def __init__(self, precision: int = 6, nullable: bool = True) -> None:
        super().__init__(precision, nullable)


class ZonedTimestampType(_Precise):
    """Timestamp with time zone; no operation supports it."""

    root = "TIMESTAMP"

    def __init__(self, precision: int = 6, nullable: bool = True) -> None:
        super().__init__(precision, nullable)

    @property
    def text(self) -> str:
        return f"TIMESTAMP({self.precision}) WITH TIME ZONE"


class Resolution:
    """An interval unit with its precision."""

    class IntervalUnit(Enum):
        SECOND = 0
        MINUTE = 1
        HOUR = 2
        DAY = 3
        MONTH = 4
        YEAR = 5

    def __init__(self, unit: Resolution.IntervalUnit, precision: int = -1) -> None:
        self._unit = unit
        self._precision = precision

    @property
    def unit(self) -> Resolution.IntervalUnit:
        """The unit."""
        return self._unit

    @property
    def precision(self) -> int:
        """The precision; -1 if unspecified."""
        return self._precision

    def __str__(self) -> str:
        return f"{self._unit}({self._precision})"


class YearMonthIntervalType(AtomicType):
    """Interval of months."""

    root = "INTERVAL"

    class YearMonthResolution:
        YEAR = 1
        MONTH = 2
        YEAR_TO_MONTH = 3

    DEFAULT_PRECISION = 2

    def __init__(self, resolution: int, precision: int = DEFAULT_PRECISION, nullable: bool = True) -> None:
        super().__init__(nullable)
        if not 1 <= precision <= 4:
            raise ValueError("Year precision of year-month intervals must be between 1 and 4 (both inclusive).")
        self._resolution = resolution
        self._precision = precision

    @property
    def resolution(self) -> int:
        """Its units."""
        return self._resolution

    @property
    def precision(self) -> int:
        """The precision of years."""
        return self._precision

    def parameters(self) -> tuple[object, ...]:
        return self._resolution, self._precision

    @property
    def text(self) -> str:
        year = f"YEAR({self._precision})"
        units = {1: year, 2: "MONTH", 3: f"{year} TO MONTH"}
        return f"INTERVAL {units[self._resolution]}"


class DayTimeIntervalType(AtomicType):
    """Interval of milliseconds."""

    root = "INTERVAL"

    class DayTimeResolution(Enum):
        DAY = 1
        DAY_TO_HOUR = 2
        DAY_TO_MINUTE = 3
        DAY_TO_SECOND = 4
        HOUR = 5
        HOUR_TO_MINUTE = 6
        HOUR_TO_SECOND = 7
        MINUTE = 8
        MINUTE_TO_SECOND = 9
        SECOND = 10

    DEFAULT_DAY_PRECISION = 2
    DEFAULT_FRACTIONAL_PRECISION = 6

    def __init__(
        self,
        resolution: DayTimeIntervalType.DayTimeResolution,
        day_precision: int = DEFAULT_DAY_PRECISION,
        fractional_precision: int = DEFAULT_FRACTIONAL_PRECISION,
        nullable: bool = True,
    ) -> None:
        super().__init__(nullable)
        if not 1 <= day_precision <= 6:
            raise ValueError("Day precision of day-time intervals must be between 1 and 6 (both inclusive).")
        if not 0 <= fractional_precision <= MAX_SECOND_DIGITS:
            raise ValueError("Fractional precision of day-time intervals must be between 0 and 9 (both inclusive).")
        self._resolution = resolution
        self._day_precision = day_precision
        self._fractional_precision = fractional_precision

    @property
    def resolution(self) -> DayTimeIntervalType.DayTimeResolution:
        """Its units."""
        return self._resolution

    @property
    def day_precision(self) -> int:
        """The precision of days."""
        return self._day_precision

    @property
    def fractional_precision(self) -> int:
        """The precision of fractional seconds."""
        return self._fractional_precision

    def parameters(self) -> tuple[object, ...]:
        return self._resolution, self._day_precision, self._fractional_precision

    @property
    def text(self) -> str:
        digits = {"DAY": f"DAY({self._day_precision})", "SECOND": f"SECOND({self._fractional_precision})"}
        units = [digits.get(unit, unit) for unit in self._resolution.name.split("_TO_")]
        return f"INTERVAL {' TO '.join(units)}"
