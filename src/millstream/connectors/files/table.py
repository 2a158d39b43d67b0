"""The connector `filesystem`: tables in files, partitioned by directories."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from millstream.common.time import Duration
from millstream.connectors.base import Source
from millstream.connectors.files.partition_commit import PARTITION_COMMIT_OPTIONS, partition_commits
from millstream.connectors.files.source import FileSource
from millstream.connectors.files.table_reader import METADATA, PartitionedFiles, TableFileReader
from millstream.connectors.files.table_writer import table_file_sink
from millstream.formats.base import FileTableFormat, MessageFormat, TableFormat
from millstream.formats.file_access import FileAccess
from millstream.formats.options import Options
from millstream.formats.predicates import comparisons_of
from millstream.formats.registry import format_options, made_format, without_other_formats
from millstream.operators.sink import Sink
from millstream.sql.columns.batch import Batch
from millstream.sql.connectors import Connector, TableContext, TableSink, TableSource, TableStatistics
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Expression, columns_of
from millstream.sql.optimizer.rewrite import moved
from millstream.sql.schema import INSERTS, Field
from millstream.sql.types import DataType, DataTypes

# Statistics are in the footer of each file; of tables with more files they cost too much.
_MAX_FOOTERS = 64
_DEFAULT_PARTITION = "__DEFAULT_PARTITION__"


class _Table:
    """What source and sink share."""

    def __init__(self, context: TableContext) -> None:
        self.options = Options(context.table.options)
        path = self.options.text("path", "")
        self.path = path.removeprefix("file://") if path.startswith("file:///") else path.removeprefix("file:")
        identifier = self.options.text("format", "")
        if not identifier:
            raise ValidationException(
                "Could not find required scan format 'format': say which one with 'format' = '...'."
            )
        zone = context.settings.get("table.local-time-zone", "default")
        self.format: TableFormat = made_format(identifier, context.table.options, "UTC" if zone == "default" else zone)
        self.fields = [Field(c.name, c.type) for c in context.table.physical]
        self.partition = context.table.partition
        self.format.check(self.stored)
        self.batch = context.batch
        self.pattern = self.options.text("source.path.regex-pattern", "") or None
        self.default_partition = self.options.text("partition.default-name", _DEFAULT_PARTITION)

    @property
    def stored(self) -> list[Field]:
        """The columns that are in the files, and not in the names of directories."""
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
        wanted = self._table.options.whole_or_none("scan.parallelism")
        if self.changes == INSERTS:
            return wanted
        if wanted not in (None, 1):
            raise ValidationException(
                f"'scan.parallelism' = '{wanted}' cannot be set for files of {self._table.format.identifier}: their "
                "rows change each other, so that one subtask reads them in order. Remove the option."
            )
        return 1

    def source(
        self, columns: Sequence[str], filters: Sequence[Expression] = (), limit: int | None = None
    ) -> Source[Any]:
        table = self._table
        # Messages are in the order of all columns; files of columns are asked for some.
        wanted = table.stored if isinstance(table.format, MessageFormat) else _chosen(table.stored, columns)
        if isinstance(table.format, FileTableFormat):
            inner = table.format.reader(wanted, comparisons_of(filters, columns))
        else:
            assert isinstance(table.format, MessageFormat)
            inner = table.format.file_reader(wanted)
        reader = TableFileReader(inner, [f.name for f in wanted], list(columns), self._files(columns, filters))
        builder = FileSource.for_bulk_file_format(reader, table.path)
        if not self.is_bounded:
            builder = builder.monitor_continuously(
                Duration.of_millis(table.options.duration("source.monitor-interval", 0))
            )
        return builder.build()

    def statistics(self, columns: Sequence[str]) -> TableStatistics | None:
        table = self._table
        is_elsewhere = "://" in table.path or table.partition or table.pattern
        if is_elsewhere or not isinstance(table.format, FileTableFormat) or not os.path.exists(table.path):
            return None
        found = [file.path for file in islice(FileAccess({}).find(table.path), _MAX_FOOTERS + 1)]
        return table.format.statistics(found, columns) if len(found) <= _MAX_FOOTERS else None

    def _files(self, columns: Sequence[str], filters: Sequence[Expression]) -> PartitionedFiles:
        """Return what knows partitions, and which files need not be read."""
        table = self._table
        types = {f.name: f.type for f in table.fields if f.name in table.partition}
        places = {i: list(types).index(c) for i, c in enumerate(columns) if c in types}
        tests = [moved(f, places) for f in filters if columns_of(f) <= places.keys()]
        return PartitionedFiles(types, table.default_partition, table.pattern, tests, table.format.zone)


def _chosen(fields: Sequence[Field], columns: Sequence[str]) -> list[Field]:
    chosen = [f for f in fields if f.name in columns]
    # Without a column nobody knows how many rows there are.
    return chosen or list(fields[:1])


class _Sink(TableSink):
    def __init__(self, context: TableContext, overwrites: bool = False) -> None:
        self._context = context
        self._table = _Table(context)
        self._overwrites = overwrites
        self._table.format.check_written()
        self._commits = partition_commits(self._table.options, self._table.partition, context.batch)
        self.changes = INSERTS if self._table.format.written == INSERTS else self._table.format.written

    def parallelism(self) -> int | None:
        return self._table.options.whole_or_none("sink.parallelism")

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

    def options(self, given: Mapping[str, str]) -> frozenset[str]:
        return without_other_formats(super().options(given), format_options(), [(given.get("format"), "")])

    def table_source(self, context: TableContext) -> TableSource:
        return _Source(context)

    def table_sink(self, context: TableContext) -> TableSink:
        return _Sink(context)


__all__ = ["DataTypes", "FileSystemConnector"]
