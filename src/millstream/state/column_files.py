"""Changes of columns as a sequence of Arrow streams in a state file.

Arrow writes a large column as a view of its memory; the views are written to the file without a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from millstream.state.column_table import RowChange, from_ipc


class _Sink:
    """A file object for Arrow that collects the buffers that Arrow writes."""

    closed = False

    def __init__(self) -> None:
        self.buffers: list[pa.Buffer] = []

    def write(self, buffer: pa.Buffer) -> int:
        self.buffers.append(buffer)
        return len(buffer)

    def flush(self) -> None:
        """Do nothing: writes are not buffered."""

    def close(self) -> None:
        """Do nothing: the buffers are still needed."""


def streams_of(rows: Mapping[int, Sequence[RowChange]]) -> tuple[list[pa.Buffer], list[list[int]]]:
    """Return rows of a table as buffers to write, and the lengths of their streams.

    The lengths of a change are its row, the bytes of the keys that it sets, and the bytes of those that it removes.
    """
    buffers: list[pa.Buffer] = []
    lengths: list[list[int]] = []
    for row, changes in rows.items():
        for change in changes:
            streams = [_stream(change.rows), [] if change.removed is None else _stream(change.removed)]
            lengths.append([row, *(sum(map(len, stream)) for stream in streams)])
            buffers += [buffer for stream in streams for buffer in stream]
    return buffers, lengths


def _stream(batch: pa.RecordBatch) -> list[pa.Buffer]:
    file = _Sink()
    with pa.ipc.new_stream(pa.PythonFile(file, mode="w"), batch.schema) as writer:
        writer.write_batch(batch)
    return file.buffers


def changes_of(body: bytes | memoryview, lengths: Sequence[Sequence[int]]) -> dict[int, tuple[RowChange, ...]]:
    """Return the rows of a table that `streams_of` wrote."""
    changes: dict[int, tuple[RowChange, ...]] = {}
    offset = 0
    for row, set_bytes, removed_bytes in lengths:
        # Copied: Arrow needs aligned memory, and the file may be deleted while a job runs.
        rows = from_ipc(bytes(body[offset : offset + set_bytes]))
        offset += set_bytes
        removed = from_ipc(bytes(body[offset : offset + removed_bytes])) if removed_bytes else None
        offset += removed_bytes
        changes[row] = (*changes.get(row, ()), RowChange(rows, removed))
    return changes
