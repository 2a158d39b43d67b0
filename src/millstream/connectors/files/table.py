"""The connector `filesystem`: tables in files, partitioned by directories."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from urllib.parse import unquote

import pyarrow as pa

from millstream.checkpoint.storage import storage_options
from millstream.common.aliases import Value
from millstream.common.configuration import Configuration
from millstream.common.errors import MillstreamError
from millstream.common.time import Duration
from millstream.connectors.base import Source
from millstream.connectors.files.partition_commit import PARTITION_COMMIT_OPTIONS, partition_commits
from millstream.connectors.files.source import FileSource
from millstream.connectors.files.table_writer import table_file_sink
from millstream.formats.base import (
    FileTableFormat,
    MessageFormat,
    TableFormat,
    comparisons_of,
    create_format,
    format_options,
    without_other_formats,
)
from millstream.formats.column_text import parser
from millstream.formats.file_access import FileAccess, FileStatus
from millstream.formats.file_format import (
    BulkFormat,
    Extent,
    FileFormat,
    FileSplitRange,
)
from millstream.formats.options import Options
from millstream.operators.sink import Sink
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.value_conversion import to_column
from millstream.sql.connector_contract import Connector, TableContext, TableSink, TableSource, TableStatistics
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Expression, columns_of
from millstream.sql.functions.evaluate import condition
from millstream.sql.functions.function import EvaluationContext
from millstream.sql.optimizer.rewrite import moved
from millstream.sql.schema import INSERTS, Field
from millstream.sql.types import DataType, DataTypes

__all__ = ["DataTypes", "FileSystemConnector"]

METADATA: Mapping[str, DataType] = {
    "file.path": DataTypes.STRING().not_null(),
    "file.name": DataTypes.STRING().not_null(),
    "file.size": DataTypes.BIGINT().not_null(),
    "file.modification-time": DataTypes.TIMESTAMP_LTZ(3).not_null(),
}


class PartitionedFiles:
    """The values of partition columns, from the paths of files: `base/day=2024-01-01/part-0`.

    Args:
        types: the types of the partition columns.
        default: the directory name of null.
        pattern: the pattern of paths to read; None for all.
        tests: predicates on the partition columns, which are all columns of their batch.
        zone: the session's time zone.
    """

    def __init__(
        self,
        types: Mapping[str, DataType],
        default: str,
        pattern: str | None = None,
        tests: Sequence[Expression] = (),
        zone: str = "UTC",
    ) -> None:
        self._types = dict(types)
        self._default = default
        self._pattern = None if pattern is None else re.compile(pattern)
        self._tests = list(tests)
        self._zone = zone

    def is_read(self, path: str) -> bool:
        """Return whether a file matches the pattern and the predicates."""
        if self._pattern is not None and not self._pattern.fullmatch(path):
            return False
        if not self._tests:
            return True
        row = Batch([self.column(path, name, 1) for name in self._types], None, 1)
        return all(condition(test, EvaluationContext(self._zone))(row)[0] for test in self._tests)

    def value(self, path: str, column: str) -> Value:
        """Return the value of a partition column in a file."""
        for part in path.split("/")[:-1]:
            name, is_partition, text = part.partition("=")
            if is_partition and unquote(name) == column:
                value = unquote(text)
                try:
                    return None if value == self._default else parser(self._types[column], "SQL")(value)
                except ValueError as e:
                    raise MillstreamError(
                        f"FileSource: {path}: {value!r} of the partition column '{column}' is not of type "
                        f"{self._types[column]} ({e}); rename the directory, or declare the column as STRING."
                    ) from None
        return None

    def is_partition(self, column: str) -> bool:
        """Return whether a column is a partition column."""
        return column in self._types

    def column(self, path: str, column: str, rows: int) -> pa.Array:
        """Return a partition column for the rows of a file."""
        kind = self._types[column]
        return _repeated(to_column([self.value(path, column)], kind), rows)


def _repeated(value: pa.Array, rows: int) -> pa.Array:
    return pa.nulls(rows, value.type) if value[0].as_py() is None else pa.repeat(value[0], rows)


class TableFileReader(BulkFormat):
    """Reads files with another format, and adds partition columns and metadata.

    Args:
        inner: reads batches.
        names: the names of their columns.
        columns: the projected columns: of the files, of partitions, or metadata.
        files: the partitions.
    """

    def __init__(self, inner: FileFormat, names: list[str], columns: list[str], files: PartitionedFiles) -> None:
        self._inner = inner
        self._names = names
        self._columns = columns
        self._files = files

    def measure(self, access: FileAccess, file: FileStatus) -> Extent:
        return self._inner.measure(access, file) if self._files.is_read(file.path) else Extent(0, 1.0)

    def range_end(self, access: FileAccess, path: str, start: int, target: int, end: int) -> int:
        return self._inner.range_end(access, path, start, target, end)

    def read(self, access: FileAccess, split_range: FileSplitRange) -> Iterator[Collection[Batch]]:
        for batches in self._inner.read(access, split_range):
            yield [self._completed(batch, access, split_range) for batch in batches]

    def _completed(self, batch: Batch, access: FileAccess, split_range: FileSplitRange) -> Batch:
        rows = len(batch)
        columns = [self._column(c, batch, access, split_range, rows) for c in self._columns]
        return Batch(columns, batch.kinds, rows)

    def _column(self, name: str, batch: Batch, access: FileAccess, split_range: FileSplitRange, rows: int) -> pa.Array:
        if self._files.is_partition(name):
            return self._files.column(split_range.path, name, rows)
        if name in self._names:
            return batch.columns[self._names.index(name)]
        return _repeated(_metadata(name, access, split_range), rows)


def _metadata(key: str, access: FileAccess, split_range: FileSplitRange) -> pa.Array:
    kind = arrow_type(METADATA[key])
    if key == "file.size":
        return pa.array([split_range.size], kind)
    if key == "file.modification-time":
        file = next(iter(access.find(split_range.path)))
        return pa.array([int(file.modified * 1000)], pa.int64()).cast(kind)
    return pa.array([os.path.basename(split_range.path) if key == "file.name" else split_range.path], kind)


# Statistics are in the footer of each file; for more files, reading them takes too long.
_MAX_FOOTERS = 64
_DEFAULT_PARTITION = "__DEFAULT_PARTITION__"


class _Table:
    """The options that sources and sinks have in common."""

    def __init__(self, context: TableContext) -> None:
        self.options = Options(context.table.options)
        path = self.options.text("path", "")
        self.path = path.removeprefix("file://") if path.startswith("file:///") else path.removeprefix("file:")
        identifier = self.options.text("format", "")
        if not identifier:
            raise ValidationException("Could not find required scan format 'format': set it with 'format' = '...'.")
        zone = context.settings.get("table.local-time-zone", "default")
        self.format: TableFormat = create_format(
            identifier, context.table.options, "UTC" if zone == "default" else zone
        )
        self.fields = [Field(c.name, c.type) for c in context.table.physical]
        self.partition = context.table.partition
        self.format.check(self.stored)
        self.batch = context.batch
        self.storage_options = storage_options(Configuration.from_dict(dict(context.settings)))
        self.pattern = self.options.text("source.path.regex-pattern", "") or None
        self.default_partition = self.options.text("partition.default-name", _DEFAULT_PARTITION)

    @property
    def stored(self) -> list[Field]:
        """The columns in the files: all but the partition columns."""
        return [f for f in self.fields if f.name not in self.partition]


class _Source(TableSource):
    def __init__(self, context: TableContext) -> None:
        self._table = _Table(context)
        self.changes = self._table.format.changes

    def metadata(self) -> Mapping[str, DataType]:
        return METADATA

    @property
    def is_bounded(self) -> bool:
        return "source.monitor-interval" not in self._table.options

    def parallelism(self) -> int | None:
        parallelism = self._table.options.integer_or_none("scan.parallelism")
        if self.changes == INSERTS:
            return parallelism
        if parallelism not in (None, 1):
            raise ValidationException(
                f"'scan.parallelism' = '{parallelism}' is not supported for files of {self._table.format.identifier}: "
                "one subtask must read their changes in order. Remove the option."
            )
        return 1

    def source(
        self, columns: Sequence[str], filters: Sequence[Expression] = (), limit: int | None = None
    ) -> Source[Batch]:
        table = self._table
        # Messages contain all columns in order; columnar files are read partially.
        fields = table.stored if isinstance(table.format, MessageFormat) else _projected(table.stored, columns)
        if isinstance(table.format, FileTableFormat):
            inner = table.format.reader(fields, comparisons_of(filters, columns))
        else:
            assert isinstance(table.format, MessageFormat)
            inner = table.format.file_reader(fields)
        reader = TableFileReader(inner, [f.name for f in fields], list(columns), self._files(columns, filters))
        builder = FileSource.for_bulk_file_format(reader, table.path)
        if not self.is_bounded:
            builder = builder.monitor_continuously(
                Duration.of_millis(table.options.duration("source.monitor-interval", 0))
            )
        return builder.build().with_storage_options(table.storage_options)

    def statistics(self, columns: Sequence[str]) -> TableStatistics | None:
        table = self._table
        is_unsupported = "://" in table.path or table.partition or table.pattern
        if is_unsupported or not isinstance(table.format, FileTableFormat) or not os.path.exists(table.path):
            return None
        paths = [file.path for file in islice(FileAccess({}).find(table.path), _MAX_FOOTERS + 1)]
        return table.format.statistics(paths, columns) if len(paths) <= _MAX_FOOTERS else None

    def _files(self, columns: Sequence[str], filters: Sequence[Expression]) -> PartitionedFiles:
        """Return the partitions, with the predicates that skip files."""
        table = self._table
        types = {f.name: f.type for f in table.fields if f.name in table.partition}
        positions = {i: list(types).index(c) for i, c in enumerate(columns) if c in types}
        tests = [moved(f, positions) for f in filters if columns_of(f) <= positions.keys()]
        return PartitionedFiles(types, table.default_partition, table.pattern, tests, table.format.zone)


def _projected(fields: Sequence[Field], columns: Sequence[str]) -> list[Field]:
    projected = [f for f in fields if f.name in columns]
    # At least one column is needed to count rows.
    return projected or list(fields[:1])


class _Sink(TableSink):
    def __init__(self, context: TableContext, overwrites: bool = False) -> None:
        self._context = context
        self._table = _Table(context)
        self._overwrites = overwrites
        self._table.format.check_written()
        self._commits = partition_commits(self._table.options, self._table.partition, context.batch)
        self.changes = INSERTS if self._table.format.written == INSERTS else self._table.format.written

    def parallelism(self) -> int | None:
        return self._table.options.integer_or_none("sink.parallelism")

    def sink(self, columns: Sequence[str]) -> Sink[Batch]:
        table = self._table
        by_name = {f.name: f for f in table.fields}
        return table_file_sink(
            os.path.abspath(table.path) if "://" not in table.path else table.path,
            table.format,
            [by_name[c] for c in columns],
            table.partition,
            table.default_partition,
            table.options,
            self._overwrites,
            self._commits,
        )

    def distribution(self) -> Sequence[str]:
        return self._table.partition if self._table.options.flag("sink.shuffle-by-partition.enable", False) else ()

    def overwriting(self) -> TableSink:
        if not self._table.batch:
            raise ValidationException("Streaming mode not support overwrite.")
        return _Sink(self._context, True)


class FileSystemConnector(Connector):
    """Reads and writes files of a directory."""

    identifier = "filesystem"
    required = frozenset(["path"])
    optional = frozenset(
        [
            "format",
            "partition.default-name",
            "source.monitor-interval",
            "source.path.regex-pattern",
            "sink.parallelism",
            "sink.rolling-policy.file-size",
            "sink.rolling-policy.rollover-interval",
            "sink.rolling-policy.inactivity-interval",
            "sink.rolling-policy.check-interval",
            "auto-compaction",
            "compaction.file-size",
            "sink.shuffle-by-partition.enable",
            "scan.parallelism",
            *PARTITION_COMMIT_OPTIONS,
            *format_options(),
        ]
    )

    def options(self, table_options: Mapping[str, str]) -> frozenset[str]:
        formats = [(table_options.get("format"), "")]
        return without_other_formats(super().options(table_options), format_options(), formats)

    def table_source(self, context: TableContext) -> TableSource:
        return _Source(context)

    def table_sink(self, context: TableContext) -> TableSink:
        return _Sink(context)
