"""Avro's records in Parquet files: AvroParquetReaders for FileSource, AvroParquetWriters for FileSink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from millstream.common.errors import MillstreamError, TypeMismatchError
from millstream.common.serialization import BulkWriter, BulkWriterFactory
from millstream.formats.arrow_files import ArrowWriter
from millstream.formats.avro.schema import AvroSchema, check_record_schema
from millstream.formats.avro.type_info import GenericRecordAvroTypeInfo
from millstream.formats.avro.values import AvroMisfit, described, fitter
from millstream.formats.file_format import FilePart, StreamFormat
from millstream.formats.parquet.avro_arrow import IN_ARROW, AvroArrow
from millstream.formats.parquet.files import RowGroups, cast_column

__all__ = ["AvroParquetReaders", "AvroParquetWriters"]

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
