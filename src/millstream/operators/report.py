"""What a subtask is told when it takes over from others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class TakenOver:
    """What a subtask takes over where the graph or the parallelism was another: made by `checkpoint.restore`.

    Attributes:
        watermark: how far the time of its input has come.
        ended: whether its input has ended.
        ended_edges: of its inputs, those that have.
        operators: what each operator had carried, dealt out anew.
        watermarks: how far each operator's time has come.
    """

    watermark: int
    ended: bool
    ended_edges: frozenset[int]
    operators: dict[str, Any]
    watermarks: dict[str, int]
