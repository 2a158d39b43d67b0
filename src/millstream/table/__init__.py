"""What there is of PyFlink's table module: the types that formats take. There is no Table API yet."""

from millstream.table.types import DataTypes, UserDefinedType

__all__ = ["DataTypes", "UserDefinedType"]
