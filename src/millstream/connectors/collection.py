"""The source behind from_collection, and the sink behind execute_and_collect."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

import cloudpickle

from millstream.common.aliases import T_co, Value
from millstream.common.immutability import ATOMS, detach
from millstream.connectors.base import CommitContext, Committer, Sink, SinkWriter, Source, SourceReader, SplitEnumerator
from millstream.connectors.intervals import IntervalEnumerator, IntervalPosition, IntervalRange, IntervalReader
from millstream.operators.functions.context import RuntimeContext

_CHUNK = 1024

# The transaction of an epoch, and its records.
EpochRecords: TypeAlias = tuple[str, list[Value]]


class _Reader(IntervalReader):
    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks

    def read(self, split_range: IntervalRange) -> Iterator[Collection[Value]]:
        _, start, end, _ = split_range
        while start < end:
            chunk, offset = divmod(start, _CHUNK)
            # Unpickled for each read, so that a change of an element cannot affect another epoch.
            elements = pickle.loads(self._chunks[chunk])[offset : offset + end - start]
            yield elements
            start += len(elements)


class CollectionSource(Source[T_co]):
    """The elements of a Python collection, in order, from one subtask."""

    name = "Collection Source"

    def __init__(self, elements: list[T_co]) -> None:
        self._size = len(elements)
        # Each element is a separate record, even if the collection contains an object twice.
        records = [e if e.__class__ in ATOMS else detach(e) for e in elements]
        self._chunks = [cloudpickle.dumps(records[i : i + _CHUNK]) for i in range(0, self._size, _CHUNK)]

    @property
    def is_bounded(self) -> bool:
        return True

    def create_enumerator(self, parallelism: int, restored: IntervalPosition | None = None) -> SplitEnumerator:
        return IntervalEnumerator(0, self._size, parallelism, restored)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _Reader(self._chunks)


class _Writer(SinkWriter):
    def __init__(self) -> None:
        self._values: list[Value] = []
        self._transaction = ""

    def begin(self, transaction: str) -> None:
        self._transaction = transaction
        # Discards the records of a failed epoch.
        self._values.clear()

    def write(self, value: Value) -> None:
        self._values.append(value)

    def prepare_commit(self, flush: bool) -> EpochRecords | None:
        if not self._values:
            return None
        values = self._values[:]
        self._values.clear()
        return self._transaction, values


class _Committer(Committer):
    def __init__(self, take: Callable[[list[Value]], None]) -> None:
        self._take = take
        # The transactions of the last two commits; older ones are never repeated.
        self._previous: set[str] = set()
        self._last: set[str] = set()

    def commit(self, committables: list[tuple[int, EpochRecords]]) -> None:
        known = self._previous | self._last
        self._previous, self._last = self._last, set()
        for _, (transaction, values) in committables:
            self._last.add(transaction)
            if transaction not in known:
                self._take(values)


class DriverSink(Sink):
    """Passes each epoch's records to a function on the driver, subtask by subtask."""

    name = "Collect Sink"

    def __init__(self, take: Callable[[list[Value]], None]) -> None:
        self._take: Callable[[list[Value]], None] | None = take

    def __getstate__(self) -> dict[str, None]:
        # Only the driver calls the function; workers only write.
        return {"_take": None}

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return _Writer()

    def create_committer(self, context: CommitContext) -> Committer:
        assert self._take is not None
        return _Committer(self._take)
