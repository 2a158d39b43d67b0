"""KafkaProducer and the transactions of a subtask; `committer.py` commits them on the driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple

from millstream.common.tags import tagged
from millstream.connectors.kafka.client import (
    TIMEOUT,
    KafkaFailure,
    Message,
    RefusedRecordError,
    Setting,
    error_text,
    is_of_record,
    library,
    reason,
)
from millstream.connectors.kafka.protocol import Address, Coordinators
from millstream.connectors.kafka.settings import SinkSettings
from millstream.operators.diagnostics.failures import shorten

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin._metadata import ClusterMetadata


@tagged("kafka-transaction")
class Transaction(NamedTuple):
    """A prepared transaction: the committable of KafkaSink."""

    id: str
    producer_id: int
    epoch: int


def addresses(cluster: ClusterMetadata) -> list[Address]:
    """Return the addresses of the known brokers."""
    return [(str(broker.host), int(broker.port)) for broker in cluster.brokers.values()]


class _Reports:
    """Callbacks of a producer. A separate object without a reference to it, so that the producer can be freed."""

    def __init__(self) -> None:
        self.failure: str | None = None
        # Whether the record causes the failure.
        self.is_of_record = False
        # The last transient error.
        self.warning = ""

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            return
        if self.is_of_record:
            # Later records fail as a consequence.
            return
        self.failure = f"a record for topic {message.topic()!r} was not accepted: {error_text(error)}"
        self.is_of_record = is_of_record(error)
        if error.name() == "INVALID_TIMESTAMP":
            self.failure += (
                f" of {shorten(message.value())} or an adjacent one: the topic's message.timestamp.after.max.ms and "
                "message.timestamp.before.max.ms limit its distance from the current time"
            )

    def failed(self, error: KafkaError) -> None:
        if error.fatal():
            self.failure = error_text(error)
        else:
            self.warning = f" ({error_text(error)})"


class KafkaProducer:
    """A producer that raises failures of the client."""

    def __init__(self, settings: dict[str, Setting]) -> None:
        self._kafka = library()
        self._reports = _Reports()
        self._settings = settings
        self._bootstrap = settings["bootstrap.servers"]
        self._producer_id, self._epoch = -1, -1
        self._id = str(settings.get("transactional.id", ""))
        callbacks = {"on_delivery": self._reports.delivered, "error_cb": self._reports.failed}
        self._producer = self._kafka.Producer({**settings, **callbacks})
        self.produce = self._producer.produce

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic."""
        try:
            metadata = self._producer.list_topics(topic, TIMEOUT).topics[topic]
        except self._kafka.KafkaException as e:
            raise KafkaFailure(f"Kafka at {self._bootstrap} does not describe topic {topic!r}: {reason(e)}.") from e
        if metadata.error is not None:
            raise KafkaFailure(
                f"Kafka at {self._bootstrap} does not describe topic {topic!r}: {error_text(metadata.error)}."
            )
        return sorted(metadata.partitions)

    def initialize(self) -> None:
        """Register the transactional id, and abort transactions left open under it."""
        self._try(lambda: self._producer.init_transactions(TIMEOUT))
        # The client exposes its producer id only in statistics, which would accumulate unread.
        coordinators = Coordinators(self._settings, self._brokers)
        try:
            known = coordinators.state(self._id)
        finally:
            coordinators.close()
        if known is None:
            raise KafkaFailure(
                f"Transaction {self._id} cannot begin: its coordinator does not know it; restart the job."
            )
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
            raise KafkaFailure(f"Transaction {self._id} cannot begin: {reason(e)}.") from e

    def poll(self, seconds: float = 0.0) -> None:
        """Serve callbacks of the client, and raise a reported failure."""
        self._producer.poll(seconds)
        if self._reports.failure is not None:
            kind = RefusedRecordError if self._reports.is_of_record else KafkaFailure
            raise kind(f"KafkaSink: {self._reports.failure}.")

    def flush(self) -> None:
        """Wait until Kafka has accepted all records."""
        end = time.monotonic() + 3 * TIMEOUT
        while self._producer.flush(1.0):
            self.poll()
            if time.monotonic() > end:
                raise KafkaFailure(
                    f"KafkaSink: Kafka at {self._bootstrap} has not accepted records for "
                    f"{3 * TIMEOUT:.0f} s{self._reports.warning}."
                )
        self.poll()

    def prepared(self) -> Transaction:
        """Flush, and return the transaction to commit."""
        self.flush()
        return Transaction(self._id, self._producer_id, self._epoch)

    def abort(self) -> None:
        """Abort the transaction if possible; recovery aborts open transactions."""
        try:
            self._producer.purge()
            self._producer.abort_transaction(5)
        except self._kafka.KafkaException:
            return


class Transactions:
    """The producers of a writer's transactions, one per transaction.

    Initialization at the coordinator takes up to half a second, so it happens for the next transaction while the
    current one is written.
    """

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings
        self._next: Future[KafkaProducer] | None = None

    def begin(self, name: str) -> KafkaProducer:
        """Begin a transaction with a unique name, and return its producer."""
        prepared, self._next = self._next, None
        producer = self._initialized(name) if prepared is None else prepared.result()
        producer.begin()
        self._next = Future()
        threading.Thread(target=self._prepare, args=(self._next, f"{name}-next"), daemon=True).start()
        return producer

    def _prepare(self, result: Future[KafkaProducer], name: str) -> None:
        try:
            result.set_result(self._initialized(name))
        except Exception as e:
            result.set_exception(e)

    def _initialized(self, name: str) -> KafkaProducer:
        producer = KafkaProducer(self._settings.transaction(name))
        producer.initialize()
        return producer
