"""The split enumerator of KafkaSource."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from millstream.connectors.base import SplitAssignment, SplitEnumerator, SplitRange
from millstream.connectors.kafka.client import KafkaFailure
from millstream.connectors.kafka.offsets import Cluster, KafkaOffsetsInitializer, Partition
from millstream.connectors.kafka.settings import SourceSettings


class KafkaEnumerator(SplitEnumerator):
    """Assigns intervals of offsets up to the end offsets that the broker reports.

    A split range is (topic, partition, start, stop, whether the split ends there).
    """

    def __init__(self, settings: SourceSettings, parallelism: int, restored: Any) -> None:
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
        self._turn = 0
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
        every = self._settings.discovery_seconds
        if every is not None:
            if self._next_discovery is not None and now >= self._next_discovery:
                self._discover(first=False)
                self._next_discovery = None
            self._next_discovery = now + every if self._next_discovery is None else self._next_discovery
        unread = [p for p in self._next if p not in self._stop or self._next[p] < self._stop[p]]
        ends = self._cluster.latest(unread)
        self._check_within(ends)
        stops = {p: max(min(ends[p], self._stop.get(p, ends[p])), self._next[p]) for p in unread}
        ready = [p for p in unread if self._next[p] < stops[p] and p not in self._paused]
        self._turn += 1
        shares: dict[int, list[SplitRange]] = {}
        for subtask, partitions in self._by_subtask(ready).items():
            for partition, records in portions(partitions, budget, self._turn):
                start = self._next[partition]
                to = min(start + records, stops[partition])
                ends_here = to == self._stop.get(partition)
                shares.setdefault(subtask, []).append((*partition, start, to, ends_here))
                self._next[partition] = to
        for subtask, partitions in self._by_subtask(self._unknown(shares)).items():
            # Empty ranges, from which on the watermark waits for these partitions.
            shares.setdefault(subtask, []).extend((*p, self._next[p], self._next[p], False) for p in partitions)
        pending = {s: sum(stops[p] - self._next[p] for p in ps) for s, ps in self._by_subtask(unread).items()}
        return SplitAssignment(shares, limited=any(self._next[p] < stops[p] for p in ready), pending=pending)

    def hold_back(self, splits: Collection[Partition]) -> None:
        self._paused = frozenset(splits)

    def _check_within(self, ends: dict[Partition, int]) -> None:
        """Raise if a position is beyond the end of its partition: waiting for it would skip records."""
        beyond = [p for p, end in ends.items() if self._next[p] > end]
        # Uncommitted records count as written.
        for (topic, number), end in self._cluster.written(beyond).items():
            at = self._next[topic, number]
            if at > end:
                raise KafkaFailure(
                    f"Kafka: partition {number} of topic {topic!r} ends at offset {end}, but the job's offset is "
                    f"{at}: the topic was recreated, or the offset never existed. Start from an existing offset."
                )

    def _unknown(self, shares: dict[int, list[SplitRange]]) -> list[Partition]:
        """Return the new partitions without an assigned range, unless they are finished."""
        assigned = {(topic, number) for ranges in shares.values() for topic, number, *_ in ranges}
        new, self._new = self._new, []
        return [p for p in new if p not in assigned and self._next[p] < self._stop.get(p, self._next[p] + 1)]

    def _by_subtask(self, partitions: list[Partition]) -> dict[int, list[Partition]]:
        by_subtask: dict[int, list[Partition]] = {}
        for partition in partitions:
            by_subtask.setdefault(subtask_of(partition, self._parallelism), []).append(partition)
        return by_subtask

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
    return [(partitions[(turn + i) % count], 1) for i in range(budget)]


def subtask_of(partition: Partition, parallelism: int) -> int:
    """Return the subtask of a partition: Flink's round robin, which starts at the hash of the topic."""
    topic, number = partition
    h = 0
    for c in topic:
        h = (h * 31 + ord(c)) & 0xFFFFFFFF
    return ((h * 31 & 0x7FFFFFFF) % parallelism + number) % parallelism
