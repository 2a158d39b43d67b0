"""Producers of the client library: what they report, and the transactions that they are in. Live in the subtask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from millstream.common.tags import tagged
from millstream.connectors.kafka.client import (
    TIMEOUT,
    KafkaFailure,
    RefusedRecordError,
    is_of_record,
    library,
    reason,
    said,
)
from millstream.connectors.kafka.protocol import Address, Coordinators
from millstream.connectors.kafka.sink_settings import SinkSettings
from millstream.operators.diagnostics.failures import shorten


@tagged("kafka-transaction")
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
        # Whether it is the record's own.
        self.is_of_record = False
        # What the client has said last that may pass by itself.
        self.trouble = ""

    def delivered(self, error: Any, message: Any) -> None:
        if error is None:
            return
        if self.is_of_record:
            # What comes behind it fails because of it.
            return
        self.failure = f"a record for topic {message.topic()!r} was not taken: {said(error)}"
        self.is_of_record = is_of_record(error)
        if error.name() == "INVALID_TIMESTAMP":
            self.failure += (
                f" of {shorten(message.value())} or one beside it: the topic's message.timestamp.after.max.ms and "
                "message.timestamp.before.max.ms say how far from now it may be"
            )

    def failed(self, error: Any) -> None:
        if error.fatal():
            self.failure = said(error)
        else:
            self.trouble = f" ({said(error)})"


class KafkaProducer:
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
            kind = RefusedRecordError if self._reports.is_of_record else KafkaFailure
            raise kind(f"KafkaSink: {self._reports.failure}.")

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


class Transactions:
    """The producers of a writer's transactions, one for each.

    To find the coordinator and to be known to it takes a client up to half a second, so the producer of the next
    transaction does that while this one is being written.
    """

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings
        self._next: Future[KafkaProducer] | None = None

    def begin(self, name: str) -> KafkaProducer:
        """Return the producer of a transaction that has begun; the name is one that nobody else has."""
        prepared, self._next = self._next, None
        found = self._introduced(name) if prepared is None else prepared.result()
        found.begin()
        self._next = Future()
        threading.Thread(target=self._prepare, args=(self._next, f"{name}-next"), daemon=True).start()
        return found

    def _prepare(self, place: Future[KafkaProducer], name: str) -> None:
        try:
            place.set_result(self._introduced(name))
        except Exception as e:
            place.set_exception(e)

    def _introduced(self, name: str) -> KafkaProducer:
        producer = KafkaProducer(self._settings.transaction(name))
        producer.introduce()
        return producer
