"""Vectorized key groups, for keys that are columns.

Separate from `key_groups.py`, because programs without SQL need no numpy.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

_MASK = np.uint64(0xFFFFFFFF)
_GOLDEN = np.uint64(0x9E3779B1)
# Python's hash of an int is its remainder by this.
_MODULUS = (1 << 61) - 1


def groups_of(hashes: NDArray[np.generic], max_parallelism: int) -> NDArray[np.int64]:
    """Return the key groups of keys by their `stable_hash`: a vectorized `key_group`.

    Example:
        >>> from millstream.state.key_groups import key_group, stable_hash
        >>> groups_of(np.array([stable_hash("a"), stable_hash("b")]), 128).tolist(), key_group("a", 128)
        ([125, 16], 125)
    """
    spread = hashes.astype(np.uint64) * _GOLDEN & _MASK
    return (spread * np.uint64(max_parallelism) >> np.uint64(32)).astype(np.int64)


def hashes_of_ints(values: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return the `stable_hash` of ints.

    Example:
        >>> from millstream.state.key_groups import stable_hash
        >>> hashes_of_ints(np.array([1, -1, -(1 << 63)])).tolist() == [stable_hash(v) for v in (1, -1, -(1 << 63))]
        True
    """
    if len(values) and (values.max() >= _MODULUS or values.min() <= -_MODULUS):
        # Of the same sign as the value, as in C.
        values = np.fmod(values, _MODULUS)
    values = np.where(values == -1, -2, values)
    return (values ^ values >> 32).astype(np.uint32)


@cache
def _crc_table() -> NDArray[np.uint32]:
    """Return the CRC-32 of each byte."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(0xEDB88320), table >> 1)
    return table


def hashes_of_texts(data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return the `stable_hash` of texts, which is the CRC-32 of their bytes; each step takes one byte of all texts.

    Example:
        >>> from millstream.state.key_groups import stable_hash
        >>> data = np.frombuffer(b"aabc", np.uint8)
        >>> hashes_of_texts(data, np.array([0, 1]), np.array([1, 4])).tolist() == [stable_hash("a"), stable_hash("abc")]
        True
    """
    table, lengths = _crc_table(), ends - starts
    crc = np.full(len(starts), 0xFFFFFFFF, np.uint32)
    longer = len(starts) - np.cumsum(np.bincount(lengths)) if len(starts) else lengths
    rows: NDArray[np.int64] | None = None
    for offset in range(len(longer) - 1):
        if longer[offset] < len(starts) and (rows is None or longer[offset] < len(rows)):
            rows = np.flatnonzero(lengths > offset)
        here, now = (starts, crc) if rows is None else (starts.take(rows), crc.take(rows))
        now = (table.take((now ^ data.take(here + offset)) & 0xFF) ^ now >> 8).astype(np.uint32, copy=False)
        if rows is None:
            crc = now
        else:
            crc[rows] = now
    return crc ^ np.uint32(0xFFFFFFFF)
