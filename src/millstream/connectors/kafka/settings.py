"""Settings of KafkaSource and KafkaSink, and the client configurations that they imply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.common.serialization import DeserializationSchema
from millstream.connectors.base import DeliveryGuarantee
from millstream.connectors.kafka.client import Admin, Setting, client_settings
from millstream.connectors.kafka.offsets import KafkaOffsetsInitializer, Partition
from millstream.connectors.kafka.serialization import (
    KafkaBatchDeserializationSchema,
    KafkaBatchSerializationSchema,
    KafkaRecordDeserializationSchema,
    KafkaRecordSerializationSchema,
)

_DISCOVERY = "partition.discovery.interval.ms"
_DISCOVERY_MS = 300_000


@dataclass(frozen=True)
class SourceSettings:
    """The topics, offsets and schemas of a source."""

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

    def client(self, subtask: int | None = None) -> dict[str, Setting]:
        """Return the settings of a consumer."""
        settings = client_settings(self.properties)
        prefix = self.properties.get("client.id.prefix")
        if prefix is not None:
            settings["client.id"] = f"{prefix}-{'enumerator' if subtask is None else subtask}"
        return {
            "isolation.level": "read_uncommitted",
            "group.id": "millstream",
            # With 100,000 queued messages the client pauses for this time, 1 s by default; they last shorter.
            "fetch.queue.backoff.ms": "10",
            "max.partition.fetch.bytes": str(8 << 20),
            **settings,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # A deleted offset is an error; reading must not continue elsewhere.
            "auto.offset.reset": "error",
        }

    @property
    def discovery_seconds(self) -> float | None:
        """The interval of partition discovery, or None if disabled."""
        milliseconds = int(self.properties.get(_DISCOVERY, _DISCOVERY_MS))
        return None if milliseconds <= 0 or self.bounded else milliseconds / 1000


# The default maximum of brokers.
_TRANSACTION_TIMEOUT_MS = 900_000


@dataclass(frozen=True)
class SinkSettings:
    properties: Mapping[str, str] = field(default_factory=dict)
    guarantee: DeliveryGuarantee = DeliveryGuarantee.NONE
    prefix: str | None = None
    # Whether the prefix is unique to this sink; otherwise other jobs may use it for other sinks.
    owns_prefix: bool = True
    # Whether messages get the timestamps of records.
    stamps: bool = True
    schema: KafkaRecordSerializationSchema | KafkaBatchSerializationSchema | None = None

    @property
    def bootstrap(self) -> str:
        return self.properties["bootstrap.servers"]

    @property
    def is_transactional(self) -> bool:
        return self.guarantee is DeliveryGuarantee.EXACTLY_ONCE

    @property
    def transaction_timeout(self) -> int:
        return int(self.properties.get("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS))

    def client(self) -> dict[str, Setting]:
        """Return the settings of a producer."""
        return {
            # Java's partitioner: other programs expect keys in its partitions.
            "partitioner": "murmur2_random",
            "linger.ms": "5",
            "queue.buffering.max.messages": "1000000",
            **client_settings(self.properties),
            "delivery.report.only.error": True,
        }

    def admin(self) -> Admin:
        """Return an admin client."""
        security = {k: v for k, v in self.properties.items() if k.startswith(("security.", "sasl.", "ssl."))}
        return Admin(client_settings({"bootstrap.servers": self.bootstrap, **security}), self.bootstrap)

    def transaction(self, name: str) -> dict[str, Setting]:
        """Return the settings of the producer of a transaction."""
        limits: dict[str, Setting] = {
            "transaction.timeout.ms": self.transaction_timeout,
            "transactional.id": f"{self.prefix}-{name}",
        }
        return {**self.client(), **limits}
