"""The types of the Table API, under the name of PyFlink's module."""

import pyarrow as pa

from millstream.common.types import Row, RowKind
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.types import (
    ArrayType,
    AtomicType,
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
    FractionalType,
    IntegralType,
    IntType,
    ListViewType,
    LocalZonedTimestampType,
    MapType,
    MapViewType,
    MultisetType,
    NullType,
    NumericType,
    RawType,
    Resolution,
    RowField,
    RowType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    UserDefinedType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
    ZonedTimestampType,
)
from millstream.table.in_memory_tables import data_type_of

__all__ = [
    "ArrayType",
    "AtomicType",
    "BigIntType",
    "BinaryType",
    "BooleanType",
    "CharType",
    "DataType",
    "DataTypes",
    "DateType",
    "DayTimeIntervalType",
    "DecimalType",
    "DoubleType",
    "FloatType",
    "FractionalType",
    "IntType",
    "IntegralType",
    "ListViewType",
    "LocalZonedTimestampType",
    "MapType",
    "MapViewType",
    "MultisetType",
    "NullType",
    "NumericType",
    "RawType",
    "Resolution",
    "Row",
    "RowField",
    "RowKind",
    "RowType",
    "SmallIntType",
    "TimeType",
    "TimestampType",
    "TinyIntType",
    "UserDefinedType",
    "VarBinaryType",
    "VarCharType",
    "YearMonthIntervalType",
    "ZonedTimestampType",
    "create_arrow_schema",
    "from_arrow_type",
    "to_arrow_type",
]


def create_arrow_schema(field_names: list[str], field_types: list[DataType]) -> pa.Schema:
    """Return the Arrow schema of columns."""
    named = zip(field_names, field_types, strict=True)
    return pa.schema([pa.field(n, arrow_type(t), t.is_nullable) for n, t in named])


def from_arrow_type(arrow_type: pa.DataType, nullable: bool = True) -> DataType:
    """Return the type of a column for a type of Arrow."""
    return data_type_of(arrow_type, nullable)


def to_arrow_type(data_type: DataType) -> pa.DataType:
    """Return the type of Arrow for the type of a column."""
    return arrow_type(data_type)
