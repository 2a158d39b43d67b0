"""The base of a state table in an LMDB file, which may be larger than memory and is read through the page cache.

LMDB compares bytes, so the address of a row is the stable hash of its key: keys that are equal in Python (1, 1.0, True)
are one row. Rows whose hashes collide share an entry:

    table number (2 bytes) | stable hash (4 bytes)  ->  pickled [(row, content), ...]
"""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Iterator
from itertools import islice

import lmdb

from millstream.common.aliases import Key, Value
from millstream.common.errors import MillstreamError
from millstream.common.pickles import dump
from millstream.state.key_groups import stable_hash

_ADDRESS = struct.Struct(">HI")
# The map is an address range, not a size on disk; it is doubled when it is full.
_MAP_BYTES = 1 << 34
# Entries that are read in one snapshot.
_BATCH_SIZE = 100


class LmdbStore:
    """One LMDB environment: all tables of one operator's subtask."""

    def __init__(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)
        self.path = path
        # After a crash, state is restored from the changelog, so writes need not be synced.
        self._env = lmdb.open(path, map_size=_MAP_BYTES, sync=False, metasync=False, lock=False, max_dbs=0)
        self._reading: lmdb.Transaction | None = None
        self._tables = 0

    def table(self) -> LmdbBase:
        """Return the next table; all processes create tables in the same order."""
        self._tables += 1
        return LmdbBase(self, self._tables - 1)

    @property
    def reading(self) -> lmdb.Transaction:
        """A snapshot for reads, renewed after every write."""
        if self._reading is None:
            self._reading = self._env.begin(buffers=False)
        return self._reading

    def writing(self) -> lmdb.Transaction:
        if self._reading is not None:
            self._reading.abort()
            self._reading = None
        return self._env.begin(write=True)

    def grow(self) -> None:
        """Double the map."""
        self._env.set_mapsize(2 * self._env.info()["map_size"])


def _without_row(entries: list[tuple[Key, Value]], row: Key) -> list[tuple[Key, Value]]:
    """Return all entries except that of a row, compared like dict keys: a subclass of str may override `==` alone."""
    return [e for e in entries if not e[0] == row]  # noqa: SIM201


class LmdbBase:
    """The rows of one table."""

    def __init__(self, store: LmdbStore, number: int) -> None:
        self._store = store
        self._number = number
        self._count = sum(1 for _ in self.items())

    def _address(self, row: Key) -> bytes:
        return _ADDRESS.pack(self._number, stable_hash(row))

    def get(self, row: Key, default: Value = None, /) -> Value:
        data = self._store.reading.get(self._address(row))
        if data is not None:
            for entry_row, content in pickle.loads(data):
                if entry_row == row:
                    return content
        return default

    def __contains__(self, row: Key, /) -> bool:
        return self.get(row, self) is not self

    def __setitem__(self, row: Key, content: Value, /) -> None:
        self.update({row: content})

    def __delitem__(self, row: Key, /) -> None:
        with self._store.writing() as txn:
            self._remove(txn, row)

    def update(self, rows: dict[Key, Value], /) -> None:
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
                    f"State cannot be written to {self._store.path} ({e}): free space there, or set 'io.tmp.dirs' to a "
                    "directory with more."
                ) from None

    def _put(self, txn: lmdb.Transaction, row: Key, content: Value) -> None:
        address = self._address(row)
        entries = pickle.loads(data) if (data := txn.get(address)) is not None else []
        others = _without_row(entries, row)
        self._count += len(others) == len(entries)
        txn.put(address, dump([*others, (row, content)]))

    def _remove(self, txn: lmdb.Transaction, row: Key) -> None:
        address = self._address(row)
        data = txn.get(address)
        if data is None:
            return
        entries = pickle.loads(data)
        others = _without_row(entries, row)
        self._count -= len(entries) - len(others)
        if others:
            txn.put(address, dump(others))
        else:
            txn.delete(address)

    def items(self) -> Iterator[tuple[Key, Value]]:
        for _, data in self._entries(struct.pack(">H", self._number)):
            yield from pickle.loads(data)

    def addresses(self) -> Iterator[Key]:
        """Yield the addresses of all rows; rows may change meanwhile."""
        start = struct.pack(">H", self._number)
        # A write ends the snapshot, so only a few entries are read in one.
        while batch := list(islice(self._entries(start), _BATCH_SIZE)):
            for _, data in batch:
                yield from [row for row, _ in pickle.loads(data)]
            start = batch[-1][0] + b"\0"

    def _entries(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of the table, starting at an address."""
        cursor = self._store.reading.cursor()
        if cursor.set_range(start):
            for address, data in cursor:
                if address[:2] != start[:2]:
                    return
                # Reads without `buffers` return bytes.
                yield address, data  # type: ignore[misc]

    def clear(self) -> None:
        prefix = struct.pack(">H", self._number)
        with self._store.writing() as txn:
            cursor = txn.cursor()
            while cursor.set_range(prefix) and cursor.key()[:2] == prefix:
                cursor.delete()
        self._count = 0

    def __len__(self) -> int:
        return self._count
