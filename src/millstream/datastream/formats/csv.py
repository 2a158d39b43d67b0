"""CSV, under PyFlink's names."""

from millstream.datastream.formats.csv_files import CsvBulkWriters, CsvReaderFormat
from millstream.datastream.formats.csv_messages import CsvRowDeserializationSchema, CsvRowSerializationSchema
from millstream.datastream.formats.csv_schema import CsvSchema, CsvSchemaBuilder

__all__ = [
    "CsvBulkWriters",
    "CsvReaderFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "CsvSchema",
    "CsvSchemaBuilder",
]
