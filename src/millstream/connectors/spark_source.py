"""Any object with the methods of PySpark's DataSourceStreamReader (or its simple variant) as a source."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import TypeAlias

from millstream.common.aliases import UserCode, Value
from millstream.common.errors import InvalidProgramError
from millstream.connectors.base import BATCH, Source, SourceReader, SplitAssignment, SplitEnumerator
from millstream.spark.read_limit import max_rows

# A DataSourceStreamReader or SimpleDataSourceStreamReader, its offsets and its partitions: PySpark does not require
# its classes.
StreamReader: TypeAlias = UserCode
Offset: TypeAlias = Value
Partition: TypeAlias = Value

_READER_METHODS = ("initialOffset", "latestOffset", "partitions", "read")
_SIMPLE_METHODS = ("initialOffset", "read", "readBetweenOffsets")


def is_stream_reader(candidate: object) -> bool:
    """Return whether an object looks like a DataSourceStreamReader or a SimpleDataSourceStreamReader."""
    return any(all(hasattr(candidate, m) for m in methods) for methods in (_READER_METHODS, _SIMPLE_METHODS))


class _Enumerator(SplitEnumerator):
    """Assigns the partitions up to the reader's latest offset round robin."""

    def __init__(self, reader: StreamReader, parallelism: int, restored: Offset | None) -> None:
        self._reader = reader
        self._parallelism = parallelism
        self._offset = reader.initialOffset() if restored is None else restored
        # Older readers take no arguments and cannot be limited.
        self._takes_limit = len(inspect.signature(reader.latestOffset).parameters) >= 2

    def poll(self, budget: int, now: float) -> SplitAssignment:
        start, end = self._offset, self._latest(self._offset, budget)
        if end == start:
            return SplitAssignment({})
        ranges: dict[int, list[Partition]] = {}
        for i, partition in enumerate(self._reader.partitions(start, end)):
            ranges.setdefault(i % self._parallelism, []).append(partition)
        self._offset = end
        return SplitAssignment(ranges, limited=self._takes_limit and self._latest(end, budget) != end)

    def _latest(self, start: Offset, budget: int) -> Offset:
        if not self._takes_limit:
            return self._reader.latestOffset()
        return self._reader.latestOffset(start, max_rows(budget * self._parallelism))

    def is_finished(self) -> bool:
        return False

    def snapshot(self) -> Offset:
        return self._offset

    def committed(self, snapshot: Offset) -> None:
        if hasattr(self._reader, "commit"):
            self._reader.commit(snapshot)

    def close(self) -> None:
        if hasattr(self._reader, "stop"):
            self._reader.stop()


class _SimpleEnumerator(SplitEnumerator):
    """Finds the end of the input by reading it; the subtask reads the range again."""

    def __init__(self, reader: StreamReader, restored: Offset | None) -> None:
        self._reader = reader
        self._offset = reader.initialOffset() if restored is None else restored

    def poll(self, budget: int, now: float) -> SplitAssignment:
        start = self._offset
        records, end = self._reader.read(start)
        for _ in records:
            break
        if end == start:
            return SplitAssignment({})
        self._offset = end
        return SplitAssignment({0: [(start, end)]})

    def is_finished(self) -> bool:
        return False

    def snapshot(self) -> Offset:
        return self._offset

    def committed(self, snapshot: Offset) -> None:
        if hasattr(self._reader, "commit"):
            self._reader.commit(snapshot)


class _PartitionReader(SourceReader):
    def __init__(self, reader: StreamReader) -> None:
        self._reader = reader

    def read(self, split_range: Partition) -> Iterator[Collection[Value]]:
        return _batches(self._reader.read(split_range))


class _RangeReader(SourceReader):
    def __init__(self, reader: StreamReader) -> None:
        self._reader = reader

    def read(self, split_range: tuple[Offset, Offset]) -> Iterator[Collection[Value]]:
        return _batches(self._reader.readBetweenOffsets(*split_range))


def _batches(records: Iterable[Value]) -> Iterator[list[Value]]:
    rows = iter(_rows(records))
    while batch := list(islice(rows, BATCH)):
        yield batch


def _rows(records: Iterable[Value]) -> Iterator[Value]:
    for record in records:
        # An Arrow record batch has many rows.
        if hasattr(record, "to_pylist"):
            yield from (tuple(row.values()) for row in record.to_pylist())
        else:
            yield record


class SparkStreamSource(Source):
    """Reads a PySpark stream reader; an epoch reads what Spark would read in a micro-batch."""

    def __init__(self, reader: StreamReader) -> None:
        self._reader = reader
        self._simple = not hasattr(reader, "partitions")
        self.name = type(reader).__name__

    @property
    def is_simple(self) -> bool:
        """Whether only one subtask can read it."""
        return self._simple

    @property
    def is_bounded(self) -> bool:
        return False

    def create_enumerator(self, parallelism: int, restored: Offset | None = None) -> SplitEnumerator:
        if self._simple:
            return _SimpleEnumerator(self._reader, restored)
        return _Enumerator(self._reader, parallelism, restored)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _RangeReader(self._reader) if self._simple else _PartitionReader(self._reader)


def as_source(candidate: Source | StreamReader, caller: str) -> Source:
    """Return the source for a Source or a stream reader; `caller` is the method for the error."""
    if isinstance(candidate, Source):
        return candidate
    if not is_stream_reader(candidate):
        raise InvalidProgramError(
            f"{caller} takes a Source or an object with the methods of PySpark's DataSourceStreamReader, "
            f"not {type(candidate).__name__}."
        )
    return SparkStreamSource(candidate)
