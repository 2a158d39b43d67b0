"""The states of a task and their transitions.

CREATED -> SCHEDULED -> DEPLOYING -> INITIALIZING -> RUNNING -> FINISHED
   |           |            |             |             |
   '-----------'------------'-------------'-------------'--> CANCELING -> CANCELED
                                                        '--> FAILED  (from any that has not ended)
"""

from __future__ import annotations

from enum import Enum

__all__ = ["ExecutionState"]


class ExecutionState(Enum):
    """Flink's states of a task: one attempt of one subtask."""

    CREATED = 0
    SCHEDULED = 1
    DEPLOYING = 2
    RUNNING = 3
    FINISHED = 4
    CANCELING = 5
    CANCELED = 6
    FAILED = 7
    RECONCILING = 8
    INITIALIZING = 9

    def is_terminal(self) -> bool:
        return self in (ExecutionState.FINISHED, ExecutionState.CANCELED, ExecutionState.FAILED)

    def can_become(self, next_state: ExecutionState) -> bool:
        """Return whether the life cycle allows this transition."""
        return next_state in _NEXT.get(self, frozenset())


_S = ExecutionState
_ENDS = frozenset({_S.CANCELING, _S.FAILED})
_NEXT = {
    _S.CREATED: _ENDS | {_S.SCHEDULED, _S.CANCELED},
    _S.SCHEDULED: _ENDS | {_S.DEPLOYING, _S.CANCELED},
    _S.DEPLOYING: _ENDS | {_S.INITIALIZING},
    _S.INITIALIZING: _ENDS | {_S.RUNNING},
    _S.RUNNING: _ENDS | {_S.FINISHED},
    _S.CANCELING: frozenset({_S.CANCELED, _S.FAILED}),
}
