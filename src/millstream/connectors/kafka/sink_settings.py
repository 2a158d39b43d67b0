"""What a KafkaSink was told: where it writes, how, and what the client is to know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.connectors.base import DeliveryGuarantee
from millstream.connectors.kafka.client import Admin, client_settings
from millstream.connectors.kafka.serialization import (
    KafkaBatchSerializationSchema,
    KafkaRecordSerializationSchema,
)

# What a broker allows unless it was told otherwise.
_TRANSACTION_TIMEOUT_MS = 900_000


@dataclass(frozen=True)
class SinkSettings:
    properties: Mapping[str, str] = field(default_factory=dict)
    guarantee: DeliveryGuarantee = DeliveryGuarantee.NONE
    prefix: str | None = None
    # Whether no other sink has the prefix; else other jobs may have it too, in sinks that stand elsewhere in them.
    owns_prefix: bool = True
    # Whether messages have the timestamps of records.
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

    def client(self) -> dict[str, Any]:
        """Return the settings of a producer."""
        return {
            # Where Java's client would put a key, others look for it.
            "partitioner": "murmur2_random",
            "linger.ms": "5",
            "queue.buffering.max.messages": "1000000",
            **client_settings(self.properties),
            "delivery.report.only.error": True,
        }

    def admin(self) -> Admin:
        """Return a client that asks the cluster about itself."""
        security = {k: v for k, v in self.properties.items() if k.startswith(("security.", "sasl.", "ssl."))}
        return Admin(client_settings({"bootstrap.servers": self.bootstrap, **security}), self.bootstrap)

    def transaction(self, name: str) -> dict[str, Any]:
        """Return the settings of the producer of a transaction."""
        limits = {"transaction.timeout.ms": self.transaction_timeout, "transactional.id": f"{self.prefix}-{name}"}
        return {**self.client(), **limits}
