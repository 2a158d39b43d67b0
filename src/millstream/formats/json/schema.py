"""JSON schemas as types of rows."""

from __future__ import annotations

import json
from typing import Any

from millstream.common.errors import InvalidProgramError
from millstream.common.typeinfo import TypeInformation, Types

_FORMATS = {"date-time": Types.SQL_TIMESTAMP, "date": Types.SQL_DATE, "time": Types.SQL_TIME}


def type_of_schema(json_schema: str) -> TypeInformation:
    """Return the type that a JSON schema describes, as Flink reads it: all its numbers are decimals.

    Example:
        >>> type_of_schema('{"type": "object", "properties": {"id": {"type": "integer"}}}')
        RowTypeInfo(id: BigDecimal)
    """
    try:
        schema = json.loads(json_schema)
    except (TypeError, ValueError) as e:
        raise InvalidProgramError(f"json_schema(): {json_schema!r} is not JSON: {e}.") from None
    return _convert(schema, "<root>")


def _convert(node: Any, name: str) -> TypeInformation:
    kind = node.get("type") if isinstance(node, dict) else None
    if isinstance(kind, list) and len(kind) == 2 and "null" in kind:
        kind = next(k for k in kind if k != "null")
    if kind == "object":
        fields = node.get("properties") or {}
        return Types.ROW_NAMED(list(fields), [_convert(field, key) for key, field in fields.items()])
    if kind == "array" and isinstance(node.get("items"), dict):
        return Types.OBJECT_ARRAY(_convert(node["items"], f"{name}[]"))
    if kind == "string":
        if node.get("contentEncoding") == "base64":
            return Types.PRIMITIVE_ARRAY(Types.BYTE())
        return _FORMATS.get(node.get("format", ""), Types.STRING)()
    if kind in ("number", "integer"):
        return Types.BIG_DEC()
    if kind == "boolean":
        return Types.BOOLEAN()
    raise InvalidProgramError(
        f"json_schema(): {name} is {node!r}; object, array with one kind of items, string, number, integer and boolean "
        "are understood. Use type_info() for other types."
    )
