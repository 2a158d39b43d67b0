"""Memory with room for more values behind those that are there: each value is copied when it comes, and seldom after.

What Arrow is shown of it stays as it is: more values come behind it, or into other memory.
"""

from __future__ import annotations

import resource
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from millstream.state.array_storage import IN_MEMORY, Arrays

_FIRST = 256
# From so many bytes on there is room for many times as many: memory that nobody has written to takes none.
_LARGE, _TIMES = 1 << 20, 8


def _times(size: int) -> int:
    """Return how many times as many values there shall be room for, where they have so many bytes."""
    # Where the address space is limited (`spark.executor.pyspark.memory`), memory counts that nobody has written to.
    is_free = resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
    return _TIMES if size >= _LARGE and is_free else 2


class Growing:
    """A numpy array that grows."""

    __slots__ = ("_array", "_arrays", "_count", "values")

    def __init__(self, dtype: DTypeLike, arrays: Arrays = IN_MEMORY) -> None:
        self._arrays = arrays
        self._array = arrays.make(_FIRST, dtype)
        self._count = 0
        # What there is; good until more comes.
        self.values = self._array[:0]

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """How many bytes it takes; of objects, what stands for them."""
        return self.values.nbytes

    def extend(self, values: NDArray[Any]) -> None:
        """Add values."""
        end = self._count + len(values)
        if end > len(self._array):
            room = max(_times(self._array.nbytes) * len(self._array), end)
            larger = self._arrays.make(room, self._array.dtype)
            larger[: self._count] = self.values
            self._array = larger
        self._array[self._count : end] = values
        self._count = end
        self.values = self._array[:end]

    def replace(self, values: NDArray[Any]) -> None:
        """Have other values."""
        self._count = 0
        self.extend(values)


class Room(Protocol):
    """Where an Arrow array grows."""

    @property
    def nbytes(self) -> int:
        """How many bytes its values take."""
        ...

    def extend(self, column: pa.Array) -> None:
        """Add values."""

    def array(self) -> pa.Array:
        """Return all values."""

    def another(self) -> Self:
        """Return room for values of the same type."""


def room_for(kind: pa.DataType, arrays: Arrays) -> Room | None:
    """Return where values of a type grow; None for types that lie in memory in another way."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _Texts(kind, np.int32, arrays)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _Texts(kind, np.int64, arrays)
    if pa.types.is_decimal128(kind) or (pa.types.is_primitive(kind) and kind.bit_width % 8 == 0):
        return _Fixed(kind, arrays)
    return None


class _Validity:
    """Which values are not null."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._count = 0
        # None as long as no value is null.
        self._bits: Growing | None = None

    def extend(self, column: pa.Array) -> None:
        """Add values."""
        if self._bits is None and column.null_count:
            self._bits = Growing(np.uint8, self._arrays)
            self._bits.extend(np.packbits(np.ones(self._count, np.bool_), bitorder="little"))
        if self._bits is not None:
            self._add(self._bits, column.is_valid().to_numpy(zero_copy_only=False))
        self._count += len(column)

    def _add(self, bits: Growing, valid: NDArray[np.bool_]) -> None:
        # Bits behind the last value are nobody's yet: arrays that were shown before end in front of them.
        begun = self._count % 8
        if begun:
            packed = np.packbits(np.concatenate([np.zeros(begun, np.bool_), valid]), bitorder="little")
            bits.values[-1] = (bits.values[-1] & ((1 << begun) - 1)) | packed[0]
            bits.extend(packed[1:])
        else:
            bits.extend(np.packbits(valid, bitorder="little"))

    def buffer(self) -> pa.Buffer | None:
        """Return them as Arrow has them."""
        return None if self._bits is None else pa.py_buffer(self._bits.values)


class _Fixed:
    """Values that all take the same number of bytes."""

    def __init__(self, kind: pa.DataType, arrays: Arrays) -> None:
        self._kind = kind
        self._arrays = arrays
        self._width: int = kind.bit_width // 8
        self._values = Growing(np.dtype(f"V{self._width}" if self._width > 8 else f"u{self._width}"), arrays)
        self._validity = _Validity(arrays)

    @property
    def nbytes(self) -> int:
        return len(self._values) * self._width

    def extend(self, column: pa.Array) -> None:
        if len(column):
            found = np.frombuffer(
                column.buffers()[1], self._values.values.dtype, len(column), column.offset * self._width
            )
            self._values.extend(found)
            self._validity.extend(column)

    def array(self) -> pa.Array:
        buffers = [self._validity.buffer(), pa.py_buffer(self._values.values)]
        return pa.Array.from_buffers(self._kind, len(self._values), buffers)

    def another(self) -> Self:
        return type(self)(self._kind, self._arrays)


class _Texts:
    """Texts or bytes, one behind the other, and where each ends."""

    def __init__(self, kind: pa.DataType, offset: type[np.int32] | type[np.int64], arrays: Arrays) -> None:
        self._kind = kind
        self._arrays = arrays
        self._offset = offset
        self._ends = Growing(offset, arrays)
        self._ends.extend(np.zeros(1, offset))
        self._bytes = Growing(np.uint8, arrays)
        self._validity = _Validity(arrays)

    @property
    def nbytes(self) -> int:
        return len(self._bytes) + len(self._ends) * np.dtype(self._offset).itemsize

    def extend(self, column: pa.Array) -> None:
        if not len(column):
            return
        _, offsets, data = column.buffers()
        width = np.dtype(self._offset).itemsize
        ends: NDArray[Any] = np.frombuffer(offsets, self._offset, len(column) + 1, column.offset * width)
        first, size = int(ends[0]), int(ends[-1] - ends[0])
        self._ends.extend(ends[1:] + self._offset(len(self._bytes) - first))
        if size:
            self._bytes.extend(np.frombuffer(data, np.uint8, size, first))
        self._validity.extend(column)

    def array(self) -> pa.Array:
        buffers = [self._validity.buffer(), pa.py_buffer(self._ends.values), pa.py_buffer(self._bytes.values)]
        return pa.Array.from_buffers(self._kind, len(self._ends) - 1, buffers)

    def another(self) -> Self:
        return type(self)(self._kind, self._offset, self._arrays)
