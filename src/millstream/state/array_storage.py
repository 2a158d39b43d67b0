"""Where the arrays are that columns of state are in: in memory, or in files that are mapped into it."""

from __future__ import annotations

import mmap
import tempfile
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

# Smaller arrays are in memory, wherever the others are.
_LARGE = 1 << 20


class Arrays(Protocol):
    """Makes arrays."""

    def make(self, count: int, dtype: DTypeLike) -> NDArray[Any]:
        """Return an array of so many values, whatever they are."""


class InMemory:
    """Arrays in memory."""

    def make(self, count: int, dtype: DTypeLike) -> NDArray[Any]:
        return np.empty(count, dtype)


IN_MEMORY = InMemory()


class InFiles:
    """Arrays in files: they take memory only as long as nobody else needs it, so that they may be larger than that.

    The files have no names, so that they are gone with the process, however it ends. Objects are in memory.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def make(self, count: int, dtype: DTypeLike) -> NDArray[Any]:
        dtype = np.dtype(dtype)
        size = count * dtype.itemsize
        if size < _LARGE or dtype.hasobject:
            return np.empty(count, dtype)
        with tempfile.TemporaryFile(prefix="millstream-state-", dir=self._directory) as file:
            # It takes no room on the disk where nothing was written.
            file.truncate(size)
            mapped = mmap.mmap(file.fileno(), size)
        return np.frombuffer(mapped, dtype, count)
