"""CheckpointingMode and ExternalizedCheckpointRetention."""

from __future__ import annotations

from enum import Enum

__all__ = ["CheckpointingMode", "ExternalizedCheckpointRetention"]


class CheckpointingMode(Enum):
    """Delivery guarantee after a failure.

        State is consistent in the first two modes: a job restores state and source positions from one checkpoint. The
    modes differ in what sinks show.

        EXACTLY_ONCE: sinks commit output with its checkpoint. Nothing is lost or repeated.
        AT_LEAST_ONCE: sinks commit output at the end of its epoch. Output after the last checkpoint is repeated.
        AT_MOST_ONCE (not in Flink): source positions are saved before records are processed. Records in process at a
        failure are lost; none is repeated.
    """

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    AT_MOST_ONCE = 2


class ExternalizedCheckpointRetention(Enum):
    """When the checkpoints of an ended job are retained.

    Checkpoints of a finished job are always deleted.

    DELETE_ON_CANCELLATION: retained after a failure, deleted after a cancellation.
    RETAIN_ON_CANCELLATION: retained after a failure or a cancellation.
    NO_EXTERNALIZED_CHECKPOINTS: never retained.
    """

    DELETE_ON_CANCELLATION = 0
    RETAIN_ON_CANCELLATION = 1
    NO_EXTERNALIZED_CHECKPOINTS = 2
