"""CSV, under PyFlink's names."""

from millstream.formats.csv.files import CsvBulkWriters, CsvReaderFormat
from millstream.formats.csv.messages import CsvRowDeserializationSchema, CsvRowSerializationSchema
from millstream.formats.csv.schema import CsvSchema, CsvSchemaBuilder

__all__ = [
    "CsvBulkWriters",
    "CsvReaderFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "CsvSchema",
    "CsvSchemaBuilder",
]
