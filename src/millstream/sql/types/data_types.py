"""`DataTypes`: the factory of SQL data types."""

from __future__ import annotations

from millstream.sql.types.atomic import (
    MAX_LENGTH,
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    NullType,
    Resolution,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)
from millstream.sql.types.nested import ArrayType, ListViewType, MapType, MapViewType, MultisetType, RowField, RowType


class DataTypes:
    """Creates data types; every type is nullable unless `nullable` is False, or by `not_null()`.

    Example:
        >>> str(DataTypes.ROW([DataTypes.FIELD("a", DataTypes.DECIMAL(10, 2))]))
        'ROW<`a` DECIMAL(10, 2)>'
        >>> str(DataTypes.MAP(DataTypes.STRING(), DataTypes.ARRAY(DataTypes.INT().not_null())))
        'MAP<STRING, ARRAY<INT NOT NULL>>'
        >>> str(DataTypes.INTERVAL(DataTypes.DAY(), DataTypes.SECOND(3)))
        'INTERVAL DAY(2) TO SECOND(3)'
    """

    @staticmethod
    def NULL() -> NullType:
        """Return the type of NULL."""
        return NullType()

    @staticmethod
    def CHAR(length: int, nullable: bool = True) -> CharType:
        """Return the type of text of exactly `length` characters: a str."""
        return CharType(length, nullable)

    @staticmethod
    def VARCHAR(length: int, nullable: bool = True) -> VarCharType:
        """Return the type of text of at most `length` characters: a str."""
        return VarCharType(length, nullable)

    @staticmethod
    def STRING(nullable: bool = True) -> VarCharType:
        """Return the type of text of any length: a str."""
        return VarCharType(MAX_LENGTH, nullable)

    @staticmethod
    def BOOLEAN(nullable: bool = True) -> BooleanType:
        """Return the type of True and False: a bool."""
        return BooleanType(nullable)

    @staticmethod
    def BINARY(length: int, nullable: bool = True) -> BinaryType:
        """Return the type of exactly `length` bytes: a bytes."""
        return BinaryType(length, nullable)

    @staticmethod
    def VARBINARY(length: int, nullable: bool = True) -> VarBinaryType:
        """Return the type of at most `length` bytes: a bytes."""
        return VarBinaryType(length, nullable)

    @staticmethod
    def BYTES(nullable: bool = True) -> VarBinaryType:
        """Return the type of any number of bytes: a bytes."""
        return VarBinaryType(MAX_LENGTH, nullable)

    @staticmethod
    def DECIMAL(precision: int, scale: int, nullable: bool = True) -> DecimalType:
        """Return the type of exact numbers: a decimal.Decimal.

        Args:
            precision: the number of digits, from 1 to 38.
            scale: the number of digits after the decimal point.
            nullable: whether it has NULL, by default True.

        Example:
            >>> str(DataTypes.DECIMAL(10, 2))
            'DECIMAL(10, 2)'
        """
        return DecimalType(precision, scale, nullable)

    @staticmethod
    def TINYINT(nullable: bool = True) -> TinyIntType:
        """Return the type of integers of 8 bits: an int."""
        return TinyIntType(nullable)

    @staticmethod
    def SMALLINT(nullable: bool = True) -> SmallIntType:
        """Return the type of integers of 16 bits: an int."""
        return SmallIntType(nullable)

    @staticmethod
    def INT(nullable: bool = True) -> IntType:
        """Return the type of integers of 32 bits: an int."""
        return IntType(nullable)

    @staticmethod
    def BIGINT(nullable: bool = True) -> BigIntType:
        """Return the type of integers of 64 bits: an int."""
        return BigIntType(nullable)

    @staticmethod
    def FLOAT(nullable: bool = True) -> FloatType:
        """Return the type of floating point numbers of 32 bits: a float."""
        return FloatType(nullable)

    @staticmethod
    def DOUBLE(nullable: bool = True) -> DoubleType:
        """Return the type of floating point numbers of 64 bits: a float."""
        return DoubleType(nullable)

    @staticmethod
    def DATE(nullable: bool = True) -> DateType:
        """Return the type of days: a datetime.date."""
        return DateType(nullable)

    @staticmethod
    def TIME(precision: int = 0, nullable: bool = True) -> TimeType:
        """Return the type of times of day, with 0 to 9 digits after the second: a datetime.time."""
        return TimeType(precision, nullable)

    @staticmethod
    def TIMESTAMP(precision: int = 6, nullable: bool = True) -> TimestampType:
        """Return the type of date and time without a time zone, by default with 6 digits: a datetime.datetime.

        Example:
            >>> str(DataTypes.TIMESTAMP(3))
            'TIMESTAMP(3)'
        """
        return TimestampType(precision, nullable)

    @staticmethod
    def TIMESTAMP_WITH_LOCAL_TIME_ZONE(precision: int = 6, nullable: bool = True) -> LocalZonedTimestampType:
        """Return the type of points in time, shown in the session's time zone; the same as TIMESTAMP_LTZ."""
        return LocalZonedTimestampType(precision, nullable)

    @staticmethod
    def TIMESTAMP_LTZ(precision: int = 6, nullable: bool = True) -> LocalZonedTimestampType:
        """Return the type of points in time, shown in the session's time zone, by default with 6 digits.

        Example:
            >>> str(DataTypes.TIMESTAMP_LTZ(3))
            'TIMESTAMP_LTZ(3)'
        """
        return LocalZonedTimestampType(precision, nullable)

    @staticmethod
    def ARRAY(element_type: DataType, nullable: bool = True) -> ArrayType:
        """Return the type of arrays: a list.

        Example:
            >>> str(DataTypes.ARRAY(DataTypes.INT()))
            'ARRAY<INT>'
        """
        return ArrayType(element_type, nullable)

    @staticmethod
    def LIST_VIEW(element_type: DataType) -> ListViewType:
        """Return the type of a ListView in an accumulator, stored as state of its own."""
        return ListViewType(element_type)

    @staticmethod
    def MAP(key_type: DataType, value_type: DataType, nullable: bool = True) -> MapType:
        """Return the type of maps: a dict.

        Example:
            >>> str(DataTypes.MAP(DataTypes.STRING(), DataTypes.INT()))
            'MAP<STRING, INT>'
        """
        return MapType(key_type, value_type, nullable)

    @staticmethod
    def MAP_VIEW(key_type: DataType, value_type: DataType) -> MapViewType:
        """Return the type of a MapView in an accumulator, stored as state of its own."""
        return MapViewType(key_type, value_type)

    @staticmethod
    def MULTISET(element_type: DataType, nullable: bool = True) -> MultisetType:
        """Return the type of multisets: a dict of values and their counts.

        Example:
            >>> str(DataTypes.MULTISET(DataTypes.STRING()))
            'MULTISET<STRING>'
        """
        return MultisetType(element_type, nullable)

    @staticmethod
    def ROW(row_fields: list[RowField] | None = None, nullable: bool = True) -> RowType:
        """Return the type of rows of fields: a Row; fields without names are called f0, f1, ...

        Example:
            >>> str(DataTypes.ROW([DataTypes.FIELD("name", DataTypes.STRING())]))
            'ROW<`name` STRING>'
            >>> str(DataTypes.ROW([DataTypes.STRING(), DataTypes.INT()]))
            'ROW<`f0` STRING, `f1` INT>'
        """
        fields = [f if isinstance(f, RowField) else RowField(f"f{i}", f) for i, f in enumerate(row_fields or [])]
        return RowType(fields, nullable)

    @staticmethod
    def FIELD(name: str, data_type: DataType, description: str | None = None) -> RowField:
        """Return a field of a row, for ROW."""
        return RowField(name, data_type, description)

    @staticmethod
    def SECOND(precision: int = DayTimeIntervalType.DEFAULT_FRACTIONAL_PRECISION) -> Resolution:
        """Return the unit of seconds for INTERVAL, by default with 6 digits after the second."""
        return Resolution(Resolution.IntervalUnit.SECOND, precision)

    @staticmethod
    def MINUTE() -> Resolution:
        """Return the unit of minutes for INTERVAL."""
        return Resolution(Resolution.IntervalUnit.MINUTE)

    @staticmethod
    def HOUR() -> Resolution:
        """Return the unit of hours for INTERVAL."""
        return Resolution(Resolution.IntervalUnit.HOUR)

    @staticmethod
    def DAY(precision: int = DayTimeIntervalType.DEFAULT_DAY_PRECISION) -> Resolution:
        """Return the unit of days for INTERVAL, by default with 2 digits."""
        return Resolution(Resolution.IntervalUnit.DAY, precision)

    @staticmethod
    def MONTH() -> Resolution:
        """Return the unit of months for INTERVAL."""
        return Resolution(Resolution.IntervalUnit.MONTH)

    @staticmethod
    def YEAR(precision: int = YearMonthIntervalType.DEFAULT_PRECISION) -> Resolution:
        """Return the unit of years for INTERVAL, by default with 2 digits."""
        return Resolution(Resolution.IntervalUnit.YEAR, precision)

    @staticmethod
    def INTERVAL(
        upper_resolution: Resolution, lower_resolution: Resolution | None = None
    ) -> YearMonthIntervalType | DayTimeIntervalType:
        """Return the type of intervals of one unit, or between two units, the larger one first: a datetime.timedelta.

        Intervals of months and years are an int of months.

        Example:
            >>> str(DataTypes.INTERVAL(DataTypes.YEAR(), DataTypes.MONTH()))
            'INTERVAL YEAR(2) TO MONTH'
        """
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
