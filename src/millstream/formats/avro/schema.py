"""Avro schemas, and access to fastavro."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from types import ModuleType

from millstream.common.aliases import Json
from millstream.common.errors import InvalidProgramError, MillstreamError

__all__ = ["AvroSchema", "avro_library"]

NAMED = ("record", "error", "enum", "fixed")


def avro_library() -> ModuleType:
    """Return fastavro; it is an optional package, so it is imported on use."""
    try:
        import fastavro
    except ImportError:
        raise MillstreamError('Avro needs the package fastavro: pip install "fastavro[snappy,zstandard]".') from None
    return fastavro


class AvroSchema:
    """Holds an Avro schema, written in JSON.

    Its text is the original JSON without spaces; Flink sorts the keys.

    Example:
        >>> schema = AvroSchema.parse_string('{"type": "array", "items": "string"}')
        >>> str(schema)
        '{"type":"array","items":"string"}'
    """

    def __init__(self, json_schema: str) -> None:
        try:
            self._json = json.loads(json_schema)
        except (TypeError, ValueError) as e:
            raise InvalidProgramError(f"AvroSchema: {json_schema!r} is not JSON: {e}.") from None
        self._text = json.dumps(self._json, separators=(",", ":"), ensure_ascii=False)
        # A malformed schema fails in the program, not in a worker.
        _ = self._parsed_and_names

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        """Parse a schema in JSON."""
        return AvroSchema(json_schema)

    @staticmethod
    def parse_file(file_path: str) -> AvroSchema:
        """Parse the schema in a file, in JSON.

        Example:
            >>> _ = Path("point.avsc").write_text('{"type": "array", "items": "int"}')
            >>> str(AvroSchema.parse_file("point.avsc"))
            '{"type":"array","items":"int"}'
        """
        try:
            return AvroSchema(Path(file_path).read_text(encoding="utf-8"))
        except OSError as e:
            raise InvalidProgramError(f"AvroSchema.parse_file(): {file_path} cannot be read: {e.strerror}.") from None

    @cached_property
    def _parsed_and_names(self) -> tuple[Json, dict[str, Json]]:
        names: dict[str, Json] = {}
        fastavro = avro_library()
        try:
            return fastavro.parse_schema(self._json, names), names
        except KeyError as e:
            raise InvalidProgramError(f"AvroSchema: {self._text} is not a schema: {e} is missing.") from None
        except Exception as e:
            reason = f"there is no type {e}" if type(e).__name__ == "UnknownType" else str(e)
            raise InvalidProgramError(f"AvroSchema: {self._text} is not a schema: {reason}.") from None

    @property
    def parsed(self) -> Json:
        """The schema in fastavro's form, which defines named types once."""
        return self._parsed_and_names[0]

    @property
    def names(self) -> dict[str, Json]:
        """The named types."""
        return self._parsed_and_names[1]

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"AvroSchema({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AvroSchema) and self._json == other._json

    def __hash__(self) -> int:
        return hash(kind_of(self._json))

    def __reduce__(self) -> tuple[object, ...]:
        return AvroSchema, (self._text,)


def kind_of(schema: Json) -> str:
    """Return the kind of a schema: `union`, a primitive or complex type, or the name of a type defined elsewhere."""
    if isinstance(schema, list):
        return "union"
    return str(schema["type"] if isinstance(schema, dict) else schema)


def name_of(schema: Json) -> str:
    """Return a schema's name in a union: the full name of a named type."""
    kind = kind_of(schema)
    return str(schema["name"]) if kind in NAMED else kind


def members_of(union: list[Json]) -> list[Json]:
    """Return the types of a union without null."""
    return [schema for schema in union if kind_of(schema) != "null"]


def is_nullable(schema: Json) -> bool:
    """Return whether None is a value of a schema."""
    return kind_of(schema) == "null" or (isinstance(schema, list) and len(members_of(schema)) < len(schema))


def resolved(schema: Json, names: dict[str, Json]) -> Json:
    """Return the type that a name refers to, or the other type in a union with null; else the schema itself."""
    if isinstance(schema, list):
        members = members_of(schema)
        return resolved(members[0], names) if len(members) == 1 else schema
    if isinstance(schema, dict) and not isinstance(schema["type"], str):
        return resolved(schema["type"], names)
    return names.get(kind_of(schema), schema)


def logical_type_of(schema: Json) -> str | None:
    """Return the logical type of a schema, or None."""
    return schema.get("logicalType") if isinstance(schema, dict) else None


def check_record_schema(schema: object, owner: str) -> AvroSchema:
    """Return the schema of a record; fail for any other object."""
    if not isinstance(schema, AvroSchema):
        raise InvalidProgramError(
            f"{owner} takes an AvroSchema, such as AvroSchema.parse_string() returns, not {schema!r}."
        )
    if kind_of(schema.parsed) != "record":
        raise InvalidProgramError(f"{owner} takes the schema of a record, not of {kind_of(schema.parsed)!r}.")
    return schema
