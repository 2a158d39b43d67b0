"""Avro records in Parquet files, laid out as Java's parquet-avro does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from millstream.common.errors import InvalidProgramError, MillstreamError, TypeMismatchError
from millstream.common.serialization import BulkWriter, BulkWriterFactory
from millstream.formats.arrow_rows import ArrowWriter
from millstream.formats.avro.schema import (
    AvroSchema,
    check_record_schema,
    is_nullable,
    kind_of,
    logical_type_of,
    members_of,
    resolved,
)
from millstream.formats.avro.type_info import GenericRecordAvroTypeInfo
from millstream.formats.avro.values import AvroMisfit, Shape, described, fitter
from millstream.formats.file_format import FilePart, StreamFormat
from millstream.formats.parquet.files import RowGroups, cast_column

__all__ = ["IN_ARROW", "AvroArrow", "AvroParquetReaders", "AvroParquetWriters"]


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


# Where parquet-avro keeps the schema in a file.
_SCHEMA_KEY = "parquet.avro.schema"


class AvroParquetReaders:
    """Reads Avro's records from Parquet files, for `FileSource.for_record_stream_format`.

    Example:
        >>> schema = AvroSchema('{"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}')
        >>> AvroParquetReaders.for_generic_record(schema).produced_type
        GenericRecordAvroTypeInfo<Point>
    """

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> StreamFormat:
        """Return the format: it makes a dict of each row, from the columns that have the names of the schema's fields.

        A field without a column has its default, or is None if it may be. Row groups are read in parallel.
        """
        return _AvroParquetFormat(check_record_schema(schema, "AvroParquetReaders.for_generic_record()"))


class _AvroParquetFormat(RowGroups, StreamFormat):
    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self.produced_type = GenericRecordAvroTypeInfo(schema)
        AvroArrow(schema).fields()

    def read_part(self, part: FilePart) -> Iterator[list[Any]]:
        yield from self._read_groups(part.path, part.file)

    def _wanted(self, there: list[str]) -> list[str]:
        return [field["name"] for field in self._schema.parsed["fields"] if field["name"] in there]

    def _records(self, batch: Any, path: str) -> list[Any]:
        arrow, fit = AvroArrow(self._schema, nullable=True), fitter(self._schema)
        names, columns = [], []
        for field, column in zip(self._schema.parsed["fields"], arrow.fields(), strict=True):
            if field["name"] in batch.schema.names:
                values = cast_column(batch, field["name"], column.type, path, described(field["type"]))
                read = arrow.reader_of(field["type"])
                names.append(field["name"])
                columns.append(values if read is None else [read(value) for value in values])
        try:
            rows: Iterator[Sequence[Any]] = zip(*columns, strict=True) if columns else iter([()] * batch.num_rows)
            return [fit(dict(zip(names, row, strict=True))) for row in rows]
        except AvroMisfit as e:
            raise MillstreamError(f"FileSource: a record of {path} does not fit the schema: {e}.") from None


class AvroParquetWriters:
    """Writes Avro's records into Parquet files, for `FileSink.for_bulk_format`.

    Example:
        >>> import io
        >>> import pyarrow.parquet
        >>> schema = AvroSchema('{"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}')
        >>> file = io.BytesIO()
        >>> writer = AvroParquetWriters.for_generic_record(schema).open(file)
        >>> writer.add_element({"x": 1})
        >>> writer.finish()
        >>> pyarrow.parquet.read_table(file).to_pylist()
        [{'x': 1}]
    """

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> BulkWriterFactory:
        """Return the factory of writers: of dicts, or of rows whose fields stand in the schema's order.

        The stream's type need not be declared, as it must be in PyFlink. Files are not compressed, as in Flink.
        """
        checked = check_record_schema(schema, "AvroParquetWriters.for_generic_record()")
        AvroArrow(checked).fields()
        return _AvroParquetWriterFactory(checked)


@dataclass(frozen=True)
class _AvroParquetWriterFactory(BulkWriterFactory):
    schema: AvroSchema

    def open(self, file: BinaryIO) -> BulkWriter:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter

        fields = AvroArrow(self.schema).fields()
        schema = pa.schema(fields, {_SCHEMA_KEY: str(self.schema), "writer.model.name": "avro"})
        fit_record = fitter(self.schema, IN_ARROW)

        def fit(value: Any) -> Sequence[Any]:
            try:
                return list(fit_record(value).values())
            except AvroMisfit as e:
                raise TypeMismatchError(f"Avro: {e}.") from None

        file_of_batches = ParquetWriter(file, schema, compression="none")
        return ArrowWriter("Parquet", schema, fit, [None] * len(fields), file_of_batches)
