"""Avro messages, with or without Confluent's schema registry."""

from __future__ import annotations

import base64
import datetime
import io
import json
import struct
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from urllib.parse import quote
from uuid import UUID

from millstream.common.aliases import Json, Value
from millstream.common.errors import InvalidProgramError, MillstreamError, TypeMismatchError
from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import RowTypeInfo, TypeInformation, Types
from millstream.common.types import Row
from millstream.common.unsupported import JAVA
from millstream.formats.avro.schema import (
    AvroSchema,
    avro_library,
    check_record_schema,
    kind_of,
    logical_type_of,
    resolved,
)
from millstream.formats.avro.values import TAGGED, AvroMismatch, coercer, reader_schema
from millstream.operators.diagnostics.bad_records import FormatUnavailable
from millstream.operators.diagnostics.failures import shorten

__all__ = [
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "ConfluentRegistryAvroDeserializationSchema",
    "ConfluentRegistryAvroSerializationSchema",
    "SchemaRegistry",
]

Convert = Callable[[Value], Value]

_BASIC: dict[str, Callable[[], TypeInformation]] = {
    "boolean": Types.BOOLEAN,
    "int": Types.INT,
    "long": Types.LONG,
    "float": Types.FLOAT,
    "double": Types.DOUBLE,
    "string": Types.STRING,
    "enum": Types.STRING,
    "bytes": lambda: Types.PRIMITIVE_ARRAY(Types.BYTE()),
    "fixed": lambda: Types.PRIMITIVE_ARRAY(Types.BYTE()),
}
_LOGICAL: dict[str, Callable[[], TypeInformation]] = {
    "date": Types.SQL_DATE,
    "time-millis": Types.SQL_TIME,
    "time-micros": Types.SQL_TIME,
    "timestamp-millis": Types.SQL_TIMESTAMP,
    "timestamp-micros": Types.SQL_TIMESTAMP,
    "local-timestamp-millis": Types.SQL_TIMESTAMP,
    "local-timestamp-micros": Types.SQL_TIMESTAMP,
    "decimal": Types.BIG_DEC,
}


class AvroRowDeserializationSchema(DeserializationSchema):
    """Reads a row from each message of Avro's binary encoding.

    Timestamps are in UTC and have no time zone, like the types of rows.

    Args:
        record_class: a Java class, which does not exist here; set the schema instead.
        avro_schema_string: the schema with which the messages were written.

    Example:
        >>> schema = '{"type": "record", "name": "Person", "fields": [{"name": "age", "type": ["null", "int"]}]}'
        >>> AvroRowDeserializationSchema(avro_schema_string=schema).deserialize(b"\\x02\\x0e")
        Row(age=7)
    """

    def __init__(self, record_class: str | None = None, avro_schema_string: str | None = None) -> None:
        self._schema = _schema_of(record_class, avro_schema_string, "AvroRowDeserializationSchema")
        self._rows = _Rows(self._schema.names)
        self._type = self._rows.type_of(self._schema.parsed)
        self._row = self._rows.converter_of(self._schema.parsed)
        self._read = avro_library().schemaless_reader

    def deserialize(self, message: bytes) -> Row | None:
        try:
            record = self._read(io.BytesIO(message), self._schema.parsed, None)
        except Exception as e:
            raise MillstreamError(
                f"The Avro message {shorten(message)} cannot be read ({str(e) or type(e).__name__}); read it with the "
                "schema with which it was written."
            ) from None
        return self.row_of(record)

    def row_of(self, record: Value) -> Row | None:
        """Convert a record of fastavro to a row."""
        row: Row | None = self._row(record)
        return row

    def get_produced_type(self) -> TypeInformation:
        return self._type

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (None, str(self._schema))


class AvroRowSerializationSchema(SerializationSchema):
    """Writes each row in Avro's binary encoding, with its fields in the schema's order.

    Args:
        record_class: a Java class, which does not exist here; set the schema instead.
        avro_schema_string: the schema.

    Example:
        >>> schema = '{"type": "record", "name": "Person", "fields": [{"name": "age", "type": ["null", "int"]}]}'
        >>> AvroRowSerializationSchema(avro_schema_string=schema).serialize(Row(7))
        b'\\x02\\x0e'
    """

    def __init__(self, record_class: str | None = None, avro_schema_string: str | None = None) -> None:
        self._schema = _schema_of(record_class, avro_schema_string, "AvroRowSerializationSchema")
        self._coerce = coercer(self._schema, TAGGED, naive_is_utc=True)
        self._write = avro_library().schemaless_writer

    def serialize(self, element: Value) -> bytes:
        try:
            record = self._coerce(element)
        except AvroMismatch as e:
            raise TypeMismatchError(f"Avro: the row {shorten(element)} cannot be written: {e}.") from None
        out = io.BytesIO()
        self._write(out, self._schema.parsed, record)
        return out.getvalue()

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (None, str(self._schema))


def _schema_of(record_class: str | None, avro_schema_string: str | None, owner: str) -> AvroSchema:
    if record_class is not None:
        raise InvalidProgramError(f"{owner}: {record_class!r} cannot be used, {JAVA}; set avro_schema_string.")
    if avro_schema_string is None:
        raise TypeError(f"{owner}: set the schema as avro_schema_string.")
    return check_record_schema(AvroSchema(avro_schema_string), owner)


class _Rows:
    """Derives row types from schemas, and converts records of fastavro to rows."""

    def __init__(self, names: dict[str, Json]) -> None:
        self._names = names
        # The enclosing records of the current schema.
        self._enclosing: list[str] = []

    def type_of(self, schema: Json) -> TypeInformation:
        """Return Flink's type for a schema; a union of several types is a pickled Python object."""
        schema = resolved(schema, self._names)
        kind, logical = kind_of(schema), logical_type_of(schema)
        if kind in ("record", "error"):
            return self._row_type(schema)
        if kind == "array":
            return Types.OBJECT_ARRAY(self.type_of(schema["items"]))
        if kind == "map":
            return Types.MAP(Types.STRING(), self.type_of(schema["values"]))
        if kind not in _BASIC:
            return Types.PICKLED_BYTE_ARRAY()
        return _LOGICAL.get(logical or "", _BASIC[kind])()

    def converter_of(self, schema: Json) -> Convert:
        """Return the function that converts a value of fastavro to a value of a row."""
        schema = resolved(schema, self._names)
        kind = kind_of(schema)
        if kind in ("record", "error"):
            return _optional(self._row_maker(schema))
        if kind == "array":
            item = self.converter_of(schema["items"])
            return _optional(lambda values: [item(value) for value in values])
        if kind == "map":
            convert_value = self.converter_of(schema["values"])
            return _optional(lambda value: {k: convert_value(v) for k, v in value.items()})
        return _plain

    def _row_type(self, schema: Json) -> RowTypeInfo:
        if schema["name"] in self._enclosing:
            raise InvalidProgramError(
                f"Avro: the record {schema['name']} contains itself, which a row cannot; use AvroFormat."
            )
        self._enclosing.append(schema["name"])
        types = [self.type_of(field["type"]) for field in schema["fields"]]
        self._enclosing.pop()
        return Types.ROW_NAMED([field["name"] for field in schema["fields"]], types)

    def _row_maker(self, schema: Json) -> Convert:
        fields = [(field["name"], self.converter_of(field["type"])) for field in schema["fields"]]
        names = tuple(name for name, _ in fields)
        return lambda record: Row.of(names, [convert(record[name]) for name, convert in fields])


def _optional(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _plain(value: Value) -> Value:
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None)
    return str(value) if isinstance(value, UUID) else value


# Every message begins with this byte and the id of its schema.
_MAGIC = 0
_HEADER = struct.Struct(">bI")
_TYPE = "application/vnd.schemaregistry.v1+json"
_NOT_FOUND = 404


class SchemaRegistry:
    """A client of a Confluent schema registry. The schema of an id never changes, so it is fetched once.

    Args:
        url: such as `http://localhost:8081`.
        config: `basic.auth.user.info` (`user:password`), and `request.timeout.ms` (10000).
    """

    def __init__(self, url: str, config: Mapping[str, str] | None = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidProgramError(f"SchemaRegistry: the address must begin with http:// or https://, not {url!r}.")
        self._url = url.rstrip("/")
        self._config = dict(config or {})
        self._schemas: dict[int, AvroSchema] = {}

    def schema(self, schema_id: int) -> AvroSchema:
        """Return the schema with an id."""
        schema = self._schemas.get(schema_id)
        if schema is None:
            response = self._request(f"/schemas/ids/{schema_id}")
            if response is None:
                raise MillstreamError(f"the schema registry {self._url} has no schema with id {schema_id}")
            if response.get("schemaType", "AVRO") != "AVRO":
                raise MillstreamError(f"schema {schema_id} of {self._url} is {response['schemaType']}, not Avro")
            schema = self._schemas[schema_id] = AvroSchema(response["schema"])
        return schema

    def register(self, subject: str, schema: AvroSchema) -> int:
        """Register a schema and return its id."""
        response = self._request(f"/subjects/{quote(subject, safe='')}/versions", {"schema": str(schema)})
        if response is None:
            raise FormatUnavailable(f"The schema registry {self._url} does not accept schemas for subject {subject!r}.")
        return int(response["id"])

    def _request(self, path: str, body: Json = None) -> Json:
        """Send a request and return the response; None if the registry does not have the resource."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}{path}", data, {"Content-Type": _TYPE, "Accept": _TYPE})
        user = self._config.get("basic.auth.user.info")
        if user is not None:
            request.add_header("Authorization", f"Basic {base64.b64encode(user.encode()).decode()}")
        seconds = int(self._config.get("request.timeout.ms", "10000")) / 1000
        try:
            with urllib.request.urlopen(request, timeout=seconds) as response:
                return json.load(response)
        except urllib.error.HTTPError as e:
            if e.code == _NOT_FOUND:
                return None
            raise FormatUnavailable(
                f"The schema registry {self._url} rejects {path}: {e.code}, {_error_text(e)}."
            ) from None
        except (OSError, ValueError) as e:
            reason = getattr(e, "reason", None) or e
            raise FormatUnavailable(
                f"The schema registry {self._url} does not respond ({reason}): check that it is running at "
                "this address."
            ) from None


def _error_text(error: urllib.error.HTTPError) -> str:
    text = error.read().decode(errors="replace")
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text[:200] or error.reason


class ConfluentRegistryAvroDeserializationSchema(DeserializationSchema):
    """Reads messages, written with any version of a schema, as rows of one version.

    Not in PyFlink, which has it in SQL only; named as in Flink's Java API.

    Example:
        >>> schema = '{"type": "record", "name": "Person", "fields": [{"name": "age", "type": "int"}]}'
        >>> people = ConfluentRegistryAvroDeserializationSchema.for_generic(schema, "http://localhost:8081")
        >>> people.get_produced_type()
        RowTypeInfo(age: Integer)
    """

    def __init__(self, schema: str, registry: SchemaRegistry) -> None:
        self._text = schema
        self._registry = registry
        self._rows = AvroRowDeserializationSchema(avro_schema_string=schema)
        self._reader = reader_schema(AvroSchema(schema))
        self._read = avro_library().schemaless_reader

    @staticmethod
    def for_generic(
        schema: str, url: str, registry_configs: Mapping[str, str] | None = None
    ) -> ConfluentRegistryAvroDeserializationSchema:
        """Return a schema; see SchemaRegistry for `registry_configs`."""
        return ConfluentRegistryAvroDeserializationSchema(schema, SchemaRegistry(url, registry_configs))

    def deserialize(self, message: bytes) -> Value:
        if len(message) < _HEADER.size or message[0] != _MAGIC:
            raise MillstreamError(
                f"The message {shorten(message)} does not begin with a schema id, as Confluent's wire format requires"
            )
        _, schema_id = _HEADER.unpack_from(message)
        written = self._registry.schema(schema_id)
        try:
            record = self._read(io.BytesIO(message[_HEADER.size :]), written.parsed, self._reader)
        except Exception as e:
            raise MillstreamError(
                f"The message {shorten(message)}, written with schema {schema_id}, cannot be converted to the "
                f"declared schema ({str(e) or type(e).__name__})"
            ) from None
        return self._rows.row_of(record)

    def get_produced_type(self) -> TypeInformation:
        return self._rows.get_produced_type()

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._text, self._registry)


class ConfluentRegistryAvroSerializationSchema(SerializationSchema):
    """Writes rows as messages that contain the id of their schema, which the first message registers.

    Example:
        >>> schema = '{"type": "record", "name": "Person", "fields": [{"name": "age", "type": "int"}]}'
        >>> people = ConfluentRegistryAvroSerializationSchema.for_generic(
        ...     "people-value", schema, "http://localhost:8081", {"basic.auth.user.info": "me:secret"})
    """

    def __init__(self, subject: str, schema: str, registry: SchemaRegistry) -> None:
        self._subject = subject
        self._text = schema
        self._registry = registry
        self._rows = AvroRowSerializationSchema(avro_schema_string=schema)
        self._header: bytes | None = None

    @staticmethod
    def for_generic(
        subject: str, schema: str, url: str, registry_configs: Mapping[str, str] | None = None
    ) -> ConfluentRegistryAvroSerializationSchema:
        """Return a schema; the subject of a topic's values is `<topic>-value`."""
        return ConfluentRegistryAvroSerializationSchema(subject, schema, SchemaRegistry(url, registry_configs))

    def serialize(self, element: Value) -> bytes:
        if self._header is None:
            self._header = _HEADER.pack(_MAGIC, self._registry.register(self._subject, AvroSchema(self._text)))
        return self._header + self._rows.serialize(element)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._subject, self._text, self._registry)
