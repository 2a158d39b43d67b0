"""The source behind from_collection."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterator
from typing import Any

import cloudpickle

from millstream.common.aliases import T_co
from millstream.common.immutability import ATOMS, detach
from millstream.connectors.base import Source, SourceReader, SplitEnumerator
from millstream.connectors.datagen.source import IntervalEnumerator, IntervalReader

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
