"""Makes Kafka's messages of batches: keys and values, the partition, headers and timestamps."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from millstream.common.errors import MillstreamError
from millstream.connectors.kafka.serialization import KafkaBatchSerializationSchema, Produced, SinkPlace
from millstream.connectors.kafka.table_options import Messages, Topics
from millstream.sql.columns.batch import INSERT, UPDATE_AFTER, Batch
from millstream.sql.columns.numpy_arrays import plain
from millstream.sql.columns.value_conversion import to_python
from millstream.sql.errors import ValidationException
from millstream.sql.types import DataType, DataTypes

WRITTEN: Mapping[str, DataType] = {
    "headers": DataTypes.MAP(DataTypes.STRING(), DataTypes.BYTES()),
    "timestamp": DataTypes.TIMESTAMP_LTZ(3),
    "topic": DataTypes.STRING(),
}


class KafkaPartitioner(ABC):
    """Chooses the partition of a message: `'sink.partitioner' = 'module.Class'`."""

    @abstractmethod
    def partition(self, key: bytes | None, value: bytes | None, topic: str, partitions: Sequence[int]) -> int:
        """Return one of the partitions of a topic."""


class _Fixed:
    def __init__(self, place: SinkPlace) -> None:
        self._subtask = place.subtask

    def partition(self, key: bytes | None, value: bytes | None, topic: str, partitions: Sequence[int]) -> int:
        return partitions[self._subtask % len(partitions)]


class _RoundRobin:
    def __init__(self, place: SinkPlace) -> None:
        self._next = 0

    def partition(self, key: bytes | None, value: bytes | None, topic: str, partitions: Sequence[int]) -> int:
        self._next += 1
        return partitions[(self._next - 1) % len(partitions)]


# Makes what chooses partitions, for a writer.
Partitioning = Callable[[SinkPlace], Any]


def partitioning_of(name: str, has_keys: bool) -> Partitioning | None:
    """Return what chooses partitions; None where the client does, by the key."""
    if name == "default":
        return None
    if name == "fixed":
        return _Fixed
    if name == "round-robin":
        if has_keys:
            raise ValidationException(
                "Currently 'round-robin' partitioner only works when option 'key.fields' is not specified."
            )
        return _RoundRobin
    module, _, cls = name.rpartition(".")
    try:
        found = getattr(import_module(module), cls)
    except (ImportError, AttributeError, ValueError) as e:
        raise ValidationException(
            f"Could not find and instantiate partitioner class '{name}': it is default, fixed, round-robin, or the "
            f"full name of a Python class with a method partition(key, value, topic, partitions) ({e})."
        ) from None
    return partial(_custom, found)


def _custom(made: Callable[[], Any], place: SinkPlace) -> Any:
    return made()


class BufferFlush:
    """How long rows that are written wait for others with their key: so many rows, so many seconds."""

    def __init__(self, rows: int, seconds: float) -> None:
        self._rows, self._seconds = rows, seconds
        self._waiting: dict[bytes | None, Produced] = {}
        self._since = 0.0

    def take(self, messages: Iterable[Produced]) -> Iterator[Produced]:
        """Take messages; yield those that need not wait longer."""
        for message in messages:
            if not self._waiting:
                self._since = time.monotonic()
            # The last one counts, and stands where it came.
            self._waiting.pop(message.key, None)
            self._waiting[message.key] = message
            if len(self._waiting) >= self._rows or time.monotonic() - self._since >= self._seconds:
                yield from self.rest()

    def rest(self) -> list[Produced]:
        """Return all that wait."""
        found = list(self._waiting.values())
        self._waiting = {}
        return found

    def forget(self) -> None:
        """Forget all that wait."""
        self._waiting = {}

    def __copy__(self) -> BufferFlush:
        return BufferFlush(self._rows, self._seconds)


class TableWriting(KafkaBatchSerializationSchema):
    """Writes rows as messages.

    Args:
        messages: how rows are in them.
        columns: of the batches: physical ones, then keys of metadata.
        topics: where they go; of several each row says which, in metadata.
        partitioning: chooses partitions; None for the client.
        upserts: whether a message says what the row of its key is now; a row that goes has no value.
        buffer: holds rows of the same key back.
    """

    def __init__(
        self,
        messages: Messages,
        columns: Sequence[str],
        topics: Topics,
        partitioning: Partitioning | None,
        upserts: bool = False,
        buffer: BufferFlush | None = None,
    ) -> None:
        self.topic = topics.only
        self._topics = topics
        self._messages = messages
        self._columns = list(columns)
        self._partitioning = partitioning
        self._partitioner: Any = None
        self._upserts = upserts
        self._buffer = buffer

    def __copy__(self) -> TableWriting:
        about = self._messages, self._columns, self._topics, self._partitioning, self._upserts
        return TableWriting(*about, copy(self._buffer))

    def serialize(self, batch: Batch, place: SinkPlace) -> Iterable[Produced]:
        found = self._made(batch, place)
        return found if self._buffer is None else self._buffer.take(found)

    def flush(self, place: SinkPlace) -> Iterable[Produced]:
        return () if self._buffer is None else self._buffer.rest()

    def forget(self) -> None:
        if self._buffer is not None:
            self._buffer.forget()

    def _made(self, batch: Batch, place: SinkPlace) -> Iterator[Produced]:
        about, count = self._messages, len(batch)
        kinds = None if self._upserts else batch.kinds
        values: list[bytes | None] = list(
            about.value.encoded(Batch(self._of(batch, about.value_names), kinds, count), about.value_fields)
        )
        if self._upserts and batch.kinds is not None:
            is_there = np.isin(batch.kinds, (INSERT, UPDATE_AFTER)).tolist()
            values = [v if there else None for v, there in zip(values, is_there, strict=True)]
        keys: list[bytes | None] = [None] * count
        if about.key is not None:
            rows = Batch(self._of(batch, about.key_names), None, count)
            keys = list(about.key.encoded(rows, about.key_fields))
        topics, stamps, headers = self._topics_of(batch), self._stamps(batch), self._headers(batch)
        for topic, value, key, stamp, headed in zip(topics, values, keys, stamps, headers, strict=True):
            yield Produced(topic, value, key, self._partition(topic, value, key, place), stamp, headed)

    def _of(self, batch: Batch, names: Sequence[str]) -> list[Any]:
        return [batch.columns[self._columns.index(n)] for n in names]

    def _metadata(self, batch: Batch, key: str) -> Any:
        return batch.columns[self._columns.index(key)] if key in self._columns else None

    def _topics_of(self, batch: Batch) -> list[str]:
        column = self._metadata(batch, "topic")
        if column is None:
            assert self.topic is not None
            return [self.topic] * len(batch)
        found = to_python(column, WRITTEN["topic"])
        names, pattern = self._topics.names, self._topics.pattern
        for topic in set(found):
            fits = topic in names if pattern is None else topic is not None and re.fullmatch(pattern, topic)
            if not fits:
                raise MillstreamError(
                    f"The topic of the sink record is not valid. Expected topic to be in: {list(names) or pattern} but "
                    f"was: {topic}."
                )
        return found

    def _stamps(self, batch: Batch) -> list[int | None]:
        column = self._metadata(batch, "timestamp")
        if column is None:
            return [None] * len(batch)
        nulls = column.is_null().to_pylist()
        found = [None if null else v for v, null in zip(plain(column).tolist(), nulls, strict=True)]
        before = next((v for v in found if v is not None and v < 0), None)
        if before is not None:
            raise MillstreamError(
                f"Kafka takes no timestamp before 1970, and a row has {before} ms in the metadata column 'timestamp': "
                "write NULL for the time of writing."
            )
        return found

    def _headers(self, batch: Batch) -> list[Any]:
        column = self._metadata(batch, "headers")
        if column is None:
            return [None] * len(batch)
        return [None if v is None else list(v.items()) for v in to_python(column, WRITTEN["headers"])]

    def _partition(self, topic: str, value: bytes | None, key: bytes | None, place: SinkPlace) -> int:
        if self._partitioning is None:
            return -1
        if self._partitioner is None:
            self._partitioner = self._partitioning(place)
        return int(self._partitioner.partition(key, value, topic, place.partitions(topic)))
