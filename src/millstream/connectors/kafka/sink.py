"""KafkaSink, its builder and its writers: a transaction per checkpoint, which `committer.py` commits on the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import replace

from millstream.common.aliases import Value
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
from millstream.connectors.kafka.client import (
    TIMEOUT,
    Admin,
    KafkaFailure,
    RefusedRecordError,
    client_settings,
    is_of_record,
    library,
    reason,
)
from millstream.connectors.kafka.committer import KafkaCommitter
from millstream.connectors.kafka.producer import KafkaProducer, Transaction, Transactions
from millstream.connectors.kafka.serialization import (
    KafkaBatchSerializationSchema,
    KafkaRecordSerializationSchema,
    Produced,
    WriterContext,
)
from millstream.connectors.kafka.settings import SinkSettings
from millstream.operators.functions.context import RuntimeContext

__all__ = ["KafkaSink", "KafkaSinkBuilder"]

# The last millisecond of the year 9999; later timestamps mean the end of an unbounded window.
_LAST_TIME = 253_402_300_799_999


class KafkaWriter(SinkWriter):
    """Writes records in a transaction, which is open from the first record to the checkpoint."""

    keeps_values = False

    def __init__(self, settings: SinkSettings, checkpoints: bool) -> None:
        self.takes_timestamps = settings.stamps
        self._settings = settings
        self._checkpoints = checkpoints
        self._transactions = Transactions(settings)
        self._name = ""
        # Writes a record; begins a transaction if none is open.
        self._produce: Callable[..., None] = self._produce_first
        self._plain: KafkaProducer | None = None
        self._open: KafkaProducer | None = None
        # The transaction that was open at the end of the last successful epoch.
        self._open_at_epoch_end: str | None = None
        self._in_epoch = False
        self._open_name: str | None = None
        # Producers of prepared transactions. A closed client aborts, so they stay open until the commit.
        self._prepared: list[KafkaProducer] = []
        self._refused: type[Exception] = library().KafkaException
        schema = settings.schema
        assert schema is not None
        if isinstance(schema, KafkaRecordSerializationSchema):
            self._topic, self._selector = schema.topic, schema.selector
            self._key = None if schema.key is None else schema.key.serialize
            self._value = schema.value.serialize

    def begin(self, transaction: str) -> None:
        if self._in_epoch:
            # The previous epoch failed: discard its records.
            self._abort()
        self._name, self._in_epoch = transaction, True

    def write(self, value: Value) -> None:
        self.write_at(value, None)

    def write_at(self, value: Value, timestamp: int | None) -> None:
        selector, key = self._selector, self._key
        topic = self._topic if selector is None else selector(value)
        # As in Flink, timestamps before 1970 count as none; so do those after 9999, which brokers reject.
        # The client takes 0 as "now", so 1 replaces it.
        stamp = (timestamp or 1) if timestamp is not None and 0 <= timestamp <= _LAST_TIME else 0
        try:
            self._produce(topic, self._value(value), None if key is None else key(value), -1, None, None, stamp)
        except BufferError:
            self._produce_blocking(topic, self._value(value), None if key is None else key(value), timestamp=stamp)
        except self._refused as e:
            size = len(self._value(value)) + (0 if key is None else len(key(value) or b""))
            kind = RefusedRecordError if is_of_record(e.args[0]) else KafkaFailure
            raise kind(
                f"KafkaSink: a record of {size:,} bytes for topic {topic!r} cannot be written: {reason(e)}. If it "
                "is too large, set_property('message.max.bytes', ...), and the topic's max.message.bytes."
            ) from e

    def _produce_first(self, *record: object, **options: object) -> None:
        """Open a producer, and write the first record."""
        self._produce = self._producer().produce
        self._produce(*record, **options)

    def _produce_blocking(self, *record: object, **options: object) -> None:
        """Wait for space in the client's full buffer, and write."""
        assert self._open is not None
        while True:
            self._open.poll(0.05)
            try:
                return self._produce(*record, **options)
            except BufferError:
                continue

    def _producer(self) -> KafkaProducer:
        if not self._settings.is_transactional:
            if self._plain is None:
                self._plain = KafkaProducer(self._settings.client())
            self._open = self._plain
            return self._plain
        self._open = self._transactions.begin(self._name)
        self._open_name = self._name
        return self._open

    def prepare_commit(self, flush: bool) -> Transaction | None:
        self._in_epoch = False
        if self._open is None:
            return None
        if not self._settings.is_transactional:
            if self._settings.guarantee is DeliveryGuarantee.AT_LEAST_ONCE:
                self._open.flush()
            else:
                self._open.poll()
            return None
        # Without checkpoints the transaction ends with the epoch: the next epoch may be far away.
        if self._checkpoints and not flush:
            self._open_at_epoch_end = self._open_name
            self._open.poll()
            return None
        transaction = self._open.prepared()
        # Earlier transactions are committed, or their checkpoint has failed and the job restarts.
        self._prepared = [*self._prepared[-8:], self._open]
        self._clear_open()
        self._open_at_epoch_end = None
        return transaction

    def _clear_open(self) -> None:
        self._open = self._open_name = None
        self._produce = self._produce_first

    def runtime_snapshot(self) -> str | None:
        return self._open_at_epoch_end

    def restore(self, transaction: str | None) -> None:
        if transaction is not None and transaction != self._open_at_epoch_end:
            raise KafkaFailure(
                f"KafkaSink: transaction {transaction} is open in a process that has ended: the job "
                "restores its checkpoint."
            )
        if transaction is None and self._open is not None and self._settings.is_transactional:
            self._abort()

    def _abort(self) -> None:
        self._in_epoch = False
        lost, self._open_at_epoch_end = self._open_at_epoch_end, None
        if self._open is not None and self._settings.is_transactional:
            self._open.abort()
            self._clear_open()
            if lost is not None:
                raise KafkaFailure(
                    f"KafkaSink: transaction {lost} contains records of a failed epoch: the job restores its "
                    "checkpoint."
                )

    def close(self) -> None:
        if self._plain is not None:
            self._plain.flush()
        elif self._open is not None:
            self._open.abort()
        self._prepared.clear()


class KafkaBatchWriter(KafkaWriter):
    """Writes batches of rows; messages have their own timestamps."""

    def __init__(
        self, settings: SinkSettings, checkpoints: bool, schema: KafkaBatchSerializationSchema, subtask: int
    ) -> None:
        super().__init__(replace(settings, stamps=False), checkpoints)
        self._schema = schema
        self._writer_context = WriterContext(subtask, self._partitions_of)
        self._partitions: dict[str, list[int]] = {}

    def _partitions_of(self, topic: str) -> list[int]:
        if topic not in self._partitions:
            if self._open is None:
                self._produce = self._producer().produce
            assert self._open is not None
            self._partitions[topic] = self._open.partitions(topic)
        return self._partitions[topic]

    def begin(self, transaction: str) -> None:
        self._schema.discard()
        super().begin(transaction)

    def write(self, value: Value) -> None:
        self._send(self._schema.serialize(value, self._writer_context))

    def prepare_commit(self, flush: bool) -> Transaction | None:
        self._send(self._schema.flush(self._writer_context))
        return super().prepare_commit(flush)

    def _send(self, messages: Iterable[Produced]) -> None:
        for message in messages:
            record = (message.topic, message.value, message.key, message.partition)
            stamp = message.timestamp
            options: dict[str, object] = {} if stamp is None else {"timestamp": stamp or 1}
            if message.headers:
                options["headers"] = message.headers
            try:
                self._produce(*record, **options)
            except BufferError:
                self._produce_blocking(*record, **options)
            except self._refused as e:
                size = len(message.value or b"") + len(message.key or b"")
                kind = RefusedRecordError if is_of_record(e.args[0]) else KafkaFailure
                raise kind(
                    f"KafkaSink: a record of {size:,} bytes for topic {message.topic!r} cannot be written: "
                    f"{reason(e)}. If it is too large, set 'properties.message.max.bytes', and the topic's "
                    "max.message.bytes."
                ) from e


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


class KafkaSink(Sink[Value], SupportsPreprocessing):
    """Writes records to Kafka; with EXACTLY_ONCE in a transaction per checkpoint.

    Example:
        >>> from millstream.common.serialization import SimpleStringSchema
        >>> schema = KafkaRecordSerializationSchema.builder().set_topic("counts")
        >>> schema = schema.set_value_serialization_schema(SimpleStringSchema()).build()
        >>> sink = (
        ...     KafkaSink.builder()
        ...     .set_bootstrap_servers("localhost:9092")
        ...     .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        ...     .set_transactional_id_prefix("counts")
        ...     .set_property("compression.type", "zstd")
        ...     .set_record_serializer(schema)
        ...     .build()
        ... )
        >>> sink.name
        'KafkaSink'
    """

    name = "KafkaSink"

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """Return a builder; the brokers and a serializer are required."""
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
    """Builds a KafkaSink; see KafkaSink for an example."""

    def __init__(self) -> None:
        self._settings = SinkSettings()

    def _with(self, settings: SinkSettings) -> KafkaSinkBuilder:
        self._settings = settings
        return self

    def build(self) -> KafkaSink:
        """Return the sink; an incomplete configuration is an error."""
        return KafkaSink(self.checked_settings())

    def checked_settings(self) -> SinkSettings:
        """Return the checked settings."""
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
        return settings

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        """Set the brokers: `host:port`, separated by commas. Required."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """Set the delivery guarantee, by default NONE."""
        return self._with(replace(self._settings, guarantee=delivery_guarantee))

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Set the prefix of transactional ids, unique per sink and Kafka cluster. Required with EXACTLY_ONCE."""
        return self._with(replace(self._settings, prefix=transactional_id_prefix))

    def set_batch_serializer(self, batch_serializer: KafkaBatchSerializationSchema) -> KafkaSinkBuilder:
        """Set a schema that writes a batch of rows as messages, for SQL tables."""
        return self._with(replace(self._settings, schema=batch_serializer))

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema) -> KafkaSinkBuilder:
        """Set the schema of records. Required."""
        return self._with(replace(self._settings, schema=record_serializer))

    def set_property(self, key: str, value: str) -> KafkaSinkBuilder:
        """Set a property of the producer, under Kafka's name."""
        return self._with(replace(self._settings, properties={**self._settings.properties, key: str(value)}))
