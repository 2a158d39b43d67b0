"""Avro, under PyFlink's names."""

from __future__ import annotations

from millstream.common.io import InputFormat
from millstream.connectors.files.source import FileSource
from millstream.datastream.utils import ResultTypeQueryable
from millstream.formats.avro.files import AvroBulkWriters, AvroFormat
from millstream.formats.avro.messages import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
    SchemaRegistry,
)
from millstream.formats.avro.schema import AvroSchema, check_record_schema
from millstream.formats.avro.values import GenericRecordAvroTypeInfo

__all__ = [
    "AvroBulkWriters",
    "AvroFormat",
    "AvroInputFormat",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "AvroSchema",
    "ConfluentRegistryAvroDeserializationSchema",
    "ConfluentRegistryAvroSerializationSchema",
    "GenericRecordAvroTypeInfo",
    "SchemaRegistry",
]


class AvroInputFormat(InputFormat, ResultTypeQueryable):
    """Reads Avro's files with `env.create_input`; in other sources use AvroFormat.

    Args:
        path: a file, or a directory that is read with all below it.
        schema: of the records; see AvroFormat for files with another one.

    Example:
        >>> import tempfile
        >>> schema = AvroSchema('{"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}')
        >>> path = tempfile.mkstemp(suffix=".avro")[1]
        >>> with open(path, "r+b") as file:
        ...     writer = AvroBulkWriters.for_generic_record(schema).open(file)
        ...     writer.add_element({"x": 1})
        ...     writer.finish()
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> list(env.create_input(AvroInputFormat(path, schema)).execute_and_collect())
        [{'x': 1}]
    """

    def __init__(self, path: str, schema: AvroSchema) -> None:
        self._path = path
        self._format = AvroFormat(check_record_schema(schema, "AvroInputFormat"))

    def get_produced_type(self) -> GenericRecordAvroTypeInfo:
        """Return the type of the records."""
        produced = self._format.produced_type
        assert isinstance(produced, GenericRecordAvroTypeInfo)
        return produced

    def create_source(self) -> FileSource:
        return FileSource.for_bulk_file_format(self._format, self._path).build()
