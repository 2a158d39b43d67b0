"""Reads Kafka with an independent client: kafka-python has its own protocol, fetcher and decoder."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError, UnknownTopicOrPartitionError

T = TypeVar("T")

# Long enough for the restart of a broker that was killed last.
_SECONDS = 60.0


def read_committed(bootstrap: str, topic: str) -> list[bytes]:
    """Return the values that a `read_committed` consumer sees; fails if a transaction is open."""
    return [record.value for record in committed_records(bootstrap, topic)]


def committed_records(bootstrap: str, topic: str) -> list[Any]:
    """Return the records that a `read_committed` consumer sees; fails if a transaction is open."""
    end = time.monotonic() + _SECONDS
    return _persist(lambda: _read(bootstrap, topic, end))


def _persist(request: Callable[[], T]) -> T:
    end = time.monotonic() + _SECONDS
    while True:
        try:
            return request()
        except KafkaError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def waits(bootstrap: str, topic: str) -> bool:
    """Return whether an open transaction hides written records from a `read_committed` consumer."""
    return _persist(lambda: _waits(bootstrap, topic))


def _waits(bootstrap: str, topic: str) -> bool:
    with closing(_consumer(bootstrap, "read_committed")) as consumer:
        partitions = _partitions(consumer, topic)
        return dict(consumer.end_offsets(partitions)) != _written(bootstrap, partitions)


def _read(bootstrap: str, topic: str, end: float) -> list[Any]:
    with closing(_consumer(bootstrap, "read_committed")) as consumer:
        partitions = _partitions(consumer, topic)
        consumer.assign(partitions)
        ends = _written(bootstrap, partitions)
        records_read: list[Any] = []
        while partitions := [p for p in partitions if consumer.position(p) < ends[p]]:
            assert time.monotonic() < end, f"{partitions} do not come to their end at {ends}: a transaction is open"
            for records in consumer.poll(timeout_ms=200).values():
                records_read += records
        return records_read


def _consumer(bootstrap: str, level: str) -> KafkaConsumer:
    return KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=level, auto_offset_reset="earliest", enable_auto_commit=False
    )


def _partitions(consumer: KafkaConsumer, topic: str) -> list[TopicPartition]:
    numbers = consumer.partitions_for_topic(topic)
    if not numbers:
        raise UnknownTopicOrPartitionError(f"Kafka has no metadata of {topic}")
    return [TopicPartition(topic, number) for number in numbers]


def _written(bootstrap: str, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the end offsets of partitions, including open transactions."""
    with closing(_consumer(bootstrap, "read_uncommitted")) as consumer:
        return dict(consumer.end_offsets(partitions))
