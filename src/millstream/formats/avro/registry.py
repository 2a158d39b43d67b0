"""Avro with a schema registry: a message names the schema it was written with by a number (Confluent's wire format)."""

from __future__ import annotations

import base64
import io
import json
import struct
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import TypeInformation
from millstream.formats.avro.messages import AvroRowDeserializationSchema, AvroRowSerializationSchema
from millstream.formats.avro.schema import AvroSchema, avro_library
from millstream.formats.avro.values import reader_schema
from millstream.operators.diagnostics.bad_records import FormatUnavailable
from millstream.operators.diagnostics.failures import shorten

__all__ = ["ConfluentRegistryAvroDeserializationSchema", "ConfluentRegistryAvroSerializationSchema", "SchemaRegistry"]

# Every message begins with this byte and the schema's number.
_MAGIC = 0
_HEAD = struct.Struct(">bI")
_TYPE = "application/vnd.schemaregistry.v1+json"
_NOT_FOUND = 404


class SchemaRegistry:
    """Asks a schema registry over HTTP. What it says of a number never changes, so it is asked once for each.

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

    def schema(self, number: int) -> AvroSchema:
        """Return the schema with a number."""
        known = self._schemas.get(number)
        if known is None:
            answer = self._ask(f"/schemas/ids/{number}")
            if answer is None:
                raise MillstreamError(f"the schema registry {self._url} has no schema with the number {number}")
            if answer.get("schemaType", "AVRO") != "AVRO":
                raise MillstreamError(f"schema {number} of {self._url} is {answer['schemaType']}, not Avro")
            known = self._schemas[number] = AvroSchema(answer["schema"])
        return known

    def register(self, subject: str, schema: AvroSchema) -> int:
        """Return the number of a schema, under which it is known to the registry from now on."""
        answer = self._ask(f"/subjects/{quote(subject, safe='')}/versions", {"schema": str(schema)})
        if answer is None:
            raise FormatUnavailable(f"The schema registry {self._url} does not take schemas for subject {subject!r}.")
        return int(answer["id"])

    def _ask(self, path: str, body: Any = None) -> Any:
        """Return the registry's answer, None when it does not know what was asked for."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}{path}", data, {"Content-Type": _TYPE, "Accept": _TYPE})
        user = self._config.get("basic.auth.user.info")
        if user is not None:
            request.add_header("Authorization", f"Basic {base64.b64encode(user.encode()).decode()}")
        seconds = int(self._config.get("request.timeout.ms", "10000")) / 1000
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            if e.code == _NOT_FOUND:
                return None
            raise FormatUnavailable(f"The schema registry {self._url} refuses {path}: {e.code}, {_said(e)}.") from None
        except (OSError, ValueError) as e:
            why = getattr(e, "reason", None) or e
            raise FormatUnavailable(
                f"The schema registry {self._url} does not answer ({why}): check its address, and that it runs."
            ) from None


def _said(error: urllib.error.HTTPError) -> str:
    text = error.read().decode(errors="replace")
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text[:200] or error.reason


class ConfluentRegistryAvroDeserializationSchema(DeserializationSchema):
    """Reads messages as rows of one schema, whatever version of it each was written with.

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
        """Return what reads messages; see SchemaRegistry for the settings."""
        return ConfluentRegistryAvroDeserializationSchema(schema, SchemaRegistry(url, registry_configs))

    def deserialize(self, message: bytes) -> Any:
        if len(message) < _HEAD.size or message[0] != _MAGIC:
            raise MillstreamError(
                f"The message {shorten(message)} does not begin with the number of a schema, as those of a schema "
                "registry do"
            )
        _, number = _HEAD.unpack_from(message)
        written = self._registry.schema(number)
        try:
            record = self._read(io.BytesIO(message[_HEAD.size :]), written.parsed, self._reader)
        except Exception as e:
            raise MillstreamError(
                f"The message {shorten(message)}, written with schema {number}, cannot be read as this one "
                f"({str(e) or type(e).__name__})"
            ) from None
        return self._rows.row_of(record)

    def get_produced_type(self) -> TypeInformation:
        return self._rows.get_produced_type()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._text, self._registry)


class ConfluentRegistryAvroSerializationSchema(SerializationSchema):
    """Writes rows as messages that name their schema, which is registered with the first of them.

    Example:
        >>> schema = '{"type": "record", "name": "Person", "fields": [{"name": "age", "type": "int"}]}'
        >>> people = ConfluentRegistryAvroSerializationSchema.for_generic("people-value", schema, "http://localhost:8081")
    """

    def __init__(self, subject: str, schema: str, registry: SchemaRegistry) -> None:
        self._subject = subject
        self._text = schema
        self._registry = registry
        self._rows = AvroRowSerializationSchema(avro_schema_string=schema)
        self._head: bytes | None = None

    @staticmethod
    def for_generic(
        subject: str, schema: str, url: str, registry_configs: Mapping[str, str] | None = None
    ) -> ConfluentRegistryAvroSerializationSchema:
        """Return what writes messages; the subject of a topic's values is its name with `-value` behind it."""
        return ConfluentRegistryAvroSerializationSchema(subject, schema, SchemaRegistry(url, registry_configs))

    def serialize(self, element: Any) -> bytes:
        if self._head is None:
            self._head = _HEAD.pack(_MAGIC, self._registry.register(self._subject, AvroSchema(self._text)))
        return self._head + self._rows.serialize(element)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._subject, self._text, self._registry)
