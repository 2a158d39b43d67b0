"""Storage of the arrays that hold columns of state: in memory, or in memory-mapped files."""

from __future__ import annotations

import mmap
import tempfile
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

# An array of any numpy type.
AnyArray: TypeAlias = NDArray[Any]

# Smaller arrays are always in memory.
_LARGE = 1 << 20


class Arrays(Protocol):
    """Creates arrays."""

    def make(self, count: int, dtype: DTypeLike) -> AnyArray:
        """Return an uninitialized array; the caller knows its type."""


class InMemory:
    """Arrays in memory."""

    def make(self, count: int, dtype: DTypeLike) -> AnyArray:
        return np.empty(count, dtype)


IN_MEMORY = InMemory()


class InFiles:
    """Arrays in files: the page cache holds them, so that they may be larger than memory.

    The files have no names, so the system deletes them with the process, however it ends. Objects are in memory.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def make(self, count: int, dtype: DTypeLike) -> AnyArray:
        dtype = np.dtype(dtype)
        size = count * dtype.itemsize
        if size < _LARGE or dtype.hasobject:
            return np.empty(count, dtype)
        with tempfile.TemporaryFile(prefix="millstream-state-", dir=self._directory) as file:
            # A sparse file: parts that were never written take no space on the disk.
            file.truncate(size)
            mapped = mmap.mmap(file.fileno(), size)
        return np.frombuffer(mapped, dtype, count)
