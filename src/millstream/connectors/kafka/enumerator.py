"""Deals out intervals of Kafka's partitions. Lives on the driver."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from millstream.connectors.base import SplitAssignment, SplitEnumerator, SplitRange
from millstream.connectors.kafka.client import KafkaFailure
from millstream.connectors.kafka.offsets import Cluster, KafkaOffsetsInitializer, Partition
from millstream.connectors.kafka.settings import SourceSettings


class KafkaEnumerator(SplitEnumerator):
    """Deals out intervals of offsets up to what the broker says is there.

    A share is (topic, partition, from, to, ends).
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
        # The program says whether there is an end: what it goes on from may have been without, or with one.
        self._stop: dict[Partition, int] = {} if settings.stop is None else dict(restored["stop"])
        self._looks_at: float | None = None
        self._turn = 0
        # Partitions that no subtask knows of yet.
        self._new: list[Partition] = []
        # Those that are ahead of others, and wait.
        self._held: frozenset[Partition] = frozenset()
        try:
            # Where the job has looked before, and found nothing, partitions are new too.
            self._discover(first)
        except BaseException:
            self.close()
            raise

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

    def poll(self, budget: int, now: float) -> SplitAssignment:
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
        shares: dict[int, list[SplitRange]] = {}
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
        return SplitAssignment(shares, limited=any(self._next[p] < there[p] for p in ready), pending=pending)

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

    def _unknown(self, shares: dict[int, list[SplitRange]]) -> list[Partition]:
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
