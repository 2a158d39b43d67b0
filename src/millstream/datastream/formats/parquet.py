"""Parquet: rows from files for FileSource, rows into files for FileSink."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError, MillstreamError, TypeMismatchError
from millstream.common.missing import missing_class
from millstream.common.serialization import BulkWriter, BulkWriterFactory
from millstream.common.typeinfo import RowTypeInfo, TypeInformation
from millstream.common.types import Row
from millstream.datastream.connectors.file_access import FileAccess, FoundFile
from millstream.datastream.connectors.file_formats import BulkFormat, Extent, FileShare
from millstream.datastream.formats.arrow_types import arrow_schema, from_arrow, to_arrow
from millstream.datastream.formats.avro import AVRO
from millstream.datastream.formats.text_values import check_row_type

__all__ = ["AvroParquetReaders", "AvroParquetWriters", "ParquetBulkWriters", "ParquetColumnarRowInputFormat"]


class ParquetColumnarRowInputFormat(BulkFormat):
    """Reads rows from Parquet files, by the names of their columns; a row group is the least that is read at once.

    A column that a file does not have is None. In Flink columns must be of primitive types; here arrays, maps and rows
    are read too.

    Args:
        row_type: a row type of Types; DataTypes do not exist here yet.
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

    def measure(self, access: FileAccess, file: FoundFile) -> Extent:
        with access.open(file.path) as stream:
            about = _open(file.path, stream).metadata
        groups = about.num_row_groups
        return Extent(groups, about.num_rows / groups if about.num_rows else 1.0)

    def read(self, access: FileAccess, share: FileShare) -> Iterator[list[Row]]:
        with access.open(share.path) as stream:
            parquet = _open(share.path, stream)
            columns = self._columns(parquet.schema_arrow.names)
            wanted = [name for name in columns if name is not None]
            groups = list(range(share.start, share.end))
            # Without columns there would be no telling how many rows there are.
            chosen = wanted or parquet.schema_arrow.names[:1]
            for batch in parquet.iter_batches(self._batch_size, row_groups=groups, columns=chosen):
                yield self._rows(batch, columns, share.path)

    def _columns(self, there: list[str]) -> list[str | None]:
        """Return the name that each field has in a file, None where it has none."""
        by_name = {name if self._case_sensitive else name.lower(): name for name in there}
        names = self._row_type.get_field_names()
        return [by_name.get(name if self._case_sensitive else name.lower()) for name in names]

    def _rows(self, batch: Any, columns: list[str | None], path: str) -> list[Row]:
        import pyarrow as pa

        names = tuple(self._row_type.get_field_names())
        types = self._row_type.get_field_types()
        values = []
        for name, field, arrow in zip(columns, types, arrow_schema(self._row_type), strict=True):
            if name is None:
                values.append([None] * batch.num_rows)
                continue
            try:
                found = batch.column(name).cast(arrow.type).to_pylist()
            except pa.ArrowException as e:
                raise MillstreamError(
                    f"FileSource: column {name!r} of {path} does not fit the type {field}: {e}. Correct the row type."
                ) from None
            convert = from_arrow(field)
            values.append(found if convert is None else [convert(v) for v in found])
        make = Row.of
        return [make(names, list(row)) for row in zip(*values, strict=True)]


def _open(path: str, stream: BinaryIO) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(stream)
    except (pa.ArrowInvalid, OSError) as e:
        raise MillstreamError(
            f"FileSource: {path} is not a complete Parquet file ({e}); take it out of the directory."
        ) from None


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
    ) -> BulkWriterFactory:
        """Return the factory of writers.

        Args:
            row_type: a row type of Types; DataTypes do not exist here yet.
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
class _ParquetWriterFactory(BulkWriterFactory):
    row_type: RowTypeInfo
    compression: str

    def open(self, file: BinaryIO) -> BulkWriter:
        return _ParquetWriter(self.row_type, self.compression, file)


class _ParquetWriter:
    # The rows of a row group.
    _ROWS = 1 << 16

    def __init__(self, row_type: RowTypeInfo, compression: str, file: BinaryIO) -> None:
        import pyarrow.parquet as pq

        self._schema = arrow_schema(row_type)
        self._to_arrow = [to_arrow(field) for field in row_type.get_field_types()]
        convert = row_type.converter()
        assert convert is not None
        self._fit = convert
        self._writer = pq.ParquetWriter(file, self._schema, compression=compression)
        self._rows: list[Any] = []

    def add_element(self, value: Any) -> None:
        row = self._fit(value)
        if row is None:
            raise TypeMismatchError("Parquet: there is no row to write, but None.")
        self._rows.append(row)
        if len(self._rows) >= self._ROWS:
            self._write()

    def finish(self) -> None:
        if self._rows:
            self._write()
        self._writer.close()

    def _write(self) -> None:
        import pyarrow as pa

        arrays = []
        columns = zip(self._schema, self._to_arrow, zip(*self._rows, strict=True), strict=True)
        for field, convert, values in columns:
            arrays.append(pa.array(values if convert is None else list(map(convert, values)), field.type))
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._rows = []


AvroParquetReaders = missing_class(
    __name__, "AvroParquetReaders", f"{AVRO}; rows of Parquet files are read with ParquetColumnarRowInputFormat"
)
AvroParquetWriters = missing_class(
    __name__, "AvroParquetWriters", f"{AVRO}; rows are written to Parquet files with ParquetBulkWriters.for_row_type()"
)
