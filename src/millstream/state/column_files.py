"""Changes of columns as streams of Arrow, one behind the other in a file of state.

What Arrow writes of a large column is the memory that the column is in: here it goes from there into the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from millstream.state.column_table import RowChange, from_ipc


class _Pieces:
    """A file in which Arrow writes; keeps what it is given, which are buffers of Arrow's where they are large."""

    closed = False

    def __init__(self) -> None:
        self.pieces: list[Any] = []

    def write(self, piece: Any) -> int:
        self.pieces.append(piece)
        return len(piece)

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Whoever made it reads on."""


def streams_of(rows: Mapping[Any, Sequence[RowChange]]) -> tuple[list[Any], list[list[int]]]:
    """Return rows of a table as pieces of a file, and what tells their streams apart.

    Of each change that is the row it belongs to, and how many bytes there are of what it sets and of what it removes.
    """
    pieces: list[Any] = []
    about: list[list[int]] = []
    for row, changes in rows.items():
        for change in changes:
            parts = [_stream(change.rows), [] if change.gone is None else _stream(change.gone)]
            about.append([row, *(sum(map(len, part)) for part in parts)])
            pieces += [piece for part in parts for piece in part]
    return pieces, about


def _stream(batch: pa.RecordBatch) -> list[Any]:
    file = _Pieces()
    with pa.ipc.new_stream(pa.PythonFile(file, mode="w"), batch.schema) as writer:
        writer.write_batch(batch)
    return file.pieces


def changes_of(body: bytes | memoryview, about: Sequence[Sequence[int]]) -> dict[int, tuple[RowChange, ...]]:
    """Return the rows of a table that `streams_of` wrote."""
    found: dict[int, tuple[RowChange, ...]] = {}
    at = 0
    for row, set_bytes, gone_bytes in about:
        # Copied: Arrow works on memory that is aligned, and the file may go while a job runs.
        rows = from_ipc(bytes(body[at : at + set_bytes]))
        at += set_bytes
        gone = from_ipc(bytes(body[at : at + gone_bytes])) if gone_bytes else None
        at += gone_bytes
        found[row] = (*found.get(row, ()), RowChange(rows, gone))
    return found
