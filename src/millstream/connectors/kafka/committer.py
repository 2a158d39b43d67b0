"""KafkaCommitter: commits the transactions of KafkaSink on the driver."""

from __future__ import annotations

import re
import time

from millstream.common.faults import fault_point
from millstream.common.run_ids import is_earlier
from millstream.connectors.base import CommitContext, Committer
from millstream.connectors.kafka.client import TIMEOUT, KafkaFailure, client_settings, library, reason
from millstream.connectors.kafka.producer import Transaction, addresses
from millstream.connectors.kafka.protocol import Address, Coordinators
from millstream.connectors.kafka.settings import SinkSettings

# Maximum seconds in which workers of a failed driver may still begin transactions.
_ZOMBIE_SECONDS = 60.0


class KafkaCommitter(Committer):
    """Commits the transactions that a checkpoint names, and aborts orphaned ones."""

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
