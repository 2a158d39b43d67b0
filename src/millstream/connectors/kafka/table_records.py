"""Makes batches of Kafka's messages: columns of keys and values, and what Kafka says of each message."""

from __future__ import annotations

import datetime as dt
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.common.errors import MillstreamError
from millstream.connectors.kafka.serialization import (
    KafkaBatchDeserializationSchema,
    KafkaBatchSerializationSchema,
    Produced,
    SinkPlace,
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

_READ: Mapping[str, Callable[[Any], Any]] = {
    "topic": lambda m: m.topic(),
    "partition": lambda m: m.partition(),
    "headers": lambda m: dict(m.headers() or ()),
    "leader-epoch": lambda m: m.leader_epoch(),
    "offset": lambda m: m.offset(),
    "timestamp": lambda m: _EPOCH + dt.timedelta(milliseconds=max(m.timestamp()[1], 0)),
    "timestamp-type": lambda m: _TIMESTAMP_TYPES[m.timestamp()[0]],
}


def metadata_of(messages: Messages) -> dict[str, DataType]:
    """Return what can be read beside the columns: what the format says, and Kafka."""
    return {**{f"{_VALUE}{k}": t for k, t in messages.value.metadata().items()}, **METADATA}


class TableMessages(KafkaBatchDeserializationSchema):
    """Reads messages as rows.

    Args:
        messages: how rows are in them.
        columns: which columns are wanted: physical ones, or keys of metadata.
        upserts: whether a message says what the row of its key is now; without a value the row is gone.
    """

    def __init__(self, messages: Messages, columns: Sequence[str], upserts: bool = False) -> None:
        self._messages = messages
        self._columns = list(columns)
        self._upserts = upserts

    def deserialize(self, messages: Sequence[Any]) -> Batch:
        about = self._messages
        gone = np.array([m.value() is None for m in messages], bool) if self._upserts else None
        values = _decoded(about.value, [m.value() for m in messages], about.value_fields, messages)
        if gone is not None and about.value.identifier == "raw":
            values = _without(values, gone)
        places = _places(values, len(messages))
        if about.key is None:
            return self._batch(messages, values, places, np.arange(len(places)), None)
        keys = _decoded(about.key, [m.key() for m in messages], about.key_fields, messages)
        key_rows = np.full(len(messages), -1, np.int64)
        key_rows[_places(keys, len(messages))] = np.arange(len(keys.batch))
        rows: NDArray[np.int64] = np.arange(len(places))
        if gone is not None:
            order = np.concatenate([places, np.flatnonzero(gone)])
            rows = np.concatenate([rows, np.full(int(gone.sum()), -1)])
            sorted_by_place = np.argsort(order, kind="stable")
            places, rows = order[sorted_by_place], rows[sorted_by_place]
        # A message without a key has no row.
        has_key = key_rows[places] >= 0
        return self._batch(messages, values, places[has_key], rows[has_key], (keys.batch, key_rows))

    def _batch(
        self,
        messages: Sequence[Any],
        values: Decoded,
        places: NDArray[np.int64],
        rows: NDArray[np.int64],
        keys: tuple[Batch, NDArray[np.int64]] | None,
    ) -> Batch:
        """Return the rows of messages.

        Args:
            messages: all of them.
            values: the rows of their values.
            places: of each row of the result, its message.
            rows: of each row of the result, that of `values`; -1 where the message has none.
            keys: the rows of their keys, and which is each message's.
        """
        taken = _Taken(rows, len(values.batch))
        columns = [self._column(c, messages, values, places, taken, keys) for c in self._columns]
        kinds: Kinds | None = None
        if self._upserts:
            kinds = np.where(rows < 0, np.int8(DELETE), np.int8(UPDATE_AFTER))
        elif values.batch.kinds is not None:
            kinds = values.batch.kinds[rows]
        return Batch(columns, kinds, len(rows))

    def _column(
        self,
        name: str,
        messages: Sequence[Any],
        values: Decoded,
        places: NDArray[np.int64],
        taken: _Taken,
        keys: tuple[Batch, NDArray[np.int64]] | None,
    ) -> pa.Array:
        about = self._messages
        if name in about.key_names and keys is not None and (self._upserts or name not in about.value_names):
            batch, key_rows = keys
            return batch.columns[about.key_names.index(name)].take(pa.array(key_rows[places]))
        if name in about.value_names:
            return taken.of(values.batch.columns[about.value_names.index(name)])
        if name.startswith(_VALUE):
            key = name.removeprefix(_VALUE)
            told = about.value.metadata_values(key, values)
            return taken.of(to_column(told, about.value.metadata()[key]))
        read = _READ[name]
        return to_column([read(messages[i]) for i in places.tolist()], METADATA[name])


class _Taken:
    """Which rows of columns are taken; of -1, null."""

    def __init__(self, rows: NDArray[np.int64], of: int) -> None:
        self._is_all = len(rows) == of and bool((rows == np.arange(of)).all())
        self._at = pa.array(rows, mask=rows < 0)

    def of(self, column: pa.Array) -> pa.Array:
        return column if self._is_all else column.take(self._at)


def _places(decoded: Decoded, count: int) -> NDArray[np.int64]:
    """Return of each row which message it was in."""
    return np.arange(count) if decoded.indices is None else np.array(decoded.indices, np.int64)


def _without(decoded: Decoded, gone: NDArray[np.bool_]) -> Decoded:
    """Return the rows of messages that have a value: the format `raw` makes one of nothing, too."""
    return Decoded(decoded.batch.filter(~gone), np.flatnonzero(~gone).tolist())


def _decoded(
    found: MessageFormat, bodies: Sequence[bytes | None], fields: Sequence[Field], messages: Sequence[Any]
) -> Decoded:
    try:
        return found.read_all(bodies, fields)
    except Malformed as e:
        message = messages[e.index]
        fix = ""
        if "ignore-parse-errors" in found.optional:
            fix = f" Correct it, or leave such messages out with '{found.option_prefix}ignore-parse-errors' = 'true'."
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
