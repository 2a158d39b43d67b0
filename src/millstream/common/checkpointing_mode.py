"""CheckpointingMode and ExternalizedCheckpointRetention."""

from __future__ import annotations

from enum import Enum

__all__ = ["CheckpointingMode", "ExternalizedCheckpointRetention"]


class CheckpointingMode(Enum):
    """What a failure may do to results.

    State is exact in the first two modes: a job goes on from a checkpoint, with the state and the positions of
    its sources that belong together. The modes differ in what sinks show.

    EXACTLY_ONCE: output counts only with the checkpoint it belongs to. Nothing is lost, nothing comes twice.
    AT_LEAST_ONCE: output counts as soon as its epoch has ended. What came after the last checkpoint comes
    again after a failure.
    AT_MOST_ONCE, which Flink does not have: the position is saved before records are processed. What was being
    processed in a failure is lost, nothing is repeated.
    """

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    AT_MOST_ONCE = 2


class ExternalizedCheckpointRetention(Enum):
    """When the checkpoints of a job that has ended are kept.

    Those of a job that finished are deleted in any case.

    DELETE_ON_CANCELLATION: kept when the job failed, deleted when it was cancelled.
    RETAIN_ON_CANCELLATION: kept when the job failed or was cancelled.
    NO_EXTERNALIZED_CHECKPOINTS: never kept.
    """

    DELETE_ON_CANCELLATION = 0
    RETAIN_ON_CANCELLATION = 1
    NO_EXTERNALIZED_CHECKPOINTS = 2
