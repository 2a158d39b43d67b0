"""The states of a job, and which may follow which.

    INITIALIZING -> CREATED -> RUNNING -> FINISHED
                       |        |  ^ \\
                       |        |  |  -> SUSPENDED
                       |        v  |
                       |     RESTARTING (from FAILING when the restart strategy allows)
                       v        ^
                   CANCELLING   |
                       |     FAILING -> FAILED
                       v
                   CANCELED
"""

from __future__ import annotations

from enum import Enum

__all__ = ["JobStatus"]


class JobStatus(Enum):
    """Flink's job states.

    Example:
        >>> from millstream.common import JobStatus
        >>> JobStatus.RUNNING.is_terminal_state(), JobStatus.FINISHED.is_terminal_state()
        (False, True)
    """

    INITIALIZING = 0
    CREATED = 1
    RUNNING = 2
    FAILING = 3
    FAILED = 4
    CANCELLING = 5
    CANCELED = 6
    FINISHED = 7
    RESTARTING = 8
    SUSPENDED = 9
    RECONCILING = 10

    def is_globally_terminal_state(self) -> bool:
        """Return whether the job has ended and will not be recovered.

        Example:
            >>> JobStatus.FAILED.is_globally_terminal_state(), JobStatus.SUSPENDED.is_globally_terminal_state()
            (True, False)
        """
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)

    def is_terminal_state(self) -> bool:
        """Return whether the job has ended.

        Example:
            >>> JobStatus.FAILED.is_terminal_state(), JobStatus.RESTARTING.is_terminal_state()
            (True, False)
        """
        return self.is_globally_terminal_state() or self is JobStatus.SUSPENDED

    def can_become(self, next_status: JobStatus) -> bool:
        """Return whether the life cycle allows this transition."""
        return next_status in _NEXT.get(self, frozenset())


_S = JobStatus
_NEXT = {
    _S.INITIALIZING: frozenset({_S.CREATED, _S.FAILED, _S.CANCELED, _S.SUSPENDED}),
    _S.CREATED: frozenset({_S.RUNNING, _S.FAILING, _S.CANCELLING, _S.SUSPENDED}),
    _S.RUNNING: frozenset({_S.FAILING, _S.CANCELLING, _S.FINISHED, _S.RESTARTING, _S.SUSPENDED}),
    _S.FAILING: frozenset({_S.FAILED, _S.RESTARTING, _S.CANCELLING, _S.SUSPENDED}),
    _S.RESTARTING: frozenset({_S.CREATED, _S.RUNNING, _S.FAILING, _S.CANCELLING, _S.SUSPENDED}),
    _S.CANCELLING: frozenset({_S.CANCELED, _S.FAILED, _S.SUSPENDED}),
    _S.RECONCILING: frozenset({_S.RUNNING, _S.FAILING, _S.SUSPENDED}),
}
