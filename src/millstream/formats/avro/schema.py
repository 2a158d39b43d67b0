"""Avro's schemas, and the package that reads and writes Avro."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from millstream.common.errors import InvalidProgramError, MillstreamError

__all__ = ["AvroSchema", "avro_library"]

NAMED = ("record", "error", "enum", "fixed")


def avro_library() -> ModuleType:
    """Return fastavro; it is an extra, so it is looked for where it is used."""
    try:
        import fastavro
    except ImportError:
        raise MillstreamError('Avro needs the package fastavro: pip install "fastavro[snappy,zstandard]".') from None
    return fastavro


class AvroSchema:
    """A schema of Avro, which is written in JSON.

    Written out, it is the JSON it was made from, without spaces; Flink sorts the keys.

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
        # A schema that is wrong is an error where it is made, and not in a worker.
        _ = self._read

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        """Return the schema in a text."""
        return AvroSchema(json_schema)

    @staticmethod
    def parse_file(file_path: str) -> AvroSchema:
        """Return the schema in a file."""
        try:
            return AvroSchema(Path(file_path).read_text(encoding="utf-8"))
        except OSError as e:
            raise InvalidProgramError(f"AvroSchema.parse_file(): {file_path} cannot be read: {e.strerror}.") from None

    @cached_property
    def _read(self) -> tuple[Any, dict[str, Any]]:
        names: dict[str, Any] = {}
        fastavro = avro_library()
        try:
            return fastavro.parse_schema(self._json, names), names
        except KeyError as e:
            raise InvalidProgramError(f"AvroSchema: {self._text} is no schema: there is no {e} in it.") from None
        except Exception as e:
            reason = f"there is no type {e}" if type(e).__name__ == "UnknownType" else str(e)
            raise InvalidProgramError(f"AvroSchema: {self._text} is no schema: {reason}.") from None

    @property
    def parsed(self) -> Any:
        """The schema as fastavro takes it; types that have a name are written out once."""
        return self._read[0]

    @property
    def names(self) -> dict[str, Any]:
        """The types that have a name."""
        return self._read[1]

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"AvroSchema({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AvroSchema) and self._json == other._json

    def __hash__(self) -> int:
        return hash(kind_of(self._json))

    def __reduce__(self) -> tuple[Any, ...]:
        return AvroSchema, (self._text,)


def kind_of(schema: Any) -> str:
    """Return what a schema is: `union`, a primitive type, a complex one, or the name of one that was written out."""
    if isinstance(schema, list):
        return "union"
    return str(schema["type"] if isinstance(schema, dict) else schema)


def name_of(schema: Any) -> str:
    """Return a schema's name in a union: the full name of what has one."""
    kind = kind_of(schema)
    return str(schema["name"]) if kind in NAMED else kind


def members_of(union: list[Any]) -> list[Any]:
    """Return the types of a union without null."""
    return [schema for schema in union if kind_of(schema) != "null"]


def is_nullable(schema: Any) -> bool:
    """Tell whether None is a value of a schema."""
    return kind_of(schema) == "null" or (isinstance(schema, list) and len(members_of(schema)) < len(schema))


def resolved(schema: Any, names: dict[str, Any]) -> Any:
    """Return what a name stands for, or the one type in a union of null and another; else the schema itself."""
    if isinstance(schema, list):
        members = members_of(schema)
        return resolved(members[0], names) if len(members) == 1 else schema
    if isinstance(schema, dict) and not isinstance(schema["type"], str):
        return resolved(schema["type"], names)
    return names.get(kind_of(schema), schema)


def logical_type_of(schema: Any) -> str | None:
    """Return what the values of a schema stand for; None when they are what they are."""
    return schema.get("logicalType") if isinstance(schema, dict) else None


def check_record_schema(schema: Any, what: str) -> AvroSchema:
    """Refuse what is not the schema of a record."""
    if not isinstance(schema, AvroSchema):
        raise InvalidProgramError(f"{what} takes an AvroSchema, as AvroSchema.parse_string() makes it, not {schema!r}.")
    if kind_of(schema.parsed) != "record":
        raise InvalidProgramError(f"{what} takes the schema of a record, not of {kind_of(schema.parsed)!r}.")
    return schema
