"""The job master: runs one job's epochs from its start to its end, on a thread of its own."""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from millstream.checkpoint.storage import DirectoryStorage
from millstream.common.errors import JobCancelledError, JobExecutionError, MillstreamError
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.job_status import JobStatus
from millstream.jobmaster.alignment import Alignment
from millstream.jobmaster.flow import EpochSizer
from millstream.jobmaster.progress import Progress
from millstream.operators.sink import Committer, SinkOperator
from millstream.operators.slot import JobPlan, LevelTask, SlotReport
from millstream.operators.source import SourceOperator, SplitEnumerator

log = logging.getLogger("millstream")


class EpochRunner(Protocol):
    """Runs the epochs of a job on an engine."""

    def open(self) -> None: ...

    def run(self, tasks: list[LevelTask]) -> list[SlotReport]: ...

    def cancel(self) -> None: ...

    def release(self) -> None: ...


@dataclass
class JobOptions:
    """How a job is run."""

    buffer_timeout: float = 0.1
    sizer: EpochSizer = field(default_factory=EpochSizer)


class JobMaster:
    """One job."""

    def __init__(
        self,
        plan: JobPlan,
        runner: EpochRunner,
        storage: DirectoryStorage,
        options: JobOptions,
        on_end: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.plan = plan
        self.result: Future[JobExecutionResult] = Future()
        self.progress = Progress()
        self._status = JobStatus.INITIALIZING
        self._status_lock = threading.Lock()
        # How the job will have ended, once that is decided.
        self._outcome: JobStatus | None = None
        self._runner = runner
        self._storage = storage
        self._options = options
        self._on_end = on_end
        self._clock = clock
        self._cancel = threading.Event()
        self._sources: dict[int, SplitEnumerator] = {}
        self._committers: dict[str, Committer] = {}
        self._names = {n.id: n.name for v in plan.vertices for n in v.nodes}
        self._state_files: dict[tuple[int, int], dict[str, str | None]] = {}
        self._carried: dict[tuple[int, int], bytes] = {}
        # When subtasks have something to do without input.
        self._wakes: dict[tuple[int, int], int] = {}
        self._alignment = Alignment(plan)
        self._chains: dict[tuple[int, int, str], list[str]] = {}
        self._thread = threading.Thread(target=self._main, name=f"job-{plan.settings.job_id[:8]}", daemon=True)

    # --- from other threads

    def start(self) -> None:
        self._thread.start()

    @property
    def status(self) -> JobStatus:
        return self._status

    @property
    def is_cancelled(self) -> bool:
        return self._cancel.is_set()

    def cancel(self) -> None:
        """Ask the job to stop; `result` is done when it has. A job that is already ending ends as it would."""
        with self._status_lock:
            if self._outcome is not None or self._cancel.is_set():
                return
            self._cancel.set()
        self._runner.cancel()

    # --- the job's own thread

    def _main(self) -> None:
        started = self._clock()
        error: BaseException | None = None
        try:
            self._become(JobStatus.CREATED)
            self._open()
            self._become(JobStatus.RUNNING)
            self._run()
        except BaseException as e:
            error = e
        with self._status_lock:
            cancelled = self._cancel.is_set()
            outcome = JobStatus.CANCELED if cancelled else JobStatus.FAILED if error else JobStatus.FINISHED
            self._outcome = outcome
        self._shut_down(outcome)
        self._finish(outcome, error, started)

    def _open(self) -> None:
        self._runner.open()
        for vertex in self.plan.vertices:
            for node in vertex.nodes:
                if isinstance(node.operator, SourceOperator):
                    self._sources[vertex.id] = node.operator.source.create_enumerator(vertex.parallelism)
                if isinstance(node.operator, SinkOperator):
                    committer = node.operator.sink.create_committer()
                    if committer is not None:
                        self._committers[node.id] = committer

    def _run(self) -> None:
        ended: frozenset[int] = frozenset()
        epoch = 0
        while not self._cancel.is_set() and len(ended) < len(self._sources):
            started = self._clock()
            shares, limited = self._poll(ended, started)
            ending = frozenset(v for v, s in self._sources.items() if v not in ended and s.is_finished())
            if not shares and not ending and self._next_wake() > started:
                self._wait_for_input(ended)
                continue
            epoch += 1
            reports = self._runner.run(self._tasks(epoch, shares, ending))
            self._take_reports(reports)
            for source in self._sources.values():
                source.committed()
            ended |= ending
            seconds = self._clock() - started
            self._learn(seconds, limited, reports)
            if not limited and len(ended) < len(self._sources):
                # Nothing waits: let input gather for the rest of the buffer timeout.
                self._cancel.wait(max(0.0, self._options.buffer_timeout - seconds))

    def _poll(self, ended: frozenset[int], now: float) -> tuple[dict[int, dict[int, list[Any]]], bool]:
        shares, limited = {}, False
        for vertex, source in self._sources.items():
            if vertex in ended or self._alignment.holds_back(vertex):
                continue
            dealt = source.poll(self._options.sizer.budget, now)
            limited |= dealt.limited
            if dealt.shares:
                shares[vertex] = dealt.shares
        return shares, limited

    def _wait_for_input(self, ended: frozenset[int]) -> None:
        now = self._clock()
        waking = min(s.next_poll(now) for v, s in self._sources.items() if v not in ended)
        self._cancel.wait(max(0.0, min(waking, self._next_wake()) - now))

    def _next_wake(self) -> float:
        return min(self._wakes.values()) / 1000 if self._wakes else math.inf

    def _tasks(self, epoch: int, shares: dict[int, dict[int, list[Any]]], ending: frozenset[int]) -> list[LevelTask]:
        tasks = [LevelTask(epoch, level) for level in range(self.plan.levels)]
        for vertex in self.plan.vertices:
            task = tasks[vertex.level]
            if vertex.id in shares:
                task.shares[vertex.id] = shares[vertex.id]
            if vertex.id in ending:
                task.ending |= {vertex.id}
            for subtask in range(vertex.parallelism):
                files = self._state_files.get((vertex.id, subtask))
                if files:
                    task.state_files[vertex.id, subtask] = files
                carried = self._carried.get((vertex.id, subtask))
                if carried:
                    task.carried[vertex.id, subtask] = carried
        return tasks

    def _take_reports(self, reports: list[SlotReport]) -> None:
        """Everything the epoch did counts from here on."""
        reports.sort(key=lambda r: (r.level, r.slot))
        staged: dict[str, list[tuple[int, Any]]] = {}
        for slot_report in reports:
            if slot_report.printed:
                sys.stdout.write(slot_report.printed)
            for report in slot_report.subtasks:
                self._keep_files(report.vertex, report.subtask, report.state_files)
                address = report.vertex, report.subtask
                self._carried[address] = report.carried
                self._wakes.pop(address, None)
                if report.next_wake is not None:
                    self._wakes[address] = report.next_wake
                self._alignment.learn(report)
                for operator_id, committable in report.committables.items():
                    staged.setdefault(operator_id, []).append((report.subtask, committable))
        self.progress.add(reports)
        for operator_id, committables in staged.items():
            self._commit(operator_id, committables)

    def _commit(self, operator_id: str, committables: list[tuple[int, Any]]) -> None:
        try:
            self._committers[operator_id].commit(committables)
        except MillstreamError:
            raise
        except Exception as e:
            raise JobExecutionError(f"Sink '{self._names[operator_id]}' could not commit: {e!r}") from e

    def _keep_files(self, vertex: int, subtask: int, files: dict[str, str | None]) -> None:
        """Remember the files that are now the state, and delete those that a new base has replaced."""
        if not files:
            return
        self._state_files[vertex, subtask] = files
        for operator_id, name in files.items():
            chain = self._chains.setdefault((vertex, subtask, operator_id), [])
            if name is None or (chain and chain[-1] == name):
                continue
            if name.endswith(".base"):
                for old in chain:
                    self._storage.delete(old)
                chain.clear()
            chain.append(name)

    def _learn(self, seconds: float, limited: bool, reports: list[SlotReport]) -> None:
        subtasks = [r for slot in reports for r in slot.subtasks]
        read = max((r.records_in for r in subtasks if r.vertex in self._sources), default=0)
        sent = max((r.bytes_out for r in subtasks), default=0)
        self._options.sizer.finished(seconds, limited, read, sent)
        self.progress.epoch_took(seconds)

    # --- the end

    def _shut_down(self, outcome: JobStatus) -> None:
        """Leave nothing behind: slots, sources, sinks, files."""
        if outcome is not JobStatus.FINISHED:
            self._become(JobStatus.CANCELLING if outcome is JobStatus.CANCELED else JobStatus.FAILING)
        steps: list[Callable[[], None]] = [self._runner.release]
        steps += [s.close for s in self._sources.values()]
        steps += [c.close for c in self._committers.values()]
        steps.append(self._on_end)
        for step in steps:
            try:
                step()
            except Exception as e:
                # The job's own outcome is what the user must hear; this is only what was left behind.
                log.warning("while ending job '%s': %s", self.plan.settings.job_name, e)

    def _finish(self, outcome: JobStatus, error: BaseException | None, started: float) -> None:
        settings = self.plan.settings
        self._become(outcome)
        if outcome is JobStatus.CANCELED:
            self.result.set_exception(
                JobCancelledError(f"Job '{settings.job_name}' ({settings.job_id}) was cancelled.")
            )
            return
        if error is not None:
            sys.stdout.write(getattr(error, "printed", ""))
            self.result.set_exception(error)
            return
        self.result.set_result(
            JobExecutionResult(
                settings.job_id,
                settings.job_name,
                int((self._clock() - started) * 1000),
                self.progress.records_in(v.id for v in self.plan.vertices if v.is_source),
                self.progress.epochs,
                self.progress.metrics(),
            )
        )

    def _become(self, status: JobStatus) -> None:
        with self._status_lock:
            if not self._status.may_become(status):
                raise AssertionError(f"a job cannot go from {self._status.name} to {status.name}")
            self._status = status
