"""Says which state of a slot takes the most memory, when the slot has more than its share."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from millstream.common.display_text import in_bytes
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.pickles import dump
from millstream.state.keyed import KeyedState

# So many rows say how large the others are.
_SAMPLE = 200
# An object in memory takes about so many times the bytes of its pickle.
_IN_MEMORY = 3


@fast_dataclass
class Held:
    """What one state holds, about."""

    operator: str
    state: str
    rows: int
    size: int


def largest(states: Iterable[tuple[str, KeyedState]]) -> Held | None:
    """Return the state that takes the most memory; None where there is none."""
    held = [_held(operator, name, table.rows()) for operator, state in states for name, table in state.tables.items()]
    return max(held, key=lambda h: h.size, default=None)


def _held(operator: str, name: str, rows: Iterable[tuple[Any, Any]]) -> Held:
    left = iter(rows)
    sample = list(islice(left, _SAMPLE))
    count = len(sample) + sum(1 for _ in left)
    size = len(dump(sample)) * count // len(sample) * _IN_MEMORY if sample else 0
    return Held(operator, name, count, size)


def explain(resident: int, share: int, held: Held | None) -> str:
    """Say that a slot has more than its share, what takes it, and what helps."""
    told = f"The slot holds {in_bytes(resident)} of memory, and its share is {in_bytes(share)}."
    if held is None or held.size * 2 < resident:
        told += " Most of it is not state: blocks that wait, or what functions keep for themselves."
    else:
        told += f" Most of it is the state '{held.state}': {held.rows:,} rows, about {in_bytes(held.size)}."
    return (
        f"{told} Raise taskmanager.memory.process.size, give the job more slots, or keep state on disk with "
        "state.backend.type: rocksdb."
    )
