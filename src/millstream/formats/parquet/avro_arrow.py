"""Avro's schemas as Arrow's, for records in Parquet files; as Java's parquet-avro lays them out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.common.errors import InvalidProgramError
from millstream.formats.avro.schema import (
    AvroSchema,
    is_nullable,
    kind_of,
    logical_type_of,
    members_of,
    resolved,
)
from millstream.formats.avro.values import Shape

__all__ = ["IN_ARROW", "AvroArrow"]

Convert = Callable[[Any], Any]

_BASIC = {
    "null": "null",
    "boolean": "bool",
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "bytes": "binary",
    "string": "string",
    "enum": "string",
}
# A union of several types is a struct with a field for each, of which one is set.
_MEMBER = "member{}"

# Values as Arrow takes them.
IN_ARROW = Shape(
    lambda name, number, value: {_MEMBER.format(number): value}, lambda entries: list(entries.items()), str
)


class AvroArrow:
    """Finds Arrow's types for a schema, and makes values of what Arrow gives.

    Args:
        schema: the schema.
        nullable: whether every field may be null, as it may in a file that another program has written.

    Example:
        >>> schema = AvroSchema('{"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}')
        >>> AvroArrow(schema).fields()
        [pyarrow.Field<x: int32 not null>]
    """

    def __init__(self, schema: AvroSchema, nullable: bool = False) -> None:
        self._schema = schema
        self._names = schema.names
        self._nullable = nullable
        self._within: list[str] = []

    def fields(self) -> list[Any]:
        """Return a field of Arrow's for each of the record's."""
        return self._fields(self._schema.parsed)

    def _fields(self, record: Any) -> list[Any]:
        if record["name"] in self._within:
            raise InvalidProgramError(
                f"Parquet: a record cannot hold itself, as {record['name']} does; write Avro with AvroBulkWriters."
            )
        self._within.append(record["name"])
        found = [self._field(field["name"], field["type"]) for field in record["fields"]]
        self._within.pop()
        return found

    def _field(self, name: str, schema: Any) -> Any:
        import pyarrow as pa

        return pa.field(name, self._type(schema), nullable=self._nullable or is_nullable(schema))

    def _type(self, schema: Any) -> Any:
        import pyarrow as pa

        schema = resolved(schema, self._names)
        kind = kind_of(schema)
        if kind == "union":
            members = enumerate(members_of(schema))
            return pa.struct([pa.field(_MEMBER.format(i), self._type(s)) for i, s in members])
        if kind in ("record", "error"):
            return pa.struct(self._fields(schema))
        if kind == "array":
            return pa.list_(self._field("element", schema["items"]))
        if kind == "map":
            return pa.map_(pa.string(), self._field("value", schema["values"]))
        logical = _logical_type(schema, kind)
        if logical is not None:
            return logical
        return pa.binary(schema["size"]) if kind == "fixed" else pa.type_for_alias(_BASIC[kind])

    def reader_of(self, schema: Any) -> Convert | None:
        """Return the function from Arrow's value to Avro's; None: it is the same."""
        schema = resolved(schema, self._names)
        kind = kind_of(schema)
        if kind == "union":
            return _optional(self._member_reader(members_of(schema)))
        if kind in ("record", "error"):
            return _optional(self._record_reader(schema))
        if kind == "array":
            item = self.reader_of(schema["items"])
            return None if item is None else _optional(lambda values: [item(v) for v in values])
        if kind == "map":
            held = self.reader_of(schema["values"]) or _same
            return _optional(lambda pairs: {key: held(value) for key, value in pairs})
        return None

    def _record_reader(self, schema: Any) -> Convert:
        readers = [(f["name"], self.reader_of(f["type"]) or _same) for f in schema["fields"]]
        return lambda value: {name: read(value[name]) for name, read in readers}

    def _member_reader(self, members: list[Any]) -> Convert:
        readers = [(_MEMBER.format(i), self.reader_of(s) or _same) for i, s in enumerate(members)]
        return lambda value: next((read(value[name]) for name, read in readers if value[name] is not None), None)


def _logical_type(schema: Any, kind: str) -> Any:
    """Return Arrow's type for a logical type; None when there is none, and the plain type is taken."""
    import pyarrow as pa

    logical = logical_type_of(schema)
    if logical == "decimal" and kind in ("bytes", "fixed"):
        make = pa.decimal128 if schema["precision"] <= 38 else pa.decimal256
        return make(schema["precision"], schema.get("scale", 0))
    found = {
        ("int", "date"): pa.date32(),
        ("int", "time-millis"): pa.time32("ms"),
        ("long", "time-micros"): pa.time64("us"),
        ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
        ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
        ("long", "local-timestamp-millis"): pa.timestamp("ms"),
        ("long", "local-timestamp-micros"): pa.timestamp("us"),
    }
    return found.get((kind, str(logical)))


def _optional(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value
