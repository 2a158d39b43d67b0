"""CheckpointingMode, where PyFlink has it."""

from millstream.common.checkpointing_mode import CheckpointingMode

__all__ = ["CheckpointingMode"]
