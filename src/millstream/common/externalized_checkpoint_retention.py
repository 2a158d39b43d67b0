"""ExternalizedCheckpointRetention: which checkpoints outlive their job."""

from __future__ import annotations

from enum import Enum

__all__ = ["ExternalizedCheckpointRetention"]


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
