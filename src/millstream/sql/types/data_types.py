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
    """Creates data types.

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
        """Fixed-length text."""
        return CharType(length, nullable)

    @staticmethod
    def VARCHAR(length: int, nullable: bool = True) -> VarCharType:
        """Variable-length text."""
        return VarCharType(length, nullable)

    @staticmethod
    def STRING(nullable: bool = True) -> VarCharType:
        """Unbounded text."""
        return VarCharType(MAX_LENGTH, nullable)

    @staticmethod
    def BOOLEAN(nullable: bool = True) -> BooleanType:
        """Boolean."""
        return BooleanType(nullable)

    @staticmethod
    def BINARY(length: int, nullable: bool = True) -> BinaryType:
        """Fixed-length bytes."""
        return BinaryType(length, nullable)

    @staticmethod
    def VARBINARY(length: int, nullable: bool = True) -> VarBinaryType:
        """Variable-length bytes."""
        return VarBinaryType(length, nullable)

    @staticmethod
    def BYTES(nullable: bool = True) -> VarBinaryType:
        """Unbounded bytes."""
        return VarBinaryType(MAX_LENGTH, nullable)

    @staticmethod
    def DECIMAL(precision: int, scale: int, nullable: bool = True) -> DecimalType:
        """Decimal number."""
        return DecimalType(precision, scale, nullable)

    @staticmethod
    def TINYINT(nullable: bool = True) -> TinyIntType:
        """8-bit integer."""
        return TinyIntType(nullable)

    @staticmethod
    def SMALLINT(nullable: bool = True) -> SmallIntType:
        """16-bit integer."""
        return SmallIntType(nullable)

    @staticmethod
    def INT(nullable: bool = True) -> IntType:
        """32-bit integer."""
        return IntType(nullable)

    @staticmethod
    def BIGINT(nullable: bool = True) -> BigIntType:
        """64-bit integer."""
        return BigIntType(nullable)

    @staticmethod
    def FLOAT(nullable: bool = True) -> FloatType:
        """32-bit floating point number."""
        return FloatType(nullable)

    @staticmethod
    def DOUBLE(nullable: bool = True) -> DoubleType:
        """64-bit floating point number."""
        return DoubleType(nullable)

    @staticmethod
    def DATE(nullable: bool = True) -> DateType:
        """Date."""
        return DateType(nullable)

    @staticmethod
    def TIME(precision: int = 0, nullable: bool = True) -> TimeType:
        """Time of day."""
        return TimeType(precision, nullable)

    @staticmethod
    def TIMESTAMP(precision: int = 6, nullable: bool = True) -> TimestampType:
        """Timestamp without time zone."""
        return TimestampType(precision, nullable)

    @staticmethod
    def TIMESTAMP_WITH_LOCAL_TIME_ZONE(precision: int = 6, nullable: bool = True) -> LocalZonedTimestampType:
        """Timestamp with local time zone."""
        return LocalZonedTimestampType(precision, nullable)

    @staticmethod
    def TIMESTAMP_LTZ(precision: int = 6, nullable: bool = True) -> LocalZonedTimestampType:
        """Timestamp with local time zone."""
        return LocalZonedTimestampType(precision, nullable)

    @staticmethod
    def ARRAY(element_type: DataType, nullable: bool = True) -> ArrayType:
        """Array."""
        return ArrayType(element_type, nullable)

    @staticmethod
    def LIST_VIEW(element_type: DataType) -> ListViewType:
        """A list stored as state of its own."""
        return ListViewType(element_type)

    @staticmethod
    def MAP(key_type: DataType, value_type: DataType, nullable: bool = True) -> MapType:
        """Map."""
        return MapType(key_type, value_type, nullable)

    @staticmethod
    def MAP_VIEW(key_type: DataType, value_type: DataType) -> MapViewType:
        """A map stored as state of its own."""
        return MapViewType(key_type, value_type)

    @staticmethod
    def MULTISET(element_type: DataType, nullable: bool = True) -> MultisetType:
        """Multiset."""
        return MultisetType(element_type, nullable)

    @staticmethod
    def ROW(row_fields: list[RowField] | None = None, nullable: bool = True) -> RowType:
        """Row; unnamed fields are called f0, f1, .."""
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
        """Interval between two units, the larger one first."""
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
