"""JSON messages as rows, rows as JSON messages, and files with a JSON document per line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import NoReturn

from millstream.common.aliases import Json, Value
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import RowTypeInfo, TypeInformation, Types
from millstream.common.types import Row
from millstream.formats.file_format import FilePart, StreamFormat, text_lines
from millstream.formats.json.values import JsonError, reader_of, writer_of
from millstream.formats.text_values import check_row_type
from millstream.operators.diagnostics.failures import shorten

__all__ = ["JsonLinesFormat", "JsonRowDeserializationSchema", "JsonRowSerializationSchema"]


_FORMATS = {"date-time": Types.SQL_TIMESTAMP, "date": Types.SQL_DATE, "time": Types.SQL_TIME}


def type_of_schema(json_schema: str) -> TypeInformation:
    """Return the type that a JSON schema describes; as in Flink, all numbers are decimals.

    Example:
        >>> type_of_schema('{"type": "object", "properties": {"id": {"type": "integer"}}}')
        RowTypeInfo(id: BigDecimal)
    """
    try:
        schema = json.loads(json_schema)
    except (TypeError, ValueError) as e:
        raise InvalidProgramError(f"json_schema(): {json_schema!r} is not JSON: {e}.") from None
    return _convert(schema, "<root>")


def _convert(node: Json, name: str) -> TypeInformation:
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
        f"json_schema(): {name} is {node!r}, but only object, array with one type of items, string, number, integer "
        "and boolean are supported. Use type_info() for other types."
    )


def _no_constant(name: str) -> NoReturn:
    raise JsonError(f"{name} is not JSON")


def _scanner(exact: bool) -> Callable[[str, int], tuple[Json, int]]:
    """Return a function that parses the document at a position and, as in Flink, ignores the text after it."""
    decoder = json.JSONDecoder(parse_float=Decimal if exact else None, parse_constant=_no_constant)
    scan: Callable[[str, int], tuple[Json, int]] = decoder.scan_once  # type: ignore[attr-defined]
    return scan


class _Documents:
    """Parses JSON documents as rows."""

    def __init__(self, row_type: RowTypeInfo, needs_all: bool, lenient: bool) -> None:
        self._scan = _scanner("BigDecimal" in str(row_type))
        self._row = reader_of(row_type, needs_all, lenient)

    def read(self, text: str) -> Row | None:
        try:
            document, _ = self._scan(text.lstrip(" \t\r\n"), 0)
        except StopIteration:
            raise JsonError("it is not JSON") from None
        row: Row | None = self._row(document)
        return row


class JsonRowDeserializationSchema(DeserializationSchema):
    """Reads a row from each message, by the names of its fields.

    Example:
        >>> from millstream.common import Types
        >>> kind = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
        >>> schema = JsonRowDeserializationSchema.builder().type_info(kind).ignore_parse_errors().build()
        >>> schema.deserialize(b'{"age": 7, "name": "Ann"}'), schema.deserialize(b'{"age":')
        (Row(name='Ann', age=7), None)
    """

    def __init__(self, row_type: RowTypeInfo, needs_all: bool = False, lenient: bool = False) -> None:
        self._type, self._needs_all, self._lenient = row_type, needs_all, lenient
        self._documents: _Documents | None = None
        reader_of(row_type, needs_all, lenient)

    @staticmethod
    def builder() -> JsonRowDeserializationSchema.Builder:
        """Return a builder; the type or the JSON schema is required."""
        return JsonRowDeserializationSchema.Builder()

    class Builder:
        """Builds a JsonRowDeserializationSchema; see there for an example."""

        def __init__(self) -> None:
            self._type: RowTypeInfo | None = None
            self._needs_all = False
            self._lenient = False

        def type_info(self, type_info: TypeInformation) -> JsonRowDeserializationSchema.Builder:
            """Set the fields to read and their types; this or `json_schema` is required."""
            self._type = check_row_type(type_info, "JsonRowDeserializationSchema")
            return self

        def json_schema(self, json_schema: str) -> JsonRowDeserializationSchema.Builder:
            """Set the fields with a JSON schema, whose numbers become decimals.

            Example:
                >>> text = '{"type": "object", "properties": {"age": {"type": "number"}}}'
                >>> JsonRowDeserializationSchema.builder().json_schema(text).build().deserialize(b'{"age": 7}')
                Row(age=Decimal('7'))
            """
            return self.type_info(type_of_schema(json_schema))

        def fail_on_missing_field(self) -> JsonRowDeserializationSchema.Builder:
            """Fail if a field is missing; by default it is None."""
            self._needs_all = True
            return self

        def ignore_parse_errors(self) -> JsonRowDeserializationSchema.Builder:
            """Read malformed fields as None, and skip malformed messages; by default they are errors."""
            self._lenient = True
            return self

        def build(self) -> JsonRowDeserializationSchema:
            """Return the schema."""
            if self._type is None:
                raise InvalidProgramError("JsonRowDeserializationSchema: set the type of the rows with type_info().")
            if self._needs_all and self._lenient:
                raise InvalidProgramError(
                    "JSON format doesn't support failOnMissingField and ignoreParseErrors are both enabled."
                )
            return JsonRowDeserializationSchema(self._type, self._needs_all, self._lenient)

    def deserialize(self, message: bytes) -> Row | None:
        if self._documents is None:
            self._documents = _Documents(self._type, self._needs_all, self._lenient)
        try:
            return self._documents.read(message.decode())
        except (ValueError, RecursionError) as e:
            if self._lenient:
                return None
            raise MillstreamError(
                f"The JSON message {shorten(message)} cannot be read: {e}. Correct it, or skip such messages with "
                "ignore_parse_errors()."
            ) from None

    def get_produced_type(self) -> TypeInformation:
        return self._type

    def __reduce__(self) -> tuple[object, ...]:
        return JsonRowDeserializationSchema, (self._type, self._needs_all, self._lenient)


class JsonRowSerializationSchema(SerializationSchema):
    """Writes each row as a JSON object.

    Example:
        >>> from millstream.common import Row, Types
        >>> row_type = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
        >>> JsonRowSerializationSchema.builder().with_type_info(row_type).build().serialize(Row("Ann", 7))
        b'{"name":"Ann","age":7}'
    """

    def __init__(self, row_type: RowTypeInfo) -> None:
        convert = row_type.converter()
        assert convert is not None
        self._convert = convert
        self._write = writer_of(row_type)

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        """Return a builder; the type is required."""
        return JsonRowSerializationSchema.Builder()

    class Builder:
        """Builds a JsonRowSerializationSchema; see there for an example."""

        def __init__(self) -> None:
            self._type: RowTypeInfo | None = None

        def with_type_info(self, type_info: TypeInformation) -> JsonRowSerializationSchema.Builder:
            """Set the type of the rows. Required."""
            self._type = check_row_type(type_info, "JsonRowSerializationSchema")
            return self

        def build(self) -> JsonRowSerializationSchema:
            """Return the schema."""
            if self._type is None:
                raise InvalidProgramError("JsonRowSerializationSchema: set the type of the rows with with_type_info().")
            return JsonRowSerializationSchema(self._type)

    def serialize(self, element: Value) -> bytes:
        return self._write(self._convert(element)).encode()


class JsonLinesFormat(StreamFormat):
    r"""Reads files with a JSON document per line. Not in PyFlink. Empty lines are skipped.

    Args:
        type_info: the type of the rows; by default records are the results of Python's `json.loads`.
        ignore_parse_errors: whether malformed lines are skipped; by default they are an error.
        fail_on_missing_field: whether a missing field is an error; by default it is None.

    Example:
        >>> from pathlib import Path
        >>> from millstream.common import Types, WatermarkStrategy
        >>> from millstream.connectors.files.source import FileSource
        >>> _ = Path("ids.json").write_text('{"id": 1}\n{"id": 2}\n')
        >>> ids = JsonLinesFormat(Types.ROW_NAMED(["id"], [Types.LONG()]))
        >>> source = FileSource.for_record_stream_format(ids, "ids.json").build()
        >>> list(env.from_source(source, WatermarkStrategy.no_watermarks(), "ids").execute_and_collect())
        [Row(id=1), Row(id=2)]
    """

    def __init__(
        self,
        type_info: TypeInformation | None = None,
        ignore_parse_errors: bool = False,
        fail_on_missing_field: bool = False,
    ) -> None:
        self._row_type = None if type_info is None else check_row_type(type_info, "JsonLinesFormat")
        self.produced_type = self._row_type
        if self._row_type is not None:
            reader_of(self._row_type, fail_on_missing_field, lenient=False)
        self._ignores_errors = ignore_parse_errors
        self._needs_all = fail_on_missing_field

    @property
    def splittable(self) -> bool:
        return True

    def read_part(self, part: FilePart) -> Iterator[list[Value]]:
        read = self._reader()
        for offset, block in part.blocks():
            lines = text_lines(block, "utf-8")
            try:
                yield [read(line) for line in lines if line and not line.isspace()]
            except (ValueError, RecursionError):
                # Read again to find the malformed line.
                yield list(self._one_by_one(part, offset, block, read))

    def _reader(self) -> Callable[[str], Value]:
        if self._row_type is not None:
            return _Documents(self._row_type, self._needs_all, lenient=False).read
        return json.JSONDecoder(parse_constant=_no_constant).decode

    def _one_by_one(self, part: FilePart, offset: int, block: bytes, read: Callable[[str], Value]) -> Iterator[Value]:
        for line in block.splitlines(keepends=True):
            text = line.decode(errors="replace")
            try:
                if text and not text.isspace():
                    yield read(text.strip("\r\n"))
            except (ValueError, RecursionError) as e:
                if not self._ignores_errors:
                    yield part.bad_record(offset, text, str(e))
            offset += len(line)
