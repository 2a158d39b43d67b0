"""Serialization of records: schemas for messages, encoders and bulk writers for files."""

from __future__ import annotations

import codecs
import importlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, BinaryIO, Protocol

from millstream.common.aliases import Value
from millstream.common.call_site import warn_deprecated
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.typeinfo import TypeInformation, Types

__all__ = [
    "BulkWriter",
    "BulkWriterFactory",
    "ByteArraySchema",
    "DeserializationSchema",
    "Encoder",
    "RowDataBulkWriterFactory",
    "RowFieldExtractorSchema",
    "SerializationSchema",
    "SimpleStringEncoder",
    "SimpleStringSchema",
]


class SerializationSchema(ABC):
    """Serializes records to messages: the base of all such schemas, and of your own.

    Example:
        >>> import json
        >>> from millstream.common.serialization import SerializationSchema
        >>> class Json(SerializationSchema):
        ...     def serialize(self, element):
        ...         return json.dumps(element).encode()
        >>> Json().serialize({"user": "ann"})
        b'{"user": "ann"}'
    """

    @abstractmethod
    def serialize(self, element: Value) -> bytes:
        """Return a record as bytes.

        Example:
            >>> SimpleStringSchema().serialize("tea")
            b'tea'
        """


class DeserializationSchema(ABC):
    """Deserializes messages to records: the base of all such schemas, and of your own.

    Example:
        >>> import json
        >>> from millstream.common.serialization import DeserializationSchema
        >>> class Json(DeserializationSchema):
        ...     def deserialize(self, message):
        ...         return json.loads(message)
        >>> Json().deserialize(b'{"user": "ann"}')
        {'user': 'ann'}
    """

    @abstractmethod
    def deserialize(self, message: bytes) -> Value:
        """Return the record of a message, None if it has none.

        Example:
            >>> SimpleStringSchema().deserialize(b"tea")
            'tea'
        """

    def get_produced_type(self) -> TypeInformation | None:
        """Return the type of the records, None for arbitrary Python objects.

        Example:
            >>> SimpleStringSchema().get_produced_type()
            String
        """
        return None


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    r"""Converts strings to and from bytes.

    Example:
        >>> from millstream.common import SimpleStringSchema
        >>> SimpleStringSchema().serialize("à"), SimpleStringSchema().deserialize(b"a")
        (b'\xc3\xa0', 'a')
    """

    def __init__(self, charset: str = "UTF-8") -> None:
        self._charset = _charset(charset, "SimpleStringSchema")

    def serialize(self, element: Value) -> bytes:
        return str(element).encode(self._charset)

    def deserialize(self, message: bytes) -> str:
        return message.decode(self._charset, "replace")

    def get_produced_type(self) -> TypeInformation:
        return Types.STRING()


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Passes bytes through.

    Example:
        >>> from millstream.common.serialization import ByteArraySchema
        >>> ByteArraySchema().deserialize(b"tea")
        b'tea'
    """

    def serialize(self, element: Value) -> bytes:
        return bytes(element)

    def deserialize(self, message: bytes) -> bytes:
        return message

    def get_produced_type(self) -> TypeInformation:
        return Types.PRIMITIVE_ARRAY(Types.BYTE())


class RowFieldExtractorSchema(SerializationSchema):
    """Serializes one field of a row, which must be bytes: for example the key of a Kafka message.

    Example:
        >>> from millstream.common import Row
        >>> from millstream.common.serialization import RowFieldExtractorSchema
        >>> RowFieldExtractorSchema(0).serialize(Row(b"key", b"value"))
        b'key'
    """

    def __init__(self, field_index: int) -> None:
        if field_index < 0:
            raise InvalidProgramError(f"Field index must be non-negative, got: {field_index}")
        self._index = field_index

    def serialize(self, element: Value) -> bytes:
        value = element[self._index]
        if not isinstance(value, (bytes, bytearray)):
            raise MillstreamError(
                f"RowFieldExtractorSchema: field {self._index} is {value!r} ({type(value).__name__}): it must be bytes."
            )
        return bytes(value)


class Encoder(ABC):
    r"""Writes records one by one to a file, for `FileSink.for_row_format()`.

    Example:
        >>> import io
        >>> from millstream.common import Encoder
        >>> out = io.BytesIO()
        >>> Encoder.simple_string_encoder().encode(("a", 1), out)
        >>> out.getvalue()
        b"('a', 1)\n"
    """

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> SimpleStringEncoder:
        r"""Return an encoder that writes `str(value)` and a newline for each record.

        Example:
            >>> import io
            >>> out = io.BytesIO()
            >>> Encoder.simple_string_encoder("UTF-16LE").encode("a", out)
            >>> out.getvalue()
            b'a\x00\n\x00'
        """
        return SimpleStringEncoder(charset_name)

    @staticmethod
    def of_schema(schema: SerializationSchema) -> Encoder:
        r"""Return an encoder that writes each serialized record as a line. Not in Flink.

        Example:
            >>> import io
            >>> out = io.BytesIO()
            >>> Encoder.of_schema(SimpleStringSchema()).encode("tea", out)
            >>> out.getvalue()
            b'tea\n'
        """
        return _SchemaEncoder(schema)

    @abstractmethod
    def encode(self, element: Value, stream: BinaryIO) -> None:
        r"""Write a record; only `stream.write` may be called.

        Example:
            >>> import io
            >>> out = io.BytesIO()
            >>> Encoder.simple_string_encoder().encode("tea", out)
            >>> out.getvalue()
            b'tea\n'
        """

    def header(self) -> bytes:
        """Return the bytes that begin each file. Not in Flink."""
        return b""


class SimpleStringEncoder(Encoder):
    """Writes each record as a line of text."""

    def __init__(self, charset_name: str = "UTF-8") -> None:
        self.charset = _charset(charset_name, "Encoder")
        if "".encode(self.charset):
            # Each record would begin with it.
            raise InvalidProgramError(f"Encoder: {charset_name!r} writes a byte order mark; use UTF-8 or UTF-16LE.")

    def encode(self, element: Value, stream: BinaryIO) -> None:
        stream.write(f"{element}\n".encode(self.charset))


class _SchemaEncoder(Encoder):
    def __init__(self, schema: SerializationSchema) -> None:
        self._serialize = schema.serialize

    def encode(self, element: Value, stream: BinaryIO) -> None:
        message = self._serialize(element)
        stream.write(message if message.endswith(b"\n") else message + b"\n")


class BulkWriter(Protocol):
    """Writes one file of a bulk format."""

    def add_element(self, value: Value) -> None:
        """Add a record."""

    def finish(self) -> None:
        """Write the end of the file; it is closed afterwards."""


class BulkWriterFactory(ABC):
    """Creates the writers of a bulk format, for `FileSink.for_bulk_format()`. It is pickled for the workers.

    Example:
        >>> import io
        >>> from millstream.common.serialization import BulkWriterFactory
        >>> class Count:
        ...     def __init__(self, file):
        ...         self.file, self.count = file, 0
        ...     def add_element(self, value):
        ...         self.count += 1
        ...     def finish(self):
        ...         self.file.write(f"{self.count} records".encode())
        >>> class Counts(BulkWriterFactory):
        ...     def open(self, file):
        ...         return Count(file)
        >>> out = io.BytesIO()
        >>> writer = Counts().open(out)
        >>> writer.add_element("tea")
        >>> writer.finish()
        >>> out.getvalue()
        b'1 records'
    """

    @abstractmethod
    def open(self, file: BinaryIO) -> BulkWriter:
        """Return a writer for an empty file."""


class RowDataBulkWriterFactory(BulkWriterFactory):
    """Creates writers for rows of one type."""

    @abstractmethod
    def get_row_type(self) -> TypeInformation:
        """Return the type of the rows."""


def _charset(name: str, user: str) -> str:
    try:
        codec = codecs.lookup(name).name
        "".encode(codec)
    except LookupError:
        raise InvalidProgramError(f"{user}: there is no charset {name!r} for text.") from None
    return codec


# Where the schemas of formats are; PyFlink also exports them here.
_MOVED = {
    "CsvRowDeserializationSchema": "csv",
    "CsvRowSerializationSchema": "csv",
    "JsonRowDeserializationSchema": "json",
    "JsonRowSerializationSchema": "json",
    "AvroRowDeserializationSchema": "avro",
    "AvroRowSerializationSchema": "avro",
}


def moved_schema(name: str) -> Value:
    """Return a schema class of a format, under the name that PyFlink deprecates."""
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # By name: this package must not import the API.
    module = f"millstream.datastream.formats.{_MOVED[name]}"
    warn_deprecated(f"{name} in {__name__}", f"import it from {module}")
    return getattr(importlib.import_module(module), name)


# Type checkers would accept any name.
if not TYPE_CHECKING:
    __getattr__ = moved_schema
