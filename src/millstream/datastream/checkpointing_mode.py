"""PyFlink's import path of CheckpointingMode."""

from millstream.common.checkpointing_mode import CheckpointingMode

__all__ = ["CheckpointingMode"]
