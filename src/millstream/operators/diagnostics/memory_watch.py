"""Finds the state that uses the most memory when a slot exceeds its memory limit."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from millstream.common.display_text import in_bytes
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.pickles import dump
from millstream.state.keyed import KeyedState

# Number of rows from which the size of all is estimated.
_SAMPLE = 200
# Estimated ratio of the size of an object in memory to that of its pickle.
_MEMORY_RATIO = 3


@fast_dataclass
class StateSize:
    """The estimated size of a state table."""

    operator: str
    state: str
    rows: int
    size: int


def largest(states: Iterable[tuple[str, KeyedState]]) -> StateSize | None:
    """Return the state table that uses the most memory; None if there is none."""
    sizes = [_size(operator, name, table.rows()) for operator, state in states for name, table in state.tables.items()]
    return max(sizes, key=lambda s: s.size, default=None)


def _size(operator: str, name: str, rows: Iterable[object]) -> StateSize:
    remaining = iter(rows)
    sample = list(islice(remaining, _SAMPLE))
    count = len(sample) + sum(1 for _ in remaining)
    size = len(dump(sample)) * count // len(sample) * _MEMORY_RATIO if sample else 0
    return StateSize(operator, name, count, size)


def explain(resident: int, limit: int, largest_state: StateSize | None) -> str:
    """Return the error text for a slot that exceeds its memory limit: usage, cause, and fix."""
    text = f"The slot holds {in_bytes(resident)} of memory, and its share is {in_bytes(limit)}."
    if largest_state is None or largest_state.size * 2 < resident:
        text += " Most of it is not state: pending blocks, or objects that functions retain."
    else:
        state = largest_state
        text += f" Most of it is the state '{state.state}': {state.rows:,} rows, about {in_bytes(state.size)}."
    return (
        f"{text} Raise taskmanager.memory.process.size, give the job more slots, or keep state on disk with "
        "state.backend.type: rocksdb."
    )
