"""The sinks and their external system: transactions are staged, then committed or aborted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Any

from millstream.common.run_ids import is_earlier
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.sink import CommitContext, Committer, Sink, SinkWriter

from .storage import Disk
from .world import World


class Status(Enum):
    STAGED = "staged"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass
class Transaction:
    name: str
    sink: str
    records: list[Any]
    staged_at: float
    status: Status = Status.STAGED


class External:
    """All transactions of all sinks.

    Attributes:
        commit_delay: the number of checkpoints by which committers delay a commit.
        aborts_strays: whether committers abort earlier drivers' output with every commit, as KafkaSink's committer
            does; other committers do so only when a job recovers.
    """

    def __init__(self, world: World, disk: Disk, waits_for_manifest: bool, commit_delay: int) -> None:
        self._world = world
        self._disk = disk
        self._waits_for_manifest = waits_for_manifest
        self.commit_delay = commit_delay
        self.aborts_strays = commit_delay > 0
        self._transactions: dict[str, Transaction] = {}

    def promise_exactly_once(self) -> None:
        """Forbid commits before the checkpoint's manifest is on storage."""
        self._waits_for_manifest = True

    def stage(self, name: str, sink: str, records: list[Any]) -> None:
        if name in self._transactions:
            self._world.violate(f"transaction {name} is used twice")
        if self._world.verbose:
            self._world.note(f"staged {name}: {records}")
        self._transactions[name] = Transaction(name, sink, records, self._world.now)

    def is_committed(self, name: str) -> bool:
        transaction = self._transactions.get(name)
        return transaction is not None and transaction.status is Status.COMMITTED

    def commit(self, name: str) -> None:
        transaction = self._transactions.get(name)
        if transaction is None:
            self._world.violate(f"transaction {name} is committed but was never staged")
        if transaction.status is Status.ABORTED:
            self._world.violate(f"transaction {name} is committed but was aborted before")
        if transaction.status is Status.STAGED:
            if self._waits_for_manifest and not self._disk.is_named(name):
                self._world.violate(f"transaction {name} is committed while no manifest on storage names it")
            self._world.note(f"committed {name}")
            transaction.status = Status.COMMITTED

    def abort(self, name: str) -> None:
        transaction = self._transactions[name]
        if transaction.status is Status.COMMITTED:
            self._world.violate(f"transaction {name} is aborted but was committed before")
        self._world.note(f"aborted {name}")
        transaction.status = Status.ABORTED

    def staged(self, prefix: str) -> list[str]:
        return [n for n, t in self._transactions.items() if t.status is Status.STAGED and n.startswith(prefix)]

    def check_clean(self, sinks: Collection[str], job_id: str, before: float, unfinished: Collection[str]) -> None:
        """Check that a recovery left no staged transaction of the job in these sinks, except the unfinished ones."""
        for transaction in self._transactions.values():
            if (
                transaction.status is Status.STAGED
                and transaction.staged_at < before
                and transaction.sink in sinks
                and transaction.name not in unfinished
                and transaction.name.startswith(f"{job_id}-")
            ):
                self._world.violate(f"transaction {transaction.name} was neither committed nor aborted in a recovery")

    def committed(self, sink: str) -> list[Any]:
        """Return the committed records of a sink."""
        return [
            r for t in self._transactions.values() if t.sink == sink and t.status is Status.COMMITTED for r in t.records
        ]


class SimulatedSink(Sink):
    """A sink whose tasks are simulated: only its committer is needed."""

    def __init__(self, world: World, external: External) -> None:
        self._world = world
        self._external = external

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        raise AssertionError("the tasks are simulated")

    def create_committer(self, context: CommitContext) -> Committer:
        return SimulatedCommitter(self._world, self._external, context)


class SimulatedCommitter(Committer):
    def __init__(self, world: World, external: External, context: CommitContext) -> None:
        self._world = world
        self._external = external
        self._context = context
        self.job_id = context.job_id
        # The number of checkpoints by which each transaction's commit has been delayed.
        self._uncommitted: dict[str, int] = {}

    def commit(self, committables: list[tuple[int, str]]) -> None:
        for _, name in committables:
            self._uncommitted[name] = self._uncommitted.get(name, -1) + 1
        for name in [n for n, waited in self._uncommitted.items() if waited >= self._external.commit_delay]:
            self._commit(name)
        if self._external.aborts_strays:
            self._abort_strays()

    def _abort_strays(self) -> None:
        """Abort output that workers of earlier drivers staged late, like KafkaSink's committer."""
        sink = f"-{self._context.operator_id}-"
        for name in self._external.staged(""):
            if name[32:].startswith(sink) and name not in self._uncommitted and self.is_stray(name[:32]):
                self._world.step("abort")
                self._external.abort(name)

    def is_stray(self, run: str) -> bool:
        """Return whether a run's staged output belongs to an earlier driver."""
        return bool(is_earlier(run, self.job_id))

    def _commit(self, name: str) -> None:
        self._world.step("commit")
        self._external.commit(name)
        self._world.step("commit")
        del self._uncommitted[name]

    def waiting(self) -> list[tuple[int, str]]:
        return [(0, name) for name in self._uncommitted]

    @property
    def wants_checkpoints(self) -> bool:
        return bool(self._uncommitted)

    def finish(self) -> None:
        for name in list(self._uncommitted):
            self._commit(name)

    def recover(self, committables: list[tuple[int, str]], former_job_id: str) -> None:
        self._uncommitted.clear()
        self.commit([(subtask, name) for subtask, name in committables if not self._external.is_committed(name)])
        for prefix in {self._context.prefix(former_job_id): None, self._context.prefix(): None}:
            for name in self._external.staged(prefix):
                if name not in self._uncommitted:
                    self._world.step("abort")
                    self._external.abort(name)
