"""The part of PyFlink's table module that programs on streams use: the types that formats take.

There is no Table API yet.
"""

from millstream.table.types import DataTypes

__all__ = ["DataTypes"]
