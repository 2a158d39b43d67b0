"""InputDependencyConstraint: when Flink schedules a batch task; it has no effect here."""

from enum import Enum

__all__ = ["InputDependencyConstraint"]


class InputDependencyConstraint(Enum):
    """Whether a task waits for any or all of its inputs."""

    ANY = 0
    ALL = 1
