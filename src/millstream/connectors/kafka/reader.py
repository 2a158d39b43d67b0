"""KafkaReader: fetches messages of assigned offsets in the subtask, and converts them to values with timestamps."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, TypeAlias

from millstream.common.aliases import Value
from millstream.connectors.base import BadRecord, BadRecords, SourceReader
from millstream.connectors.kafka.client import TIMEOUT, KafkaFailure, Message, Setting, error_text, library
from millstream.connectors.kafka.offsets import Partition
from millstream.connectors.kafka.serialization import KafkaBatchDeserializationSchema, KafkaRecord
from millstream.connectors.kafka.settings import SourceSettings
from millstream.formats.changelog.messages import ChangeDeserializationSchema
from millstream.operators.diagnostics.bad_records import FormatUnavailable

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

# A split range: topic, partition, first offset, end offset, and whether the split ends there.
OffsetRange: TypeAlias = tuple[str, int, int, int, bool]

# Maximum messages per consume call.
_MAX_MESSAGES = 2048
# A partition with more buffered messages is paused.
_MAX_BUFFERED = 8192
_POLL_SECONDS = 0.1


class _Flow:
    """The buffered messages of one partition."""

    def __init__(self, offset: int) -> None:
        # Batches as received, ordered by offset.
        self.buffered: deque[list[Message]] = deque()
        # The end offset of the partition, as last reported by the broker.
        self.end = -1
        # The next offset to read.
        self.offset = offset
        self.is_paused = False

    @property
    def length(self) -> int:
        return sum(map(len, self.buffered))

    def take(self, end: int) -> list[Message]:
        """Remove and return buffered messages before an offset."""
        while self.buffered:
            messages = self.buffered.popleft()
            # After a seek the client may return earlier messages of the same record batch.
            start = 0 if messages[0].offset() >= self.offset else bisect_left(messages, self.offset, key=_offset)
            stop = len(messages) if messages[-1].offset() < end else bisect_left(messages, end, key=_offset)
            if stop < len(messages):
                self.buffered.appendleft(messages[max(start, stop) :])
                return messages[start:stop]
            if start < stop:
                return messages[start:]
        return []


def _offset(message: Message) -> int:
    return message.offset()


class Fetcher:
    """One consumer for all partitions of a subtask; it buffers messages of the partitions that are not being read."""

    def __init__(self, settings: dict[str, Setting]) -> None:
        self._kafka = library()
        self._consumer = self._kafka.Consumer(settings)
        self._flows: dict[Partition, _Flow] = {}

    def read(self, partition: Partition, start: int, end: int) -> Iterator[list[Message]]:
        """Yield the messages of a partition in [start, end), which the broker has reported as available."""
        flow = self._seek(partition, start)
        last = time.monotonic()
        while flow.offset < end:
            batch = flow.take(end)
            if batch:
                last = time.monotonic()
                flow.offset = batch[-1].offset() + 1
                yield batch
            elif flow.buffered or flow.end >= end:
                # The next message is beyond the end; only transaction markers remain before it.
                flow.offset = end
            else:
                self._poll()
                if not flow.buffered and flow.end < end and time.monotonic() - last > TIMEOUT:
                    topic, number = partition
                    raise KafkaFailure(
                        f"Kafka has not sent the records of partition {number} of topic {topic!r} from offset "
                        f"{flow.offset} for {TIMEOUT:.0f} s."
                    )

    def _seek(self, partition: Partition, start: int) -> _Flow:
        """Position a partition at an offset, usually where the last read ended."""
        flow = self._flows.get(partition)
        if flow is not None and flow.offset == start:
            self._resume(partition, flow)
            return flow
        if flow is not None:
            self._consumer.incremental_unassign([self._kafka.TopicPartition(*partition)])
        flow = self._flows[partition] = _Flow(start)
        self._consumer.incremental_assign([self._kafka.TopicPartition(*partition, start)])
        return flow

    def _resume(self, partition: Partition, flow: _Flow) -> None:
        if flow.is_paused and flow.length < _MAX_BUFFERED // 2:
            self._consumer.resume([self._kafka.TopicPartition(*partition)])
            flow.is_paused = False

    def _poll(self) -> None:
        # With a timeout, consume would wait for the full number of messages; so take available ones first.
        messages = self._consumer.consume(_MAX_MESSAGES, 0) or self._consumer.consume(1, _POLL_SECONDS)
        good = [message for message in messages if message.error() is None]
        if len(good) < len(messages):
            for message in messages:
                self._on_error(message, message.error())
        for partition, batch in self._by_partition(good).items():
            flow = self._flows.get(partition)
            if flow is not None:
                flow.buffered.append(batch)
        for partition, flow in self._flows.items():
            if flow.length > _MAX_BUFFERED and not flow.is_paused:
                self._consumer.pause([self._kafka.TopicPartition(*partition)])
                flow.is_paused = True
            else:
                self._resume(partition, flow)

    def _by_partition(self, messages: list[Message]) -> dict[Partition, list[Message]]:
        if not messages:
            return {}
        if len(self._flows) == 1:
            return {next(iter(self._flows)): messages}
        batches: dict[Partition, list[Message]] = {}
        for message in messages:
            batches.setdefault((message.topic(), message.partition()), []).append(message)
        return batches

    def _on_error(self, message: Message, error: KafkaError | None) -> None:
        """Handle an error event of the client."""
        if error is None:
            return
        if error.code() == self._kafka.KafkaError._PARTITION_EOF:
            flow = self._flows.get((message.topic(), message.partition()))
            if flow is not None:
                flow.end = message.offset()
        else:
            self._failed(message, error)

    def _failed(self, message: Message, error: KafkaError) -> None:
        if error.code() == self._kafka.KafkaError._AUTO_OFFSET_RESET:
            raise KafkaFailure(
                f"Kafka: the records of partition {message.partition()} of topic {message.topic()!r} "
                f"no longer exist at the job's offset ({error_text(error)}): the topic's retention deleted them. Start "
                "from a later offset; the deleted records are lost."
            )
        if error.fatal() or not error.retriable():
            raise KafkaFailure(f"Kafka: {error_text(error)}.")

    def close(self) -> None:
        self._consumer.close()


# Maximum offsets per batch.
_BATCH_OFFSETS = 8192


class KafkaReader(SourceReader):
    def __init__(self, settings: SourceSettings, subtask: int, bad: BadRecords) -> None:
        self._settings = settings
        self._fetcher = Fetcher(settings.client(subtask))
        self._convert = _converter(settings, bad)

    def read(self, split_range: OffsetRange) -> Iterator[Collection[Value]]:
        topic, partition, start, end, _ = split_range
        for messages in self._fetcher.read((topic, partition), start, end):
            yield self._convert(messages)

    def split_of(self, split_range: OffsetRange) -> Partition:
        return split_range[0], split_range[1]

    def ends_split(self, split_range: OffsetRange) -> bool:
        return split_range[4]

    def close(self) -> None:
        self._fetcher.close()


class KafkaBatchReader(KafkaReader):
    """Reads fixed intervals of offsets as one record each, independent of how the broker batches messages."""

    def __init__(self, settings: SourceSettings, subtask: int, schema: KafkaBatchDeserializationSchema) -> None:
        self._settings = settings
        self._fetcher = Fetcher(settings.client(subtask))
        self._schema = schema

    def read(self, split_range: OffsetRange) -> Iterator[Collection[Value]]:
        return self.rest(split_range, 0)

    def rest(self, split_range: OffsetRange, read: int) -> Iterator[Collection[Value]]:
        topic, partition, start, end, _ = split_range
        for begin in range(start + read * _BATCH_OFFSETS, end, _BATCH_OFFSETS):
            stop = min(begin + _BATCH_OFFSETS, end)
            messages = [m for batch in self._fetcher.read((topic, partition), begin, stop) for m in batch]
            yield [self._schema.deserialize(messages)]


# Converts messages to values with timestamps.
_Convert: TypeAlias = Callable[[list[Message]], list[tuple[Value, int]]]


def _converter(settings: SourceSettings, bad: BadRecords) -> _Convert:
    """Return a function that converts messages to values with timestamps."""
    if isinstance(settings.values, ChangeDeserializationSchema):
        return _change_converter(settings.values, bad)
    if settings.records is not None:
        schema = settings.records

        def one(message: Message) -> Value:
            headers = tuple(message.headers() or ())
            stamp = message.timestamp()[1]
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            return schema.deserialize(
                KafkaRecord(topic, partition, offset, stamp, message.key(), message.value(), headers)
            )

    else:
        assert settings.values is not None
        deserialize = settings.values.deserialize

        def one(message: Message) -> Value:
            value = message.value()
            return None if value is None else deserialize(value)

    only_values = settings.records is None

    def convert(messages: list[Message]) -> list[tuple[Value, int]]:
        try:
            if only_values:
                values: list[Value] = [m.value() for m in messages]
                if None not in values:
                    converted = list(map(deserialize, values))
                    if None not in converted:
                        return [(value, m.timestamp()[1]) for value, m in zip(converted, messages, strict=True)]
            return [(value, m.timestamp()[1]) for m in messages if (value := one(m)) is not None]
        except Exception:
            # Convert one by one to identify the bad record.
            return convert_each(messages)

    def convert_each(messages: list[Message]) -> list[tuple[Value, int]]:
        converted = []
        for message in messages:
            try:
                value = one(message)
            except FormatUnavailable:
                raise
            except Exception as e:
                value = bad.handle(BadRecord(_location(message), message.value(), str(e) or repr(e)))
            if value is not None:
                converted.append((value, message.timestamp()[1]))
        return converted

    return convert


def _change_converter(schema: ChangeDeserializationSchema, bad: BadRecords) -> _Convert:
    """Return a function that converts messages with several rows each, such as Debezium's."""

    def convert(messages: list[Message]) -> list[tuple[Value, int]]:
        converted: list[tuple[Value, int]] = []
        for message in messages:
            try:
                rows: list[Value] = list(schema.deserialize_all(message.value() or b""))
            except Exception as e:
                replacement = bad.handle(BadRecord(_location(message), message.value(), str(e) or repr(e)))
                rows = [] if replacement is None else [replacement]
            converted += [(row, message.timestamp()[1]) for row in rows]
        return converted

    return convert


def _location(message: Message) -> str:
    return f"offset {message.offset()} of partition {message.partition()} of topic {message.topic()!r}"
