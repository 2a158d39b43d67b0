"""Where reading of Kafka's partitions begins and ends."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from millstream.connectors.kafka.client import TIMEOUT, Admin, KafkaFailure, library, reason

# A partition: topic and number.
Partition = tuple[str, int]


@dataclass(frozen=True)
class KafkaTopicPartition:
    """A partition of a topic."""

    topic: str
    partition: int


class KafkaOffsetResetStrategy(Enum):
    """What counts where no offset was committed."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2


class _Kind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"
    TIMESTAMP = "timestamp"
    GIVEN = "given"


@dataclass(frozen=True)
class KafkaOffsetsInitializer:
    """Says where reading begins, or ends.

    Example:
        >>> KafkaOffsetsInitializer.timestamp(1_700_000_000_000).is_latest
        False
    """

    kind: _Kind
    reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST
    time: int = 0
    given: Mapping[Partition, int] = field(default_factory=dict)

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """Begin with the oldest record there is."""
        return KafkaOffsetsInitializer(_Kind.EARLIEST)

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """Begin behind the newest record there is; as an end, end there."""
        return KafkaOffsetsInitializer(_Kind.LATEST)

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """Begin where the group has committed to, and as the strategy says where it has not."""
        return KafkaOffsetsInitializer(_Kind.COMMITTED, offset_reset_strategy)

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """Begin with the first record whose timestamp, in milliseconds, is not before this one."""
        return KafkaOffsetsInitializer(_Kind.TIMESTAMP, time=timestamp)

    @staticmethod
    def offsets(
        offsets: dict[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """Begin at given offsets, and as the strategy says where none is given."""
        given = {(p.topic, p.partition): offset for p, offset in offsets.items()}
        return KafkaOffsetsInitializer(_Kind.GIVEN, offset_reset_strategy, given=given)

    @property
    def is_latest(self) -> bool:
        """Whether it means the end of a partition."""
        return self.kind is _Kind.LATEST

    @property
    def needs_group(self) -> bool:
        """Whether it means what a group has committed."""
        return self.kind is _Kind.COMMITTED


# What is said of a partition that is new, or whose leader was another just now: it is asked for again.
_LEADER_MOVES = ("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH")
_PAUSE = 0.1


class Cluster:
    """Asks a cluster for its partitions and their offsets. Lives on the driver."""

    def __init__(self, settings: dict[str, Any], bootstrap: str) -> None:
        self._kafka = library()
        self.bootstrap = bootstrap
        self._settings = settings
        keys = ("isolation.level", "group.id", "enable.auto.commit", "enable.partition.eof", "auto.offset.reset")
        self._admin = Admin({k: v for k, v in settings.items() if k not in keys}, bootstrap)
        self._committed = settings.get("isolation.level", "read_committed") == "read_committed"
        self._consumer: Any = None

    def topics(self) -> dict[str, list[int]]:
        """Return all topics and the numbers of their partitions."""
        found = self._admin.cluster()
        return {name: sorted(topic.partitions) for name, topic in found.topics.items() if topic.error is None}

    def offsets(self, partitions: Iterable[Partition], start: KafkaOffsetsInitializer) -> dict[Partition, int]:
        """Return the offset of each partition that an initializer means."""
        wanted = list(partitions)
        if start.kind is _Kind.EARLIEST:
            return self.earliest(wanted)
        if start.kind is _Kind.LATEST:
            return self.latest(wanted)
        if start.kind is _Kind.TIMESTAMP:
            found = self._list(wanted, ("timestamp", start.time), committed=False)
            # None that new: then it begins with the next one.
            ends = self.latest([p for p in wanted if found[p] < 0])
            return {p: ends[p] if found[p] < 0 else found[p] for p in wanted}
        known = start.given if start.kind is _Kind.GIVEN else self.group_offsets(wanted)
        return self._or_reset(wanted, known, start.reset)

    def _or_reset(
        self, wanted: list[Partition], known: Mapping[Partition, int], reset: KafkaOffsetResetStrategy
    ) -> dict[Partition, int]:
        missing = [p for p in wanted if known.get(p, -1) < 0]
        if missing and reset is KafkaOffsetResetStrategy.NONE:
            topic, partition = missing[0]
            raise KafkaFailure(
                f"Kafka: there is no committed offset of partition {partition} of topic {topic!r}, "
                "and what to do then is "
                "not said: use KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST)."
            )
        asked = self.earliest if reset is KafkaOffsetResetStrategy.EARLIEST else self.latest
        return {p: known[p] for p in wanted if p not in missing} | asked(missing)

    def earliest(self, partitions: list[Partition]) -> dict[Partition, int]:
        """Return the offset of the oldest record of each partition."""
        return self._list(partitions, ("earliest", 0), committed=False)

    def latest(self, partitions: list[Partition]) -> dict[Partition, int]:
        """Return the offset behind the newest record of each partition that may be read."""
        return self._list(partitions, ("latest", 0), self._committed)

    def written(self, partitions: list[Partition]) -> dict[Partition, int]:
        """Return the offset behind the newest record of each partition, committed or not."""
        return self._list(partitions, ("latest", 0), committed=False)

    def _list(self, partitions: list[Partition], spec: tuple[str, int], committed: bool) -> dict[Partition, int]:
        if not partitions:
            return {}
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        kind, at = spec
        asked = OffsetSpec.for_timestamp(at) if kind == "timestamp" else getattr(OffsetSpec, kind)()
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        end = time.monotonic() + TIMEOUT
        found: dict[Partition, int] = {}
        while len(found) < len(partitions):
            request = {TopicPartition(*partition): asked for partition in partitions if partition not in found}
            futures = self._admin.client.list_offsets(request, isolation_level=level, request_timeout=TIMEOUT)
            for partition, future in futures.items():
                try:
                    found[partition.topic, partition.partition] = future.result(TIMEOUT).offset
                except self._kafka.KafkaException as e:
                    if e.args[0].name() in _LEADER_MOVES and time.monotonic() < end:
                        continue
                    raise KafkaFailure(
                        f"Kafka at {self.bootstrap} does not tell the offsets of partition {partition.partition} of "
                        f"topic {partition.topic!r}: {reason(e)}."
                    ) from e
            if len(found) < len(partitions):
                time.sleep(_PAUSE)
        return found

    def group_offsets(self, partitions: list[Partition]) -> dict[Partition, int]:
        """Return what the group has committed; -1 where it has not."""
        asked = [self._kafka.TopicPartition(topic, number) for topic, number in partitions]
        try:
            found = self._group().committed(asked, timeout=TIMEOUT)
        except self._kafka.KafkaException as e:
            raise KafkaFailure(f"Kafka does not tell the offsets of the group: {reason(e)}.") from e
        return {(p.topic, p.partition): p.offset for p in found}

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Say how far the group has come; nobody waits for it, since nothing depends on it."""
        if offsets:
            said = [self._kafka.TopicPartition(topic, number, at) for (topic, number), at in offsets.items()]
            self._group().commit(offsets=said, asynchronous=True)

    def _group(self) -> Any:
        if self._consumer is None:
            self._consumer = self._kafka.Consumer({**self._settings, "enable.auto.commit": False})
        return self._consumer

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
