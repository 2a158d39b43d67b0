"""Commits the transactions of checkpoints, and ends those that nobody else will. Lives on the driver."""

from __future__ import annotations

import re
import time

from millstream.common.faults import fault_point
from millstream.common.run_ids import is_earlier
from millstream.connectors.base import CommitContext, Committer
from millstream.connectors.kafka.client import TIMEOUT, KafkaFailure, client_settings, library, reason
from millstream.connectors.kafka.producer import Transaction, addresses
from millstream.connectors.kafka.protocol import Address, Coordinators
from millstream.connectors.kafka.sink_settings import SinkSettings

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
