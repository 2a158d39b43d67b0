"""ORC, under PyFlink's names."""

from millstream.formats.orc import OrcBulkWriters

__all__ = ["OrcBulkWriters"]
