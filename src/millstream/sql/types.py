"""The types of columns, under PyFlink's names: what a value can be, whether it can be null, and how Flink writes it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from copy import copy
from enum import Enum
from typing import Any, ClassVar, TypeVar, overload

from millstream.common.errors import InvalidProgramError
from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.unsupported import JAVA, missing_function

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


class _OfElements(DataType):
    """A type of many values of another type."""

    def __init__(self, element_type: DataType, nullable: bool = True) -> None:
        super().__init__(nullable)
        if not isinstance(element_type, DataType):
            raise TypeError(f"The element type of {self.root} should be a DataType, not {element_type!r}.")
        self.element_type = element_type

    def parameters(self) -> tuple[Any, ...]:
        return (self.element_type,)

    @property
    def text(self) -> str:
        return f"{self.root}<{self.element_type}>"


class ArrayType(_OfElements):
    """Values in order."""

    root = "ARRAY"

    def type_information(self) -> TypeInformation:
        return Types.LIST(self.element_type.type_information())


class MultisetType(_OfElements):
    """Values, each with how often it is there."""

    root = "MULTISET"


class ListViewType(_OfElements):
    """A list in the accumulator of an aggregate function that is state of its own."""

    root = "LIST_VIEW"

    def __init__(self, element_type: DataType) -> None:
        super().__init__(element_type)


class _OfPairs(DataType):
    """A type of values that are found by keys."""

    def __init__(self, key_type: DataType, value_type: DataType, nullable: bool = True) -> None:
        super().__init__(nullable)
        for what, kind in (("key", key_type), ("value", value_type)):
            if not isinstance(kind, DataType):
                raise TypeError(f"The {what} type of {self.root} should be a DataType, not {kind!r}.")
        self.key_type = key_type
        self.value_type = value_type

    def parameters(self) -> tuple[Any, ...]:
        return self.key_type, self.value_type

    @property
    def text(self) -> str:
        return f"{self.root}<{self.key_type}, {self.value_type}>"


class MapType(_OfPairs):
    """Values by key."""

    root = "MAP"

    def type_information(self) -> TypeInformation:
        return Types.MAP(self.key_type.type_information(), self.value_type.type_information())


class MapViewType(_OfPairs):
    """A map in the accumulator of an aggregate function that is state of its own."""

    root = "MAP_VIEW"

    def __init__(self, key_type: DataType, value_type: DataType) -> None:
        super().__init__(key_type, value_type)


class RowField:
    """A field of a row."""

    need_conversion = missing_function("need_conversion", INSIDE)
    to_sql_type = missing_function("to_sql_type", INSIDE)
    from_sql_type = missing_function("from_sql_type", INSIDE)

    def __init__(self, name: str, data_type: DataType, description: str | None = None) -> None:
        if not isinstance(data_type, DataType):
            raise TypeError(f"The type of field {name!r} should be a DataType, not {data_type!r}.")
        if not isinstance(name, str):
            raise TypeError(f"The name of a field should be a str, not {name!r}.")
        self.name = name
        self.data_type = data_type
        self.description = description

    def __str__(self) -> str:
        comment = "" if self.description is None else f" {quoted(self.description)}"
        return f"`{self.name.replace('`', '``')}` {self.data_type}{comment}"

    def __repr__(self) -> str:
        return f"RowField({self.name}, {self.data_type!r}, {self.description or '...'})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowField) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[Any, ...]:
        return self.name, self.data_type, self.description


class RowType(DataType):
    """Fields with names.

    Example:
        >>> str(RowType().add("a", DataTypes.INT()).add("b", DataTypes.STRING()))
        'ROW<`a` INT, `b` STRING>'
    """

    root = "ROW"

    def __init__(self, fields: list[RowField] | None = None, nullable: bool = True) -> None:
        super().__init__(nullable)
        self.fields = list(fields or [])
        if not all(isinstance(f, RowField) for f in self.fields):
            raise TypeError("fields should be a list of RowField")

    @property
    def names(self) -> list[str]:
        """The names of its fields."""
        return [f.name for f in self.fields]

    def add(self, field: RowField | str, data_type: DataType | None = None) -> RowType:
        """Add a field; return the row type itself."""
        if isinstance(field, RowField):
            self.fields.append(field)
        elif data_type is None:
            raise ValueError("Must specify DataType if passing name of row_field to create.")
        else:
            self.fields.append(RowField(field, data_type))
        return self

    def field_names(self) -> list[str]:
        """Return the names of its fields."""
        return self.names

    def field_types(self) -> list[DataType]:
        """Return the types of its fields."""
        return [f.data_type for f in self.fields]

    def parameters(self) -> tuple[Any, ...]:
        return tuple(self.fields)

    def type_information(self) -> TypeInformation:
        return Types.ROW_NAMED(self.names, [f.data_type.type_information() for f in self.fields])

    @property
    def text(self) -> str:
        return f"ROW<{', '.join(map(str, self.fields))}>"

    def __iter__(self) -> Iterator[RowField]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    @overload
    def __getitem__(self, key: str | int) -> RowField: ...
    @overload
    def __getitem__(self, key: slice) -> RowType: ...
    def __getitem__(self, key: str | int | slice) -> RowField | RowType:
        if isinstance(key, slice):
            return RowType(self.fields[key])
        if isinstance(key, int):
            try:
                return self.fields[key]
            except IndexError:
                raise IndexError("RowType index out of range") from None
        if not isinstance(key, str):
            raise TypeError("RowType keys should be strings, integers or slices")
        for field in self.fields:
            if field.name == key:
                return field
        raise KeyError(f"No RowField named {key}")

    def __repr__(self) -> str:
        return f"RowType({','.join(map(repr, self.fields))})"


class RawType(DataType):
    """Any Python value, which no function but the user's own looks into."""

    root = "RAW"


class UserDefinedType(DataType):
    """A type of the user's own, over one of SQL's."""

    @classmethod
    def type_name(cls) -> str:
        return cls.__name__.lower()

    @classmethod
    def sql_type(cls) -> DataType:
        """Return the type under it."""
        raise NotImplementedError("UDT must implement sql_type().")

    @classmethod
    def module(cls) -> str:
        """Return the module of the class."""
        raise NotImplementedError("UDT must implement module().")

    java_udt = missing_function("java_udt", JAVA)

    def serialize(self, obj: Any) -> Any:
        """Turn an object into a value of the type under it."""
        raise NotImplementedError("UDT must implement serialize().")

    def deserialize(self, datum: Any) -> Any:
        """Turn a value of the type under it into an object."""
        raise NotImplementedError("UDT must implement deserialize().")


def quoted(text: str) -> str:
    """Write text as SQL does."""
    return "'" + text.replace("'", "''") + "'"


class DataTypes:
    """Makes types.

    Example:
        >>> str(DataTypes.ROW([DataTypes.FIELD("a", DataTypes.DECIMAL(10, 2))]))
        'ROW<`a` DECIMAL(10, 2)>'
    """

    @staticmethod
    def NULL() -> NullType:
        """The type of NULL."""
        return NullType()

    @staticmethod
    def CHAR(length: int, nullable: bool = True) -> CharType:
        """Text of one length."""
        return CharType(length, nullable)

    @staticmethod
    def VARCHAR(length: int, nullable: bool = True) -> VarCharType:
        """Text of at most a length."""
        return VarCharType(length, nullable)

    @staticmethod
    def STRING(nullable: bool = True) -> VarCharType:
        """Text."""
        return VarCharType(MOST_LENGTH, nullable)

    @staticmethod
    def BOOLEAN(nullable: bool = True) -> BooleanType:
        """True and false."""
        return BooleanType(nullable)

    @staticmethod
    def BINARY(length: int, nullable: bool = True) -> BinaryType:
        """Bytes of one length."""
        return BinaryType(length, nullable)

    @staticmethod
    def VARBINARY(length: int, nullable: bool = True) -> VarBinaryType:
        """Bytes of at most a length."""
        return VarBinaryType(length, nullable)

    @staticmethod
    def BYTES(nullable: bool = True) -> VarBinaryType:
        """Bytes."""
        return VarBinaryType(MOST_LENGTH, nullable)

    @staticmethod
    def DECIMAL(precision: int, scale: int, nullable: bool = True) -> DecimalType:
        """Decimal numbers."""
        return DecimalType(precision, scale, nullable)

    @staticmethod
    def TINYINT(nullable: bool = True) -> TinyIntType:
        """Whole numbers of a byte."""
        return TinyIntType(nullable)

    @staticmethod
    def SMALLINT(nullable: bool = True) -> SmallIntType:
        """Whole numbers of two bytes."""
        return SmallIntType(nullable)

    @staticmethod
    def INT(nullable: bool = True) -> IntType:
        """Whole numbers of four bytes."""
        return IntType(nullable)

    @staticmethod
    def BIGINT(nullable: bool = True) -> BigIntType:
        """Whole numbers of eight bytes."""
        return BigIntType(nullable)

    @staticmethod
    def FLOAT(nullable: bool = True) -> FloatType:
        """Floating point numbers of four bytes."""
        return FloatType(nullable)

    @staticmethod
    def DOUBLE(nullable: bool = True) -> DoubleType:
        """Floating point numbers of eight bytes."""
        return DoubleType(nullable)

    @staticmethod
    def DATE(nullable: bool = True) -> DateType:
        """Days."""
        return DateType(nullable)

    @staticmethod
    def TIME(precision: int = 0, nullable: bool = True) -> TimeType:
        """Times of a day."""
        return TimeType(precision, nullable)

    @staticmethod
    def TIMESTAMP(precision: int = 6, nullable: bool = True) -> TimestampType:
        """Times of a day on a day."""
        return TimestampType(precision, nullable)

    @staticmethod
    def TIMESTAMP_WITH_LOCAL_TIME_ZONE(precision: int = 6, nullable: bool = True) -> LocalZonedTimestampType:
        """Points in time."""
        return LocalZonedTimestampType(precision, nullable)

    @staticmethod
    def TIMESTAMP_LTZ(precision: int = 6, nullable: bool = True) -> LocalZonedTimestampType:
        """Points in time."""
        return LocalZonedTimestampType(precision, nullable)

    @staticmethod
    def ARRAY(element_type: DataType, nullable: bool = True) -> ArrayType:
        """Values in order."""
        return ArrayType(element_type, nullable)

    @staticmethod
    def LIST_VIEW(element_type: DataType) -> ListViewType:
        """A list that is state of its own."""
        return ListViewType(element_type)

    @staticmethod
    def MAP(key_type: DataType, value_type: DataType, nullable: bool = True) -> MapType:
        """Values by key."""
        return MapType(key_type, value_type, nullable)

    @staticmethod
    def MAP_VIEW(key_type: DataType, value_type: DataType) -> MapViewType:
        """A map that is state of its own."""
        return MapViewType(key_type, value_type)

    @staticmethod
    def MULTISET(element_type: DataType, nullable: bool = True) -> MultisetType:
        """Values with how often they are there."""
        return MultisetType(element_type, nullable)

    @staticmethod
    def ROW(row_fields: list[RowField] | None = None, nullable: bool = True) -> RowType:
        """Fields with names; types alone are called f0, f1, .."""
        fields = [f if isinstance(f, RowField) else RowField(f"f{i}", f) for i, f in enumerate(row_fields or [])]
        return RowType(fields, nullable)

    @staticmethod
    def FIELD(name: str, data_type: DataType, description: str | None = None) -> RowField:
        """A field of a row."""
        return RowField(name, data_type, description)

    @staticmethod
    def SECOND(precision: int = DayTimeIntervalType.DEFAULT_FRACTIONAL_PRECISION) -> Resolution:
        """Seconds, for INTERVAL."""
        return Resolution(Resolution.IntervalUnit.SECOND, precision)

    @staticmethod
    def MINUTE() -> Resolution:
        """Minutes, for INTERVAL."""
        return Resolution(Resolution.IntervalUnit.MINUTE)

    @staticmethod
    def HOUR() -> Resolution:
        """Hours, for INTERVAL."""
        return Resolution(Resolution.IntervalUnit.HOUR)

    @staticmethod
    def DAY(precision: int = DayTimeIntervalType.DEFAULT_DAY_PRECISION) -> Resolution:
        """Days, for INTERVAL."""
        return Resolution(Resolution.IntervalUnit.DAY, precision)

    @staticmethod
    def MONTH() -> Resolution:
        """Months, for INTERVAL."""
        return Resolution(Resolution.IntervalUnit.MONTH)

    @staticmethod
    def YEAR(precision: int = YearMonthIntervalType.DEFAULT_PRECISION) -> Resolution:
        """Years, for INTERVAL."""
        return Resolution(Resolution.IntervalUnit.YEAR, precision)

    @staticmethod
    def INTERVAL(
        upper_resolution: Resolution, lower_resolution: Resolution | None = None
    ) -> YearMonthIntervalType | DayTimeIntervalType:
        """A length of time in units, the larger one first."""
        names = [r.unit.name for r in (upper_resolution, lower_resolution) if r is not None]
        name = "_TO_".join(names)
        if name in ("YEAR", "MONTH", "YEAR_TO_MONTH"):
            precision = upper_resolution.precision if names[0] == "YEAR" else YearMonthIntervalType.DEFAULT_PRECISION
            return YearMonthIntervalType(getattr(YearMonthIntervalType.YearMonthResolution, name), precision)
        if name not in DayTimeIntervalType.DayTimeResolution.__members__:
            raise ValueError(f"Unsupported interval definition '{' TO '.join(names)}'.")
        lower = lower_resolution or upper_resolution
        return DayTimeIntervalType(
            DayTimeIntervalType.DayTimeResolution[name],
            upper_resolution.precision if names[0] == "DAY" else DayTimeIntervalType.DEFAULT_DAY_PRECISION,
            lower.precision if names[-1] == "SECOND" else DayTimeIntervalType.DEFAULT_FRACTIONAL_PRECISION,
        )
