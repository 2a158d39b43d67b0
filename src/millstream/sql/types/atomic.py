"""SQL data types without parts, under PyFlink's names."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from copy import copy
from enum import Enum
from typing import Any, ClassVar, TypeVar

from millstream.common.errors import InvalidProgramError
from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.unsupported import missing_function

_Type = TypeVar("_Type", bound="DataType")
INSIDE = "it is a part of PyFlink's inside"
# The longest text and the longest bytes: STRING and BYTES.
MOST_LENGTH = 2147483647
MOST_PRECISION = 38
MOST_SECOND_DIGITS = 9


class DataType:
    """The type of a column or of a value in an expression. It does not change.

    Example:
        >>> str(DataTypes.INT().not_null())
        'INT NOT NULL'
    """

    # Flink's word for it, and the type of Types that values have in a stream.
    root: ClassVar[str] = ""
    streamed: ClassVar[Callable[[], TypeInformation] | None] = None

    def __init__(self, nullable: bool = True) -> None:
        self._nullable = nullable
        self._conversion_class = ""

    @property
    def is_nullable(self) -> bool:
        """Whether null is one of its values."""
        return self._nullable

    def not_null(self: _Type) -> _Type:
        """Return the same type without null."""
        return self.with_nullability(False)

    def nullable(self: _Type) -> _Type:
        """Return the same type with null."""
        return self.with_nullability(True)

    def with_nullability(self: _Type, nullable: bool) -> _Type:
        """Return the same type with null or without."""
        if nullable == self._nullable:
            return self
        changed = copy(self)
        changed._nullable = nullable
        return changed

    def bridged_to(self: _Type, conversion_cls: str) -> _Type:
        """Take note of a Java class, which has no meaning here."""
        self._conversion_class = conversion_cls
        return self

    @classmethod
    def type_name(cls) -> str:
        """Return the name of the kind of type."""
        return cls.__name__[:-4].upper()

    @property
    def text(self) -> str:
        """The type as SQL has it, without its nullability."""
        return self.root

    def parameters(self) -> tuple[Any, ...]:
        """Return what tells it from others of its class."""
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
        """Return the type of `Types` that values of it have in a stream; lengths and nullability are not kept."""
        make = type(self).streamed
        if make is None:
            raise InvalidProgramError(f"There is no type of Types for {self}.")
        return make()

    def is_same_but_null(self, other: DataType) -> bool:
        """Tell whether another type is the same but for its nullability."""
        return self.nullable() == other.nullable()


class AtomicType(DataType):
    """A type whose values have no parts."""


class NullType(AtomicType):
    """The type of NULL, before it is known of what."""

    root = "NULL"

    def __init__(self) -> None:
        super().__init__(True)


class NumericType(AtomicType):
    """Numbers."""


class IntegralType(NumericType):
    """Whole numbers of so many bits; arithmetic wraps around."""

    bits: ClassVar[int] = 0


class FractionalType(NumericType):
    """Other numbers."""


class _Sized(AtomicType):
    """A type with a length."""

    def __init__(self, length: int = 1, nullable: bool = True) -> None:
        super().__init__(nullable)
        if not 1 <= length <= MOST_LENGTH:
            raise ValueError(f"{self.root} length must be between 1 and {MOST_LENGTH} (both inclusive).")
        self.length = length

    def with_length(self: _Type, length: int) -> _Type:
        """Return the same kind of type with another length; text that is written out may have none."""
        changed = copy(self)
        changed.length = length  # type: ignore[attr-defined]
        return changed

    def parameters(self) -> tuple[Any, ...]:
        return (self.length,)

    @property
    def text(self) -> str:
        return f"{self.root}({self.length})"


class CharType(_Sized):
    """Text of one length, padded with blanks."""

    root = "CHAR"
    streamed = staticmethod(Types.STRING)


class VarCharType(_Sized):
    """Text of at most a length."""

    root = "VARCHAR"
    streamed = staticmethod(Types.STRING)

    @property
    def text(self) -> str:
        return "STRING" if self.length == MOST_LENGTH else super().text


class BinaryType(_Sized):
    """Bytes of one length."""

    root = "BINARY"
    streamed = staticmethod(lambda: Types.PRIMITIVE_ARRAY(Types.BYTE()))


class VarBinaryType(_Sized):
    """Bytes of at most a length."""

    root = "VARBINARY"
    streamed = staticmethod(lambda: Types.PRIMITIVE_ARRAY(Types.BYTE()))

    @property
    def text(self) -> str:
        return "BYTES" if self.length == MOST_LENGTH else super().text


class BooleanType(AtomicType):
    """True and false."""

    root = "BOOLEAN"
    streamed = staticmethod(Types.BOOLEAN)


class TinyIntType(IntegralType):
    """Whole numbers of a byte."""

    root, bits = "TINYINT", 8
    streamed = staticmethod(Types.BYTE)


class SmallIntType(IntegralType):
    """Whole numbers of two bytes."""

    root, bits = "SMALLINT", 16
    streamed = staticmethod(Types.SHORT)


class IntType(IntegralType):
    """Whole numbers of four bytes."""

    root, bits = "INT", 32
    streamed = staticmethod(Types.INT)


class BigIntType(IntegralType):
    """Whole numbers of eight bytes."""

    root, bits = "BIGINT", 64
    streamed = staticmethod(Types.LONG)


class FloatType(FractionalType):
    """Floating point numbers of four bytes."""

    root = "FLOAT"
    streamed = staticmethod(Types.FLOAT)


class DoubleType(FractionalType):
    """Floating point numbers of eight bytes."""

    root = "DOUBLE"
    streamed = staticmethod(Types.DOUBLE)


class DecimalType(FractionalType):
    """Decimal numbers of so many digits, so many of them behind the point."""

    root = "DECIMAL"
    streamed = staticmethod(Types.BIG_DEC)
    has_precision_info = True

    def __init__(self, precision: int = 10, scale: int = 0, nullable: bool = True) -> None:
        super().__init__(nullable)
        if not 1 <= precision <= MOST_PRECISION:
            raise ValueError(f"Decimal precision must be between 1 and {MOST_PRECISION} (both inclusive).")
        if not 0 <= scale <= precision:
            raise ValueError(f"Decimal scale must be between 0 and the precision {precision} (both inclusive).")
        self.precision = precision
        self.scale = scale

    def parameters(self) -> tuple[Any, ...]:
        return self.precision, self.scale

    @property
    def text(self) -> str:
        return f"DECIMAL({self.precision}, {self.scale})"


class DateType(AtomicType):
    """Days."""

    root = "DATE"
    # The number that Python gives the first day of 1970.
    EPOCH_ORDINAL = datetime.date(1970, 1, 1).toordinal()
    streamed = staticmethod(Types.SQL_DATE)


class _Precise(AtomicType):
    """A type of time with so many digits behind the second."""

    def __init__(self, precision: int = 0, nullable: bool = True) -> None:
        super().__init__(nullable)
        if not 0 <= precision <= MOST_SECOND_DIGITS:
            raise ValueError(f"{self.root} precision must be between 0 and {MOST_SECOND_DIGITS} (both inclusive).")
        self.precision = precision

    def parameters(self) -> tuple[Any, ...]:
        return (self.precision,)

    @property
    def text(self) -> str:
        return f"{self.root}({self.precision})"


class TimeType(_Precise):
    """Times of a day."""

    root = "TIME"
    # The number that Python gives the first day of 1970.
    EPOCH_ORDINAL = datetime.date(1970, 1, 1).toordinal()
    streamed = staticmethod(Types.SQL_TIME)


class TimestampType(_Precise):
    """Times of a day on a day, of no zone."""

    root = "TIMESTAMP"
    streamed = staticmethod(Types.SQL_TIMESTAMP)

    def __init__(self, precision: int = 6, nullable: bool = True) -> None:
        super().__init__(precision, nullable)


class LocalZonedTimestampType(_Precise):
    """Points in time, shown in the session's zone."""

    root = "TIMESTAMP_LTZ"
    # The number that Python gives the first day of 1970.
    EPOCH_ORDINAL = datetime.date(1970, 1, 1).toordinal()
    streamed = staticmethod(Types.INSTANT)

    def __init__(self, precision: int = 6, nullable: bool = True) -> None:
        super().__init__(precision, nullable)


class ZonedTimestampType(_Precise):
    """Times of a day on a day with their zone; no operation takes them."""

    root = "TIMESTAMP"

    def __init__(self, precision: int = 6, nullable: bool = True) -> None:
        super().__init__(precision, nullable)

    @property
    def text(self) -> str:
        return f"TIMESTAMP({self.precision}) WITH TIME ZONE"


class Resolution:
    """A unit of an interval, and how many digits it has."""

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
        """How many digits it has, -1 where that is not said."""
        return self._precision

    def __str__(self) -> str:
        return f"{self._unit}({self._precision})"


class YearMonthIntervalType(AtomicType):
    """A number of months."""

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
        """How many digits the years have."""
        return self._precision

    def parameters(self) -> tuple[Any, ...]:
        return self._resolution, self._precision

    @property
    def text(self) -> str:
        year = f"YEAR({self._precision})"
        units = {1: year, 2: "MONTH", 3: f"{year} TO MONTH"}
        return f"INTERVAL {units[self._resolution]}"


class DayTimeIntervalType(AtomicType):
    """A length of time in milliseconds."""

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
        if not 0 <= fractional_precision <= MOST_SECOND_DIGITS:
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
        """How many digits the days have."""
        return self._day_precision

    @property
    def fractional_precision(self) -> int:
        """How many digits there are behind the second."""
        return self._fractional_precision

    def parameters(self) -> tuple[Any, ...]:
        return self._resolution, self._day_precision, self._fractional_precision

    @property
    def text(self) -> str:
        digits = {"DAY": f"DAY({self._day_precision})", "SECOND": f"SECOND({self._fractional_precision})"}
        units = [digits.get(unit, unit) for unit in self._resolution.name.split("_TO_")]
        return f"INTERVAL {' TO '.join(units)}"
