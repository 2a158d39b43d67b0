"""Makes values with timestamps of Kafka's records. Lives in the subtask."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from millstream.connectors.base import BadRecord, BadRecords, Share, SourceReader
from millstream.connectors.kafka.deserialization import KafkaBatchDeserializationSchema, KafkaRecord
from millstream.connectors.kafka.fetch import Fetcher
from millstream.connectors.kafka.offsets import Partition
from millstream.connectors.kafka.source_settings import SourceSettings
from millstream.formats.changelog.rows import ChangeDeserializationSchema
from millstream.operators.diagnostics.bad_records import FormatUnavailable

# So many offsets are one record at most, where one is made of many.
_BATCH_OFFSETS = 8192


class KafkaReader(SourceReader):
    def __init__(self, settings: SourceSettings, subtask: int, bad: BadRecords) -> None:
        self._settings = settings
        self._fetcher = Fetcher(settings.client(subtask))
        self._convert = _converter(settings, bad)

    def read(self, share: Share) -> Iterator[Collection[Any]]:
        topic, partition, start, end, _ = share
        for messages in self._fetcher.read((topic, partition), start, end):
            yield self._convert(messages)

    def split_of(self, share: Share) -> Partition:
        return share[0], share[1]

    def ends_split(self, share: Share) -> bool:
        return bool(share[4])

    def close(self) -> None:
        self._fetcher.close()


class KafkaBatchReader(KafkaReader):
    """Makes a record of the messages of so many offsets: the same ones, however the broker sends them."""

    def __init__(self, settings: SourceSettings, subtask: int, schema: KafkaBatchDeserializationSchema) -> None:
        self._settings = settings
        self._fetcher = Fetcher(settings.client(subtask))
        self._schema = schema

    def read(self, share: Share) -> Iterator[Collection[Any]]:
        return self.rest(share, 0)

    def rest(self, share: Share, read: int) -> Iterator[Collection[Any]]:
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
