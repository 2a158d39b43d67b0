"""A part of a savepoint: the state of one operator's subtask as a Parquet file.

One row of the file is one row of state: its state and kind, the key group, the key and the value as text for readers,
and both as pickles for a restore.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.common.aliases import Key, Value
from millstream.common.checksums import Checksum, Summing, matches
from millstream.common.errors import DamagedStateError
from millstream.common.pickles import dump
from millstream.state.changelog import Loads, Section, StoredState
from millstream.state.column_table import by_group
from millstream.state.columns import text_of
from millstream.state.key_groups import key_group, thaw
from millstream.state.kinds import kind_named
from millstream.state.table import BY_GROUP, BY_NAME, BY_NAMESPACE, BY_PANE, BY_TIME, key_of

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# Writes a file from its pieces.
Write = Callable[[str, Iterable[bytes]], object]

SCHEMA = pa.schema(
    [
        pa.field("state", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("address", pa.string(), nullable=False),
        pa.field("key_group", pa.int32()),
        pa.field("key", pa.string()),
        pa.field("namespace", pa.string()),
        pa.field("value", pa.string()),
        pa.field("pickled_row", pa.binary(), nullable=False),
        pa.field("pickled_value", pa.binary(), nullable=False),
    ]
)


def _namespace(address: str, row: Key) -> str | None:
    if address == BY_PANE:
        return text_of(row)
    if address == BY_NAMESPACE:
        return text_of(row[1])
    if address == BY_TIME:
        return text_of(row[0] if row[2] is None else [row[0], repr(row[2])])
    return None


def _rows(section: Section, max_parallelism: int) -> Iterator[tuple[Key, Value]]:
    """Yield a section's rows, with a row of its own for each key of a pane or key group."""
    if section.address == BY_GROUP:
        changes = [change for content in section.rows.values() for change in content]
        yield from by_group(changes, max_parallelism).items()
        return
    for row, content in section.rows.items():
        if section.address == BY_PANE:
            yield from ((row, {key: value}) for key, value in content.items())
        else:
            yield row, content


def _batch(section: Section, max_parallelism: int) -> pa.RecordBatch:
    columns: list[list[object]] = [[] for _ in SCHEMA]
    for row, content in _rows(section, max_parallelism):
        key: Key = None
        value = content
        if section.address == BY_PANE:
            ((key, value),) = content.items()
        elif section.address not in (BY_NAME, BY_GROUP):
            key = key_of(section.address, row)
        plain = thaw(key)
        group = None
        if section.address == BY_GROUP:
            group = row
        elif section.address != BY_NAME:
            group = key_group(key, max_parallelism)
        named = section.address in (BY_NAME, BY_GROUP)
        cells = (
            section.table,
            section.kind.name,
            section.address,
            group,
            None if named else text_of(plain),
            _namespace(section.address, row),
            text_of(value),
            dump(row),
            dump(content),
        )
        for column, cell in zip(columns, cells, strict=True):
            column.append(cell)
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


class _Parts(io.RawIOBase):
    """A file object whose bytes are taken while it is written."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._position += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._position

    def take(self) -> bytes:
        taken = b"".join(self._pieces)
        self._pieces.clear()
        return taken


def encode_part(content: Iterable[Section], max_parallelism: int) -> Iterator[bytes]:
    """Yield the bytes of a part, section by section."""
    parts = _Parts()
    with pq.ParquetWriter(parts, SCHEMA, compression="zstd") as writer:
        for section in content:
            writer.write_batch(_batch(section, max_parallelism))
            yield parts.take()
    yield parts.take()


def write_part(
    name: str, content: Iterable[Section], max_parallelism: int, write: Write, digest: bool = False
) -> StoredState:
    """Write a part; return its location. With `digest`, its checksum is cryptographic."""
    summing = Summing(digest)

    def checked() -> Iterator[bytes]:
        for piece in encode_part(content, max_parallelism):
            summing.add(piece)
            yield piece

    write(name, checked())
    return StoredState(name, summing.checksum())


def check_part(name: str, data: bytes | memoryview, checksum: Checksum | None) -> None:
    """Raise an error that names the file if it is damaged."""
    if checksum is not None and not matches(data, checksum):
        raise DamagedStateError(f"Savepoint file {name} is damaged: it fails its checksum.")


def read_part(name: str, data: bytes | memoryview, checksum: Checksum | None) -> pa.Table:
    """Read a part; raise an error that names the file if it is damaged."""
    check_part(name, data, checksum)
    try:
        # Without Arrow's threads: a process that exits soon after their start may be aborted.
        table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
        return table.select(SCHEMA.names).cast(SCHEMA)
    except (pa.ArrowException, OSError, KeyError, ValueError) as e:
        raise DamagedStateError(f"Savepoint file {name} is damaged: {e}") from e


def index_part(file: str, data: bytes | memoryview, checksum: Checksum | None) -> Iterator[tuple[Section, int, int]]:
    """Yield the tables of a part without their rows, with the number of rows and their bytes."""
    table = read_part(file, data, checksum)
    sizes = pc.add(pc.binary_length(table["pickled_row"]), pc.binary_length(table["pickled_value"]))
    for state in pc.unique(table["state"]).to_pylist():
        is_of_state = pc.equal(table["state"], state)
        own_part = sizes.filter(is_of_state)
        first = table.slice(pc.index(table["state"], state).as_py(), 1).to_pylist()[0]
        yield _section(file, state, first["kind"], first["address"], {}), len(own_part), pc.sum(own_part).as_py()


def decode_part(
    name: str,
    data: bytes | memoryview,
    checksum: Checksum | None,
    loads: Loads = pickle.loads,
    only: str | None = None,
) -> Iterator[Section]:
    """Yield the sections of a part, or those of one table."""
    table = read_part(name, data, checksum)
    if only is not None:
        table = table.filter(pc.equal(table["state"], only))
    for batch in table.to_batches(max_chunksize=2000):
        rows_by_table: dict[tuple[str, str, str], dict[Key, Value]] = {}
        for state, kind, address, row, content in zip(
            *(batch.column(c).to_pylist() for c in ("state", "kind", "address", "pickled_row", "pickled_value")),
            strict=True,
        ):
            rows = rows_by_table.setdefault((state, kind, address), {})
            address_of_row = loads(row)
            if address == BY_PANE:
                rows.setdefault(address_of_row, {}).update(loads(content))
            else:
                rows[address_of_row] = loads(content)
        for (state, kind, address), rows in rows_by_table.items():
            yield _section(name, state, kind, address, rows)


def _section(file: str, state: str, kind: str, address: str, rows: dict[Key, Value]) -> Section:
    return Section(state, kind_named(kind, f"Table {state!r} of savepoint file {file}"), address, rows)
