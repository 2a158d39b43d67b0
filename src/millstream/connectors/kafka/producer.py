"""Producers of the client library: what they report, and the transactions that they are in. Live in the subtask."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from millstream.common.faults import fault_point
from millstream.common.run_ids import is_earlier
from millstream.common.tags import tagged
from millstream.connectors.base import CommitContext, Committer
from millstream.connectors.kafka.client import (
    TIMEOUT,
    KafkaFailure,
    RefusedRecordError,
    client_settings,
    is_of_record,
    library,
    reason,
    said,
)
from millstream.connectors.kafka.protocol import Address, Coordinators
from millstream.connectors.kafka.settings import SinkSettings
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


# So long the workers of a driver that died may go on to begin transactions.
_ZOMBIE_SECONDS = 60.0


class KafkaCommitter(Committer):
    def __init__(self, settings: SinkSettings, context: CommitContext) -> None:
        self._settings = settings
        self._context = context
        self._kafka = library()
        self._admin = settings.admin()
        self._coordinators = Coordinators(client_settings(settings.properties), self._brokers)
        # Until when strays may still come.
        self._looks_until = time.monotonic() + _ZOMBIE_SECONDS

    def _brokers(self) -> list[Address]:
        return addresses(self._admin.cluster())

    def begin(self) -> None:
        self.recover([], self._context.job_id)

    def commit(self, committables: list[tuple[int, Transaction]]) -> None:
        committed = self._commit_all(committables)
        if time.monotonic() < self._looks_until:
            self._abort_strays(committed)

    def _commit_all(self, committables: list[tuple[int, Transaction]]) -> list[str]:
        for _, transaction in committables:
            self._commit(Transaction(*transaction))
            fault_point("driver.between-transactions")
        return [transaction[0] for _, transaction in committables]

    def _abort_strays(self, committed: list[str], at_start: bool = False) -> None:
        """Abort the transactions under this prefix that nobody will commit.

        Those of earlier runs of the job, which died or were deposed, and those that workers of an earlier execution of
        this run have begun late. Never those of a later run: this process may have slept while another took over.

        Args:
            committed: what this execution has committed.
            at_start: whether to abort transactions of runs of unknown age as well: such a run is no later one if this
                one has only just begun.
        """
        operator = "" if self._settings.owns_prefix else re.escape(f"{self._context.operator_id}-")
        name = re.compile(rf"{re.escape(str(self._settings.prefix))}-([0-9a-f]{{32}})-{operator}.*")
        own = f"{self._settings.prefix}-{self._context.prefix()}"
        current = max((execution_of(t, own) for t in committed), default=-1)
        for left in self._coordinators.ongoing(f"{self._settings.prefix}-"):
            found = name.fullmatch(left)
            if found is None:
                continue
            earlier = is_earlier(found[1], self._context.job_id)
            is_unknown = earlier is None and at_start
            if left not in committed and (earlier or is_unknown or 0 <= execution_of(left, own) < current):
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
        self._looks_until = time.monotonic() + _ZOMBIE_SECONDS
        named = self._commit_all(committables)
        self._abort_strays(named, at_start=True)
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
