"""Avro: PyFlink's names, which can be imported and say what is missing when they are used."""

from __future__ import annotations

from typing import Any, NoReturn

from millstream.common.errors import InvalidProgramError

__all__ = [
    "AvroBulkWriters",
    "AvroInputFormat",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "AvroSchema",
    "GenericRecordAvroTypeInfo",
]

_INSTEAD = "use JSON, CSV or Parquet, or read Avro with a package such as fastavro in a function of your own"


def refuse(name: str, instead: str = _INSTEAD) -> NoReturn:
    """Say that Avro is not supported, and what to do."""
    raise InvalidProgramError(f"{name} is not supported, because there is no Avro here yet: {instead}.")


class _Refused:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        refuse(type(self).__name__)


class AvroSchema(_Refused):
    """An Avro schema: not supported."""

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        refuse("AvroSchema")

    @staticmethod
    def parse_file(file_path: str) -> AvroSchema:
        refuse("AvroSchema")


class GenericRecordAvroTypeInfo(_Refused):
    """The type of Avro records: not supported."""


class AvroInputFormat(_Refused):
    """Files of Avro records: not supported."""


class AvroBulkWriters:
    """Avro records into files: not supported."""

    @staticmethod
    def for_generic_record(schema: Any) -> Any:
        refuse("AvroBulkWriters")


class AvroRowDeserializationSchema(_Refused):
    """Rows from Avro messages: not supported."""


class AvroRowSerializationSchema(_Refused):
    """Rows to Avro messages: not supported."""
