"""Growing arrays and Arrow columns: appended values are copied once, and rarely again.

Arrow arrays taken from a buffer never change: later values go after them, or into new memory.
"""

from __future__ import annotations

import resource
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Protocol, Self

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike

from millstream.sql.columns.keys import stable_order
from millstream.sql.columns.numpy_arrays import Ints, Mask, NumpyColumn
from millstream.state.array_storage import IN_MEMORY, Arrays

_INITIAL_CAPACITY = 256
# From this many bytes on, capacity grows by this factor: memory that is not written to costs nothing.
_LARGE_BYTES, _GROWTH_FACTOR = 1 << 20, 8

# Parts of a column are merged if they are this small, in values, or in bytes together.
_MAX_MERGED, _MAX_BYTES = 1 << 16, 1 << 30


def _growth_factor(size: int) -> int:
    """Return the factor by which capacity grows, for values of some bytes."""
    # With a limited address space (`spark.executor.pyspark.memory`), memory that is not written to counts.
    is_free = resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
    return _GROWTH_FACTOR if size >= _LARGE_BYTES and is_free else 2


class GrowingArray:
    """A numpy array that grows."""

    __slots__ = ("_array", "_arrays", "_count", "values")

    def __init__(self, dtype: DTypeLike, arrays: Arrays = IN_MEMORY) -> None:
        self._arrays = arrays
        self._array = arrays.make(_INITIAL_CAPACITY, dtype)
        self._count = 0
        # The current values; valid until the next append.
        self.values = self._array[:0]

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """The size in bytes; for objects, of the references."""
        return self.values.nbytes

    def extend(self, values: NumpyColumn) -> None:
        """Append values."""
        end = self._count + len(values)
        if end > len(self._array):
            capacity = max(_growth_factor(self._array.nbytes) * len(self._array), end)
            array = self._arrays.make(capacity, self._array.dtype)
            array[: self._count] = self.values
            self._array = array
        self._array[self._count : end] = values
        self._count = end
        self.values = self._array[:end]

    def replace(self, values: NumpyColumn) -> None:
        """Replace all values."""
        self._count = 0
        self.extend(values)


class AppendBuffer(Protocol):
    """A growing Arrow array."""

    @property
    def nbytes(self) -> int:
        """The size of the values in bytes."""
        ...

    def extend(self, column: pa.Array) -> None:
        """Append values."""

    def array(self) -> pa.Array:
        """Return all values."""

    def another(self) -> Self:
        """Return an empty buffer of the same type."""


def append_buffer_for(kind: pa.DataType, arrays: Arrays) -> AppendBuffer | None:
    """Return a buffer for values of a type, or None if its layout is not supported."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _Texts(kind, np.int32, arrays)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _Texts(kind, np.int64, arrays)
    if pa.types.is_decimal128(kind) or (pa.types.is_primitive(kind) and kind.bit_width % 8 == 0):
        return _Fixed(kind, arrays)
    return None


class _Validity:
    """The validity bitmap."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._count = 0
        # None while no value is null.
        self._bits: GrowingArray | None = None

    def extend(self, column: pa.Array) -> None:
        """Append the validity of values."""
        if self._bits is None and column.null_count:
            self._bits = GrowingArray(np.uint8, self._arrays)
            self._bits.extend(np.packbits(np.ones(self._count, np.bool_), bitorder="little"))
        if self._bits is not None:
            self._add(self._bits, column.is_valid().to_numpy(zero_copy_only=False))
        self._count += len(column)

    def _add(self, bits: GrowingArray, valid: Mask) -> None:
        # Bits after the last value are free: arrays returned earlier end before them.
        used_bits = self._count % 8
        if used_bits:
            packed = np.packbits(np.concatenate([np.zeros(used_bits, np.bool_), valid]), bitorder="little")
            bits.values[-1] = (bits.values[-1] & ((1 << used_bits) - 1)) | packed[0]
            bits.extend(packed[1:])
        else:
            bits.extend(np.packbits(valid, bitorder="little"))

    def buffer(self) -> pa.Buffer | None:
        """Return the bitmap in Arrow's layout."""
        return None if self._bits is None else pa.py_buffer(self._bits.values)


class _Fixed:
    """Values of fixed width."""

    def __init__(self, kind: pa.DataType, arrays: Arrays) -> None:
        self._kind = kind
        self._arrays = arrays
        self._width: int = kind.bit_width // 8
        self._values = GrowingArray(np.dtype(f"V{self._width}" if self._width > 8 else f"u{self._width}"), arrays)
        self._validity = _Validity(arrays)

    @property
    def nbytes(self) -> int:
        return len(self._values) * self._width

    def extend(self, column: pa.Array) -> None:
        if len(column):
            values = np.frombuffer(
                column.buffers()[1], self._values.values.dtype, len(column), column.offset * self._width
            )
            self._values.extend(values)
            self._validity.extend(column)

    def array(self) -> pa.Array:
        buffers = [self._validity.buffer(), pa.py_buffer(self._values.values)]
        return pa.Array.from_buffers(self._kind, len(self._values), buffers)

    def another(self) -> Self:
        return type(self)(self._kind, self._arrays)


class _Texts:
    """Texts or bytes, with their offsets."""

    def __init__(self, kind: pa.DataType, offset: type[np.int32] | type[np.int64], arrays: Arrays) -> None:
        self._kind = kind
        self._arrays = arrays
        self._offset = offset
        self._ends = GrowingArray(offset, arrays)
        self._ends.extend(np.zeros(1, offset))
        self._bytes = GrowingArray(np.uint8, arrays)
        self._validity = _Validity(arrays)

    @property
    def nbytes(self) -> int:
        return len(self._bytes) + len(self._ends) * np.dtype(self._offset).itemsize

    def extend(self, column: pa.Array) -> None:
        if not len(column):
            return
        _, offsets, data = column.buffers()
        width = np.dtype(self._offset).itemsize
        ends: NumpyColumn = np.frombuffer(offsets, self._offset, len(column) + 1, column.offset * width)
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


class GrowingColumn:
    """An Arrow column that grows."""

    __slots__ = ("_buffer", "_ends", "_parts", "kind")

    def __init__(self, kind: pa.DataType, arrays: Arrays = IN_MEMORY) -> None:
        self.kind = kind
        # The buffer of the last part; None for types without one.
        self._buffer = append_buffer_for(kind, arrays)
        # Few parts, with their end positions.
        self._parts: list[pa.Array] = []
        self._ends = np.zeros(0, np.int64)

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return sum(part.nbytes for part in self._parts)

    def extend(self, column: pa.Array) -> None:
        """Append values."""
        if not len(column):
            # An empty part would never be merged.
            return
        if self._buffer is None:
            self._concat(column)
        else:
            self._append(column, self._buffer)
        self._ends = np.cumsum([len(part) for part in self._parts])

    def _append(self, column: pa.Array, buffer: AppendBuffer) -> None:
        """Append values to the buffer of the last part."""
        if self._parts and buffer.nbytes + column.nbytes < _MAX_BYTES:
            self._parts.pop()
        else:
            self._buffer = buffer = buffer.another()
        buffer.extend(column)
        self._parts.append(buffer.array())

    def _concat(self, column: pa.Array) -> None:
        """Merge parts so that each is larger than the next: few parts, and no value is copied often."""
        self._parts.append(column)
        while len(self._parts) > 1 and self._are_merged(*self._parts[-2:]):
            last = self._parts.pop()
            self._parts[-1] = pa.concat_arrays([self._parts[-1], last])

    @staticmethod
    def _are_merged(before: pa.Array, last: pa.Array) -> bool:
        if len(before) >= 2 * len(last):
            return False
        # One text array holds up to two gigabytes.
        return len(last) < _MAX_MERGED or before.nbytes + last.nbytes < _MAX_BYTES

    def take(self, rows: NumpyColumn | pa.Array) -> pa.Array:
        """Return the values at positions; null for a null position."""
        return take_all([self], rows)[0]

    def range(self, start: int, stop: int) -> pa.Array:
        """Return the values in a range of positions, copied only if it spans parts."""
        pieces, end = [], 0
        for part in self._parts:
            first, end = end, end + len(part)
            if start < end and first < stop:
                pieces.append(part.slice(max(start - first, 0), min(stop, end) - max(start, first)))
        if not pieces:
            return pa.nulls(0, self.kind)
        return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)

    def replace(self, column: pa.Array) -> None:
        """Replace all values."""
        # Earlier results may still refer to the old memory.
        self._parts, self._ends = [], np.zeros(0, np.int64)
        self.extend(column)

    def _take(self, rows: pa.Array, cache: dict[bytes, _Positions]) -> pa.Array:
        if not self._parts:
            # An empty column has only nulls to return.
            return pa.nulls(len(rows), self.kind)
        if len(self._parts) == 1:
            return self._parts[0].take(rows)
        ends = self._ends.tobytes()
        positions = cache.get(ends)
        if positions is None:
            positions = cache[ends] = _Positions(rows, self._ends)
        return positions.of(self._parts)


def take_all(columns: Iterable[GrowingColumn], rows: NumpyColumn | pa.Array) -> list[pa.Array]:
    """Return the values of columns at positions; nulls for a null position."""
    positions = rows if isinstance(rows, pa.Array) else pa.array(rows)
    # Columns of the same rows mostly have the same parts.
    cache: dict[bytes, _Positions] = {}
    return [column._take(positions, cache) for column in columns]


class _Positions:
    """Positions in columns with the same parts; Arrow would concatenate all parts to take them."""

    def __init__(self, rows: pa.Array, ends: Ints) -> None:
        nulls = None
        if rows.null_count:
            nulls = rows.is_null().to_numpy(zero_copy_only=False)
            rows = rows.fill_null(0)
        distinct, index = _distinct(rows.to_numpy(zero_copy_only=False), int(ends[-1]))
        # The distinct positions in each part, ascending.
        self._requests: list[tuple[int, pa.Array]] = []
        edges = np.searchsorted(distinct, ends).tolist()
        for part, (start, stop) in enumerate(pairwise([0, *edges])):
            if stop > start:
                offset = ends[part - 1] if part else 0
                self._requests.append((part, pa.array(distinct[start:stop] - offset)))
        # The index of each requested position among those; None for the identity.
        self._index = (
            None
            if index is None and nulls is None
            else pa.array(np.arange(len(rows)) if index is None else index, mask=nulls)
        )

    def of(self, parts: Sequence[pa.Array]) -> pa.Array:
        """Return the values of a column."""
        if not self._requests:
            return parts[0].slice(0, 0)
        pieces = [parts[part].take(rows) for part, rows in self._requests]
        values = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
        return values if self._index is None else values.take(self._index)


def _distinct(rows: Ints, bound: int) -> tuple[Ints, Ints | None]:
    """Return distinct sorted numbers, and the index of each input among them; None if the input is that already."""
    if (rows[1:] > rows[:-1]).all():
        return rows, None
    order = stable_order(rows, bound)
    in_order = rows.take(order)
    is_first = np.append(True, in_order[1:] != in_order[:-1])
    index = np.empty(len(rows), np.int64)
    index[order] = np.cumsum(is_first) - 1
    return in_order[is_first], index
