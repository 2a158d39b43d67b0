"""ORC, under PyFlink's names."""

from millstream.formats.orc.rows import OrcBulkWriters

__all__ = ["OrcBulkWriters"]
