"""Any object with the methods of PySpark's DataSourceStreamReader (or its simple variant) as a source."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any

from millstream.common.errors import InvalidProgramError
from millstream.connectors.base import BATCH, Source, SourceReader, SplitAssignment, SplitEnumerator
from millstream.spark.read_limit import max_rows

_READER_METHODS = ("initialOffset", "latestOffset", "partitions", "read")
_SIMPLE_METHODS = ("initialOffset", "read", "readBetweenOffsets")


def is_stream_reader(candidate: Any) -> bool:
    """Tell whether an object looks like a DataSourceStreamReader or a SimpleDataSourceStreamReader."""
    return any(all(hasattr(candidate, m) for m in methods) for methods in (_READER_METHODS, _SIMPLE_METHODS))


class _Enumerator(SplitEnumerator):
    """Asks the reader how far its data goes, and deals the partitions out in turn."""

    def __init__(self, reader: Any, parallelism: int, restored: Any) -> None:
        self._reader = reader
        self._parallelism = parallelism
        self._at = reader.initialOffset() if restored is None else restored
        # Older readers take no arguments and cannot be limited.
        self._takes_limit = len(inspect.signature(reader.latestOffset).parameters) >= 2

    def poll(self, budget: int, now: float) -> SplitAssignment:
        start, end = self._at, self._latest(self._at, budget)
        if end == start:
            return SplitAssignment({})
        shares: dict[int, list[Any]] = {}
        for i, partition in enumerate(self._reader.partitions(start, end)):
            shares.setdefault(i % self._parallelism, []).append(partition)
        self._at = end
        return SplitAssignment(shares, limited=self._takes_limit and self._latest(end, budget) != end)

    def _latest(self, start: Any, budget: int) -> Any:
        if not self._takes_limit:
            return self._reader.latestOffset()
        return self._reader.latestOffset(start, max_rows(budget * self._parallelism))

    def is_finished(self) -> bool:
        return False

    def snapshot(self) -> Any:
        return self._at

    def committed(self, snapshot: Any) -> None:
        if hasattr(self._reader, "commit"):
            self._reader.commit(snapshot)

    def close(self) -> None:
        if hasattr(self._reader, "stop"):
            self._reader.stop()


class _SimpleEnumerator(SplitEnumerator):
    """A simple reader finds its end by reading; the range is then read again where it is processed."""

    def __init__(self, reader: Any, restored: Any) -> None:
        self._reader = reader
        self._at = reader.initialOffset() if restored is None else restored

    def poll(self, budget: int, now: float) -> SplitAssignment:
        start = self._at
        records, end = self._reader.read(start)
        for _ in records:
            break
        if end == start:
            return SplitAssignment({})
        self._at = end
        return SplitAssignment({0: [(start, end)]})

    def is_finished(self) -> bool:
        return False

    def snapshot(self) -> Any:
        return self._at

    def committed(self, snapshot: Any) -> None:
        if hasattr(self._reader, "commit"):
            self._reader.commit(snapshot)


class _PartitionReader(SourceReader):
    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def read(self, share: Any) -> Iterator[Collection[Any]]:
        return _batches(self._reader.read(share))


class _RangeReader(SourceReader):
    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def read(self, share: Any) -> Iterator[Collection[Any]]:
        return _batches(self._reader.readBetweenOffsets(*share))


def _batches(records: Any) -> Iterator[list[Any]]:
    rows = iter(_rows(records))
    while batch := list(islice(rows, BATCH)):
        yield batch


def _rows(records: Any) -> Iterator[Any]:
    for record in records:
        # An Arrow record batch stands for many rows.
        if hasattr(record, "to_pylist"):
            yield from (tuple(row.values()) for row in record.to_pylist())
        else:
            yield record


class SparkStreamSource(Source):
    """Reads a PySpark stream reader, epoch by epoch: what Spark would read in a micro-batch is one epoch here."""

    def __init__(self, reader: Any) -> None:
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

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        if self._simple:
            return _SimpleEnumerator(self._reader, restored)
        return _Enumerator(self._reader, parallelism, restored)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _RangeReader(self._reader) if self._simple else _PartitionReader(self._reader)


def as_source(candidate: Any, taker: str) -> Source:
    """Return a source that was given as one, or as a stream reader; `taker` is who takes it."""
    if isinstance(candidate, Source):
        return candidate
    if not is_stream_reader(candidate):
        raise InvalidProgramError(
            f"{taker} takes a Source or an object with the methods of PySpark's DataSourceStreamReader, "
            f"not {type(candidate).__name__}."
        )
    return SparkStreamSource(candidate)
