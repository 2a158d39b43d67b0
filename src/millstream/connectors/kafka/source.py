"""KafkaSource, its builder and its split enumerator, which assigns offsets; `reader.py` reads them in the subtask."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from typing import TypedDict

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.common.serialization import DeserializationSchema
from millstream.connectors.base import Source, SourceReader, SplitAssignment, SplitEnumerator, SplitRange
from millstream.connectors.kafka.client import KafkaFailure, client_settings, library
from millstream.connectors.kafka.offsets import Cluster, KafkaOffsetsInitializer, KafkaTopicPartition, Partition
from millstream.connectors.kafka.reader import KafkaBatchReader, KafkaReader
from millstream.connectors.kafka.serialization import KafkaBatchDeserializationSchema, KafkaRecordDeserializationSchema
from millstream.connectors.kafka.settings import SourceSettings

__all__ = ["KafkaSource", "KafkaSourceBuilder"]


class _Snapshot(TypedDict):
    """The next offset and the end offset of each partition."""

    next: dict[Partition, int]
    stop: dict[Partition, int]


class KafkaEnumerator(SplitEnumerator):
    """Assigns intervals of offsets up to the end offsets that the broker reports.

    A split range is (topic, partition, start, stop, whether the split ends there).
    """

    def __init__(self, settings: SourceSettings, parallelism: int, restored: _Snapshot | None) -> None:
        self._settings = settings
        self._parallelism = parallelism
        self._cluster = Cluster(settings.client(), settings.bootstrap)
        self._commits = "group.id" in settings.properties and (
            settings.properties.get("commit.offsets.on.checkpoint", "true").lower() == "true"
        )
        first = restored is None
        restored = restored or {"next": {}, "stop": {}}
        self._next: dict[Partition, int] = dict(restored["next"])
        # The program decides whether the source is bounded; the restored job may have decided otherwise.
        self._stop: dict[Partition, int] = {} if settings.stop is None else dict(restored["stop"])
        self._next_discovery: float | None = None
        self._round = 0
        # Partitions not assigned to a subtask yet.
        self._new: list[Partition] = []
        # Partitions paused by watermark alignment.
        self._paused: frozenset[Partition] = frozenset()
        try:
            # After a restore, unknown partitions are new.
            self._discover(first)
        except BaseException:
            self.close()
            raise

    def _discover(self, first: bool) -> None:
        """Discover partitions; those created later are read from the earliest offset."""
        new = [p for p in self._subscribed() if p not in self._next]
        self._new += new
        start = self._settings.start if first else KafkaOffsetsInitializer.earliest()
        stop = self._settings.stop
        if stop is not None:
            endless = [p for p in (*self._next, *new) if p not in self._stop]
            self._stop |= self._cluster.offsets(endless, stop)
        self._next |= self._cluster.offsets(new, start)

    def _subscribed(self) -> list[Partition]:
        settings, topics = self._settings, self._cluster.topics()
        if settings.partitions:
            partitions = list(settings.partitions)
        elif settings.pattern is not None:
            partitions = [(t, p) for t in topics if re.fullmatch(settings.pattern, t) for p in topics[t]]
        else:
            missing = [t for t in settings.topics if t not in topics]
            if missing:
                raise KafkaFailure(
                    f"Kafka at {settings.bootstrap} has no topic {missing[0]!r}: create it, or correct its name."
                )
            return [(t, p) for t in settings.topics for p in topics[t]]
        for topic, number in partitions:
            if number not in topics.get(topic, ()):
                raise KafkaFailure(f"Kafka at {settings.bootstrap} has no partition {number} of topic {topic!r}.")
        return partitions

    def poll(self, budget: int, now: float) -> SplitAssignment:
        interval = self._settings.discovery_seconds
        if interval is not None:
            if self._next_discovery is not None and now >= self._next_discovery:
                self._discover(first=False)
                self._next_discovery = None
            self._next_discovery = now + interval if self._next_discovery is None else self._next_discovery
        unfinished = [p for p in self._next if p not in self._stop or self._next[p] < self._stop[p]]
        ends = self._cluster.latest(unfinished)
        self._check_within(ends)
        stops = {p: max(min(ends[p], self._stop.get(p, ends[p])), self._next[p]) for p in unfinished}
        ready = [p for p in unfinished if self._next[p] < stops[p] and p not in self._paused]
        self._round += 1
        split_ranges: dict[int, list[SplitRange]] = {}
        for subtask, partitions in self._by_subtask(ready).items():
            for partition, records in portions(partitions, budget, self._round):
                start = self._next[partition]
                to = min(start + records, stops[partition])
                ends_here = to == self._stop.get(partition)
                split_ranges.setdefault(subtask, []).append((*partition, start, to, ends_here))
                self._next[partition] = to
        for subtask, partitions in self._by_subtask(self._new_without_records(split_ranges)).items():
            # Empty ranges, from which on the watermark waits for these partitions.
            split_ranges.setdefault(subtask, []).extend((*p, self._next[p], self._next[p], False) for p in partitions)
        unassigned = {s: sum(stops[p] - self._next[p] for p in ps) for s, ps in self._by_subtask(unfinished).items()}
        return SplitAssignment(
            split_ranges, limited=any(self._next[p] < stops[p] for p in ready), unassigned=unassigned
        )

    def pause_splits(self, splits: Collection[Partition]) -> None:
        self._paused = frozenset(splits)

    def _check_within(self, ends: dict[Partition, int]) -> None:
        """Raise if a position is beyond the end of its partition: waiting for it would skip records."""
        beyond = [p for p, end in ends.items() if self._next[p] > end]
        # Uncommitted records count as written.
        for (topic, number), end in self._cluster.written(beyond).items():
            offset = self._next[topic, number]
            if offset > end:
                raise KafkaFailure(
                    f"Kafka: partition {number} of topic {topic!r} ends at offset {end}, but the job's offset is "
                    f"{offset}: the topic was recreated, or the offset never existed. Start from an existing offset."
                )

    def _new_without_records(self, split_ranges: dict[int, list[SplitRange]]) -> list[Partition]:
        """Return the new partitions that have no assigned range, unless they are finished; they are new only once."""
        assigned = {(topic, number) for ranges in split_ranges.values() for topic, number, *_ in ranges}
        new, self._new = self._new, []
        return [p for p in new if p not in assigned and self._next[p] < self._stop.get(p, self._next[p] + 1)]

    def _by_subtask(self, partitions: list[Partition]) -> dict[int, list[Partition]]:
        by_subtask: dict[int, list[Partition]] = {}
        for partition in partitions:
            by_subtask.setdefault(subtask_of(partition, self._parallelism), []).append(partition)
        return by_subtask

    def is_finished(self) -> bool:
        return self._settings.stop is not None and all(self._next[p] >= self._stop[p] for p in self._next)

    def snapshot(self) -> _Snapshot:
        return {"next": dict(self._next), "stop": dict(self._stop)}

    def committed(self, snapshot: _Snapshot) -> None:
        if self._commits:
            self._cluster.commit(snapshot["next"])

    def close(self) -> None:
        self._cluster.close()


def portions(partitions: list[Partition], budget: int, round_number: int) -> list[tuple[Partition, int]]:
    """Divide a budget of records among partitions; a budget below their number goes to others in the next turn.

    Example:
        >>> portions([("a", 0), ("a", 1)], 10, 0)
        [(('a', 0), 5), (('a', 1), 5)]
        >>> portions([("a", 0), ("a", 1), ("a", 2)], 2, 1)
        [(('a', 1), 1), (('a', 2), 1)]
    """
    count = len(partitions)
    if budget >= count:
        return [(p, budget // count) for p in partitions]
    return [(partitions[(round_number + i) % count], 1) for i in range(budget)]


def subtask_of(partition: Partition, parallelism: int) -> int:
    """Return the subtask of a partition: Flink's round robin, which starts at the hash of the topic."""
    topic, number = partition
    h = 0
    for c in topic:
        h = (h * 31 + ord(c)) & 0xFFFFFFFF
    return ((h * 31 & 0x7FFFFFFF) % parallelism + number) % parallelism


class KafkaSource(Source[Value]):
    """Reads Kafka topics with per-partition watermarks; records have Kafka's timestamps.

    Example:
        >>> from millstream.common.serialization import SimpleStringSchema
        >>> source = (
        ...     KafkaSource.builder()
        ...     .set_bootstrap_servers("localhost:9092")
        ...     .set_topics("words")
        ...     .set_group_id("counting")
        ...     .set_client_id_prefix("counting")
        ...     .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        ...     .set_bounded(KafkaOffsetsInitializer.latest())
        ...     .set_property("partition.discovery.interval.ms", "60000")
        ...     .set_value_only_deserializer(SimpleStringSchema())
        ...     .build()
        ... )
        >>> source.name, source.is_bounded
        ('KafkaSource-words', True)
    """

    timestamped = True
    aligns_splits = True

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self.timestamped = settings.batches is None
        schema = settings.values or settings.records
        if schema is not None:
            self.produced_type = schema.get_produced_type()
        self.name = f"KafkaSource-{settings.described}"

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """Return a builder; the brokers, the topics and a deserializer are required."""
        return KafkaSourceBuilder()

    @property
    def is_bounded(self) -> bool:
        return self._settings.bounded

    def check(self) -> None:
        library()

    def create_enumerator(self, parallelism: int, restored: _Snapshot | None = None) -> SplitEnumerator:
        return KafkaEnumerator(self._settings, parallelism, restored)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        batches = self._settings.batches
        if batches is not None:
            return KafkaBatchReader(self._settings, subtask, batches)
        return KafkaReader(self._settings, subtask, self.bad_records)

    def subtask_of(self, split: Partition, parallelism: int) -> int:
        return subtask_of(split, parallelism)


class KafkaSourceBuilder:
    """Builds a KafkaSource; see KafkaSource for an example."""

    def __init__(self) -> None:
        self._settings = SourceSettings()

    def _with(self, settings: SourceSettings) -> KafkaSourceBuilder:
        self._settings = settings
        return self

    def build(self) -> KafkaSource:
        """Return the source; an incomplete configuration is an error."""
        return KafkaSource(self.checked_settings())

    def checked_settings(self) -> SourceSettings:
        """Return the checked settings."""
        settings = self._settings
        if "bootstrap.servers" not in settings.properties:
            raise InvalidProgramError("KafkaSource: set the brokers with set_bootstrap_servers(...).")
        if not settings.topics and settings.pattern is None and not settings.partitions:
            raise InvalidProgramError(
                "KafkaSource: set the topics with set_topics(...), set_topic_pattern(...) or set_partitions(...)."
            )
        if settings.values is None and settings.records is None and settings.batches is None:
            raise InvalidProgramError(
                "KafkaSource: set a deserializer with set_value_only_deserializer(...), for example "
                "SimpleStringSchema()."
            )
        if settings.start.needs_group and "group.id" not in settings.properties:
            raise InvalidProgramError("KafkaSource: committed offsets need a group: set it with set_group_id(...).")
        client_settings(settings.properties)
        return settings

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder:
        """Set the brokers: `host:port`, separated by commas. Required."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """Set the group whose offsets are committed with checkpoints; without one none are.

        A restored job does not use them: its checkpoint has the offsets.
        """
        return self.set_property("group.id", group_id)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        """Read these topics; topics, a pattern or partitions are required."""
        self._check_unset("topics")
        return self._with(replace(self._settings, topics=tuple(topics)))

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """Read all topics that match a regular expression, including later ones.

        Example:
            >>> from millstream.common.serialization import SimpleStringSchema
            >>> builder = KafkaSource.builder().set_bootstrap_servers("localhost:9092").set_topic_pattern("orders-.*")
            >>> builder.set_value_only_deserializer(SimpleStringSchema()).build().name
            'KafkaSource-topics like orders-.*'
        """
        self._check_unset("topic pattern")
        return self._with(replace(self._settings, pattern=topic_pattern))

    def set_partitions(self, partitions: set[KafkaTopicPartition]) -> KafkaSourceBuilder:
        """Read only these partitions.

        Example:
            >>> from millstream.common.serialization import SimpleStringSchema
            >>> builder = KafkaSource.builder().set_bootstrap_servers("localhost:9092")
            >>> builder = builder.set_partitions({KafkaTopicPartition("orders", 0), KafkaTopicPartition("orders", 1)})
            >>> builder.set_value_only_deserializer(SimpleStringSchema()).build().name
            'KafkaSource-orders'
        """
        self._check_unset("partitions")
        return self._with(replace(self._settings, partitions=tuple(sorted((p.topic, p.partition) for p in partitions))))

    def _check_unset(self, parameter: str) -> None:
        settings = self._settings
        if settings.topics or settings.pattern is not None or settings.partitions:
            raise InvalidProgramError(
                f"KafkaSource: the {parameter} would replace the topics that are already set; set them once."
            )

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Set where a job without a checkpoint begins, by default at the oldest records."""
        return self._with(replace(self._settings, start=starting_offsets_initializer))

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Stop at offsets, but run as an unbounded source; by default the source never stops."""
        return self._with(replace(self._settings, stop=stopping_offsets_initializer, bounded=False))

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Run as a bounded source up to offsets, which are resolved when the job starts; by default it is unbounded."""
        return self._with(replace(self._settings, stop=stopping_offsets_initializer, bounded=True))

    def set_value_only_deserializer(self, deserialization_schema: DeserializationSchema) -> KafkaSourceBuilder:
        """Set the schema of values; keys and headers are not read. This or `set_deserializer` is required."""
        return self._with(replace(self._settings, values=deserialization_schema, records=None))

    def set_deserializer(self, record_deserializer: KafkaRecordDeserializationSchema) -> KafkaSourceBuilder:
        """Set the schema of whole records: key, value, headers and position.

        See KafkaRecordDeserializationSchema for an example.
        """
        return self._with(replace(self._settings, records=record_deserializer, values=None))

    def set_batch_deserializer(self, batch_deserializer: KafkaBatchDeserializationSchema) -> KafkaSourceBuilder:
        """Set a schema that reads messages as a batch, for SQL tables."""
        return self._with(replace(self._settings, batches=batch_deserializer, records=None, values=None))

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        """Set the prefix of client ids, by default that of the client library."""
        return self.set_property("client.id.prefix", prefix)

    def set_property(self, key: str, value: str) -> KafkaSourceBuilder:
        """Set a property of the consumer, under Kafka's name."""
        return self.set_properties({key: value})

    def set_properties(self, props: dict[str, str]) -> KafkaSourceBuilder:
        """Set properties of the consumer, under Kafka's names.

        Example:
            >>> from millstream.common.serialization import SimpleStringSchema
            >>> properties = {"bootstrap.servers": "localhost:9092", "group.id": "counting"}
            >>> builder = KafkaSource.builder().set_properties(properties).set_topics("words")
            >>> builder.set_value_only_deserializer(SimpleStringSchema()).build().name
            'KafkaSource-words'
        """
        return self._with(
            replace(self._settings, properties={**self._settings.properties, **{k: str(v) for k, v in props.items()}})
        )
