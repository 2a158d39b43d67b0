"""What a KafkaSource was told: what it reads, from where to where, and what the client is to know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.common.serialization import DeserializationSchema
from millstream.connectors.kafka.client import client_settings
from millstream.connectors.kafka.deserialization import (
    KafkaBatchDeserializationSchema,
    KafkaRecordDeserializationSchema,
)
from millstream.connectors.kafka.offsets import KafkaOffsetsInitializer, Partition

_DISCOVERY = "partition.discovery.interval.ms"
_DISCOVERY_MS = 300_000


@dataclass(frozen=True)
class SourceSettings:
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
            "max.partition.fetch.bytes": str(8 << 20),
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
