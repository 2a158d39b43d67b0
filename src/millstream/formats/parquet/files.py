"""Parquet files of rows, and of Avro records laid out as Java's parquet-avro does."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

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
from millstream.formats.avro.values import AvroMisfit, GenericRecordAvroTypeInfo, Shape, described, fitter
from millstream.formats.file_access import FileAccess, FoundFile
from millstream.formats.file_format import BulkFormat, Extent, FileFormat, FilePart, FileShare, StreamFormat
from millstream.formats.text_values import check_row_type

__all__ = [
    "IN_ARROW",
    "AvroArrow",
    "AvroParquetReaders",
    "AvroParquetWriters",
    "ParquetBulkWriters",
    "ParquetColumnarRowInputFormat",
]


class RowGroups(FileFormat):
    """Reads Parquet files; a row group is the least that is read at once."""

    # How many rows are handed on at once.
    _batch_size = 2048

    @abstractmethod
    def _wanted(self, there: list[str]) -> list[str]:
        """Return which of a file's columns are read."""

    def _is_wanted(self, group: Any, names: list[str]) -> bool:
        """Tell whether a row group is read, by what is known of its columns, which have these names."""
        return True

    @abstractmethod
    def _records(self, batch: Any, path: str) -> list[Any]:
        """Return the records of a batch of those columns."""

    def measure(self, access: FileAccess, file: FoundFile) -> Extent:
        with access.open(file.path) as stream:
            about = _open(file.path, stream).metadata
        groups = about.num_row_groups
        return Extent(groups, about.num_rows / groups if about.num_rows else 1.0)

    def read(self, access: FileAccess, share: FileShare) -> Iterator[list[Any]]:
        with access.open(share.path) as stream:
            yield from self._read_groups(share.path, stream, range(share.start, share.end))

    def _read_groups(self, path: str, stream: BinaryIO, groups: range | None = None) -> Iterator[list[Any]]:
        """Yield the records of some row groups; of all when none are named."""
        parquet = _open(path, stream)
        there = parquet.schema_arrow.names
        # Without columns there would be no telling how many rows there are.
        chosen = self._wanted(there) or there[:1]
        all_groups = range(parquet.metadata.num_row_groups) if groups is None else groups
        names = [parquet.metadata.schema.column(i).path for i in range(parquet.metadata.num_columns)]
        numbers = [i for i in all_groups if self._is_wanted(parquet.metadata.row_group(i), names)]
        batches = parquet.iter_batches(self._batch_size, row_groups=numbers, columns=chosen)
        while (batch := _next_batch(batches, path)) is not None:
            yield self._records(batch, path)


def _open(path: str, stream: BinaryIO) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(stream)
    except (pa.ArrowException, OSError) as e:
        raise _incomplete(path, e) from None


def _next_batch(batches: Iterator[Any], path: str) -> Any:
    import pyarrow as pa

    try:
        return next(batches, None)
    except (pa.ArrowException, OSError) as e:
        raise _incomplete(path, e) from None


def _incomplete(path: str, error: Exception) -> MillstreamError:
    return MillstreamError(
        f"FileSource: {path} is not a complete Parquet file ({error}); take it out of the directory."
    )


def cast_column(batch: Any, name: str, arrow: Any, path: str, wanted: str) -> list[Any]:
    """Return a column's values as those of a type of Arrow.

    Args:
        batch: what was read.
        name: the column's.
        arrow: the type of Arrow.
        path: the file's.
        wanted: the type as the user knows it.
    """
    import pyarrow as pa

    try:
        values: list[Any] = batch.column(name).cast(arrow).to_pylist()
    except pa.ArrowException as e:
        raise MillstreamError(
            f"FileSource: column {name!r} of {path} does not fit the type {wanted}: {e}. Correct the type."
        ) from None
    return values


class ParquetColumnarRowInputFormat(RowGroups, BulkFormat):
    """Reads rows from Parquet files, by the names of their columns; a row group is the least that is read at once.

    A column that a file does not have is None. In Flink columns must be of primitive types; here arrays, maps and rows
    are read too.

    Args:
        row_type: a row type of Types, or of DataTypes.
        hadoop_config: accepted, without effect.
        batch_size: how many rows are handed on at once.
        is_utc_timestamp: accepted; timestamps are read as they were written, without a time zone.
        is_case_sensitive: whether the case of names matters.

    Example:
        >>> from millstream.common import Types
        >>> row_type = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])
        >>> ParquetColumnarRowInputFormat(row_type).produced_type
        RowTypeInfo(id: Integer, name: String)
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

    def _wanted(self, there: list[str]) -> list[str]:
        return [name for name in self._columns(there) if name is not None]

    def _columns(self, there: list[str]) -> list[str | None]:
        """Return the name that each field has in a file, None where it has none."""
        by_name = {name if self._case_sensitive else name.lower(): name for name in there}
        names = self._row_type.get_field_names()
        return [by_name.get(name if self._case_sensitive else name.lower()) for name in names]

    def _records(self, batch: Any, path: str) -> list[Row]:
        names = tuple(self._row_type.get_field_names())
        types = self._row_type.get_field_types()
        columns = self._columns(batch.schema.names)
        values = []
        for name, field, arrow in zip(columns, types, arrow_schema(self._row_type), strict=True):
            if name is None:
                values.append([None] * batch.num_rows)
                continue
            found = cast_column(batch, name, arrow.type, path, str(field))
            convert = from_arrow(field)
            values.append(found if convert is None else [convert(v) for v in found])
        return Row.many(names, zip(*values, strict=True))


class ParquetBulkWriters:
    """Writes rows into Parquet files, for `FileSink.for_bulk_format`.

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
            hadoop_config: of its keys `parquet.compression` is read (snappy if not set).
            utc_timestamp: accepted; timestamps are written as they are, without a time zone.
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
