"""The type of streams of Avro's records."""

from __future__ import annotations

from typing import Any

from millstream.common.coercion import Converter
from millstream.common.errors import TypeMismatchError
from millstream.common.typeinfo import TypeInformation
from millstream.formats.avro.schema import AvroSchema, check_record_schema
from millstream.formats.avro.values import AvroMisfit, fitter

__all__ = ["GenericRecordAvroTypeInfo"]


class GenericRecordAvroTypeInfo(TypeInformation):
    """Records of an Avro schema: dicts whose values are plain Python data.

    Dates, times, decimals and UUIDs are Python's own; timestamps are in UTC. In PyFlink a type like this must be
    declared before a sink of Avro; here it may be, and then records are checked where they leave the operator.

    Example:
        >>> schema = AvroSchema('{"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}')
        >>> GenericRecordAvroTypeInfo(schema)
        GenericRecordAvroTypeInfo<Point>
    """

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = check_record_schema(schema, "GenericRecordAvroTypeInfo")

    def converter(self) -> Converter | None:
        fit = fitter(self._schema)

        def convert(value: Any) -> Any:
            try:
                return None if value is None else fit(value)
            except AvroMisfit as e:
                raise TypeMismatchError(f"Avro: {e}; the value was {value!r}") from None

        return convert

    def has_field(self, field: int | str) -> bool:
        return any(field == f["name"] for f in self._schema.parsed["fields"])

    def _identity(self) -> tuple[Any, ...]:
        return (self._schema,)

    def __str__(self) -> str:
        return f"GenericRecordAvroTypeInfo<{self._schema.parsed['name']}>"
