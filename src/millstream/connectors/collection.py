"""The source behind from_collection, and the sink behind execute_and_collect."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterator
from typing import Any

import cloudpickle

from millstream.common.aliases import T_co
from millstream.common.immutability import ATOMS, detach
from millstream.connectors.base import CommitContext, Committer, Sink, SinkWriter, Source, SourceReader, SplitEnumerator
from millstream.connectors.datagen.source import IntervalEnumerator, IntervalReader
from millstream.operators.functions.context import RuntimeContext

_CHUNK = 1024


class _Reader(IntervalReader):
    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks

    def read(self, share: Any) -> Iterator[Collection[Any]]:
        _, start, end, _ = share
        while start < end:
            chunk, offset = divmod(start, _CHUNK)
            # Unpickled for every read, so that nothing a program does to an element can show in another epoch.
            elements = pickle.loads(self._chunks[chunk])[offset : offset + end - start]
            yield elements
            start += len(elements)


class CollectionSource(Source[T_co]):
    """The elements of a Python collection, in order, from one subtask."""

    name = "Collection Source"

    def __init__(self, elements: list[T_co]) -> None:
        self._size = len(elements)
        # Each element is a record of its own, even where the collection holds one object twice.
        own = [e if e.__class__ in ATOMS else detach(e) for e in elements]
        self._chunks = [cloudpickle.dumps(own[i : i + _CHUNK]) for i in range(0, self._size, _CHUNK)]

    @property
    def is_bounded(self) -> bool:
        return True

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return IntervalEnumerator(0, self._size, parallelism, restored)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _Reader(self._chunks)


class _Writer(SinkWriter):
    def __init__(self) -> None:
        self._values: list[Any] = []
        self._transaction = ""

    def begin(self, transaction: str) -> None:
        self._transaction = transaction
        # What an epoch that failed has left.
        self._values.clear()

    def write(self, value: Any) -> None:
        self._values.append(value)

    def prepare_commit(self, flush: bool) -> tuple[str, list[Any]] | None:
        if not self._values:
            return None
        values = self._values[:]
        self._values.clear()
        return self._transaction, values


class _Committer(Committer):
    def __init__(self, take: Callable[[list[Any]], None]) -> None:
        self._take = take
        # What was committed in the last two calls: nothing older comes again.
        self._before: set[str] = set()
        self._last: set[str] = set()

    def commit(self, committables: list[tuple[int, Any]]) -> None:
        known = self._before | self._last
        self._before, self._last = self._last, set()
        for _, (transaction, values) in committables:
            self._last.add(transaction)
            if transaction not in known:
                self._take(values)


class DriverSink(Sink):
    """Hands every epoch's records to a function on the driver, subtask by subtask."""

    name = "Collect Sink"

    def __init__(self, take: Callable[[list[Any]], None]) -> None:
        self._take: Callable[[list[Any]], None] | None = take

    def __getstate__(self) -> dict[str, Any]:
        # The function belongs to the driver; the workers' copy only writes.
        return {"_take": None}

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return _Writer()

    def create_committer(self, context: CommitContext) -> Committer:
        assert self._take is not None
        return _Committer(self._take)
