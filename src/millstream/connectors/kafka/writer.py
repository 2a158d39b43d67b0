"""Writes records to Kafka, in transactions from one checkpoint to the next. Lives in the subtask."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from millstream.connectors.base import DeliveryGuarantee, SinkWriter
from millstream.connectors.kafka.client import (
    KafkaFailure,
    RefusedRecordError,
    is_of_record,
    library,
    reason,
)
from millstream.connectors.kafka.producer import KafkaProducer, Transaction, Transactions
from millstream.connectors.kafka.serialization import (
    KafkaBatchSerializationSchema,
    KafkaRecordSerializationSchema,
    Produced,
    SinkPlace,
)
from millstream.connectors.kafka.settings import SinkSettings

# The last millisecond of the year 9999: what is beyond is no point in time, but the end of a window without end.
_LAST_TIME = 253_402_300_799_999


class KafkaWriter(SinkWriter):
    """Writes records as they come; a transaction is open from the first of them to a checkpoint."""

    keeps_values = False

    def __init__(self, settings: SinkSettings, checkpoints: bool) -> None:
        self.takes_timestamps = settings.stamps
        self._settings = settings
        self._checkpoints = checkpoints
        self._transactions = Transactions(settings)
        self._name = ""
        # What writes a record: it begins a transaction where none is open.
        self._produce: Callable[..., None] = self._produce_first
        self._plain: KafkaProducer | None = None
        self._open: KafkaProducer | None = None
        # The transaction that is open behind an epoch that counts; and whether an epoch is being written.
        self._carried: str | None = None
        self._in_epoch = False
        self._open_name: str | None = None
        # Those that wait to be committed by the driver. They must live until then: a client that goes aborts.
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
            # The last epoch did not get to its end: what it has written must not count.
            self._give_up()
        self._name, self._in_epoch = transaction, True

    def write(self, value: Any) -> None:
        self.write_at(value, None)

    def write_at(self, value: Any, timestamp: int | None) -> None:
        selector, key = self._selector, self._key
        topic = self._topic if selector is None else selector(value)
        # One before 1970 counts as none, as in Flink, and so does what is no point in time, which no broker would take.
        # To the client 0 is "now": the nearest that is not.
        stamp = (timestamp or 1) if timestamp is not None and 0 <= timestamp <= _LAST_TIME else 0
        try:
            self._produce(topic, self._value(value), None if key is None else key(value), -1, None, None, stamp)
        except BufferError:
            about = (topic, self._value(value), None if key is None else key(value))
            self._produce_with_patience(*about, timestamp=stamp)
        except self._refused as e:
            size = len(self._value(value)) + (0 if key is None else len(key(value) or b""))
            kind = RefusedRecordError if is_of_record(e.args[0]) else KafkaFailure
            raise kind(
                f"KafkaSink: a record of {size:,} bytes for topic {topic!r} cannot be written: {reason(e)}. Where it "
                "is too large, set_property('message.max.bytes', ...), and the topic's max.message.bytes."
            ) from e

    def _produce_first(self, *message: Any, **more: Any) -> None:
        """There is no producer yet."""
        self._produce = self._producer().produce
        self._produce(*message, **more)

    def _produce_with_patience(self, *message: Any, **more: Any) -> None:
        """The client has more in its memory than it may: wait until Kafka has taken some of it."""
        assert self._open is not None
        while True:
            self._open.poll(0.05)
            try:
                return self._produce(*message, **more)
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
        # Without checkpoints nobody will ask for it later: there may be no other epoch for a long time.
        if self._checkpoints and not flush:
            self._carried = self._open_name
            self._open.poll()
            return None
        transaction = self._open.prepared()
        # The one before is committed by now, or its checkpoint has failed and the job starts anew.
        self._prepared = [*self._prepared[-8:], self._open]
        self._forget_open()
        self._carried = None
        return transaction

    def _forget_open(self) -> None:
        self._open = self._open_name = None
        self._produce = self._produce_first

    def carry(self) -> str | None:
        return self._carried

    def restore(self, carried: str | None) -> None:
        if carried is not None and carried != self._carried:
            raise KafkaFailure(
                f"KafkaSink: transaction {carried} is open in a process that is gone: the job goes "
                "back to its checkpoint."
            )
        if carried is None and self._open is not None and self._settings.is_transactional:
            self._give_up()

    def _give_up(self) -> None:
        self._in_epoch = False
        lost, self._carried = self._carried, None
        if self._open is not None and self._settings.is_transactional:
            self._open.abort()
            self._forget_open()
            if lost is not None:
                raise KafkaFailure(
                    f"KafkaSink: transaction {lost} holds records of an epoch that failed: the job goes back to its "
                    "checkpoint."
                )

    def close(self) -> None:
        if self._plain is not None:
            self._plain.flush()
        elif self._open is not None:
            self._open.abort()
        self._prepared.clear()


class KafkaBatchWriter(KafkaWriter):
    """Writes the messages of records that are many rows each, and say their timestamps themselves."""

    def __init__(
        self, settings: SinkSettings, checkpoints: bool, schema: KafkaBatchSerializationSchema, subtask: int
    ) -> None:
        super().__init__(replace(settings, stamps=False), checkpoints)
        self._schema = schema
        self._place = SinkPlace(subtask, self._partitions_of)
        self._partitions: dict[str, list[int]] = {}

    def _partitions_of(self, topic: str) -> list[int]:
        if topic not in self._partitions:
            if self._open is None:
                self._produce = self._producer().produce
            assert self._open is not None
            self._partitions[topic] = self._open.partitions(topic)
        return self._partitions[topic]

    def begin(self, transaction: str) -> None:
        self._schema.forget()
        super().begin(transaction)

    def write(self, value: Any) -> None:
        self._send(self._schema.serialize(value, self._place))

    def prepare_commit(self, flush: bool) -> Transaction | None:
        self._send(self._schema.flush(self._place))
        return super().prepare_commit(flush)

    def _send(self, messages: Iterable[Produced]) -> None:
        for message in messages:
            about = (message.topic, message.value, message.key, message.partition)
            stamp = message.timestamp
            more: dict[str, Any] = {} if stamp is None else {"timestamp": stamp or 1}
            if message.headers:
                more["headers"] = message.headers
            try:
                self._produce(*about, **more)
            except BufferError:
                self._produce_with_patience(*about, **more)
            except self._refused as e:
                size = len(message.value or b"") + len(message.key or b"")
                kind = RefusedRecordError if is_of_record(e.args[0]) else KafkaFailure
                raise kind(
                    f"KafkaSink: a record of {size:,} bytes for topic {message.topic!r} cannot be written: "
                    f"{reason(e)}. Where it is too large, set 'properties.message.max.bytes', and the topic's "
                    "max.message.bytes."
                ) from e
