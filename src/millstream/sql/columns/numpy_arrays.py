"""Conversion of columns to numpy arrays and back."""

from __future__ import annotations

from itertools import accumulate
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millstream.common.aliases import Value
from millstream.state.array_storage import AnyArray

# An array of any numpy type: numbers, flags, or Python objects.
NumpyColumn: TypeAlias = AnyArray
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Valid = Mask | None

_HALF = 1 << 64


def is_number_like(kind: pa.DataType) -> bool:
    """Return whether values of a type are numbers of at most 64 bits, which numpy can hold."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_temporal(kind)
        or pa.types.is_boolean(kind)
    )


def valid_of(column: pa.Array) -> Valid:
    """Return the validity mask; None if there are no nulls."""
    if column.null_count == 0:
        return None
    return pc.is_valid(column).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def plain(column: pa.Array) -> NumpyColumn:
    """Return a column of numbers, times or booleans as numbers; nulls have arbitrary values."""
    kind = column.type
    if column.null_count:
        column = column.fill_null(
            pa.scalar(False) if pa.types.is_boolean(kind) else pa.scalar(0).cast(base_of(kind)).cast(kind)
        )
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8()).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    if pa.types.is_temporal(kind):
        column = column.view(base_of(kind))
    return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def base_of(kind: pa.DataType) -> pa.DataType:
    """Return the numeric type that stores a type's values."""
    if pa.types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return kind


def from_numpy(values: NumpyColumn, valid: Valid, kind: pa.DataType) -> pa.Array:
    """Return numbers as a column of a type."""
    mask = None if valid is None or valid.all() else ~valid
    if pa.types.is_boolean(kind):
        return pa.array(values.astype(np.bool_), mask=mask)
    if pa.types.is_temporal(kind):
        base = base_of(kind)
        return pa.array(values.astype(base.to_pandas_dtype(), copy=False), base, mask=mask).view(kind)
    return pa.array(values.astype(kind.to_pandas_dtype(), copy=False), kind, mask=mask)


def unscaled(column: pa.Array) -> NumpyColumn:
    """Return the unscaled values of decimals: 64-bit integers if they fit, else Python's; nulls are 0."""
    words = np.frombuffer(column.buffers()[1], "<i8")[2 * column.offset : 2 * (column.offset + len(column))]
    low, high = words[0::2], words[1::2]
    valid = valid_of(column)
    if valid is not None:
        low, high = np.where(valid, low, 0), np.where(valid, high, 0)
    if column.type.precision <= 18 or ((low >> 63) == high).all():
        return low
    whole: NumpyColumn = low.astype(object) % _HALF + high.astype(object) * _HALF
    return whole


def decimals(digits: NumpyColumn, valid: Valid, kind: pa.DataType) -> pa.Array:
    """Return unscaled values as decimals; null on overflow of the precision."""
    words = np.empty((len(digits), 2), "<i8")
    if digits.dtype == object:
        limit = 10**kind.precision
        fits = np.fromiter((-limit < d < limit for d in digits), np.bool_, len(digits))
        valid = fits if valid is None else valid & fits
        low = np.fromiter((d % _HALF if f else 0 for d, f in zip(digits, fits, strict=True)), np.uint64, len(digits))
        words[:, 0] = low.view("<i8")
        words[:, 1] = np.fromiter(
            (d >> 64 if f else 0 for d, f in zip(digits, fits, strict=True)), np.int64, len(digits)
        )
    else:
        if kind.precision <= 18:
            limit = 10**kind.precision
            fits = (digits < limit) & (digits > -limit)
            valid = fits if valid is None else valid & fits
        words[:, 0] = digits
        words[:, 1] = digits >> 63
    bits = None
    if valid is not None and not valid.all():
        bits = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return pa.Array.from_buffers(kind, len(digits), [bits, pa.py_buffer(words.tobytes())])


class _NotANumber(float):
    """NaN in SQL's order: equal to itself, and greater than any number, unlike Python's in lists and dicts."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _NotANumber)

    def __ne__(self, other: object) -> bool:
        return not isinstance(other, _NotANumber)

    def __lt__(self, other: float) -> bool:
        return False

    def __le__(self, other: float) -> bool:
        return self == other

    def __gt__(self, other: float) -> bool:
        return self != other

    def __ge__(self, other: float) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("NaN")


NAN = _NotANumber("nan")


def python_values(column: pa.Array) -> list[Value]:
    """Return Python values: times as integers, NaN as a comparable one."""
    if pa.types.is_temporal(column.type):
        column = column.view(base_of(column.type))
    values: list[Value] = column.to_pylist()
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        return [NAN if v != v else v for v in values]
    return values


def from_python(values: list[Value], kind: pa.DataType) -> pa.Array:
    """Return a column from the output of `python_values`."""
    if pa.types.is_temporal(kind):
        return pa.array(values, base_of(kind)).view(kind)
    return pa.array(values, kind)


def constants(values: list[Value], kind: pa.DataType) -> pa.Array:
    """Return a column of `Constant.value`s, built from bytes.

    `pa.array` imports pandas, if it is installed, which takes longer than the rest of a small query.
    """
    base = base_of(kind)
    if pa.types.is_integer(base) or pa.types.is_floating(base):
        numbers = np.array([0 if v is None else v for v in values], np.dtype(base.to_pandas_dtype()))
        return pa.Array.from_buffers(base, len(values), [_valid(values), pa.py_buffer(numbers.tobytes())]).view(kind)
    if pa.types.is_string(kind):
        texts = [b"" if v is None else v.encode() for v in values]
        ends = np.fromiter(accumulate(map(len, texts), initial=0), np.int32, len(texts) + 1)
        buffers = [_valid(values), pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(texts))]
        return pa.Array.from_buffers(kind, len(values), buffers)
    if pa.types.is_boolean(kind):
        return pa.Array.from_buffers(kind, len(values), [_valid(values), _bits([v is True for v in values])])
    return from_python(values, kind)


def _valid(values: list[Value]) -> pa.Buffer | None:
    return _bits([v is not None for v in values]) if None in values else None


def _bits(flags: list[bool]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.array(flags, np.bool_), bitorder="little").tobytes())
