"""A driver and workers that fail randomly in every way that the sink contract allows, in one process.

Tasks are generators, so that a task that is presumed dead can continue much later. Messages are pickled, as between a
worker and the driver.
"""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from millstream.common.pickles import dump
from millstream.datastream.connectors.base import CommitContext, Sink, SinkWriter
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.functions.metrics import MetricGroup

OPERATOR = "f00d"


class Crash(BaseException):
    """The driver crashes here. Not an Exception, so that no handler catches it."""


class _Restart(Exception):
    """The job has failed."""


def runtime_context(subtask: int = 0, parallelism: int = 1) -> RuntimeContext:
    return RuntimeContext("sink", subtask, parallelism, 128, 0, {}, MetricGroup(("sink",)), None)


def travelled(value: Any) -> Any:
    return pickle.loads(dump(value))


class Process:
    """A worker process with a writer that lives from epoch to epoch."""

    def __init__(self, sink: bytes, subtask: int, parallelism: int) -> None:
        self.writer: SinkWriter = pickle.loads(sink).create_writer(runtime_context(subtask, parallelism))
        self._snapshot = dump(None)

    def catch_up(self, snapshot: bytes) -> None:
        if snapshot != self._snapshot:
            self._snapshot = snapshot
            self.writer.restore(pickle.loads(snapshot))

    def run(self, transaction: str, records: list[Any], flush: bool) -> Iterator[tuple[Any, bytes] | None]:
        """Run a task step by step; the last step yields its report."""
        self.writer.begin(transaction)
        yield None
        for record in records:
            self.writer.write(record)
            yield None
        committable = self.writer.prepare_commit(flush)
        snapshot = self.writer.runtime_snapshot()
        assert snapshot is None or not flush
        self._snapshot = dump(snapshot)
        yield travelled(committable), self._snapshot


@dataclass
class Manifest:
    """A complete checkpoint."""

    job_id: str
    positions: list[int]
    committables: list[tuple[int, Any]] = field(default_factory=list)


class ChaoticJob:
    """Runs records through a sink, and checks its visible output whenever it must be correct."""

    def __init__(
        self,
        sink: Sink,
        shares: list[list[Any]],
        dice: random.Random,
        visible: Callable[[], Any],
        crashing: Callable[[int], AbstractContextManager[Any]],
        expected: Callable[[list[Any]], Any] = Counter,
    ) -> None:
        """Take the records of each subtask.

        Args:
            visible: returns the visible output.
            crashing: makes the driver crash after a number of steps of a commit.
            expected: returns the expected output of committed records.
        """
        self._sink = sink
        self._pickled = cloudpickle.dumps(sink)
        self._shares = shares
        self._dice = dice
        self._visible = visible
        self._crashing = crashing
        self._expected = expected
        self._job_ids = ["job0"]
        self._attempt = 0
        self._epoch = 0
        self._zombies: list[Iterator[Any]] = []
        self._all: list[Process] = []
        self._manifest = Manifest(self._job_ids[0], [0] * len(shares))
        self._start_over()

    @property
    def _parallelism(self) -> int:
        return len(self._shares)

    def _one_in(self, n: int) -> bool:
        return self._dice.randrange(n) == 0

    # --- the driver

    def run(self) -> None:
        """Run to the end, then let all delayed actions happen, and clean up."""
        try:
            self._run()
        finally:
            for process in self._all:
                process.writer.close()

    def _run(self) -> None:
        while True:
            try:
                self._run_epoch()
            except (_Restart, Crash):
                self._recover()
                self._check()
            if self._manifest.positions == [len(s) for s in self._shares]:
                break
        self._check()
        while self._zombies:
            self._wake_a_zombie()
        self._check()
        self._recover(every_job=True)
        self._check()

    def _start_over(self) -> None:
        self._positions = list(self._manifest.positions)
        self._pending: list[tuple[int, Any]] = []
        self._snapshots = [dump(None)] * self._parallelism
        self._processes: list[list[Process]] = [[] for _ in self._shares]
        committer = self._sink.create_committer(CommitContext(self._job_ids[-1], OPERATOR))
        assert committer is not None
        self._committer = committer
        assert self._committer is not None

    def _recover(self, every_job: bool = False) -> None:
        """Restore the last checkpoint, as this job or as another."""
        for processes in self._processes:
            self._keep_zombies(processes)
        if self._one_in(3):
            self._job_ids.append(f"job{len(self._job_ids)}")
        self._start_over()
        # No job restores from a job that crashed before its first checkpoint: its hidden output remains.
        for job_id in self._job_ids if every_job else [self._manifest.job_id]:
            committables = travelled(self._manifest.committables)
            if self._one_in(4):
                with suppress(Crash), self._crashing(self._dice.randrange(4)):
                    self._committer.recover(committables, job_id)
            self._committer.recover(committables, job_id)

    def _run_epoch(self) -> None:
        self._epoch += 1
        sizes = [self._dice.choice([0, 1, 3, 8]) for _ in self._shares]
        after = [min(p + n, len(s)) for p, n, s in zip(self._positions, sizes, self._shares, strict=True)]
        flush = after == [len(s) for s in self._shares] or self._one_in(4)
        reports = [self._run_task(i, self._shares[i][self._positions[i] : to], flush) for i, to in enumerate(after)]
        self._positions = after
        for subtask, (committable, snapshot) in enumerate(reports):
            self._snapshots[subtask] = snapshot
            if committable is not None:
                self._pending.append((subtask, committable))
        if self._one_in(8):
            raise _Restart
        if flush:
            self._checkpoint()

    def _checkpoint(self) -> None:
        committables = [*self._committer.waiting(), *self._pending]
        self._manifest = Manifest(self._job_ids[-1], list(self._positions), committables)
        self._pending = []
        if self._one_in(6):
            raise _Restart
        if self._one_in(4):
            with self._crashing(self._dice.randrange(4)):
                self._committer.commit(travelled(self._manifest.committables))
        for _ in range(self._dice.choice([1, 1, 2])):
            self._committer.commit(travelled(self._manifest.committables))
            self._check()

    def _check(self) -> None:
        counts = [r for share, to in zip(self._shares, self._manifest.positions, strict=True) for r in share[:to]]
        assert self._visible() == self._expected(counts)

    # --- the tasks

    def _run_task(self, subtask: int, records: list[Any], flush: bool) -> tuple[Any, bytes]:
        """Run a task, in one process or two, until one succeeds."""
        while True:
            if self._zombies and self._one_in(3):
                self._wake_a_zombie()
            process = self._choose_process(subtask)
            task = self._task(process, subtask, records, flush)
            if self._one_in(6):
                self._fail(process, subtask, task, len(records) + 2)
                if self._one_in(4):
                    raise _Restart
                continue
            *_, report = task
            if self._one_in(6):
                twin = self._choose_process(subtask, other_than=process)
                *_, other = self._task(twin, subtask, records, flush)
                report = self._dice.choice([report, other])
            assert report is not None
            return report  # type: ignore[no-any-return]

    def _task(self, process: Process, subtask: int, records: list[Any], flush: bool) -> Iterator[Any]:
        process.catch_up(self._snapshots[subtask])
        self._attempt += 1
        return process.run(f"{self._job_ids[-1]}-{OPERATOR}-{subtask}-{self._epoch}-{self._attempt}", records, flush)

    def _choose_process(self, subtask: int, other_than: Process | None = None) -> Process:
        known = [p for p in self._processes[subtask] if p is not other_than]
        if known and not self._one_in(5):
            return self._dice.choice(known)
        process = Process(self._pickled, subtask, self._parallelism)
        self._all.append(process)
        self._processes[subtask].append(process)
        return process

    def _fail(self, process: Process, subtask: int, task: Iterator[Any], steps: int) -> None:
        """Stop a task halfway: its process has died, or is only presumed dead, or runs the next task."""
        for _ in range(self._dice.randrange(steps)):
            next(task)
        fate = self._dice.choice(["dies", "seems dead", "lives"])
        if fate == "lives":
            # The task failed before its report; the process gets the next task.
            return
        self._processes[subtask].remove(process)
        if fate == "seems dead":
            self._zombies.append(task)

    def _keep_zombies(self, processes: list[Process]) -> None:
        for process in processes:
            if self._one_in(3):
                self._attempt += 1
                name = f"{self._job_ids[-1]}-{OPERATOR}-0-{self._epoch}-{self._attempt}"
                self._zombies.append(process.run(name, self._dice.choices(self._shares[0], k=5), self._one_in(2)))

    def _wake_a_zombie(self) -> None:
        """Let a process that is presumed dead continue for some steps."""
        zombie = self._dice.choice(self._zombies)
        for _ in range(self._dice.randrange(1, 6)):
            try:
                next(zombie)
            except (StopIteration, Exception):
                # The process has ended, or its files were deleted.
                self._zombies.remove(zombie)
                return
