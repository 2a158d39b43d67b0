"""PyFlink's import path of ExternalizedCheckpointRetention."""

from typing import TYPE_CHECKING

from millstream.common.call_site import old_names
from millstream.common.checkpointing_mode import ExternalizedCheckpointRetention

__all__ = ["ExternalizedCheckpointRetention"]

# Type checkers would accept any name.
if not TYPE_CHECKING:
    __getattr__ = old_names(__name__, {"ExternalizedCheckpointCleanup": ExternalizedCheckpointRetention})
