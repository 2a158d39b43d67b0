"""The formats `parquet` and `orc`: files of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa

from millstream.common.errors import MillstreamError
from millstream.common.serialization import BulkWriter
from millstream.datastream.connectors.file_access import FileAccess, FoundFile
from millstream.datastream.connectors.file_formats import BulkFormat, Extent, FileFormat, FileShare
from millstream.datastream.formats.parquet_files import RowGroups
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.batch import Batch
from millstream.sql.errors import ValidationException
from millstream.sql.schema import Field
from millstream.sql.types import TimeType
from millstream.table.formats.contract import FileTableFormat

BATCH_ROWS = 1 << 14


def _as_columns(batch: Any, fields: Sequence[Field], path: str) -> Batch:
    """Return what was read of a file as columns of the table's types; those that it has not are null."""
    names = batch.schema.names
    columns = []
    for field in fields:
        kind = arrow_type(field.type)
        if field.name not in names:
            columns.append(pa.nulls(batch.num_rows, kind))
            continue
        try:
            found = batch.column(names.index(field.name)).cast(kind, safe=False)
        except pa.ArrowException as e:
            raise MillstreamError(
                f"Column '{field.name}' of {path} does not fit the type {field.type}: {e}. Correct the declaration."
            ) from None
        columns.append(found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found)
    return Batch(columns, None, batch.num_rows)


class _ParquetFiles(RowGroups, BulkFormat):
    _batch_size = BATCH_ROWS

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = list(fields)

    def _wanted(self, there: list[str]) -> list[str]:
        return [f.name for f in self._fields if f.name in there]

    def _records(self, batch: Any, path: str) -> list[Any]:
        return [_as_columns(batch, self._fields, path)]


class _ArrowFileWriter:
    """Writes batches to a file of columns: a BulkWriter."""

    def __init__(self, file: Any, schema: pa.Schema) -> None:
        self._file = file
        self._schema = schema

    def add_element(self, value: Batch) -> None:
        self._file.write_batch(pa.RecordBatch.from_arrays(list(value.columns), schema=self._schema))

    def finish(self) -> None:
        self._file.close()


def _schema(fields: Sequence[Field]) -> pa.Schema:
    return pa.schema([pa.field(f.name, arrow_type(f.type)) for f in fields])


class ParquetFormat(FileTableFormat):
    """Parquet files, column by column."""

    identifier = "parquet"
    optional = frozenset(["compression", "utc-timezone", "*"])

    def reader(self, fields: Sequence[Field]) -> FileFormat:
        return _ParquetFiles(fields)

    def writer(self, file: BinaryIO, fields: Sequence[Field]) -> BulkWriter:
        from pyarrow.parquet import ParquetWriter

        compression = self.options.text("compression", "snappy").lower()
        schema = _schema(fields)
        return _ArrowFileWriter(ParquetWriter(file, schema, compression=compression), schema)


class _OrcFiles(BulkFormat):
    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = list(fields)

    def measure(self, access: FileAccess, file: FoundFile) -> Extent:
        with access.open(file.path) as stream:
            found = _orc(file.path, stream)
        stripes = max(found.nstripes, 1)
        return Extent(stripes, max(found.nrows / stripes, 1.0))

    def read(self, access: FileAccess, share: FileShare) -> Iterator[list[Any]]:
        with access.open(share.path) as stream:
            file = _orc(share.path, stream)
            names = [f.name for f in self._fields if f.name in file.schema.names]
            for stripe in range(share.start, min(share.end, file.nstripes)):
                found = file.read_stripe(stripe, names or file.schema.names[:1])
                for start in range(0, found.num_rows, BATCH_ROWS):
                    yield [_as_columns(found.slice(start, BATCH_ROWS), self._fields, share.path)]


def _orc(path: str, stream: BinaryIO) -> Any:
    from pyarrow.orc import ORCFile

    try:
        return ORCFile(stream)
    except (pa.ArrowException, OSError) as e:
        raise MillstreamError(f"{path} is not a complete ORC file ({e}); take it out of the directory.") from None


class _OrcWriter(_ArrowFileWriter):
    def add_element(self, value: Batch) -> None:
        self._file.write(pa.Table.from_arrays(list(value.columns), schema=self._schema))


class OrcFormat(FileTableFormat):
    """ORC files, column by column."""

    identifier = "orc"
    optional = frozenset(["*"])

    def check(self, fields: Sequence[Field]) -> None:
        for field in fields:
            if isinstance(field.type, TimeType):
                raise ValidationException(f"The format 'orc' does not support the type {field.type} of '{field.name}'.")

    def reader(self, fields: Sequence[Field]) -> FileFormat:
        return _OrcFiles(fields)

    def writer(self, file: BinaryIO, fields: Sequence[Field]) -> BulkWriter:
        from pyarrow.orc import ORCWriter

        return _OrcWriter(ORCWriter(file), _schema(fields))
