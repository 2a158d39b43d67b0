"""Transcripts of SQL operators: input rows, watermarks, and the expected changes.

Each runs with its batches as written, row by row, and with a restart from files after every batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from millstream.operators.base import Operator
from tests.support.sql_runs import KINDS, Bare, Change, batch_of

END = (1 << 63) - 1
WAYS = ["as written", "row by row", "with restarts"]


@dataclass
class Transcript:
    """An operator, the types of its input, and its events: rows, watermarks and the end."""

    name: str
    operator: Callable[[], Operator]
    kinds: list[pa.DataType]
    # Texts like "+I a 1", prefixed by the input's number if there are two; a watermark; or "end".
    steps: list[tuple[str | int, str]] = field(default_factory=list)


def _value(text: str, kind: pa.DataType) -> Any:
    if text == "-":
        return None
    if kind == pa.float64():
        return float(text)
    return text if kind == pa.string() else int(text)


def _changes(text: str, kinds: list[pa.DataType]) -> list[Change]:
    rows = [part.split() for part in text.split(",") if part.strip()]
    return [(r[0], *(_value(v, k) for v, k in zip(r[1:], kinds, strict=True))) for r in rows]


def shown(batches: list[Any]) -> str:
    """Return the rows of batches as text, as in a transcript."""
    rows = []
    for batch in batches:
        columns = [(c.view(pa.int64()) if pa.types.is_timestamp(c.type) else c).to_pylist() for c in batch.columns]
        for kind, row in zip(batch.all_kinds().tolist(), zip(*columns, strict=True), strict=True):
            rows.append(" ".join([KINDS[kind], *("-" if v is None else str(v) for v in row)]))
    return ", ".join(rows)


def steps_of(transcript: Transcript, one_by_one: bool = False) -> list[Any]:
    """Return the steps: (input, batch), watermarks, and "end"."""
    steps: list[Any] = []
    for step, _ in transcript.steps:
        steps += [step] if not isinstance(step, str) or step == "end" else _batches(transcript, step, one_by_one)
    return steps


def _batches(transcript: Transcript, text: str, one_by_one: bool) -> list[tuple[int, Any]]:
    index = 0
    if text[0] in "12":
        index, text = int(text[0]) - 1, text[1:]
    plain = [pa.int64() if pa.types.is_timestamp(k) else k for k in transcript.kinds]
    changes = _changes(text, plain)
    batches = []
    for part in [[c] for c in changes] if one_by_one else [changes]:
        batch = batch_of(part, plain)
        typed = [c.view(k) for c, k in zip(batch.columns, transcript.kinds, strict=True)]
        batches.append((index, batch.with_columns(typed)))
    return batches


def check(transcript: Transcript, way: str) -> None:
    """Run a transcript in one way, and check its output."""
    bare = Bare(transcript.operator())
    for step, expected in transcript.steps:
        if step == "end":
            bare.operator.finish()
        elif isinstance(step, int):
            bare.operator.on_watermark(step)
        else:
            for index, batch in _batches(transcript, step, way == "row by row"):
                bare.take(batch, index)
        out, bare.out = bare.out, []
        assert shown(out) == expected, step
        if way == "with restarts":
            bare.restart()
