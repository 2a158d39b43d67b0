"""Arrow batches of tables: casts to the declared types and schemas for writers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from millstream.common.errors import MillstreamError
from millstream.common.serialization import BulkWriter
from millstream.formats.base import ColumnStatistics, Comparison, FileTableFormat, may_match
from millstream.formats.file_format import BulkFormat, FileFormat
from millstream.formats.options import Options
from millstream.formats.parquet.files import RowGroups
from millstream.sql import types as t
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.batch import Batch
from millstream.sql.connector_contract import TableStatistics
from millstream.sql.errors import ValidationException
from millstream.sql.schema import Field

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetWriter, RowGroupMetaData

# Rows per batch of the columnar file formats.
BATCH_ROWS = 1 << 14


def as_columns(batch: pa.RecordBatch | pa.Table, fields: Sequence[Field], path: str) -> Batch:
    """Return a batch of a file as columns of the table's types; missing columns are null."""
    names = batch.schema.names
    columns = []
    for field in fields:
        kind = arrow_type(field.type)
        if field.name not in names:
            columns.append(pa.nulls(batch.num_rows, kind))
            continue
        column = batch.column(names.index(field.name))
        # Digits of timestamps after the declared ones are dropped; other values must fit.
        is_time = pa.types.is_temporal(column.type) or not isinstance(field.type, t.AtomicType)
        try:
            column = column.cast(kind, safe=not is_time)
        except pa.ArrowException as e:
            raise MillstreamError(
                f"Column '{field.name}' of {path} does not fit the type {field.type}: {e}. Correct the declaration."
            ) from None
        columns.append(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
    return Batch(columns, None, batch.num_rows)


def table_schema(fields: Sequence[Field]) -> pa.Schema:
    return pa.schema([pa.field(f.name, arrow_type(f.type)) for f in fields])


class _ParquetFiles(RowGroups, BulkFormat):
    """Reads Parquet files; row groups whose statistics exclude that a row passes the tests are skipped."""

    def __init__(self, fields: Sequence[Field], tests: Sequence[Comparison], batch_rows: int) -> None:
        self._fields = list(fields)
        self._tests = list(tests)
        self._batch_size = batch_rows

    def _may_match(self, group: RowGroupMetaData, names: list[str]) -> bool:
        return all(
            t.name not in names or may_match(t, group.column(names.index(t.name)).statistics) for t in self._tests
        )

    def _columns_to_read(self, names_in_file: list[str]) -> list[str]:
        return [f.name for f in self._fields if f.name in names_in_file]

    def _records(self, batch: pa.RecordBatch, path: str) -> list[Batch]:
        return [as_columns(batch, self._fields, path)]


class _ParquetWriter:
    """A BulkWriter of batches to a Parquet file, in row groups of a minimum size."""

    def __init__(self, file: ParquetWriter, schema: pa.Schema, group_bytes: int) -> None:
        self._file = file
        self._schema = schema
        self._group_bytes = group_bytes
        self._pending: list[pa.RecordBatch] = []
        self._bytes = 0

    def add_element(self, value: Batch) -> None:
        self._pending.append(pa.RecordBatch.from_arrays(list(value.columns), schema=self._schema))
        self._bytes += self._pending[-1].nbytes
        if self._bytes >= self._group_bytes:
            self._write()

    def _write(self) -> None:
        if self._pending:
            whole = pa.Table.from_batches(self._pending)
            self._file.write_table(whole, row_group_size=whole.num_rows)
        self._pending, self._bytes = [], 0

    def finish(self) -> None:
        self._write()
        self._file.close()


_UNITS = {"millis": "ms", "micros": "us", "nanos": None}
_VERSIONS = {"PARQUET_1_0": "1.0", "PARQUET_2_0": "2.0"}
_PARQUET_CODECS = {
    "UNCOMPRESSED": "NONE",
    "SNAPPY": "SNAPPY",
    "GZIP": "GZIP",
    "BROTLI": "BROTLI",
    "LZ4": "LZ4",
    "ZSTD": "ZSTD",
}


class ParquetFormat(FileTableFormat):
    """Parquet files."""

    identifier = "parquet"
    optional = frozenset(
        [
            "batch-size",
            "block.size",
            "compression",
            "dictionary.page.size",
            "enable.dictionary",
            "page.size",
            "timestamp.time.unit",
            "utc-timezone",
            "write.int64.timestamp",
            "writer.version",
        ]
    )

    def __init__(self, options: Options, zone: str) -> None:
        super().__init__(options, zone)
        if not options.flag("utc-timezone", True):
            raise ValidationException(
                "'parquet.utc-timezone' = 'false': timestamps without a zone are written and read unchanged; "
                "remove the option or set it to 'true'."
            )
        self._rows = options.integer("batch-size", BATCH_ROWS)
        self._group_bytes = options.bytes("block.size", 128 << 20)
        self._writing = {
            "compression": options.one_of("compression", "SNAPPY", _PARQUET_CODECS),
            "coerce_timestamps": options.one_of("timestamp.time.unit", "nanos", _UNITS),
            "allow_truncated_timestamps": True,
            "use_dictionary": options.flag("enable.dictionary", True),
            "dictionary_pagesize_limit": options.bytes("dictionary.page.size", 1 << 20),
            "data_page_size": options.bytes("page.size", 1 << 20),
            "data_page_version": options.one_of("writer.version", "PARQUET_1_0", _VERSIONS),
            "use_deprecated_int96_timestamps": not options.flag("write.int64.timestamp", True),
        }
        if self._writing["use_deprecated_int96_timestamps"]:
            self._writing["coerce_timestamps"] = None

    def reader(self, fields: Sequence[Field], filters: Sequence[Comparison] = ()) -> FileFormat:
        return _ParquetFiles(fields, filters, self._rows)

    def writer(self, file: BinaryIO, fields: Sequence[Field]) -> BulkWriter:
        from pyarrow.parquet import ParquetWriter

        schema = table_schema(fields)
        return _ParquetWriter(ParquetWriter(file, schema, **self._writing), schema, self._group_bytes)

    def statistics(self, paths: Sequence[str], columns: Sequence[str]) -> TableStatistics | None:
        from pyarrow.parquet import read_metadata

        rows = 0
        ranges: dict[str, tuple[int, int]] = {}
        unknown: set[str] = set()
        for path in paths:
            try:
                footer = read_metadata(path)
            except (OSError, pa.ArrowException):
                # The job reports the error of the file.
                return None
            rows += footer.num_rows
            indices = {name: index for index, name in enumerate(footer.schema.names) if name in columns}
            for group in range(footer.num_row_groups):
                for name, index in indices.items():
                    value_range = _range(footer.row_group(group).column(index).statistics)
                    if value_range is None:
                        unknown.add(name)
                    else:
                        low, high = ranges.get(name, value_range)
                        ranges[name] = min(low, value_range[0]), max(high, value_range[1])
        distinct = {name: high - low + 1 for name, (low, high) in ranges.items() if name not in unknown}
        return TableStatistics(rows, distinct)


def _range(statistics: ColumnStatistics | None) -> tuple[int, int] | None:
    """Return the minimum and maximum of a column chunk of integers."""
    if statistics is None or not statistics.has_min_max:
        return None
    low, high = statistics.min, statistics.max
    is_int = isinstance(low, int) and isinstance(high, int)
    return (low, high) if is_int and not isinstance(low, bool) else None
