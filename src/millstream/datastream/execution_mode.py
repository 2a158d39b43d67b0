"""RuntimeExecutionMode: streaming results, or only the final results of bounded input."""

from __future__ import annotations

from enum import Enum

__all__ = ["RuntimeExecutionMode"]


class RuntimeExecutionMode(Enum):
    """How a program is run.

    STREAMING emits every step; BATCH, for bounded sources only, emits final results, key by key; AUTOMATIC
    is BATCH when all sources are bounded and STREAMING otherwise.
    """

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2
