"""A job's output: the committers of its sinks, and when what was staged is committed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from millstream.checkpoint.snapshot import unpack
from millstream.common.errors import JobExecutionError, MillstreamError
from millstream.common.faults import fault_point
from millstream.operators.sink import CommitContext, Committer, SinkOperator
from millstream.operators.slot import JobPlan

Committables = list[tuple[int, Any]]


class Output:
    """The committers of a job, by operator id. They live as long as the job."""

    def __init__(self, plan: JobPlan) -> None:
        self._names: dict[str, str] = {}
        self._committers: dict[str, Committer] = {}
        for node in (n for v in plan.vertices for n in v.nodes):
            if isinstance(node.operator, SinkOperator):
                committer = node.operator.sink.create_committer(CommitContext(plan.settings.job_id, node.id))
                if committer is not None:
                    self._names[node.id], self._committers[node.id] = node.name, committer

    def waits(self, operator: str) -> bool:
        """Tell whether a sink's output has to wait for a checkpoint."""
        return self._committers[operator].transactional

    def commit(self, staged: dict[str, Committables]) -> None:
        """Commit what sinks have staged, by operator id."""
        fault_point("driver.before-commit")
        for operator, committables in staged.items():
            self._guarded(operator, "commit", committables)
            fault_point("driver.in-commit")
        fault_point("driver.after-commit")

    def recover(self, staged: dict[str, bytes], former_job_id: str, operators: Collection[str] | None = None) -> None:
        """Commit what a checkpoint names, and abort everything else; for all sinks, or for some."""
        fault_point("driver.before-recover")
        for operator in self._committers:
            if operators is None or operator in operators:
                packed = staged.get(operator)
                committables: Committables = [] if packed is None else unpack(packed)
                self._guarded(operator, "recover", committables, former_job_id)
                fault_point("driver.in-recover")
        fault_point("driver.after-recover")

    def waiting(self) -> dict[str, Committables]:
        """Return what was committed and is not done with, by operator id: checkpoints go on naming it."""
        return {operator: waiting for operator, c in self._committers.items() if (waiting := c.waiting())}

    @property
    def wants_checkpoints(self) -> bool:
        """Whether something waits for checkpoints, though nothing may happen any more."""
        return any(c.wants_checkpoints for c in self._committers.values())

    def finish(self) -> None:
        """Be done with what waits."""
        for operator in self._committers:
            self._guarded(operator, "finish")

    def _guarded(self, operator: str, action: str, *arguments: Any) -> None:
        try:
            getattr(self._committers[operator], action)(*arguments)
        except MillstreamError:
            raise
        except Exception as e:
            raise JobExecutionError(f"Sink '{self._names[operator]}' could not {action}: {e!r}") from e

    def closers(self) -> list[Any]:
        return [c.close for c in self._committers.values()]
