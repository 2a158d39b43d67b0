"""InputDependencyConstraint: when Flink schedules a task of a batch job; here nothing depends on it."""

from enum import Enum

__all__ = ["InputDependencyConstraint"]


class InputDependencyConstraint(Enum):
    """Whether a task waits for any or for all of its inputs."""

    ANY = 0
    ALL = 1
