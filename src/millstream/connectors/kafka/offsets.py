"""Offset initializers, and the cluster's offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from millstream.connectors.kafka.client import TIMEOUT, Admin, KafkaFailure, Setting, library, reason
from millstream.connectors.retries import Retries, constant

if TYPE_CHECKING:
    from confluent_kafka import Consumer

# A partition: topic and number.
Partition = tuple[str, int]


@dataclass(frozen=True)
class KafkaTopicPartition:
    """Identifies a partition of a topic by its number."""

    topic: str
    partition: int


class KafkaOffsetResetStrategy(Enum):
    """Says where to begin in a partition without a committed offset; NONE fails the job."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2


class _Kind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"
    TIMESTAMP = "timestamp"
    EXPLICIT = "explicit"


@dataclass(frozen=True)
class KafkaOffsetsInitializer:
    """Selects the offsets at which reading begins or ends.

    Example:
        >>> KafkaOffsetsInitializer.timestamp(1_700_000_000_000).time
        1700000000000
        >>> KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST).needs_group
        True
        >>> KafkaOffsetsInitializer.offsets({KafkaTopicPartition("words", 0): 42}).explicit
        {('words', 0): 42}
    """

    kind: _Kind
    reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST
    time: int = 0
    explicit: Mapping[Partition, int] = field(default_factory=dict)

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """Begin at the oldest record, the default of KafkaSource."""
        return KafkaOffsetsInitializer(_Kind.EARLIEST)

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """Begin after the newest record, or end there."""
        return KafkaOffsetsInitializer(_Kind.LATEST)

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """Begin at the offsets committed by the group.

        Args:
            offset_reset_strategy: where to begin in partitions without one; NONE, the default, fails the job.
        """
        return KafkaOffsetsInitializer(_Kind.COMMITTED, offset_reset_strategy)

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """Begin at the first record with this timestamp or a later one, in milliseconds."""
        return KafkaOffsetsInitializer(_Kind.TIMESTAMP, time=timestamp)

    @staticmethod
    def offsets(
        offsets: dict[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """Begin at explicit offsets.

        Args:
            offsets: the offset of each partition.
            offset_reset_strategy: where to begin in other partitions, by default at the oldest record.
        """
        explicit = {(p.topic, p.partition): offset for p, offset in offsets.items()}
        return KafkaOffsetsInitializer(_Kind.EXPLICIT, offset_reset_strategy, explicit=explicit)

    @property
    def is_latest(self) -> bool:
        """Whether it is the end of a partition."""
        return self.kind is _Kind.LATEST

    @property
    def needs_group(self) -> bool:
        """Whether it is the committed offset of a group."""
        return self.kind is _Kind.COMMITTED


# Errors of partitions without a leader yet, or whose leader just changed: retried.
_LEADER_MOVES = ("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH")
_BACKOFF = constant(0.1)


class Cluster:
    """Queries partitions and offsets, on the driver."""

    def __init__(self, settings: dict[str, Setting], bootstrap: str) -> None:
        self._kafka = library()
        self.bootstrap = bootstrap
        self._settings = settings
        keys = ("isolation.level", "group.id", "enable.auto.commit", "enable.partition.eof", "auto.offset.reset")
        self._admin = Admin({k: v for k, v in settings.items() if k not in keys}, bootstrap)
        self._committed = settings.get("isolation.level", "read_committed") == "read_committed"
        self._consumer: Consumer | None = None

    def topics(self) -> dict[str, list[int]]:
        """Return the partition numbers of all topics."""
        topics = self._admin.cluster().topics
        return {name: sorted(topic.partitions) for name, topic in topics.items() if topic.error is None}

    def offsets(self, partitions: Iterable[Partition], start: KafkaOffsetsInitializer) -> dict[Partition, int]:
        """Return the offsets that an initializer selects."""
        requested = list(partitions)
        if start.kind is _Kind.EARLIEST:
            return self.earliest(requested)
        if start.kind is _Kind.LATEST:
            return self.latest(requested)
        if start.kind is _Kind.TIMESTAMP:
            starts = self._list(requested, ("timestamp", start.time), committed=False)
            # Without a record that new, reading begins at the end.
            ends = self.latest([p for p in requested if starts[p] < 0])
            return {p: ends[p] if starts[p] < 0 else starts[p] for p in requested}
        known = start.explicit if start.kind is _Kind.EXPLICIT else self.group_offsets(requested)
        return self._or_reset(requested, known, start.reset)

    def _or_reset(
        self, requested: list[Partition], known: Mapping[Partition, int], reset: KafkaOffsetResetStrategy
    ) -> dict[Partition, int]:
        missing = [p for p in requested if known.get(p, -1) < 0]
        if missing and reset is KafkaOffsetResetStrategy.NONE:
            topic, partition = missing[0]
            raise KafkaFailure(
                f"Kafka: partition {partition} of topic {topic!r} has no committed offset, and no reset "
                "strategy is set: use KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST)."
            )
        reset_to = self.earliest if reset is KafkaOffsetResetStrategy.EARLIEST else self.latest
        return {p: known[p] for p in requested if p not in missing} | reset_to(missing)

    def earliest(self, partitions: list[Partition]) -> dict[Partition, int]:
        """Return the offset of the oldest record of each partition."""
        return self._list(partitions, ("earliest", 0), committed=False)

    def latest(self, partitions: list[Partition]) -> dict[Partition, int]:
        """Return the end offset of each partition, after the newest readable record."""
        return self._list(partitions, ("latest", 0), self._committed)

    def written(self, partitions: list[Partition]) -> dict[Partition, int]:
        """Return the end offset of each partition, including uncommitted records."""
        return self._list(partitions, ("latest", 0), committed=False)

    def _list(self, partitions: list[Partition], spec: tuple[str, int], committed: bool) -> dict[Partition, int]:
        if not partitions:
            return {}
        # An optional package.
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        kind, timestamp = spec
        offset_spec = OffsetSpec.for_timestamp(timestamp) if kind == "timestamp" else getattr(OffsetSpec, kind)()
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        retries = Retries(_BACKOFF, max_seconds=TIMEOUT)
        offsets: dict[Partition, int] = {}
        while True:
            request = {TopicPartition(*partition): offset_spec for partition in partitions if partition not in offsets}
            futures = self._admin.client.list_offsets(request, isolation_level=level, request_timeout=TIMEOUT)
            failure: KafkaFailure | None = None
            for partition, future in futures.items():
                try:
                    offsets[partition.topic, partition.partition] = future.result(TIMEOUT).offset
                except self._kafka.KafkaException as e:
                    failure = KafkaFailure(
                        f"Kafka at {self.bootstrap} does not return the offsets of partition {partition.partition} of "
                        f"topic {partition.topic!r}: {reason(e)}."
                    )
                    if e.args[0].name() not in _LEADER_MOVES:
                        raise failure from e
            if failure is None:
                return offsets
            if not retries.wait():
                raise failure

    def group_offsets(self, partitions: list[Partition]) -> dict[Partition, int]:
        """Return the committed offsets of the group; -1 for none."""
        targets = [self._kafka.TopicPartition(topic, number) for topic, number in partitions]
        try:
            committed = self._group().committed(targets, timeout=TIMEOUT)
        except self._kafka.KafkaException as e:
            raise KafkaFailure(f"Kafka does not return the offsets of the group: {reason(e)}.") from e
        return {(p.topic, p.partition): p.offset for p in committed}

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets of the group asynchronously; they are informative only."""
        if offsets:
            positions = [
                self._kafka.TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()
            ]
            self._group().commit(offsets=positions, asynchronous=True)

    def _group(self) -> Consumer:
        if self._consumer is None:
            self._consumer = self._kafka.Consumer({**self._settings, "enable.auto.commit": False})
        return self._consumer

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
