"""The states of a job's tasks: every attempt of every subtask goes through Flink's life cycle. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from millstream.common.execution_state import ExecutionState
from millstream.jobmaster.machine.view import TaskView
from millstream.operators.runtime.messages import Address, JobPlan, SlotReport

_S = ExecutionState


class Tasks:
    """The tasks of an execution. What was handed out of it is never changed."""

    def __init__(self) -> None:
        self.views: Mapping[Address, TaskView] = {}
        # Whether none has reported yet.
        self._are_new = True

    def deploy(self, plan: JobPlan, attempt: int, now: float) -> None:
        """An execution begins: all its tasks are new."""
        self._are_new = True
        self.views = {
            (v.id, subtask): TaskView(state=_S.CREATED, since=now, attempt=attempt, times={_S.CREATED: now})
            for v in plan.vertices
            for subtask in range(v.parallelism)
        }
        self._all_become((_S.SCHEDULED, _S.DEPLOYING), self.views, now)

    def opened(self, now: float) -> None:
        """The slots are there; tasks open their functions with their first epoch."""
        self._all_become((_S.INITIALIZING,), self.views, now)

    def reported(self, reports: Iterable[SlotReport], ended: Collection[int], now: float) -> None:
        """An epoch was run; the vertices that have ended have no more to do."""
        over = {(r.vertex, r.subtask) for slot in reports for r in slot.subtasks if r.ended}
        if not over and not self._are_new:
            return
        self._all_become((_S.RUNNING,), [a for a, t in self.views.items() if t.state is _S.INITIALIZING], now)
        self._are_new = False
        # Those that had ended before this execution began report nothing any more.
        over |= {a for a in self.views if a[0] in ended}
        self._all_become((_S.FINISHED,), [a for a in over if self.views[a].state is _S.RUNNING], now)

    def failed(self, at: Address | None, now: float) -> None:
        """The execution has failed: in one task, if that is known, and the others are cancelled."""
        if at is not None and at in self.views:
            self._all_become((_S.FAILED,), [at], now)
        self.cancel(now)

    def cancel(self, now: float) -> None:
        """All tasks that have not ended are told to stop."""
        self._all_become((_S.CANCELING,), self._unended(), now)

    def released(self, now: float) -> None:
        """The slots are gone."""
        stopping = [a for a, t in self.views.items() if t.state is _S.CANCELING]
        self._all_become((_S.CANCELED,), stopping, now)

    def finish(self, now: float) -> None:
        """The job has ended as it should; tasks that were stopped have done all they were asked for."""
        running = [a for a in self._unended() if self.views[a].state is _S.RUNNING]
        self._all_become((_S.FINISHED,), running, now)
        self._all_become((_S.CANCELING, _S.CANCELED), self._unended(), now)

    def _unended(self) -> list[Address]:
        return [a for a, t in self.views.items() if not t.state.is_terminal() and t.state is not _S.CANCELING]

    def _all_become(self, states: Iterable[ExecutionState], addresses: Iterable[Address], now: float) -> None:
        views = dict(self.views)
        chosen = list(addresses)
        for state in states:
            for address in chosen:
                before = views[address]
                if not before.state.may_become(state):
                    raise AssertionError(f"a task cannot go from {before.state.name} to {state.name}")
                times = {**before.times, state: now}
                views[address] = TaskView(state=state, since=now, attempt=before.attempt, times=times)
        self.views = views
