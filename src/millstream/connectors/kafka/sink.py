"""KafkaSink: records into Kafka's topics, exactly once by transactions."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

from millstream.common.errors import InvalidProgramError
from millstream.connectors.base import (
    CommitContext,
    Committer,
    DeliveryGuarantee,
    Sink,
    SinkWriter,
    StreamTransformer,
    SupportsPreprocessing,
)
from millstream.connectors.kafka.client import TIMEOUT, Admin, KafkaFailure, client_settings, library
from millstream.connectors.kafka.producer import KafkaCommitter
from millstream.connectors.kafka.serialization import (
    KafkaBatchSerializationSchema,
    KafkaRecordSerializationSchema,
)
from millstream.connectors.kafka.settings import SinkSettings
from millstream.connectors.kafka.writer import KafkaBatchWriter, KafkaWriter
from millstream.operators.functions.context import RuntimeContext

__all__ = ["KafkaSink", "KafkaSinkBuilder"]


def _check(settings: SinkSettings) -> None:
    """See before the job starts that Kafka answers, has the topic, and lets transactions be open for so long."""
    admin = settings.admin()
    cluster = admin.cluster()
    limits = _broker_settings(admin, str(next(iter(cluster.brokers))))
    topic = None if settings.schema is None else settings.schema.topic
    if topic is not None and topic not in cluster.topics and limits.get("auto.create.topics.enable") == "false":
        raise KafkaFailure(f"Kafka at {settings.bootstrap} has no topic {topic!r}: create it, or correct its name.")
    most = int(limits.get("transaction.max.timeout.ms", settings.transaction_timeout))
    if settings.is_transactional and settings.transaction_timeout > most:
        raise InvalidProgramError(
            f"KafkaSink: transaction.timeout.ms is {settings.transaction_timeout:,}, and the broker allows at most "
            f"{most:,} (its transaction.max.timeout.ms): set_property('transaction.timeout.ms', '{most}')."
        )


def _broker_settings(admin: Admin, broker: str) -> dict[str, str]:
    """Return a broker's settings; none where one may not look at them: then the first record tells."""
    from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

    (future,) = admin.client.describe_configs([ConfigResource(ConfigResource.Type.BROKER, broker)]).values()
    try:
        return {name: entry.value for name, entry in future.result(TIMEOUT).items()}
    except library().KafkaException:
        return {}


class KafkaSink(Sink[Any], SupportsPreprocessing):
    """Writes records to Kafka.

    Example:
        >>> from millstream.common.serialization import SimpleStringSchema
        >>> schema = (
        ...     KafkaRecordSerializationSchema.builder()
        ...     .set_topic("counts")
        ...     .set_value_serialization_schema(SimpleStringSchema())
        ...     .build()
        ... )
        >>> sink = (
        ...     KafkaSink.builder()
        ...     .set_bootstrap_servers("localhost:9092")
        ...     .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        ...     .set_transactional_id_prefix("counts")
        ...     .set_record_serializer(schema)
        ...     .build()
        ... )
    """

    name = "KafkaSink"

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """Begin a sink."""
        return KafkaSinkBuilder()

    def get_transformer(self) -> StreamTransformer | None:
        """Return None: the sink chooses topics itself, and nothing has to stand before it."""
        return None

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        checkpoints = context.get_job_parameter("execution.checkpointing.interval", "") != ""
        schema = self._settings.schema
        if isinstance(schema, KafkaBatchSerializationSchema):
            # Each subtask holds back what is its own.
            return KafkaBatchWriter(self._settings, checkpoints, copy(schema), context.get_index_of_this_subtask())
        return KafkaWriter(self._settings, checkpoints)

    def create_committer(self, context: CommitContext) -> Committer | None:
        _check(self._settings)
        return KafkaCommitter(self._settings, context) if self._settings.is_transactional else None


class KafkaSinkBuilder:
    """Builds a KafkaSink."""

    def __init__(self) -> None:
        self._settings = SinkSettings()

    def _with(self, **changes: Any) -> KafkaSinkBuilder:
        self._settings = replace(self._settings, **changes)
        return self

    def build(self) -> KafkaSink:
        """Return the sink; refuses what is not complete."""
        settings = self._settings
        if "bootstrap.servers" not in settings.properties:
            raise InvalidProgramError("KafkaSink: say where Kafka is with set_bootstrap_servers(...).")
        if settings.schema is None:
            raise InvalidProgramError("KafkaSink: say how records are written with set_record_serializer(...).")
        if settings.is_transactional and not settings.prefix:
            raise InvalidProgramError(
                "KafkaSink: EXACTLY_ONCE delivery guarantee requires a transactional id prefix that "
                "no other sink of this "
                "Kafka has: set_transactional_id_prefix(...)."
            )
        client_settings(settings.properties)
        return KafkaSink(settings)

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        """Say where Kafka is: `host:port`, several with commas."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """Say how often a record is there after a failure: NONE by default."""
        return self._with(guarantee=delivery_guarantee)

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Say how the names of transactions begin; no two sinks of a Kafka may share it."""
        return self._with(prefix=transactional_id_prefix)

    def set_batch_serializer(self, batch_serializer: KafkaBatchSerializationSchema) -> KafkaSinkBuilder:
        """Say how one record becomes many messages, as tables of SQL are written."""
        return self._with(schema=batch_serializer)

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema) -> KafkaSinkBuilder:
        """Say how records are written."""
        return self._with(schema=record_serializer)

    def set_property(self, key: str, value: str) -> KafkaSinkBuilder:
        """Set a property of the producer."""
        return self._with(properties={**self._settings.properties, key: str(value)})
