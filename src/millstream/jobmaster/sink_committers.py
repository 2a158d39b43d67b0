"""The committers of a job's sinks (`Committer` in `operators/sink.py`): commit, abort and finish staged output."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial

from millstream.checkpoint.snapshot import unpack
from millstream.common.errors import JobExecutionError, MillstreamError
from millstream.common.faults import fault_point
from millstream.jobmaster.machine.coordinator import Committables
from millstream.operators.runtime.messages import JobPlan
from millstream.operators.sink import CommitContext, Committer, SinkOperator

log = logging.getLogger("millstream")


class SinkCommitters:
    """The committers of a job, by operator id. They live as long as the job."""

    def __init__(self, plan: JobPlan) -> None:
        self._names: dict[str, str] = {}
        self._committers: dict[str, Committer] = {}
        try:
            for node in (n for v in plan.vertices for n in v.nodes):
                if isinstance(node.operator, SinkOperator):
                    committer = node.operator.sink.create_committer(CommitContext(plan.settings.writes_as, node.id))
                    if committer is not None:
                        self._names[node.id], self._committers[node.id] = node.label, committer
        except BaseException:
            self.close()
            raise

    @property
    def transactional(self) -> frozenset[str]:
        """The sinks whose output waits for a checkpoint."""
        return frozenset(operator for operator, c in self._committers.items() if c.transactional)

    def begin(self) -> None:
        """Notify committers that the job starts from scratch."""
        for operator, committer in self._committers.items():
            self._guarded(operator, "begin", committer.begin)

    def commit(self, staged: dict[str, Committables]) -> None:
        """Commit staged output, by operator id."""
        fault_point("driver.before-commit")
        for operator, committables in staged.items():
            self._guarded(operator, "commit", partial(self._committers[operator].commit, committables))
            fault_point("driver.in-commit")
        fault_point("driver.after-commit")

    def recover(
        self, recovered: dict[str, bytes], former_job_id: str, operators: Collection[str] | None = None
    ) -> None:
        """Commit the output that a checkpoint names, and abort all other output of these sinks."""
        fault_point("driver.before-recover")
        for operator, committer in self._committers.items():
            if operators is None or operator in operators:
                packed = recovered.get(operator)
                committables: Committables = [] if packed is None else unpack(packed)
                self._guarded(operator, "recover", partial(committer.recover, committables, former_job_id))
                fault_point("driver.in-recover")
        fault_point("driver.after-recover")

    def unfinished(self) -> dict[str, Committables]:
        """Return committed output that is not final, by operator id: checkpoints keep naming it."""
        return {operator: output for operator, c in self._committers.items() if (output := c.waiting())}

    @property
    def wants_checkpoints(self) -> bool:
        """Whether a sink needs further checkpoints even without new input."""
        return any(c.wants_checkpoints for c in self._committers.values())

    def finish(self) -> None:
        """Finalize all waiting output."""
        for operator, committer in self._committers.items():
            self._guarded(operator, "finish", committer.finish)

    def _guarded(self, operator: str, action: str, act: Callable[[], None]) -> None:
        try:
            act()
        except MillstreamError:
            raise
        except Exception as e:
            raise JobExecutionError(f"Sink {self._names[operator]} could not {action}: {e!r}") from e

    def close(self) -> None:
        for operator, committer in self._committers.items():
            try:
                committer.close()
            except Exception as e:
                log.warning("sink %s could not be closed: %s", self._names[operator], e)
