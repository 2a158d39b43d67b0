"""KafkaSink: writes records to topics, exactly once with transactions."""

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
    """Check before the job starts that Kafka answers, has the topic, and allows the transaction timeout."""
    admin = settings.admin()
    cluster = admin.cluster()
    limits = _broker_settings(admin, str(next(iter(cluster.brokers))))
    topic = None if settings.schema is None else settings.schema.topic
    if topic is not None and topic not in cluster.topics and limits.get("auto.create.topics.enable") == "false":
        raise KafkaFailure(f"Kafka at {settings.bootstrap} has no topic {topic!r}: create it, or correct its name.")
    max_timeout = int(limits.get("transaction.max.timeout.ms", settings.transaction_timeout))
    if settings.is_transactional and settings.transaction_timeout > max_timeout:
        raise InvalidProgramError(
            f"KafkaSink: transaction.timeout.ms is {settings.transaction_timeout:,}, and the broker allows at most "
            f"{max_timeout:,} (its transaction.max.timeout.ms): "
            f"set_property('transaction.timeout.ms', '{max_timeout}')."
        )


def _broker_settings(admin: Admin, broker: str) -> dict[str, str]:
    """Return a broker's settings, empty without permission; then the first record may fail."""
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
        """Return a builder."""
        return KafkaSinkBuilder()

    def get_transformer(self) -> StreamTransformer | None:
        """Return None: the sink selects topics itself."""
        return None

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        checkpoints = context.get_job_parameter("execution.checkpointing.interval", "") != ""
        schema = self._settings.schema
        if isinstance(schema, KafkaBatchSerializationSchema):
            # The schema buffers rows per subtask.
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
        """Return the sink; an incomplete configuration is an error."""
        settings = self._settings
        if "bootstrap.servers" not in settings.properties:
            raise InvalidProgramError("KafkaSink: set the brokers with set_bootstrap_servers(...).")
        if settings.schema is None:
            raise InvalidProgramError("KafkaSink: set a serializer with set_record_serializer(...).")
        if settings.is_transactional and not settings.prefix:
            raise InvalidProgramError(
                "KafkaSink: EXACTLY_ONCE delivery guarantee requires a transactional id prefix that is "
                "unique in this Kafka cluster: set_transactional_id_prefix(...)."
            )
        client_settings(settings.properties)
        return KafkaSink(settings)

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        """Set the brokers: `host:port`, separated by commas."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """Set the delivery guarantee; NONE by default."""
        return self._with(guarantee=delivery_guarantee)

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Set the prefix of transactional ids, unique per sink and Kafka cluster."""
        return self._with(prefix=transactional_id_prefix)

    def set_batch_serializer(self, batch_serializer: KafkaBatchSerializationSchema) -> KafkaSinkBuilder:
        """Set a schema that writes a batch of rows as messages, for SQL tables."""
        return self._with(schema=batch_serializer)

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema) -> KafkaSinkBuilder:
        """Set the schema of records."""
        return self._with(schema=record_serializer)

    def set_property(self, key: str, value: str) -> KafkaSinkBuilder:
        """Set a property of the producer."""
        return self._with(properties={**self._settings.properties, key: str(value)})
