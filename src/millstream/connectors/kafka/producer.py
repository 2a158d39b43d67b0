"""Producers and their transactions in the subtask, and the committer on the driver."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple

from millstream.common.faults import fault_point
from millstream.common.run_ids import is_earlier
from millstream.common.tags import tagged
from millstream.connectors.base import CommitContext, Committer
from millstream.connectors.kafka.client import (
    TIMEOUT,
    KafkaFailure,
    Message,
    RefusedRecordError,
    Setting,
    client_settings,
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


# Maximum seconds in which workers of a failed driver may still begin transactions.
_ZOMBIE_SECONDS = 60.0


class KafkaCommitter(Committer):
    def __init__(self, settings: SinkSettings, context: CommitContext) -> None:
        self._settings = settings
        self._context = context
        self._kafka = library()
        self._admin = settings.admin()
        self._coordinators = Coordinators(client_settings(settings.properties), self._brokers)
        # Until when orphaned transactions may appear.
        self._zombie_deadline = time.monotonic() + _ZOMBIE_SECONDS

    def _brokers(self) -> list[Address]:
        return addresses(self._admin.cluster())

    def begin(self) -> None:
        self.recover([], self._context.job_id)

    def commit(self, committables: list[tuple[int, Transaction]]) -> None:
        committed = self._commit_all(committables)
        if time.monotonic() < self._zombie_deadline:
            self._abort_orphans(committed)

    def _commit_all(self, committables: list[tuple[int, Transaction]]) -> list[str]:
        for _, transaction in committables:
            self._commit(Transaction(*transaction))
            fault_point("driver.between-transactions")
        return [transaction[0] for _, transaction in committables]

    def _abort_orphans(self, committed: list[str], at_start: bool = False) -> None:
        """Abort orphaned transactions under this prefix.

        These are transactions of earlier runs of the job, and late ones of an earlier execution of this run. Those of a
        later run are never aborted: this process may have been suspended while another took over.

        Args:
            committed: the transactions that this execution has committed.
            at_start: whether to abort transactions of runs of unknown age too; at the start of this run they are not
                later.
        """
        operator = "" if self._settings.owns_prefix else re.escape(f"{self._context.operator_id}-")
        name = re.compile(rf"{re.escape(str(self._settings.prefix))}-([0-9a-f]{{32}})-{operator}.*")
        own = f"{self._settings.prefix}-{self._context.prefix()}"
        current = max((execution_of(t, own) for t in committed), default=-1)
        for open_id in self._coordinators.ongoing(f"{self._settings.prefix}-"):
            match = name.fullmatch(open_id)
            if match is None:
                continue
            is_former = is_earlier(match[1], self._context.job_id)
            is_unknown = is_former is None and at_start
            if open_id not in committed and (is_former or is_unknown or 0 <= execution_of(open_id, own) < current):
                self._abort(open_id)

    def _commit(self, transaction: Transaction) -> None:
        known = self._coordinators.state(transaction.id)
        if known is None or known.state in ("CompleteCommit", "PrepareCommit"):
            # Already committed; the coordinator expires it after some days.
            return
        if known.state != "Ongoing" or (known.producer_id, known.epoch) != transaction[1:]:
            raise KafkaFailure(
                f"KafkaSink: transaction {transaction.id} cannot be committed any more, it is {known.state}: its "
                f"timeout ({self._settings.transaction_timeout:,} ms) expired before its checkpoint was complete, or "
                "another job with the same transactional id prefix was started, and Kafka has discarded its records. "
                "Start from an earlier checkpoint, set transaction.timeout.ms above the longest downtime of the job, "
                "and give every sink its own prefix."
            )
        self._coordinators.commit(*transaction)

    def recover(self, committables: list[tuple[int, Transaction]], former_job_id: str) -> None:
        self._zombie_deadline = time.monotonic() + _ZOMBIE_SECONDS
        committed = self._commit_all(committables)
        self._abort_orphans(committed, at_start=True)
        for job_id in dict.fromkeys((former_job_id, self._context.job_id)):
            prefix = f"{self._settings.prefix}-{self._context.prefix(job_id)}"
            for open_id in self._coordinators.ongoing(prefix):
                if open_id not in committed:
                    self._abort(open_id)

    def _abort(self, transaction: str) -> None:
        """Abort a transaction: a new producer with its id fences it."""
        settings = {**client_settings(self._settings.properties), "transactional.id": transaction}
        try:
            self._kafka.Producer(settings).init_transactions(TIMEOUT)
        except self._kafka.KafkaException as e:
            raise KafkaFailure(f"KafkaSink: transaction {transaction} cannot be aborted: {reason(e)}.") from e

    def close(self) -> None:
        self._coordinators.close()


def execution_of(transaction: str, prefix: str) -> int:
    """Return the execution of the job that began a transaction, from its name; -1 if unknown.

    Example:
        >>> execution_of("out-job-sink-1-17-5f3a.2.9c.11-next", "out-job-sink-")
        2
        >>> execution_of("out-another-sink-1-17-5f3a.2.9c.11", "out-job-sink-")
        -1
    """
    match = re.fullmatch(re.escape(prefix) + r"\d+-\d+-[^.]*\.(\d+)\..*", transaction)
    return -1 if match is None else int(match[1])
