"""Records a job's status, task states, progress and failures for the job machine. Pure."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Mapping

from millstream.common.execution_state import ExecutionState
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.job_status import JobStatus
from millstream.jobmaster.engine import EpochFailed
from millstream.jobmaster.machine.coordinator import CheckpointCoordinator
from millstream.jobmaster.machine.parallelism_bounds import Bounds
from millstream.jobmaster.machine.progress import JobProgress
from millstream.jobmaster.machine.view import CheckpointsView, FailureView, JobView, TaskView
from millstream.operators.runtime.messages import Address, JobPlan, SlotReport
from millstream.operators.source import Lags

_S = ExecutionState


class TaskStates:
    """The task states of an execution. Views that were handed out never change."""

    def __init__(self) -> None:
        self.views: Mapping[Address, TaskView] = {}
        # Whether no task has reported yet.
        self._are_new = True

    def deploy(self, plan: JobPlan, attempt: int, now: float) -> None:
        """Create the tasks of a new execution."""
        self._are_new = True
        self.views = {
            (v.id, subtask): TaskView(state=_S.CREATED, since=now, attempt=attempt, times={_S.CREATED: now})
            for v in plan.vertices
            for subtask in range(v.parallelism)
        }
        self._set_all((_S.SCHEDULED, _S.DEPLOYING), self.views, now)

    def opened(self, now: float) -> None:
        """Note that the slots are open; tasks open their functions in their first epoch."""
        self._set_all((_S.INITIALIZING,), self.views, now)

    def reported(self, reports: Iterable[SlotReport], ended: Collection[int], now: float) -> None:
        """Note a finished epoch; tasks of ended vertices are finished."""
        ended_tasks = {(r.vertex, r.subtask) for slot in reports for r in slot.subtasks if r.ended}
        if not ended_tasks and not self._are_new:
            return
        self._set_all((_S.RUNNING,), [a for a, t in self.views.items() if t.state is _S.INITIALIZING], now)
        self._are_new = False
        # Tasks that had ended before this execution do not report.
        ended_tasks |= {a for a in self.views if a[0] in ended}
        self._set_all((_S.FINISHED,), [a for a in ended_tasks if self.views[a].state is _S.RUNNING], now)

    def failed(self, address: Address | None, now: float) -> None:
        """Note the failed task, if known, and cancel the others."""
        if address is not None and address in self.views:
            self._set_all((_S.FAILED,), [address], now)
        self.cancel(now)

    def cancel(self, now: float) -> None:
        """Cancel all tasks that have not ended."""
        self._set_all((_S.CANCELING,), self._unended(), now)

    def released(self, now: float) -> None:
        """Note that the slots are released."""
        stopping = [a for a, t in self.views.items() if t.state is _S.CANCELING]
        self._set_all((_S.CANCELED,), stopping, now)

    def finish(self, now: float) -> None:
        """Finish all tasks of a job that ended normally, including stopped ones."""
        running = [a for a in self._unended() if self.views[a].state is _S.RUNNING]
        self._set_all((_S.FINISHED,), running, now)
        self._set_all((_S.CANCELING, _S.CANCELED), self._unended(), now)

    def _unended(self) -> list[Address]:
        return [a for a, t in self.views.items() if not t.state.is_terminal() and t.state is not _S.CANCELING]

    def _set_all(self, states: Iterable[ExecutionState], addresses: Iterable[Address], now: float) -> None:
        views = dict(self.views)
        chosen = list(addresses)
        for state in states:
            for address in chosen:
                before = views[address]
                if not before.state.can_become(state):
                    raise AssertionError(f"a task cannot go from {before.state.name} to {state.name}")
                times = {**before.times, state: now}
                views[address] = TaskView(state=state, since=now, attempt=before.attempt, times=times)
        self.views = views


_REMEMBERED_FAILURES = 16


class StatusRecorder:
    """Records a job's history; `view` is its current state."""

    def __init__(self, plan: JobPlan, coordinator: CheckpointCoordinator, now: float) -> None:
        self._plan = plan
        self._epoch = 0
        self._attempt = 0
        self._started = now
        self._tasks = TaskStates()
        self._progress = JobProgress()
        self._failures: deque[FailureView] = deque(maxlen=_REMEMBERED_FAILURES)
        self._failed = 0
        self._times = {JobStatus.INITIALIZING: now}
        self._checkpoints = CheckpointsView.of(coordinator)
        self.status = JobStatus.INITIALIZING
        self.restarts = 0
        # Number of equal failures in a row without a finished epoch, and their signature.
        self._repeated_failures = 0
        self._last_signature = ""
        # Since when an epoch runs, if one does.
        self._epoch_since: float | None = None
        # The bounds of each vertex's parallelism, for adaptive jobs.
        self.bounds: Mapping[int, Bounds] | None = None
        # The outcome of the job, once it is decided.
        self.outcome: JobStatus | None = None
        self.view = self.update_view()

    def update_view(self) -> JobView:
        """Create the current view."""
        self.view = JobView(
            plan=self._plan,
            status=self.status,
            outcome=self.outcome,
            times=self._times,
            epoch=self._epoch,
            epoch_since=self._epoch_since,
            attempt=self._attempt,
            restarts=self.restarts,
            tasks=self._tasks.views,
            progress=self._progress,
            checkpoints=self._checkpoints,
            failures=tuple(self._failures),
            repeated_failures=self._repeated_failures,
            bounds=self.bounds,
        )
        return self.view

    def become(self, status: JobStatus, now: float) -> None:
        if self.status is status:
            return
        if not self.status.can_become(status):
            raise AssertionError(f"a job cannot go from {self.status.name} to {status.name}")
        self.status = status
        self._times = {**self._times, status: now}

    def update_checkpoints(self, coordinator: CheckpointCoordinator) -> None:
        """Update the view of the checkpoints."""
        self._checkpoints = CheckpointsView.of(coordinator)

    # --- an execution

    def deployed(self, plan: JobPlan, attempt: int, now: float) -> None:
        self._plan, self._attempt = plan, attempt
        self._progress = self._progress.with_new_slots()
        self._tasks.deploy(plan, attempt, now)

    def running(self, now: float) -> None:
        """Note that the slots are open."""
        self._tasks.opened(now)
        self.become(JobStatus.RUNNING, now)

    def epoch_begins(self, now: float) -> None:
        self._epoch_since = now

    def epoch_finished(self, epoch: int, reports: list[SlotReport], ended: frozenset[int], now: float) -> None:
        self._epoch = epoch
        self._epoch_since = None
        self._repeated_failures = 0
        self._progress = self._progress.after(reports)
        self._tasks.reported(reports, ended, now)

    def sources_polled(self, lags: Lags) -> None:
        self._progress = self._progress.sources_polled(lags)

    def epoch_took(self, seconds: float) -> None:
        self._progress = self._progress.epoch_took(seconds)

    def failed(self, error: Exception, delay: float | None, now: float) -> int:
        """Note a failure; the job restarts after `delay`, if any. Return the number of the failure."""
        located = error if isinstance(error, EpochFailed) else None
        # Failures are equal if they differ only in numbers: of epochs, processes, addresses.
        self._epoch_since = None
        signature = re.sub(r"0x[0-9a-f]+|\d+", "#", str(error))
        self._repeated_failures = self._repeated_failures + 1 if signature == self._last_signature else 1
        self._last_signature = signature
        self._tasks.failed(None if located is None else self._task(located), now)
        self._failed += 1
        failure = None if located is None else located.failure
        self._failures.append(
            FailureView(
                failed_at=now,
                message=str(error),
                operator=None if located is None else located.operator_id,
                restarts_at=None if delay is None else now + delay,
                number=self._failed,
                can_replay=failure is not None and failure.replay_input is not None,
                note="" if failure is None else failure.note,
            )
        )
        if delay is not None:
            self.restarts += 1
            self.become(JobStatus.RESTARTING, now)
        return self._failed

    @property
    def repeated_failures(self) -> int:
        """The number of equal failures in a row without a finished epoch."""
        return self._repeated_failures

    def _task(self, error: EpochFailed) -> Address | None:
        vertex = next((v for v in self._plan.vertices if any(n.id == error.operator_id for n in v.nodes)), None)
        return None if vertex is None or error.subtask is None else (vertex.id, error.subtask)

    def released(self, now: float) -> None:
        """Note that the slots are released."""
        self._tasks.released(now)

    # --- the end

    def ends(self, outcome: JobStatus, now: float) -> None:
        """Set the outcome of the job."""
        self.outcome = outcome
        if outcome is JobStatus.SUSPENDED:
            self._tasks.cancel(now)
        elif outcome is JobStatus.FINISHED:
            self._tasks.finish(now)
        else:
            self.become(JobStatus.CANCELLING if outcome is JobStatus.CANCELED else JobStatus.FAILING, now)
            self._tasks.cancel(now)

    def finish(self, now: float) -> JobStatus:
        """Enter the final status: the shutdown is complete."""
        assert self.outcome is not None
        self._tasks.released(now)
        self.become(self.outcome, now)
        return self.outcome

    def result(self, now: float) -> JobExecutionResult:
        settings, progress = self._plan.settings, self._progress
        return JobExecutionResult(
            settings.job_id,
            settings.job_name,
            int((now - self._started) * 1000),
            progress.records_in(v.id for v in self._plan.vertices if v.is_source),
            progress.epochs,
            progress.metrics(),
        )
