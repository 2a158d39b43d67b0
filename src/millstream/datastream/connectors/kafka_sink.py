"""KafkaSink: records into Kafka's topics, exactly once by transactions."""

from __future__ import annotations

import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from millstream.common.errors import InvalidProgramError
from millstream.common.faults import fault_point
from millstream.common.serialization import SerializationSchema
from millstream.datastream.connectors.base import (
    CommitContext,
    Committer,
    DeliveryGuarantee,
    Sink,
    SinkWriter,
    StreamTransformer,
    SupportsPreprocessing,
)
from millstream.datastream.connectors.kafka_client import (
    TIMEOUT,
    Admin,
    KafkaFailure,
    client_settings,
    library,
    reason,
    said,
)
from millstream.datastream.connectors.kafka_protocol import Address, Coordinators
from millstream.operators.context import RuntimeContext

__all__ = [
    "KafkaBatchSerializationSchema",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaTopicSelector",
]

# What a broker allows unless it was told otherwise.
_TRANSACTION_TIMEOUT_MS = 900_000
# So long the workers of a driver that died may go on to begin transactions.
_ZOMBIE_SECONDS = 60.0


class KafkaTopicSelector(ABC):
    """Chooses the topic of a record."""

    @abstractmethod
    def apply(self, data: Any) -> str:
        """Return the topic."""


@dataclass(frozen=True)
class KafkaRecordSerializationSchema:
    """How a record becomes Kafka's: its topic, its key and its value."""

    topic: str | None
    selector: Callable[[Any], str] | None
    key: SerializationSchema | None
    value: SerializationSchema

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """Begin a schema."""
        return KafkaRecordSerializationSchemaBuilder()


class KafkaRecordSerializationSchemaBuilder:
    """Builds a KafkaRecordSerializationSchema."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._selector: Callable[[Any], str] | None = None
        self._key: SerializationSchema | None = None
        self._value: SerializationSchema | None = None

    def build(self) -> KafkaRecordSerializationSchema:
        """Return the schema; refuses one without topic or value."""
        if self._topic is None and self._selector is None:
            raise InvalidProgramError(
                "KafkaRecordSerializationSchema: say which topic with set_topic(...) or set_topic_selector(...)."
            )
        if self._value is None:
            raise InvalidProgramError(
                "KafkaRecordSerializationSchema: say how values are written with set_value_serialization_schema(...)."
            )
        return KafkaRecordSerializationSchema(self._topic, self._selector, self._key, self._value)

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        """Write all records to one topic."""
        if self._selector is not None:
            raise InvalidProgramError("KafkaRecordSerializationSchema: give a topic or a selector, not both.")
        self._topic = topic
        return self

    def set_topic_selector(
        self, topic_selector: Callable[[Any], str] | KafkaTopicSelector
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Choose the topic of each record."""
        if self._topic is not None:
            raise InvalidProgramError("KafkaRecordSerializationSchema: give a topic or a selector, not both.")
        is_object = isinstance(topic_selector, KafkaTopicSelector)
        self._selector = topic_selector.apply if is_object else topic_selector  # type: ignore[union-attr, assignment]
        return self

    def set_key_serialization_schema(
        self, key_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Say how keys are written; without it there are none."""
        self._key = key_serialization_schema
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Say how values are written."""
        self._value = value_serialization_schema
        return self


class Produced(NamedTuple):
    """A message to be written; a partition of -1 is the client's to choose, without a timestamp it is now."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int = -1
    timestamp: int | None = None
    headers: list[tuple[str, bytes | None]] | None = None


@dataclass(frozen=True)
class SinkPlace:
    """Where a writer is.

    Attributes:
        subtask: its number.
        partitions: returns the partitions of a topic, which the cluster is asked for once.
    """

    subtask: int
    partitions: Callable[[str], list[int]]


class KafkaBatchSerializationSchema(ABC):
    """Makes many messages of one record: what SQL writes."""

    # The topic that is written to, None where rows say it.
    topic: str | None = None

    @abstractmethod
    def serialize(self, batch: Any, place: SinkPlace) -> Iterable[Produced]:
        """Return the messages of a record, in order."""

    def flush(self, place: SinkPlace) -> Iterable[Produced]:
        """Return what was held back; asked at the end of each epoch."""
        return ()

    def forget(self) -> None:
        """Forget what is held back: the epoch did not get to its end."""


@dataclass(frozen=True)
class _Settings:
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


class Transaction(NamedTuple):
    """A transaction that waits to be committed: all it takes to do it."""

    id: str
    producer_id: int
    epoch: int


def addresses(cluster: Any) -> list[Address]:
    """Return where the brokers are that the library knows."""
    return [(str(broker.host), int(broker.port)) for broker in cluster.brokers.values()]


class _Reports:
    """What the library says of a producer, which knows nothing of this, so that it goes when nobody has it any more."""

    def __init__(self) -> None:
        self.failure: str | None = None
        # What the client has said last that may pass by itself.
        self.trouble = ""

    def delivered(self, error: Any, message: Any) -> None:
        if error is None:
            return
        self.failure = f"a record for topic {message.topic()!r} was not taken: {said(error)}"
        if error.name() == "INVALID_TIMESTAMP":
            self.failure += (
                f", of a batch with the timestamp {message.timestamp()[1]} ms: the topic's "
                "message.timestamp.after.max.ms and message.timestamp.before.max.ms say how far from now they may be"
            )

    def failed(self, error: Any) -> None:
        if error.fatal():
            self.failure = said(error)
        else:
            self.trouble = f" ({said(error)})"


class _Producer:
    """A producer of the library, whose failures are noticed."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._kafka = library()
        self._reports = _Reports()
        self._settings = settings
        self._bootstrap = settings["bootstrap.servers"]
        self._producer_id, self._epoch = -1, -1
        self._id = settings.get("transactional.id", "")
        told = {"on_delivery": self._reports.delivered, "error_cb": self._reports.failed}
        self._producer = self._kafka.Producer({**settings, **told})
        self.produce = self._producer.produce

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic."""
        try:
            found = self._producer.list_topics(topic, TIMEOUT).topics[topic]
        except self._kafka.KafkaException as e:
            raise KafkaFailure(f"Kafka at {self._bootstrap} does not tell of topic {topic!r}: {reason(e)}.") from e
        if found.error is not None:
            raise KafkaFailure(f"Kafka at {self._bootstrap} does not tell of topic {topic!r}: {said(found.error)}.")
        return sorted(found.partitions)

    def introduce(self) -> None:
        """Have the coordinator know its name, and be done with what others have left open under it."""
        self._try(lambda: self._producer.init_transactions(TIMEOUT))
        # The client has its number in no other place than its statistics, which would pile up in it unread.
        coordinators = Coordinators(self._settings, self._brokers)
        try:
            known = coordinators.state(self._id)
        finally:
            coordinators.close()
        if known is None:
            raise KafkaFailure(f"Transaction {self._id} cannot be begun: its coordinator does not know it.")
        self._producer_id, self._epoch = known.producer_id, known.epoch

    def _brokers(self) -> list[Address]:
        return addresses(self._producer.list_topics(timeout=TIMEOUT))

    def begin(self) -> None:
        """Begin its transaction."""
        self._try(self._producer.begin_transaction)

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except self._kafka.KafkaException as e:
            raise KafkaFailure(f"Transaction {self._id} cannot be begun: {reason(e)}.") from e

    def poll(self, seconds: float = 0.0) -> None:
        """Take what the library has to report."""
        self._producer.poll(seconds)
        if self._reports.failure is not None:
            raise KafkaFailure(f"KafkaSink: {self._reports.failure}.")

    def flush(self) -> None:
        """Wait until all that was handed over has been taken by Kafka."""
        end = time.monotonic() + 3 * TIMEOUT
        while self._producer.flush(1.0):
            self.poll()
            if time.monotonic() > end:
                raise KafkaFailure(
                    f"KafkaSink: Kafka at {self._bootstrap} has not taken what is to be written for "
                    f"{3 * TIMEOUT:.0f} s{self._reports.trouble}."
                )
        self.poll()

    def prepared(self) -> Transaction:
        """Return what it takes to commit its transaction, when all is written."""
        self.flush()
        return Transaction(self._id, self._producer_id, self._epoch)

    def abort(self) -> None:
        """Give its transaction up, as far as that can be done now; who goes on aborts what is left open."""
        try:
            self._producer.purge()
            self._producer.abort_transaction(5)
        except self._kafka.KafkaException:
            return


class _Transactions:
    """The producers of a writer's transactions, one for each.

    To find the coordinator and to be known to it takes a client up to half a second, so the producer of the next
    transaction does that while this one is being written.
    """

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings
        self._next: Future[_Producer] | None = None

    def begin(self, name: str) -> _Producer:
        """Return the producer of a transaction that has begun; the name is one that nobody else has."""
        prepared, self._next = self._next, None
        found = self._introduced(name) if prepared is None else prepared.result()
        found.begin()
        self._next = Future()
        threading.Thread(target=self._prepare, args=(self._next, f"{name}-next"), daemon=True).start()
        return found

    def _prepare(self, place: Future[_Producer], name: str) -> None:
        try:
            place.set_result(self._introduced(name))
        except Exception as e:
            place.set_exception(e)

    def _introduced(self, name: str) -> _Producer:
        producer = _Producer(self._settings.transaction(name))
        producer.introduce()
        return producer


class _Writer(SinkWriter):
    """Writes records as they come; a transaction is open from the first of them to a checkpoint."""

    keeps_values = False

    def __init__(self, settings: _Settings, checkpoints: bool) -> None:
        self.takes_timestamps = settings.stamps
        self._settings = settings
        self._checkpoints = checkpoints
        self._transactions = _Transactions(settings)
        self._name = ""
        # What writes a record: it begins a transaction where none is open.
        self._produce: Callable[..., None] = self._produce_first
        self._plain: _Producer | None = None
        self._open: _Producer | None = None
        # The transaction that is open behind an epoch that counts; and whether an epoch is being written.
        self._carried: str | None = None
        self._in_epoch = False
        self._open_name: str | None = None
        # Those that wait to be committed by the driver. They must live until then: a client that goes aborts.
        self._prepared: list[_Producer] = []
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
        # As in Flink, one before 1970 counts as none. To the client 0 is "now": the nearest that is not.
        stamp = 0 if timestamp is None or timestamp < 0 else timestamp or 1
        try:
            self._produce(topic, self._value(value), None if key is None else key(value), -1, None, None, stamp)
        except BufferError:
            about = (topic, self._value(value), None if key is None else key(value))
            self._produce_with_patience(*about, timestamp=stamp)
        except self._refused as e:
            size = len(self._value(value)) + (0 if key is None else len(key(value) or b""))
            raise KafkaFailure(
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

    def _producer(self) -> _Producer:
        if not self._settings.is_transactional:
            if self._plain is None:
                self._plain = _Producer(self._settings.client())
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


class _BatchWriter(_Writer):
    """Writes the messages of records that are many rows each, and say their timestamps themselves."""

    def __init__(
        self, settings: _Settings, checkpoints: bool, schema: KafkaBatchSerializationSchema, subtask: int
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
                raise KafkaFailure(
                    f"KafkaSink: a record of {size:,} bytes for topic {message.topic!r} cannot be written: "
                    f"{reason(e)}. Where it is too large, set 'properties.message.max.bytes', and the topic's "
                    "max.message.bytes."
                ) from e


class _Committer(Committer):
    def __init__(self, settings: _Settings, context: CommitContext) -> None:
        self._settings = settings
        self._context = context
        self._kafka = library()
        self._admin = settings.admin()
        self._coordinators = Coordinators(client_settings(settings.properties), self._brokers)
        # The jobs whose transactions are no strays; and until when strays may still come.
        self._known = {context.job_id}
        self._looks_until = time.monotonic() + _ZOMBIE_SECONDS

    def _brokers(self) -> list[Address]:
        return addresses(self._admin.cluster())

    def begin(self) -> None:
        self.recover([], self._context.job_id)

    def commit(self, committables: list[tuple[int, Transaction]]) -> None:
        for _, transaction in committables:
            self._commit(Transaction(*transaction))
            fault_point("driver.between-transactions")
        if time.monotonic() < self._looks_until:
            self._abort_strays([transaction[0] for _, transaction in committables])

    def _abort_strays(self, committed: list[str]) -> None:
        """End the transactions under this prefix of which nothing is to go on.

        Those of jobs that died before their first checkpoint, or went on from the checkpoint that this one goes on
        from; and those that workers of an earlier execution of this job have begun when it was over already.
        """
        operator = "" if self._settings.owns_prefix else re.escape(f"{self._context.operator_id}-")
        name = re.compile(rf"{re.escape(str(self._settings.prefix))}-([0-9a-f]{{32}})-{operator}.*")
        own = f"{self._settings.prefix}-{self._context.prefix()}"
        current = max((execution_of(t, own) for t in committed), default=-1)
        for left in self._coordinators.ongoing(f"{self._settings.prefix}-"):
            found = name.fullmatch(left)
            is_others = found is not None and found[1] not in self._known
            if is_others or 0 <= execution_of(left, own) < current:
                self._abort(left)

    def _commit(self, transaction: Transaction) -> None:
        known = self._coordinators.state(transaction.id)
        if known is None or known.state in ("CompleteCommit", "PrepareCommit"):
            # Committed already; the coordinator forgets it after some days.
            return
        if known.state != "Ongoing" or (known.producer_id, known.epoch) != transaction[1:]:
            raise KafkaFailure(
                f"KafkaSink: transaction {transaction.id} cannot be committed any more, it is {known.state}: longer "
                f"than its timeout ({self._settings.transaction_timeout:,} ms) had passed before its checkpoint was "
                "complete, or another job with the same transactional id prefix was started, and Kafka has given its "
                "records up. Start from an earlier checkpoint, let transaction.timeout.ms be longer than the longest "
                "time a job may be down, and give every sink a prefix of its own."
            )
        self._coordinators.commit(*transaction)

    def recover(self, committables: list[tuple[int, Transaction]], former_job_id: str) -> None:
        self._known.add(former_job_id)
        self._looks_until = time.monotonic() + _ZOMBIE_SECONDS
        self.commit(committables)
        named = {Transaction(*t).id for _, t in committables}
        for job_id in dict.fromkeys((former_job_id, self._context.job_id)):
            prefix = f"{self._settings.prefix}-{self._context.prefix(job_id)}"
            for left in self._coordinators.ongoing(prefix):
                if left not in named:
                    self._abort(left)

    def _abort(self, transaction: str) -> None:
        """End a transaction that nobody will: who takes its name over ends it."""
        settings = {**client_settings(self._settings.properties), "transactional.id": transaction}
        try:
            self._kafka.Producer(settings).init_transactions(TIMEOUT)
        except self._kafka.KafkaException as e:
            raise KafkaFailure(f"KafkaSink: transaction {transaction} cannot be aborted: {reason(e)}.") from e

    def close(self) -> None:
        self._coordinators.close()


def execution_of(transaction: str, prefix: str) -> int:
    """Return which execution of the job has begun a transaction, by its name; -1 when it does not say.

    Example:
        >>> execution_of("out-job-sink-1-17-5f3a.2.9c.11-next", "out-job-sink-")
        2
        >>> execution_of("out-another-sink-1-17-5f3a.2.9c.11", "out-job-sink-")
        -1
    """
    found = re.fullmatch(re.escape(prefix) + r"\d+-\d+-[^.]*\.(\d+)\..*", transaction)
    return -1 if found is None else int(found[1])


def _check(settings: _Settings) -> None:
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

    def __init__(self, settings: _Settings) -> None:
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
            return _BatchWriter(self._settings, checkpoints, copy(schema), context.get_index_of_this_subtask())
        return _Writer(self._settings, checkpoints)

    def create_committer(self, context: CommitContext) -> Committer | None:
        _check(self._settings)
        return _Committer(self._settings, context) if self._settings.is_transactional else None


class KafkaSinkBuilder:
    """Builds a KafkaSink."""

    def __init__(self) -> None:
        self._settings = _Settings()

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
