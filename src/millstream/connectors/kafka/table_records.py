"""Converts between Kafka messages and batches: columns of keys and values, and metadata."""

from __future__ import annotations

import datetime as dt
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from importlib import import_module
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.common.aliases import Value
from millstream.common.errors import MillstreamError
from millstream.connectors.kafka.client import Message
from millstream.connectors.kafka.serialization import (
    KafkaBatchDeserializationSchema,
    KafkaBatchSerializationSchema,
    Produced,
    WriterContext,
)
from millstream.connectors.kafka.table_options import Messages, Topics
from millstream.formats.base import Decoded, Malformed, MessageFormat
from millstream.sql.columns.batch import DELETE, INSERT, UPDATE_AFTER, Batch, Kinds
from millstream.sql.columns.numpy_arrays import plain
from millstream.sql.columns.value_conversion import to_column, to_python
from millstream.sql.errors import ValidationException
from millstream.sql.schema import Field
from millstream.sql.types import DataType, DataTypes

_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)
_TIMESTAMP_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")
_VALUE = "value."

METADATA: Mapping[str, DataType] = {
    "topic": DataTypes.STRING().not_null(),
    "partition": DataTypes.INT().not_null(),
    "headers": DataTypes.MAP(DataTypes.STRING().not_null(), DataTypes.BYTES()).not_null(),
    "leader-epoch": DataTypes.INT(),
    "offset": DataTypes.BIGINT().not_null(),
    "timestamp": DataTypes.TIMESTAMP_LTZ(3).not_null(),
    "timestamp-type": DataTypes.STRING().not_null(),
}

_READ: Mapping[str, Callable[[Message], Value]] = {
    "topic": lambda m: m.topic(),
    "partition": lambda m: m.partition(),
    "headers": lambda m: dict(m.headers() or ()),
    "leader-epoch": lambda m: m.leader_epoch(),
    "offset": lambda m: m.offset(),
    "timestamp": lambda m: _EPOCH + dt.timedelta(milliseconds=max(m.timestamp()[1], 0)),
    "timestamp-type": lambda m: _TIMESTAMP_TYPES[m.timestamp()[0]],
}


def metadata_of(messages: Messages) -> dict[str, DataType]:
    """Return the metadata of the format and of Kafka."""
    return {**{f"{_VALUE}{k}": t for k, t in messages.value.metadata().items()}, **METADATA}


class TableMessages(KafkaBatchDeserializationSchema):
    """Reads messages as rows.

    Args:
        messages: the layout of messages.
        columns: the projected columns: physical ones, or metadata keys.
        upserts: whether a message upserts the row of its key; without a value it deletes the row.
    """

    def __init__(self, messages: Messages, columns: Sequence[str], upserts: bool = False) -> None:
        self._messages = messages
        self._columns = list(columns)
        self._upserts = upserts

    def deserialize(self, messages: Sequence[Message]) -> Batch:
        layout = self._messages
        deleted = np.array([m.value() is None for m in messages], bool) if self._upserts else None
        values = _decoded(layout.value, [m.value() for m in messages], layout.value_fields, messages)
        if deleted is not None and layout.value.identifier == "raw":
            values = _without_deleted(values, deleted)
        indexes = _message_indexes(values, len(messages))
        if layout.key is None:
            return self._batch(messages, values, indexes, np.arange(len(indexes)), None)
        keys = _decoded(layout.key, [m.key() for m in messages], layout.key_fields, messages)
        key_rows = np.full(len(messages), -1, np.int64)
        key_rows[_message_indexes(keys, len(messages))] = np.arange(len(keys.batch))
        rows: NDArray[np.int64] = np.arange(len(indexes))
        if deleted is not None:
            unordered = np.concatenate([indexes, np.flatnonzero(deleted)])
            rows = np.concatenate([rows, np.full(int(deleted.sum()), -1)])
            order = np.argsort(unordered, kind="stable")
            indexes, rows = unordered[order], rows[order]
        # A message without a key has no row.
        has_key = key_rows[indexes] >= 0
        return self._batch(messages, values, indexes[has_key], rows[has_key], (keys.batch, key_rows))

    def _batch(
        self,
        messages: Sequence[Message],
        values: Decoded,
        indexes: NDArray[np.int64],
        rows: NDArray[np.int64],
        keys: tuple[Batch, NDArray[np.int64]] | None,
    ) -> Batch:
        """Return the rows of messages.

        Args:
            messages: the messages.
            values: the decoded values.
            indexes: for each row of the result, the index of its message.
            rows: for each row of the result, its row in `values`; -1 if the message has no value.
            keys: the decoded keys, and for each message its row in them.
        """
        selection = _Selection(rows, len(values.batch))
        columns = [self._column(c, messages, values, indexes, selection, keys) for c in self._columns]
        kinds: Kinds | None = None
        if self._upserts:
            kinds = np.where(rows < 0, np.int8(DELETE), np.int8(UPDATE_AFTER))
        elif values.batch.kinds is not None:
            kinds = values.batch.kinds[rows]
        return Batch(columns, kinds, len(rows))

    def _column(
        self,
        name: str,
        messages: Sequence[Message],
        values: Decoded,
        indexes: NDArray[np.int64],
        selection: _Selection,
        keys: tuple[Batch, NDArray[np.int64]] | None,
    ) -> pa.Array:
        layout = self._messages
        if name in layout.key_names and keys is not None and (self._upserts or name not in layout.value_names):
            batch, key_rows = keys
            return batch.columns[layout.key_names.index(name)].take(pa.array(key_rows[indexes]))
        if name in layout.value_names:
            return selection.apply(values.batch.columns[layout.value_names.index(name)])
        if name.startswith(_VALUE):
            key = name.removeprefix(_VALUE)
            metadata = layout.value.metadata_values(key, values)
            return selection.apply(to_column(metadata, layout.value.metadata()[key]))
        read = _READ[name]
        return to_column([read(messages[i]) for i in indexes.tolist()], METADATA[name])


class _Selection:
    """Selects rows of columns; -1 selects null."""

    def __init__(self, rows: NDArray[np.int64], length: int) -> None:
        self._selects_all = len(rows) == length and bool((rows == np.arange(length)).all())
        self._rows = pa.array(rows, mask=rows < 0)

    def apply(self, column: pa.Array) -> pa.Array:
        return column if self._selects_all else column.take(self._rows)


def _message_indexes(decoded: Decoded, count: int) -> NDArray[np.int64]:
    """Return the index of each row's message."""
    return np.arange(count) if decoded.indices is None else np.array(decoded.indices, np.int64)


def _without_deleted(decoded: Decoded, deleted: NDArray[np.bool_]) -> Decoded:
    """Remove the rows of messages without a value; the format `raw` returns a row for these, too."""
    return Decoded(decoded.batch.filter(~deleted), np.flatnonzero(~deleted).tolist())


def _decoded(
    message_format: MessageFormat,
    bodies: Sequence[bytes | None],
    fields: Sequence[Field],
    messages: Sequence[Message],
) -> Decoded:
    try:
        return message_format.read_all(bodies, fields)
    except Malformed as e:
        message = messages[e.index]
        fix = ""
        if "ignore-parse-errors" in message_format.optional:
            fix = (
                f" Correct it, or skip such messages with '{message_format.option_prefix}ignore-parse-errors' = 'true'."
            )
        raise MillstreamError(
            f"Kafka: the message at offset {message.offset()} of partition {message.partition()} of topic "
            f"{message.topic()!r} cannot be read: {e.reason}.{fix}"
        ) from None


WRITTEN: Mapping[str, DataType] = {
    "headers": DataTypes.MAP(DataTypes.STRING(), DataTypes.BYTES()),
    "timestamp": DataTypes.TIMESTAMP_LTZ(3),
    "topic": DataTypes.STRING(),
}


class KafkaPartitioner(ABC):
    """Selects the partition of a message: `'sink.partitioner' = 'module.Class'`."""

    @abstractmethod
    def partition(self, key: bytes | None, value: bytes | None, topic: str, partitions: Sequence[int]) -> int:
        """Return one of the partitions of a topic."""


class _Partitioner(Protocol):
    """The interface of KafkaPartitioner; users need not extend that class."""

    def partition(self, key: bytes | None, value: bytes | None, topic: str, partitions: Sequence[int]) -> int: ...


class _Fixed:
    def __init__(self, context: WriterContext) -> None:
        self._subtask = context.subtask

    def partition(self, key: bytes | None, value: bytes | None, topic: str, partitions: Sequence[int]) -> int:
        return partitions[self._subtask % len(partitions)]


class _RoundRobin:
    def __init__(self, context: WriterContext) -> None:
        self._next = 0

    def partition(self, key: bytes | None, value: bytes | None, topic: str, partitions: Sequence[int]) -> int:
        self._next += 1
        return partitions[(self._next - 1) % len(partitions)]


# Creates the partitioner of a writer.
Partitioning: TypeAlias = Callable[[WriterContext], _Partitioner]


def partitioning_of(name: str, has_keys: bool) -> Partitioning | None:
    """Return a function that creates partitioners; None if the client selects partitions by key."""
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
        partitioner = getattr(import_module(module), cls)
    except (ImportError, AttributeError, ValueError) as e:
        raise ValidationException(
            f"Could not find and instantiate partitioner class '{name}': use default, fixed, round-robin, or the "
            f"full name of a Python class with a method partition(key, value, topic, partitions) ({e})."
        ) from None
    return partial(_custom, partitioner)


def _custom(partitioner: Callable[[], _Partitioner], context: WriterContext) -> _Partitioner:
    return partitioner()


class BufferFlush:
    """Buffers messages, and retains only the last one of each key.

    Args:
        max_rows: the maximum number of buffered messages.
        max_seconds: the maximum time that messages are buffered.
    """

    def __init__(self, max_rows: int, max_seconds: float) -> None:
        self._max_rows, self._max_seconds = max_rows, max_seconds
        self._buffered: dict[bytes | None, Produced] = {}
        self._since = 0.0

    def add(self, messages: Iterable[Produced]) -> Iterator[Produced]:
        """Add messages; yield those to write now."""
        for message in messages:
            if not self._buffered:
                self._since = time.monotonic()
            # The last message of a key replaces earlier ones, at the end of the order.
            self._buffered.pop(message.key, None)
            self._buffered[message.key] = message
            if len(self._buffered) >= self._max_rows or time.monotonic() - self._since >= self._max_seconds:
                yield from self.flush()

    def flush(self) -> list[Produced]:
        """Remove and return all buffered messages."""
        messages = list(self._buffered.values())
        self._buffered = {}
        return messages

    def discard(self) -> None:
        """Discard all buffered messages."""
        self._buffered = {}

    def __copy__(self) -> BufferFlush:
        return BufferFlush(self._max_rows, self._max_seconds)


class TableWriting(KafkaBatchSerializationSchema):
    """Writes rows as messages.

    Args:
        messages: the layout of messages.
        columns: the columns of batches: physical ones, then metadata keys.
        topics: the topics; if there are several, the metadata of each row names its topic.
        partitioning: creates partitioners; None for the client's.
        upserts: whether a message upserts the row of its key; a deleted row has no value.
        buffer: buffers messages by key, or None.
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
        self._partitioner: _Partitioner | None = None
        self._upserts = upserts
        self._buffer = buffer

    def __copy__(self) -> TableWriting:
        return TableWriting(
            self._messages, self._columns, self._topics, self._partitioning, self._upserts, copy(self._buffer)
        )

    def serialize(self, batch: Batch, context: WriterContext) -> Iterable[Produced]:
        messages = self._encoded(batch, context)
        return messages if self._buffer is None else self._buffer.add(messages)

    def flush(self, context: WriterContext) -> Iterable[Produced]:
        return () if self._buffer is None else self._buffer.flush()

    def discard(self) -> None:
        if self._buffer is not None:
            self._buffer.discard()

    def _encoded(self, batch: Batch, context: WriterContext) -> Iterator[Produced]:
        layout, count = self._messages, len(batch)
        kinds = None if self._upserts else batch.kinds
        values: list[bytes | None] = list(
            layout.value.encoded(Batch(self._of(batch, layout.value_names), kinds, count), layout.value_fields)
        )
        if self._upserts and batch.kinds is not None:
            exists = np.isin(batch.kinds, (INSERT, UPDATE_AFTER)).tolist()
            values = [v if row_exists else None for v, row_exists in zip(values, exists, strict=True)]
        keys: list[bytes | None] = [None] * count
        if layout.key is not None:
            rows = Batch(self._of(batch, layout.key_names), None, count)
            keys = list(layout.key.encoded(rows, layout.key_fields))
        topics, stamps, headers = self._topics_of(batch), self._stamps(batch), self._headers(batch)
        for topic, value, key, stamp, row_headers in zip(topics, values, keys, stamps, headers, strict=True):
            yield Produced(topic, value, key, self._partition(topic, value, key, context), stamp, row_headers)

    def _of(self, batch: Batch, names: Sequence[str]) -> list[pa.Array]:
        return [batch.columns[self._columns.index(n)] for n in names]

    def _metadata(self, batch: Batch, key: str) -> pa.Array | None:
        return batch.columns[self._columns.index(key)] if key in self._columns else None

    def _topics_of(self, batch: Batch) -> list[str]:
        column = self._metadata(batch, "topic")
        if column is None:
            assert self.topic is not None
            return [self.topic] * len(batch)
        topics: list[str] = to_python(column, WRITTEN["topic"])
        names, pattern = self._topics.names, self._topics.pattern
        for topic in set(topics):
            is_valid = topic in names if pattern is None else topic is not None and re.fullmatch(pattern, topic)
            if not is_valid:
                raise MillstreamError(
                    f"The topic of the sink record is not valid. Expected topic to be in: {list(names) or pattern} but "
                    f"was: {topic}."
                )
        return topics

    def _stamps(self, batch: Batch) -> list[int | None]:
        column = self._metadata(batch, "timestamp")
        if column is None:
            return [None] * len(batch)
        nulls = column.is_null().to_pylist()
        stamps = [None if null else v for v, null in zip(plain(column).tolist(), nulls, strict=True)]
        negative = next((v for v in stamps if v is not None and v < 0), None)
        if negative is not None:
            raise MillstreamError(
                f"Kafka: a row has the timestamp {negative} ms in the metadata column 'timestamp', which is before "
                "1970: write NULL for the time of writing."
            )
        return stamps

    def _headers(self, batch: Batch) -> list[list[tuple[str, bytes | None]] | None]:
        column = self._metadata(batch, "headers")
        if column is None:
            return [None] * len(batch)
        return [None if v is None else list(v.items()) for v in to_python(column, WRITTEN["headers"])]

    def _partition(self, topic: str, value: bytes | None, key: bytes | None, context: WriterContext) -> int:
        if self._partitioning is None:
            return -1
        if self._partitioner is None:
            self._partitioner = self._partitioning(context)
        return int(self._partitioner.partition(key, value, topic, context.partitions(topic)))
