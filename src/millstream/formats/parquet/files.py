"""Parquet files of rows, and of Avro records in the layout of Java's parquet-avro."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from millstream.common.aliases import Json, Value
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError, MillstreamError, TypeMismatchError
from millstream.common.serialization import BulkWriter, BulkWriterFactory, RowDataBulkWriterFactory
from millstream.common.typeinfo import RowTypeInfo, TypeInformation
from millstream.common.types import Row
from millstream.formats.arrow_rows import ArrowWriter, arrow_schema, from_arrow, row_writer
from millstream.formats.avro.schema import (
    AvroSchema,
    check_record_schema,
    is_nullable,
    kind_of,
    logical_type_of,
    members_of,
    resolved,
)
from millstream.formats.avro.values import AvroMismatch, GenericRecordAvroTypeInfo, Representation, coercer, described
from millstream.formats.file_access import FileAccess, FileStatus
from millstream.formats.file_format import BulkFormat, Extent, FileFormat, FilePart, FileSplitRange, StreamFormat
from millstream.formats.text_values import check_row_type

# pyarrow.parquet is imported on use, because it takes long to load.
if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile, RowGroupMetaData

__all__ = [
    "IN_ARROW",
    "AvroArrow",
    "AvroParquetReaders",
    "AvroParquetWriters",
    "ParquetBulkWriters",
    "ParquetColumnarRowInputFormat",
]


class RowGroups(FileFormat):
    """Reads Parquet files; the unit of split ranges is a row group."""

    # Rows per batch.
    _batch_size = 2048

    @abstractmethod
    def _columns_to_read(self, names_in_file: list[str]) -> list[str]:
        """Return the names of the columns to read from a file."""

    def _may_match(self, group: RowGroupMetaData, names: list[str]) -> bool:
        """Return whether a row group with these columns may contain rows that pass the filters."""
        return True

    @abstractmethod
    def _records(self, batch: pa.RecordBatch, path: str) -> list[Value]:
        """Return the records of a batch of those columns."""

    def measure(self, access: FileAccess, file: FileStatus) -> Extent:
        with access.open(file.path) as stream:
            metadata = _open(file.path, stream).metadata
        groups = metadata.num_row_groups
        return Extent(groups, metadata.num_rows / groups if metadata.num_rows else 1.0)

    def read(self, access: FileAccess, split_range: FileSplitRange) -> Iterator[list[Value]]:
        with access.open(split_range.path) as stream:
            yield from self._read_groups(split_range.path, stream, range(split_range.start, split_range.end))

    def _read_groups(self, path: str, stream: BinaryIO, groups: range | None = None) -> Iterator[list[Value]]:
        """Yield the records of row groups, of all by default."""
        parquet = _open(path, stream)
        names_in_file = parquet.schema_arrow.names
        # A batch without columns has no row count.
        chosen = self._columns_to_read(names_in_file) or names_in_file[:1]
        all_groups = range(parquet.metadata.num_row_groups) if groups is None else groups
        column_paths = [parquet.metadata.schema.column(i).path for i in range(parquet.metadata.num_columns)]
        numbers = [i for i in all_groups if self._may_match(parquet.metadata.row_group(i), column_paths)]
        batches = parquet.iter_batches(self._batch_size, row_groups=numbers, columns=chosen)
        while (batch := _next_batch(batches, path)) is not None:
            yield self._records(batch, path)


def _open(path: str, stream: BinaryIO) -> ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(stream)
    except (pa.ArrowException, OSError) as e:
        raise _incomplete(path, e) from None


def _next_batch(batches: Iterator[pa.RecordBatch], path: str) -> pa.RecordBatch | None:
    import pyarrow as pa

    try:
        return next(batches, None)
    except (pa.ArrowException, OSError) as e:
        raise _incomplete(path, e) from None


def _incomplete(path: str, error: Exception) -> MillstreamError:
    return MillstreamError(
        f"FileSource: {path} is not a complete Parquet file ({error}); remove it from the directory."
    )


def cast_column(batch: pa.RecordBatch, name: str, arrow: pa.DataType, path: str, declared: str) -> list[Value]:
    """Return a column's values as values of an Arrow type.

    Args:
        batch: a batch of the file.
        name: the name of the column.
        arrow: the Arrow type.
        path: the path of the file.
        declared: the declared type, for the error.
    """
    import pyarrow as pa

    try:
        values: list[Value] = batch.column(name).cast(arrow).to_pylist()
    except pa.ArrowException as e:
        raise MillstreamError(
            f"FileSource: column {name!r} of {path} does not fit the type {declared}: {e}. Correct the type."
        ) from None
    return values


class ParquetColumnarRowInputFormat(RowGroups, BulkFormat):
    """Reads rows from Parquet files, by column names; row groups are read in parallel.

    A column that is missing in a file is None. Flink requires primitive types; here columns may also be arrays, maps
    and rows.

    Args:
        row_type: a row type of Types, or of DataTypes.
        hadoop_config: accepted, without effect.
        batch_size: the number of rows per batch, by default 2048.
        is_utc_timestamp: accepted; timestamps are read unchanged, without a time zone.
        is_case_sensitive: whether names are case-sensitive, as by default.

    Example:
        >>> import pyarrow as pa
        >>> import pyarrow.parquet
        >>> from millstream.common import Types, WatermarkStrategy
        >>> from millstream.connectors.files.source import FileSource
        >>> pyarrow.parquet.write_table(pa.table({"id": [1, 2], "name": ["ann", "bob"]}), "people.parquet")
        >>> people = ParquetColumnarRowInputFormat(Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()]))
        >>> source = FileSource.for_bulk_file_format(people, "people.parquet").build()
        >>> list(env.from_source(source, WatermarkStrategy.no_watermarks(), "people").execute_and_collect())
        [Row(id=1, name='ann'), Row(id=2, name='bob')]
    """

    def __init__(
        self,
        row_type: TypeInformation,
        hadoop_config: Configuration | None = None,
        batch_size: int = 2048,
        is_utc_timestamp: bool = False,
        is_case_sensitive: bool = True,
    ) -> None:
        self._row_type = check_row_type(row_type, "ParquetColumnarRowInputFormat")
        self.produced_type = self._row_type
        if batch_size <= 0:
            raise InvalidProgramError(f"ParquetColumnarRowInputFormat: batch_size must be above 0, it is {batch_size}.")
        self._batch_size = batch_size
        self._case_sensitive = is_case_sensitive
        arrow_schema(self._row_type)

    def _columns_to_read(self, file_columns: list[str]) -> list[str]:
        return [name for name in self._columns(file_columns) if name is not None]

    def _columns(self, file_columns: list[str]) -> list[str | None]:
        """Return the name of each field in a file, or None if it is missing."""
        by_name = {name if self._case_sensitive else name.lower(): name for name in file_columns}
        names = self._row_type.get_field_names()
        return [by_name.get(name if self._case_sensitive else name.lower()) for name in names]

    def _records(self, batch: pa.RecordBatch, path: str) -> list[Row]:
        names = tuple(self._row_type.get_field_names())
        types = self._row_type.get_field_types()
        columns = self._columns(batch.schema.names)
        values = []
        for name, field, arrow in zip(columns, types, arrow_schema(self._row_type), strict=True):
            if name is None:
                values.append([None] * batch.num_rows)
                continue
            column_values = cast_column(batch, name, arrow.type, path, str(field))
            convert = from_arrow(field)
            values.append(column_values if convert is None else [convert(v) for v in column_values])
        return Row.many(names, zip(*values, strict=True))


class ParquetBulkWriters:
    """Writes rows to Parquet files, for `FileSink.for_bulk_format`.

    Example:
        >>> import io
        >>> import pyarrow.parquet
        >>> from millstream.common import Row, Types
        >>> file = io.BytesIO()
        >>> row_type = Types.ROW_NAMED(["id", "tags"], [Types.INT(), Types.LIST(Types.STRING())])
        >>> writer = ParquetBulkWriters.for_row_type(row_type).open(file)
        >>> writer.add_element(Row(1, ["a", "b"]))
        >>> writer.finish()
        >>> pyarrow.parquet.read_table(file).to_pylist()
        [{'id': 1, 'tags': ['a', 'b']}]
    """

    @staticmethod
    def for_row_type(
        row_type: TypeInformation, hadoop_config: Configuration | None = None, utc_timestamp: bool = False
    ) -> RowDataBulkWriterFactory:
        """Return the factory of writers.

        Args:
            row_type: a row type of Types, or of DataTypes.
            hadoop_config: its key `parquet.compression` is used (snappy if not set).
            utc_timestamp: accepted; timestamps are written unchanged, without a time zone.
        """
        checked = check_row_type(row_type, "ParquetBulkWriters.for_row_type()")
        arrow_schema(checked)
        compression = "snappy"
        if hadoop_config is not None:
            compression = hadoop_config.get_string("parquet.compression", compression).lower()
        return _ParquetWriterFactory(checked, "none" if compression == "uncompressed" else compression)


@dataclass(frozen=True)
class _ParquetWriterFactory(RowDataBulkWriterFactory):
    row_type: RowTypeInfo
    compression: str

    def get_row_type(self) -> RowTypeInfo:
        return self.row_type

    def open(self, file: BinaryIO) -> BulkWriter:
        from pyarrow.parquet import ParquetWriter

        return row_writer(
            "Parquet", self.row_type, ParquetWriter(file, arrow_schema(self.row_type), compression=self.compression)
        )


Convert = Callable[[Value], Value]

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
# A union of several types is a struct with a field for each type; one of the fields is set.
_MEMBER = "member{}"

# The representation for Arrow.
IN_ARROW = Representation(
    lambda name, index, value: {_MEMBER.format(index): value}, lambda entries: list(entries.items()), str
)


class AvroArrow:
    """Derives Arrow types from a schema, and converts Arrow's values to Avro's.

    Args:
        schema: the schema.
        nullable: whether every field may be null, as in files of other programs.

    Example:
        >>> schema = AvroSchema('{"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}')
        >>> AvroArrow(schema).fields()
        [pyarrow.Field<x: int32 not null>]
    """

    def __init__(self, schema: AvroSchema, nullable: bool = False) -> None:
        self._schema = schema
        self._names = schema.names
        self._nullable = nullable
        self._enclosing: list[str] = []

    def fields(self) -> list[pa.Field]:
        """Return the Arrow fields of the record."""
        return self._fields(self._schema.parsed)

    def _fields(self, record: Json) -> list[pa.Field]:
        if record["name"] in self._enclosing:
            raise InvalidProgramError(
                f"Parquet: the record {record['name']} contains itself, which Parquet does not support; use "
                "AvroBulkWriters."
            )
        self._enclosing.append(record["name"])
        fields = [self._field(field["name"], field["type"]) for field in record["fields"]]
        self._enclosing.pop()
        return fields

    def _field(self, name: str, schema: Json) -> pa.Field:
        import pyarrow as pa

        return pa.field(name, self._type(schema), nullable=self._nullable or is_nullable(schema))

    def _type(self, schema: Json) -> pa.DataType:
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

    def reader_of(self, schema: Json) -> Convert | None:
        """Return the function that converts Arrow's value to Avro's; None if they are equal."""
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
            read_value = self.reader_of(schema["values"]) or _same
            return _optional(lambda pairs: {key: read_value(value) for key, value in pairs})
        return None

    def _record_reader(self, schema: Json) -> Convert:
        readers = [(f["name"], self.reader_of(f["type"]) or _same) for f in schema["fields"]]
        return lambda value: {name: read(value[name]) for name, read in readers}

    def _member_reader(self, members: list[Json]) -> Convert:
        readers = [(_MEMBER.format(i), self.reader_of(s) or _same) for i, s in enumerate(members)]
        return lambda value: next((read(value[name]) for name, read in readers if value[name] is not None), None)


def _logical_type(schema: Json, kind: str) -> pa.DataType | None:
    """Return the Arrow type of a logical type; None if the plain type applies."""
    import pyarrow as pa

    logical = logical_type_of(schema)
    if logical == "decimal" and kind in ("bytes", "fixed"):
        make = pa.decimal128 if schema["precision"] <= 38 else pa.decimal256
        return make(schema["precision"], schema.get("scale", 0))
    logical_types = {
        ("int", "date"): pa.date32(),
        ("int", "time-millis"): pa.time32("ms"),
        ("long", "time-micros"): pa.time64("us"),
        ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
        ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
        ("long", "local-timestamp-millis"): pa.timestamp("ms"),
        ("long", "local-timestamp-micros"): pa.timestamp("us"),
    }
    return logical_types.get((kind, str(logical)))


def _optional(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _same(value: Value) -> Value:
    return value


# The metadata key under which parquet-avro stores the schema.
_SCHEMA_KEY = "parquet.avro.schema"


class AvroParquetReaders:
    """Reads Avro records from Parquet files, for `FileSource.for_record_stream_format`.

    Example:
        >>> schema = AvroSchema('{"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}')
        >>> AvroParquetReaders.for_generic_record(schema).produced_type
        GenericRecordAvroTypeInfo<Point>
    """

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> StreamFormat:
        """Return the format, which reads each row as a dict by the names of the schema's fields.

        A field without a column has its default, or is None if it is nullable. Row groups are read in parallel.
        """
        return _AvroParquetFormat(check_record_schema(schema, "AvroParquetReaders.for_generic_record()"))


class _AvroParquetFormat(RowGroups, StreamFormat):
    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self.produced_type = GenericRecordAvroTypeInfo(schema)
        AvroArrow(schema).fields()

    def read_part(self, part: FilePart) -> Iterator[list[Value]]:
        yield from self._read_groups(part.path, part.file)

    def _columns_to_read(self, file_columns: list[str]) -> list[str]:
        return [field["name"] for field in self._schema.parsed["fields"] if field["name"] in file_columns]

    def _records(self, batch: pa.RecordBatch, path: str) -> list[Value]:
        arrow, coerce = AvroArrow(self._schema, nullable=True), coercer(self._schema)
        names, columns = [], []
        for field, column in zip(self._schema.parsed["fields"], arrow.fields(), strict=True):
            if field["name"] in batch.schema.names:
                values = cast_column(batch, field["name"], column.type, path, described(field["type"]))
                read = arrow.reader_of(field["type"])
                names.append(field["name"])
                columns.append(values if read is None else [read(value) for value in values])
        try:
            rows: Iterator[Sequence[Value]] = zip(*columns, strict=True) if columns else iter([()] * batch.num_rows)
            return [coerce(dict(zip(names, row, strict=True))) for row in rows]
        except AvroMismatch as e:
            raise MillstreamError(f"FileSource: a record of {path} does not match the schema: {e}.") from None


class AvroParquetWriters:
    """Writes Avro records to Parquet files, for `FileSink.for_bulk_format`.

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
        """Return the factory of writers of dicts, or of rows whose fields are in the schema's order.

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
        coerce = coercer(self.schema, IN_ARROW)

        def fields_of(value: Value) -> Sequence[Value]:
            try:
                return list(coerce(value).values())
            except AvroMismatch as e:
                raise TypeMismatchError(f"Avro: {e}.") from None

        file_of_batches = ParquetWriter(file, schema, compression="none")
        return ArrowWriter("Parquet", schema, fields_of, [None] * len(fields), file_of_batches)
