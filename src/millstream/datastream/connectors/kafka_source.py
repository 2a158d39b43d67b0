"""KafkaSource: the records of Kafka's topics."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.common.errors import InvalidProgramError
from millstream.common.serialization import DeserializationSchema
from millstream.common.typeinfo import TypeInformation
from millstream.datastream.connectors.base import (
    BadRecord,
    BadRecords,
    Dealt,
    Share,
    Source,
    SourceReader,
    SplitEnumerator,
)
from millstream.datastream.connectors.kafka_client import KafkaFailure, client_settings, library
from millstream.datastream.connectors.kafka_fetch import Fetcher
from millstream.datastream.connectors.kafka_offsets import (
    Cluster,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
    Partition,
)
from millstream.datastream.formats.change_json import ChangeDeserializationSchema
from millstream.operators.bad_records import FormatUnavailable

__all__ = [
    "KafkaBatchDeserializationSchema",
    "KafkaRecord",
    "KafkaRecordDeserializationSchema",
    "KafkaSource",
    "KafkaSourceBuilder",
]

# So many offsets are one record at most, where one is made of many.
_BATCH_OFFSETS = 8192

_DISCOVERY = "partition.discovery.interval.ms"
_DISCOVERY_MS = 300_000


@dataclass(frozen=True)
class KafkaRecord:
    """A record as Kafka has it.

    Attributes:
        headers: names and values, in order.
        timestamp: in milliseconds.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class KafkaRecordDeserializationSchema(ABC):
    """Makes a value of a whole record: its key, its headers, where it stands."""

    @abstractmethod
    def deserialize(self, record: KafkaRecord) -> Any:
        """Return the value; None leaves the record out."""

    def get_produced_type(self) -> TypeInformation | None:
        """Return the type of the values, None for any."""
        return None

    @staticmethod
    def value_only(deserialization_schema: DeserializationSchema) -> KafkaRecordDeserializationSchema:
        """Return what reads values and leaves the rest of records alone."""
        return _ValueOnly(deserialization_schema)


class KafkaBatchDeserializationSchema(ABC):
    """Makes one record of many messages: what SQL reads."""

    @abstractmethod
    def deserialize(self, messages: Sequence[Any]) -> Any:
        """Return the record of messages of the client library; of one that was made for the same offsets, the same."""


class _ValueOnly(KafkaRecordDeserializationSchema):
    def __init__(self, schema: DeserializationSchema) -> None:
        self._schema = schema

    def deserialize(self, record: KafkaRecord) -> Any:
        return None if record.value is None else self._schema.deserialize(record.value)

    def get_produced_type(self) -> TypeInformation | None:
        return self._schema.get_produced_type()


@dataclass(frozen=True)
class _Settings:
    """What a source reads, and how."""

    properties: Mapping[str, str] = field(default_factory=dict)
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[Partition, ...] = ()
    start: KafkaOffsetsInitializer = field(default_factory=KafkaOffsetsInitializer.earliest)
    stop: KafkaOffsetsInitializer | None = None
    bounded: bool = False
    values: DeserializationSchema | None = None
    records: KafkaRecordDeserializationSchema | None = None
    batches: KafkaBatchDeserializationSchema | None = None

    @property
    def bootstrap(self) -> str:
        return self.properties["bootstrap.servers"]

    @property
    def described(self) -> str:
        if self.pattern is not None:
            return f"topics like {self.pattern}"
        names = self.topics or sorted({topic for topic, _ in self.partitions})
        return ", ".join(names)

    def client(self, subtask: int | None = None) -> dict[str, Any]:
        """Return the settings of a consumer."""
        settings = client_settings(self.properties)
        prefix = self.properties.get("client.id.prefix")
        if prefix is not None:
            settings["client.id"] = f"{prefix}-{'enumerator' if subtask is None else subtask}"
        return {
            "isolation.level": "read_uncommitted",
            "group.id": "millstream",
            # When it has a hundred thousand messages it asks for no more for so long: a second, where they last for
            # less.
            "fetch.queue.backoff.ms": "10",
            **settings,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # A record that is gone is an error, not a reason to go on elsewhere.
            "auto.offset.reset": "error",
        }

    @property
    def discovery_seconds(self) -> float | None:
        """How often to look for new partitions; None for never."""
        milliseconds = int(self.properties.get(_DISCOVERY, _DISCOVERY_MS))
        return None if milliseconds <= 0 or self.bounded else milliseconds / 1000


class _Enumerator(SplitEnumerator):
    """Deals out intervals of offsets up to what the broker says is there.

    A share is (topic, partition, from, to, ends).
    """

    def __init__(self, settings: _Settings, parallelism: int, restored: Any) -> None:
        self._settings = settings
        self._parallelism = parallelism
        self._cluster = Cluster(settings.client(), settings.bootstrap)
        self._commits = "group.id" in settings.properties and (
            settings.properties.get("commit.offsets.on.checkpoint", "true").lower() == "true"
        )
        restored = restored or {"next": {}, "stop": {}}
        self._next: dict[Partition, int] = dict(restored["next"])
        # The program says whether there is an end: what it goes on from may have been without, or with one.
        self._stop: dict[Partition, int] = {} if settings.stop is None else dict(restored["stop"])
        self._looks_at: float | None = None
        self._turn = 0
        # Partitions that no subtask knows of yet.
        self._new: list[Partition] = []
        # Those that are ahead of others, and wait.
        self._held: frozenset[Partition] = frozenset()
        self._discover(first=not restored["next"])

    def _discover(self, first: bool) -> None:
        """Find partitions that are not known yet; those that come later are read from their beginning."""
        new = [p for p in self._found() if p not in self._next]
        self._new += new
        start = self._settings.start if first else KafkaOffsetsInitializer.earliest()
        stop = self._settings.stop
        if stop is not None:
            endless = [p for p in (*self._next, *new) if p not in self._stop]
            self._stop |= self._cluster.offsets(endless, stop)
        self._next |= self._cluster.offsets(new, start)

    def _found(self) -> list[Partition]:
        settings, topics = self._settings, self._cluster.topics()
        if settings.partitions:
            wanted = list(settings.partitions)
        elif settings.pattern is not None:
            wanted = [(t, p) for t in topics if re.fullmatch(settings.pattern, t) for p in topics[t]]
        else:
            missing = [t for t in settings.topics if t not in topics]
            if missing:
                raise KafkaFailure(
                    f"Kafka at {settings.bootstrap} has no topic {missing[0]!r}: create it, or correct its name."
                )
            return [(t, p) for t in settings.topics for p in topics[t]]
        for topic, number in wanted:
            if number not in topics.get(topic, ()):
                raise KafkaFailure(f"Kafka at {settings.bootstrap} has no partition {number} of topic {topic!r}.")
        return wanted

    def poll(self, budget: int, now: float) -> Dealt:
        every = self._settings.discovery_seconds
        if every is not None:
            if self._looks_at is not None and now >= self._looks_at:
                self._discover(first=False)
                self._looks_at = None
            self._looks_at = now + every if self._looks_at is None else self._looks_at
        unread = [p for p in self._next if p not in self._stop or self._next[p] < self._stop[p]]
        ends = self._cluster.latest(unread)
        self._check_within(ends)
        there = {p: max(min(ends[p], self._stop.get(p, ends[p])), self._next[p]) for p in unread}
        ready = [p for p in unread if self._next[p] < there[p] and p not in self._held]
        self._turn += 1
        shares: dict[int, list[Share]] = {}
        for subtask, partitions in self._by_subtask(ready).items():
            for partition, records in portions(partitions, budget, self._turn):
                start = self._next[partition]
                to = min(start + records, there[partition])
                ends_here = to == self._stop.get(partition)
                shares.setdefault(subtask, []).append((*partition, start, to, ends_here))
                self._next[partition] = to
        for subtask, partitions in self._by_subtask(self._unknown(shares)).items():
            # Nothing to read, but their time is waited for from now on.
            shares.setdefault(subtask, []).extend((*p, self._next[p], self._next[p], False) for p in partitions)
        pending = {s: sum(there[p] - self._next[p] for p in ps) for s, ps in self._by_subtask(unread).items()}
        return Dealt(shares, limited=any(self._next[p] < there[p] for p in ready), pending=pending)

    def hold_back(self, splits: Collection[Partition]) -> None:
        self._held = frozenset(splits)

    def _check_within(self, ends: dict[Partition, int]) -> None:
        """Waiting until a partition has come to an offset that it does not have would leave out all before it."""
        beyond = [p for p, end in ends.items() if self._next[p] > end]
        # What is written and not committed is there, though it may not be read yet.
        for (topic, number), end in self._cluster.written(beyond).items():
            at = self._next[topic, number]
            if at > end:
                raise KafkaFailure(
                    f"Kafka: partition {number} of topic {topic!r} ends at offset {end}, and the job is to read from "
                    f"{at}: the topic was deleted and made anew, or the offset was never there. Start from one that is."
                )

    def _unknown(self, shares: dict[int, list[Share]]) -> list[Partition]:
        """Return the new partitions of which nothing is dealt out, unless there is nothing to come of them."""
        dealt = {(topic, number) for found in shares.values() for topic, number, *_ in found}
        new, self._new = self._new, []
        return [p for p in new if p not in dealt and self._next[p] < self._stop.get(p, self._next[p] + 1)]

    def _by_subtask(self, partitions: list[Partition]) -> dict[int, list[Partition]]:
        found: dict[int, list[Partition]] = {}
        for partition in partitions:
            found.setdefault(subtask_of(partition, self._parallelism), []).append(partition)
        return found

    def is_finished(self) -> bool:
        return self._settings.stop is not None and all(self._next[p] >= self._stop[p] for p in self._next)

    def snapshot(self) -> Any:
        return {"next": dict(self._next), "stop": dict(self._stop)}

    def committed(self, snapshot: Any) -> None:
        if self._commits:
            self._cluster.commit(snapshot["next"])

    def close(self) -> None:
        self._cluster.close()


def portions(partitions: list[Partition], budget: int, turn: int) -> list[tuple[Partition, int]]:
    """Return how many records of each partition are read; where not all can have one, others have it in the next turn.

    Example:
        >>> portions([("a", 0), ("a", 1)], 10, 0)
        [(('a', 0), 5), (('a', 1), 5)]
        >>> portions([("a", 0), ("a", 1), ("a", 2)], 2, 1)
        [(('a', 1), 1), (('a', 2), 1)]
    """
    count = len(partitions)
    if budget >= count:
        return [(p, budget // count) for p in partitions]
    return [(partitions[(turn + i) % count], 1) for i in range(budget)]


def subtask_of(partition: Partition, parallelism: int) -> int:
    """Return which subtask reads a partition: neighbours to neighbours, topics begin at different ones, as in Flink."""
    topic, number = partition
    h = 0
    for c in topic:
        h = (h * 31 + ord(c)) & 0xFFFFFFFF
    return ((h * 31 & 0x7FFFFFFF) % parallelism + number) % parallelism


class _Reader(SourceReader):
    def __init__(self, settings: _Settings, subtask: int, bad: BadRecords) -> None:
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


class _BatchReader(_Reader):
    """Makes a record of the messages of so many offsets: the same ones, however the broker sends them."""

    def __init__(self, settings: _Settings, subtask: int, schema: KafkaBatchDeserializationSchema) -> None:
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


def _converter(settings: _Settings, bad: BadRecords) -> Callable[[list[Any]], list[tuple[Any, int]]]:
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


class KafkaSource(Source[Any]):
    """Reads topics of Kafka, each partition with watermarks of its own; records have Kafka's timestamps.

    Example:
        >>> from millstream.common.serialization import SimpleStringSchema
        >>> source = (
        ...     KafkaSource.builder()
        ...     .set_bootstrap_servers("localhost:9092")
        ...     .set_topics("words")
        ...     .set_group_id("counting")
        ...     .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        ...     .set_value_only_deserializer(SimpleStringSchema())
        ...     .build()
        ... )
        >>> source.is_bounded
        False
    """

    timestamped = True
    aligns_splits = True

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings
        self.timestamped = settings.batches is None
        schema = settings.values or settings.records
        if schema is not None:
            self.produced_type = schema.get_produced_type()
        self.name = f"KafkaSource-{settings.described}"

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """Begin a source."""
        return KafkaSourceBuilder()

    @property
    def is_bounded(self) -> bool:
        return self._settings.bounded

    def check(self) -> None:
        library()

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return _Enumerator(self._settings, parallelism, restored)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        batches = self._settings.batches
        if batches is not None:
            return _BatchReader(self._settings, subtask, batches)
        return _Reader(self._settings, subtask, self.bad_records)

    def subtask_of(self, split: Any, parallelism: int) -> int:
        return subtask_of(split, parallelism)


class KafkaSourceBuilder:
    """Builds a KafkaSource."""

    def __init__(self) -> None:
        self._settings = _Settings()

    def _with(self, **changes: Any) -> KafkaSourceBuilder:
        self._settings = replace(self._settings, **changes)
        return self

    def build(self) -> KafkaSource:
        """Return the source; refuses what cannot be read."""
        return KafkaSource(self.settle())

    def settle(self) -> _Settings:
        """Return what was said; refuses what cannot be read."""
        settings = self._settings
        if "bootstrap.servers" not in settings.properties:
            raise InvalidProgramError("KafkaSource: say where Kafka is with set_bootstrap_servers(...).")
        if not settings.topics and settings.pattern is None and not settings.partitions:
            raise InvalidProgramError(
                "KafkaSource: say what to read with set_topics(...), set_topic_pattern(...) or set_partitions(...)."
            )
        if settings.values is None and settings.records is None and settings.batches is None:
            raise InvalidProgramError(
                "KafkaSource: say how to read values with set_value_only_deserializer(...), for "
                "example SimpleStringSchema()."
            )
        if settings.start.needs_group and "group.id" not in settings.properties:
            raise InvalidProgramError(
                "KafkaSource: committed offsets are those of a group: name it with set_group_id(...)."
            )
        client_settings(settings.properties)
        return settings

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder:
        """Say where Kafka is: `host:port`, several with commas."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """Name the group whose offsets are committed with checkpoints."""
        return self.set_property("group.id", group_id)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        """Read these topics."""
        self._check_nothing_said("topics")
        return self._with(topics=tuple(topics))

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """Read all topics whose whole names fit a regular expression, also those that come later."""
        self._check_nothing_said("topic pattern")
        return self._with(pattern=topic_pattern)

    def set_partitions(self, partitions: set[KafkaTopicPartition]) -> KafkaSourceBuilder:
        """Read just these partitions."""
        self._check_nothing_said("partitions")
        return self._with(partitions=tuple(sorted((p.topic, p.partition) for p in partitions)))

    def _check_nothing_said(self, what: str) -> None:
        settings = self._settings
        if settings.topics or settings.pattern is not None or settings.partitions:
            raise InvalidProgramError(f"KafkaSource: what to read is said already, and the {what} would replace it.")

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Say where reading begins; without it, with the oldest record."""
        return self._with(start=starting_offsets_initializer)

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Stop reading at some offsets, in a source that counts as one without end."""
        return self._with(stop=stopping_offsets_initializer, bounded=False)

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """End at some offsets, which are looked up when the job starts."""
        return self._with(stop=stopping_offsets_initializer, bounded=True)

    def set_value_only_deserializer(self, deserialization_schema: DeserializationSchema) -> KafkaSourceBuilder:
        """Say how values are read; keys and headers are not."""
        return self._with(values=deserialization_schema, records=None)

    def set_deserializer(self, record_deserializer: KafkaRecordDeserializationSchema) -> KafkaSourceBuilder:
        """Say how whole records are read: key, value, headers, where they stand."""
        return self._with(records=record_deserializer, values=None)

    def set_batch_deserializer(self, batch_deserializer: KafkaBatchDeserializationSchema) -> KafkaSourceBuilder:
        """Say how many messages become one record, as tables of SQL read them."""
        return self._with(batches=batch_deserializer, records=None, values=None)

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        """Say how the names of clients begin."""
        return self.set_property("client.id.prefix", prefix)

    def set_property(self, key: str, value: str) -> KafkaSourceBuilder:
        """Set a property of the consumer."""
        return self.set_properties({key: value})

    def set_properties(self, props: dict[str, str]) -> KafkaSourceBuilder:
        """Set properties of the consumer."""
        return self._with(properties={**self._settings.properties, **{k: str(v) for k, v in props.items()}})
