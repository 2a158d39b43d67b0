"""DataTypes: the names of types that PyFlink's CSV, ORC and Parquet formats take, for the types of `Types`."""

from __future__ import annotations

from typing import NamedTuple

from millstream.common.errors import InvalidProgramError
from millstream.common.typeinfo import (
    ListTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TypeInformation,
    Types,
)

__all__ = ["DataTypes"]


class Field(NamedTuple):
    """A field of a row."""

    name: str
    data_type: TypeInformation


class DataTypes:
    """SQL's names of types. What they make are types of `Types`; lengths, precisions and nullability are not kept.

    Example:
        >>> DataTypes.ROW([DataTypes.FIELD("id", DataTypes.BIGINT()), DataTypes.FIELD("name", DataTypes.STRING())])
        RowTypeInfo(id: Long, name: String)
    """

    @staticmethod
    def CHAR(length: int, nullable: bool = True) -> TypeInformation:
        """A text."""
        return Types.STRING()

    @staticmethod
    def VARCHAR(length: int, nullable: bool = True) -> TypeInformation:
        """A text."""
        return Types.STRING()

    @staticmethod
    def STRING(nullable: bool = True) -> TypeInformation:
        """A text."""
        return Types.STRING()

    @staticmethod
    def BOOLEAN(nullable: bool = True) -> TypeInformation:
        """`True` or `False`."""
        return Types.BOOLEAN()

    @staticmethod
    def TINYINT(nullable: bool = True) -> TypeInformation:
        """A whole number of 8 bits."""
        return Types.BYTE()

    @staticmethod
    def SMALLINT(nullable: bool = True) -> TypeInformation:
        """A whole number of 16 bits."""
        return Types.SHORT()

    @staticmethod
    def INT(nullable: bool = True) -> TypeInformation:
        """A whole number of 32 bits."""
        return Types.INT()

    @staticmethod
    def BIGINT(nullable: bool = True) -> TypeInformation:
        """A whole number of 64 bits."""
        return Types.LONG()

    @staticmethod
    def FLOAT(nullable: bool = True) -> TypeInformation:
        """A number of 32 bits."""
        return Types.FLOAT()

    @staticmethod
    def DOUBLE(nullable: bool = True) -> TypeInformation:
        """A number of 64 bits."""
        return Types.DOUBLE()

    @staticmethod
    def DECIMAL(precision: int, scale: int, nullable: bool = True) -> TypeInformation:
        """A `decimal.Decimal`."""
        return Types.BIG_DEC()

    @staticmethod
    def BYTES(nullable: bool = True) -> TypeInformation:
        """Bytes."""
        return Types.PRIMITIVE_ARRAY(Types.BYTE())

    @staticmethod
    def DATE(nullable: bool = True) -> TypeInformation:
        """A `datetime.date`."""
        return Types.SQL_DATE()

    @staticmethod
    def TIME(precision: int = 0, nullable: bool = True) -> TypeInformation:
        """A `datetime.time`."""
        return Types.SQL_TIME()

    @staticmethod
    def TIMESTAMP(precision: int = 6, nullable: bool = True) -> TypeInformation:
        """A `datetime.datetime`."""
        return Types.SQL_TIMESTAMP()

    @staticmethod
    def ARRAY(element_type: TypeInformation, nullable: bool = True) -> ListTypeInfo:
        """A list."""
        return Types.LIST(element_type)

    @staticmethod
    def MAP(key_type: TypeInformation, value_type: TypeInformation, nullable: bool = True) -> MapTypeInfo:
        """A dict."""
        return Types.MAP(key_type, value_type)

    @staticmethod
    def FIELD(name: str, data_type: TypeInformation, description: str | None = None) -> Field:
        """Name a field of a row."""
        return Field(name, data_type)

    @staticmethod
    def ROW(row_fields: list[Field], nullable: bool = True) -> RowTypeInfo:
        """Make a row of fields, as FIELD() makes them."""
        for field in row_fields:
            if not isinstance(field, Field):
                raise InvalidProgramError(f"DataTypes.ROW() takes what DataTypes.FIELD() makes, not {field!r}.")
        return Types.ROW_NAMED([f.name for f in row_fields], [f.data_type for f in row_fields])
