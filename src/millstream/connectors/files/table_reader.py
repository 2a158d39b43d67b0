"""Reads files as batches: lines of messages, partitions from the names of directories, metadata of files."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from millstream.formats.file_access import FileAccess, FoundFile
from millstream.formats.file_format import (
    BulkFormat,
    Extent,
    FileFormat,
    FileShare,
)
from millstream.formats.texts import parser
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.value_conversion import to_column
from millstream.sql.expressions import Expression
from millstream.sql.functions.context import EvaluationContext
from millstream.sql.functions.evaluate import condition
from millstream.sql.types import DataType, DataTypes

METADATA: Mapping[str, DataType] = {
    "file.path": DataTypes.STRING().not_null(),
    "file.name": DataTypes.STRING().not_null(),
    "file.size": DataTypes.BIGINT().not_null(),
    "file.modification-time": DataTypes.TIMESTAMP_LTZ(3).not_null(),
}


class PartitionedFiles:
    """Knows the values of partition columns from the path of a file: `base/day=2024-01-01/part-0`.

    Args:
        types: of the partition columns.
        default: the name of the directory of rows whose value is null.
        pattern: which paths are read; None for all.
        tests: conditions on partition columns, which are all of a batch's columns.
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
        """Tell whether a file is one that is wanted, and may have rows that are."""
        if self._pattern is not None and not self._pattern.fullmatch(path):
            return False
        if not self._tests:
            return True
        row = Batch([self.column(path, name, 1) for name in self._types], None, 1)
        return all(condition(test, EvaluationContext(self._zone))(row)[0] for test in self._tests)

    def value(self, path: str, column: str) -> Any:
        """Return the value that a partition column has in a file."""
        for part in path.split("/")[:-1]:
            name, is_partition, text = part.partition("=")
            if is_partition and unquote(name) == column:
                value = unquote(text)
                return None if value == self._default else parser(self._types[column], "SQL", "UTC")(value)
        return None

    def is_partition(self, column: str) -> bool:
        """Tell whether a column is one of the partition's."""
        return column in self._types

    def column(self, path: str, column: str, rows: int) -> pa.Array:
        """Return the column of a file's rows."""
        kind = self._types[column]
        return _repeated(to_column([self.value(path, column)], kind), rows)


def _repeated(one: pa.Array, rows: int) -> pa.Array:
    return pa.nulls(rows, one.type) if one[0].as_py() is None else pa.repeat(one[0], rows)


class TableFileReader(BulkFormat):
    """Reads files with another format, and adds what is not in them.

    Args:
        inner: gives batches.
        names: of the columns of those.
        columns: that are wanted: of the files, of partitions, of metadata.
        files: knows partitions.
    """

    def __init__(self, inner: FileFormat, names: list[str], columns: list[str], files: PartitionedFiles) -> None:
        self._inner = inner
        self._names = names
        self._columns = columns
        self._files = files

    def measure(self, access: FileAccess, file: FoundFile) -> Extent:
        return self._inner.measure(access, file) if self._files.is_read(file.path) else Extent(0, 1.0)

    def cut(self, access: FileAccess, path: str, start: int, wanted: int, end: int) -> int:
        return self._inner.cut(access, path, start, wanted, end)

    def read(self, access: FileAccess, share: FileShare) -> Iterator[Collection[Any]]:
        for batches in self._inner.read(access, share):
            yield [self._completed(batch, access, share) for batch in batches]

    def _completed(self, batch: Batch, access: FileAccess, share: FileShare) -> Batch:
        rows = len(batch)
        columns = [self._column(c, batch, access, share, rows) for c in self._columns]
        return Batch(columns, batch.kinds, rows)

    def _column(self, name: str, batch: Batch, access: FileAccess, share: FileShare, rows: int) -> pa.Array:
        if self._files.is_partition(name):
            return self._files.column(share.path, name, rows)
        if name in self._names:
            return batch.columns[self._names.index(name)]
        return _repeated(_metadata(name, access, share), rows)


def _metadata(key: str, access: FileAccess, share: FileShare) -> pa.Array:
    kind = arrow_type(METADATA[key])
    if key == "file.size":
        return pa.array([share.size], kind)
    if key == "file.modification-time":
        found = next(iter(access.find(share.path)))
        return pa.array([int(found.modified * 1000)], pa.int64()).cast(kind)
    return pa.array([os.path.basename(share.path) if key == "file.name" else share.path], kind)
