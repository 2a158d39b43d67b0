"""What a subtask tells the driver of an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.state.keyed import Version
from millstream.state.restored import StoredState


@dataclass
class SubtaskReport:
    """What a subtask did in an epoch.

    Attributes:
        state_files: the files that now hold its operators' keyed state.
        committables: what its sinks have staged.
        carried: what else must outlive the process, see `operators.carried`.
        next_wake: when, by the wall clock, there is something to do without input.
        aligned: how far the sources of each alignment group have come here.
    """

    vertex: int
    subtask: int
    records_in: int
    records_out: int
    bytes_out: int
    state_files: dict[str, Version]
    committables: dict[str, Any]
    watermark: int
    metrics: dict[str, Any]
    carried: bytes
    next_wake: int | None
    aligned: dict[str, int]
    ended: bool
    # With a checkpoint: what tables of state there are.
    tables: dict[str, dict[str, dict[str, str]]]
    # With a savepoint: where the state was exported to.
    exported: dict[str, StoredState]
    # How many bytes of state were written.
    state_bytes: int
