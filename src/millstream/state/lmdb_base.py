"""The base of a state table in an LMDB file: larger than memory, read through the page cache.

LMDB orders bytes; rows are found by a stable hash of their key, so that keys that are equal in Python (1, 1.0, True)
are one row. Rows whose hashes collide share an entry:

    table number (2 bytes) | stable hash (4 bytes)  ->  pickled [(row, content), ...]
"""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any

import lmdb

from millstream.common.errors import MillstreamError
from millstream.common.pickles import dump
from millstream.state.key_groups import stable_hash

_ADDRESS = struct.Struct(">HI")
# The map is an address range, not a size on disk; it is doubled when it is full.
_MAP_BYTES = 1 << 34
# So many entries are looked at together.
_AT_A_TIME = 100


class LmdbStore:
    """One LMDB environment: all tables of one operator's subtask."""

    def __init__(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)
        self.path = path
        # What is lost in a crash is read again from the changelog, so nothing needs to reach the disk.
        self._env = lmdb.open(path, map_size=_MAP_BYTES, sync=False, metasync=False, lock=False, max_dbs=0)
        self._reading: Any = None
        self._tables = 0

    def table(self) -> LmdbBase:
        """Return the next table; tables are asked for in the same order in every process."""
        self._tables += 1
        return LmdbBase(self, self._tables - 1)

    @property
    def reading(self) -> Any:
        """A snapshot for reads, renewed after every write."""
        if self._reading is None:
            self._reading = self._env.begin(buffers=False)
        return self._reading

    def writing(self) -> Any:
        if self._reading is not None:
            self._reading.abort()
            self._reading = None
        return self._env.begin(write=True)

    def grow(self) -> None:
        """Double the map."""
        self._env.set_mapsize(2 * self._env.info()["map_size"])


def _others(entries: list[tuple[Any, Any]], row: Any) -> list[tuple[Any, Any]]:
    """Return all entries but that of a row, which is found as a dict does: a text's class may change == alone."""
    return [e for e in entries if not e[0] == row]  # noqa: SIM201


class LmdbBase:
    """The rows of one table."""

    def __init__(self, store: LmdbStore, number: int) -> None:
        self._store = store
        self._number = number
        self._count = sum(1 for _ in self.items())

    def _address(self, row: Any) -> bytes:
        return _ADDRESS.pack(self._number, stable_hash(row))

    def get(self, row: Any, default: Any = None, /) -> Any:
        data = self._store.reading.get(self._address(row))
        if data is not None:
            for found, content in pickle.loads(data):
                if found == row:
                    return content
        return default

    def __contains__(self, row: Any, /) -> bool:
        return self.get(row, self) is not self

    def __setitem__(self, row: Any, content: Any, /) -> None:
        self.update({row: content})

    def __delitem__(self, row: Any, /) -> None:
        with self._store.writing() as txn:
            self._remove(txn, row)

    def update(self, rows: dict[Any, Any], /) -> None:
        """Set rows; None removes one."""
        count = self._count
        while True:
            try:
                with self._store.writing() as txn:
                    for row, content in rows.items():
                        if content is None:
                            self._remove(txn, row)
                        else:
                            self._put(txn, row, content)
                return
            except lmdb.MapFullError:
                self._count = count
                self._store.grow()
            except lmdb.DiskError as e:
                raise MillstreamError(
                    f"State cannot be written to {self._store.path}: {e}. Free space there, or set 'io.tmp.dirs' to a "
                    "directory with more."
                ) from None

    def _put(self, txn: Any, row: Any, content: Any) -> None:
        address = self._address(row)
        entries = pickle.loads(data) if (data := txn.get(address)) is not None else []
        kept = _others(entries, row)
        self._count += len(kept) == len(entries)
        txn.put(address, dump([*kept, (row, content)]))

    def _remove(self, txn: Any, row: Any) -> None:
        address = self._address(row)
        data = txn.get(address)
        if data is None:
            return
        entries = pickle.loads(data)
        kept = _others(entries, row)
        self._count -= len(entries) - len(kept)
        if kept:
            txn.put(address, dump(kept))
        else:
            txn.delete(address)

    def items(self) -> Iterator[tuple[Any, Any]]:
        for _, data in self._entries(struct.pack(">H", self._number)):
            yield from pickle.loads(data)

    def in_turn(self) -> Iterator[Any]:
        """Yield which rows there are, whatever happens to them meanwhile."""
        start = struct.pack(">H", self._number)
        # What is written ends the snapshot, so only a few entries are looked at in one.
        while some := list(islice(self._entries(start), _AT_A_TIME)):
            for _, data in some:
                yield from [row for row, _ in pickle.loads(data)]
            start = some[-1][0] + b"\0"

    def _entries(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of the table from an address on."""
        cursor = self._store.reading.cursor()
        if cursor.set_range(start):
            for address, data in cursor:
                if address[:2] != start[:2]:
                    return
                yield address, data

    def clear(self) -> None:
        prefix = struct.pack(">H", self._number)
        with self._store.writing() as txn:
            cursor = txn.cursor()
            while cursor.set_range(prefix) and cursor.key()[:2] == prefix:
                cursor.delete()
        self._count = 0

    def __len__(self) -> int:
        return self._count
