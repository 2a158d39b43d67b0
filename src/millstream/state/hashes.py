"""Key groups by vectors, for keys that are columns.

Apart from `key_groups.py`, since programs without SQL need no numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_MASK = np.uint64(0xFFFFFFFF)
_GOLDEN = np.uint64(0x9E3779B1)
# Python's hash of an int is its rest by this.
_MODULUS = (1 << 61) - 1


def groups_of(hashes: NDArray[Any], max_parallelism: int) -> NDArray[np.int64]:
    """Return the key groups of keys by their `stable_hash`: what `key_group` says, for many at once.

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
