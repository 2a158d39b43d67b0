"""Avro, under PyFlink's names."""

from millstream.datastream.formats.avro_files import AvroBulkWriters, AvroFormat, AvroInputFormat
from millstream.datastream.formats.avro_messages import AvroRowDeserializationSchema, AvroRowSerializationSchema
from millstream.datastream.formats.avro_registry import (
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
    SchemaRegistry,
)
from millstream.datastream.formats.avro_schema import AvroSchema
from millstream.datastream.formats.avro_type import GenericRecordAvroTypeInfo

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
