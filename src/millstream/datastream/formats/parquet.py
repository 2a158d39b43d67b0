"""Parquet, under PyFlink's names."""

from millstream.formats.parquet.avro import AvroParquetReaders, AvroParquetWriters
from millstream.formats.parquet.files import ParquetBulkWriters, ParquetColumnarRowInputFormat

__all__ = ["AvroParquetReaders", "AvroParquetWriters", "ParquetBulkWriters", "ParquetColumnarRowInputFormat"]
