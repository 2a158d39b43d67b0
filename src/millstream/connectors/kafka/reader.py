"""Makes values with timestamps of Kafka's records. Lives in the subtask."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Any

from millstream.connectors.base import BadRecord, BadRecords, SourceReader, SplitRange
from millstream.connectors.kafka.client import TIMEOUT, KafkaFailure, library, said
from millstream.connectors.kafka.offsets import Partition
from millstream.connectors.kafka.serialization import KafkaBatchDeserializationSchema, KafkaRecord
from millstream.connectors.kafka.settings import SourceSettings
from millstream.formats.changelog.rows import ChangeDeserializationSchema
from millstream.operators.diagnostics.bad_records import FormatUnavailable

# So many messages are asked for at once.
_MESSAGES = 2048
# A partition that has so many messages waiting here is not asked for more.
_MOST_WAITING = 8192
_PATIENCE = 0.1


class _Flow:
    """What has come of one partition."""

    def __init__(self, at: int) -> None:
        # As it came: messages in the order of their offsets.
        self.waiting: deque[list[Any]] = deque()
        # Behind which offset nothing is left for now, as far as the broker has said.
        self.end = -1
        # The offset that is read next.
        self.at = at
        self.is_paused = False

    @property
    def length(self) -> int:
        return sum(map(len, self.waiting))

    def take(self, end: int) -> list[Any]:
        """Take messages before an offset that wait."""
        while self.waiting:
            messages = self.waiting.popleft()
            # After a seek the client may bring what is before it, from the batch it is in.
            start = 0 if messages[0].offset() >= self.at else bisect_left(messages, self.at, key=_offset)
            stop = len(messages) if messages[-1].offset() < end else bisect_left(messages, end, key=_offset)
            if stop < len(messages):
                self.waiting.appendleft(messages[max(start, stop) :])
                return messages[start:stop]
            if start < stop:
                return messages[start:]
        return []


def _offset(message: Any) -> int:
    return int(message.offset())


class Fetcher:
    """One consumer for all partitions of a subtask; what comes of one while another is read waits."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._kafka = library()
        self._consumer = self._kafka.Consumer(settings)
        self._flows: dict[Partition, _Flow] = {}

    def read(self, partition: Partition, start: int, end: int) -> Iterator[list[Any]]:
        """Yield the messages of a partition from one offset up to another, which the broker has said is there."""
        flow = self._go_to(partition, start)
        last = time.monotonic()
        while flow.at < end:
            batch = flow.take(end)
            if batch:
                last = time.monotonic()
                flow.at = batch[-1].offset() + 1
                yield batch
            elif flow.waiting or flow.end >= end:
                # What comes next is beyond; up to there only markers of transactions, or nothing, is left.
                flow.at = end
            else:
                self._poll()
                if not flow.waiting and flow.end < end and time.monotonic() - last > TIMEOUT:
                    topic, number = partition
                    raise KafkaFailure(
                        f"Kafka has not sent the records of partition {number} of topic {topic!r} "
                        f"from offset {flow.at} "
                        f"for {TIMEOUT:.0f} s."
                    )

    def _go_to(self, partition: Partition, start: int) -> _Flow:
        """Have a partition read from an offset on: most often where it was left."""
        flow = self._flows.get(partition)
        if flow is not None and flow.at == start:
            self._resume(partition, flow)
            return flow
        at = self._kafka.TopicPartition(*partition, start)
        if flow is not None:
            self._consumer.incremental_unassign([self._kafka.TopicPartition(*partition)])
        flow = self._flows[partition] = _Flow(start)
        self._consumer.incremental_assign([at])
        return flow

    def _resume(self, partition: Partition, flow: _Flow) -> None:
        if flow.is_paused and flow.length < _MOST_WAITING // 2:
            self._consumer.resume([self._kafka.TopicPartition(*partition)])
            flow.is_paused = False

    def _poll(self) -> None:
        # What is there; asked for so many with patience, the client would wait until all of them are.
        messages = self._consumer.consume(_MESSAGES, 0) or self._consumer.consume(1, _PATIENCE)
        good = [message for message in messages if message.error() is None]
        if len(good) < len(messages):
            for message in messages:
                self._look_at(message, message.error())
        for partition, found in self._by_partition(good).items():
            flow = self._flows.get(partition)
            if flow is not None:
                flow.waiting.append(found)
        for partition, flow in self._flows.items():
            if flow.length > _MOST_WAITING and not flow.is_paused:
                self._consumer.pause([self._kafka.TopicPartition(*partition)])
                flow.is_paused = True
            else:
                self._resume(partition, flow)

    def _by_partition(self, messages: list[Any]) -> dict[Partition, list[Any]]:
        if not messages:
            return {}
        if len(self._flows) == 1:
            return {next(iter(self._flows)): messages}
        found: dict[Partition, list[Any]] = {}
        for message in messages:
            found.setdefault((message.topic(), message.partition()), []).append(message)
        return found

    def _look_at(self, message: Any, error: Any) -> None:
        """See what the client has to tell beside messages."""
        if error is None:
            return
        if error.code() == self._kafka.KafkaError._PARTITION_EOF:
            flow = self._flows.get((message.topic(), message.partition()))
            if flow is not None:
                flow.end = message.offset()
        else:
            self._failed(message, error)

    def _failed(self, message: Any, error: Any) -> None:
        if error.code() == self._kafka.KafkaError._AUTO_OFFSET_RESET:
            raise KafkaFailure(
                f"Kafka: the records of partition {message.partition()} of topic {message.topic()!r} "
                "are no longer there "
                f"from where the job left off ({said(error)}): they were deleted by the topic's "
                "retention. Start from a "
                "later offset, and know that records are missing."
            )
        if error.fatal() or not error.retriable():
            raise KafkaFailure(f"Kafka: {said(error)}.")

    def close(self) -> None:
        self._consumer.close()


# So many offsets are one record at most, where one is made of many.
_BATCH_OFFSETS = 8192


class KafkaReader(SourceReader):
    def __init__(self, settings: SourceSettings, subtask: int, bad: BadRecords) -> None:
        self._settings = settings
        self._fetcher = Fetcher(settings.client(subtask))
        self._convert = _converter(settings, bad)

    def read(self, share: SplitRange) -> Iterator[Collection[Any]]:
        topic, partition, start, end, _ = share
        for messages in self._fetcher.read((topic, partition), start, end):
            yield self._convert(messages)

    def split_of(self, share: SplitRange) -> Partition:
        return share[0], share[1]

    def ends_split(self, share: SplitRange) -> bool:
        return bool(share[4])

    def close(self) -> None:
        self._fetcher.close()


class KafkaBatchReader(KafkaReader):
    """Makes a record of the messages of so many offsets: the same ones, however the broker sends them."""

    def __init__(self, settings: SourceSettings, subtask: int, schema: KafkaBatchDeserializationSchema) -> None:
        self._settings = settings
        self._fetcher = Fetcher(settings.client(subtask))
        self._schema = schema

    def read(self, share: SplitRange) -> Iterator[Collection[Any]]:
        return self.rest(share, 0)

    def rest(self, share: SplitRange, read: int) -> Iterator[Collection[Any]]:
        topic, partition, start, end, _ = share
        for at in range(start + read * _BATCH_OFFSETS, end, _BATCH_OFFSETS):
            to = min(at + _BATCH_OFFSETS, end)
            messages = [m for found in self._fetcher.read((topic, partition), at, to) for m in found]
            yield [self._schema.deserialize(messages)]


def _converter(settings: SourceSettings, bad: BadRecords) -> Callable[[list[Any]], list[tuple[Any, int]]]:
    """Return what makes values with timestamps of messages."""
    if isinstance(settings.values, ChangeDeserializationSchema):
        return _change_converter(settings.values, bad)
    if settings.records is not None:
        schema = settings.records

        def one(message: Any) -> Any:
            headers = tuple(message.headers() or ())
            stamp = message.timestamp()[1]
            about = message.topic(), message.partition(), message.offset(), stamp
            return schema.deserialize(KafkaRecord(*about, message.key(), message.value(), headers))

    else:
        assert settings.values is not None
        deserialize = settings.values.deserialize

        def one(message: Any) -> Any:
            value = message.value()
            return None if value is None else deserialize(value)

    only_values = settings.records is None

    def converted(messages: list[Any]) -> list[tuple[Any, int]]:
        try:
            if only_values:
                values = [m.value() for m in messages]
                if None not in values:
                    found = list(map(deserialize, values))
                    if None not in found:
                        return [(value, m.timestamp()[1]) for value, m in zip(found, messages, strict=True)]
            return [(value, m.timestamp()[1]) for m in messages if (value := one(m)) is not None]
        except Exception:
            # Once more, one by one: which of them is it?
            return carefully(messages)

    def carefully(messages: list[Any]) -> list[tuple[Any, int]]:
        found = []
        for message in messages:
            try:
                value = one(message)
            except FormatUnavailable:
                raise
            except Exception as e:
                value = bad.meet(BadRecord(_place(message), message.value(), str(e) or repr(e)))
            if value is not None:
                found.append((value, message.timestamp()[1]))
        return found

    return converted


def _change_converter(
    schema: ChangeDeserializationSchema, bad: BadRecords
) -> Callable[[list[Any]], list[tuple[Any, int]]]:
    """Return what makes rows of messages that may have several each, such as Debezium's."""

    def converted(messages: list[Any]) -> list[tuple[Any, int]]:
        found: list[tuple[Any, int]] = []
        for message in messages:
            try:
                rows: list[Any] = list(schema.deserialize_all(message.value() or b""))
            except Exception as e:
                told = bad.meet(BadRecord(_place(message), message.value(), str(e) or repr(e)))
                rows = [] if told is None else [told]
            found += [(row, message.timestamp()[1]) for row in rows]
        return found

    return converted


def _place(message: Any) -> str:
    return f"offset {message.offset()} of partition {message.partition()} of topic {message.topic()!r}"
