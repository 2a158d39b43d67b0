"""Building blocks of kernels: scalars and columns, null masks, fallback to Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.aliases import Value
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.numpy_arrays import NumpyColumn
from millstream.sql.functions.function import Datum, Kernel, Site
from millstream.sql.types import DataType


def as_array(value: Datum, rows: int) -> pa.Array:
    """Return a value as a column of `rows` rows."""
    if not isinstance(value, pa.Scalar):
        return value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value
    if not value.is_valid:
        return pa.nulls(rows, value.type)
    return pa.repeat(value, rows)


def nulls(kind: DataType) -> pa.Scalar:
    """Return null for all rows."""
    return pa.scalar(None, arrow_type(kind))


def validity(values: Sequence[Datum]) -> pa.Array | pa.Scalar | None:
    """Return a mask of rows without nulls; None if there are no nulls."""
    result = None
    for value in values:
        if isinstance(value, pa.Scalar):
            if not value.is_valid:
                return pa.scalar(False)
            continue
        if value.null_count:
            valid = value.is_valid()
            result = valid if result is None else pc.and_(result, valid)
    return result


def where_valid(valid: pa.Array | pa.Scalar | None, result: Datum) -> Datum:
    """Return the result with nulls where `valid` is false."""
    if valid is None:
        return result
    if isinstance(valid, pa.Scalar):
        return pa.scalar(None, result.type) if not valid.as_py() else result
    return pc.if_else(valid, result, pa.scalar(None, result.type))


def to_numpy(array: pa.Array) -> NumpyColumn:
    """Return the numbers of a column; values under nulls are undefined.

    They are a view of Arrow's buffer: no copy, and nulls do not turn integers into floats.
    """
    kind = array.type
    if pa.types.is_boolean(kind):
        return pc.fill_null(array, False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    dtype = _DTYPES.get(kind)
    if dtype is None:
        dtype = np.dtype(np.int64 if kind.bit_width == 64 else np.int32)
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)


_DTYPES: dict[pa.DataType, np.dtype[np.generic]] = {
    pa.int8(): np.dtype(np.int8),
    pa.int16(): np.dtype(np.int16),
    pa.int32(): np.dtype(np.int32),
    pa.int64(): np.dtype(np.int64),
    pa.float32(): np.dtype(np.float32),
    pa.float64(): np.dtype(np.float64),
}


def from_numpy(values: NumpyColumn, kind: pa.DataType, like: Sequence[pa.Array] = ()) -> pa.Array:
    """Return numbers as a column that is null where one of the `like` columns is."""
    masked = [array for array in like if array.null_count]
    if not masked:
        validity_buffer = None
    elif len(masked) == 1 and masked[0].offset == 0:
        validity_buffer = masked[0].buffers()[0]
    else:
        valid = masked[0].is_valid()
        for array in masked[1:]:
            valid = pc.and_(valid, array.is_valid())
        validity_buffer = valid.buffers()[1]
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [validity_buffer, data])


def scattered(parts: Sequence[tuple[NumpyColumn, pa.Array]], rows: int, kind: pa.DataType) -> pa.Array:
    """Return a column with each part's values at its indexes, and null elsewhere."""
    positions = np.full(rows, -1, np.int64)
    start = 0
    for rows_of_part, values in parts:
        positions[rows_of_part] = np.arange(start, start + len(values))
        start += len(values)
    joined = pa.concat_arrays([values for _, values in parts]) if parts else pa.nulls(0, kind)
    return joined.take(pa.array(positions, mask=positions < 0))


# --- fallback to Python


def storage_type(kind: pa.DataType) -> pa.DataType:
    """Return the type with numbers for times: Python's times have less precision and range."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(storage_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(storage_type(kind.key_type), storage_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, storage_type(f.type)) for f in kind])
    return kind


def stored(column: pa.Array) -> list[Value]:
    """Return the values of a column as Python values, times as numbers, as in `Constant`.

    Rows are tuples, because two fields may have the same name.
    """
    kind = storage_type(column.type)
    plain = column if kind == column.type else column.cast(kind)
    if not _has_rows(kind):
        return plain.to_pylist()  # type: ignore[no-any-return]
    return _members(plain)


def _has_rows(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) or any(_has_rows(kind.field(i).type) for i in range(kind.num_fields))


def _members(column: pa.Array) -> list[Value]:
    kind = column.type
    valid = column.is_valid().to_pylist()
    if pa.types.is_struct(kind):
        fields = [_members(column.field(i)) for i in range(kind.num_fields)]
        return [row if ok else None for row, ok in zip(zip(*fields, strict=True), valid, strict=True)]
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        ends = column.offsets.to_pylist()
        if pa.types.is_map(kind):
            inner: list[Value] = list(zip(_members(column.keys), _members(column.items), strict=True))
        else:
            inner = _members(column.values)
        return [inner[ends[i] : ends[i + 1]] if ok else None for i, ok in enumerate(valid)]
    return column.to_pylist()  # type: ignore[no-any-return]


def stored_scalar(value: pa.Scalar) -> Value:
    """Return one value as `stored` does."""
    kind = value.type
    if pa.types.is_nested(kind) or storage_type(kind) != kind:
        return stored(as_array(value, 1))[0]
    return value.as_py()


def from_stored(values: Sequence[Value], kind: pa.DataType) -> pa.Array:
    """Return the column of values in the format of `stored`."""
    storage = storage_type(kind)
    result = pa.array(values, storage)
    return result if storage == kind else result.cast(kind)


def by_row(function: Callable[..., Value], keep_nulls: bool = False, with_site: bool = False) -> Kernel:
    """Return the kernel that calls a Python function per row, or once if all arguments are constant.

    It is for functions without a vectorized form. Values are Arrow's Python values; without `keep_nulls`, a null
    argument returns null without a call.
    """

    def kernel(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
        kind = arrow_type(site.type)
        call = partial(function, site) if with_site else function
        if all(isinstance(v, pa.Scalar) for v in values):
            arguments = [stored_scalar(v) for v in values]
            is_null = not keep_nulls and any(a is None for a in arguments)
            return from_stored([None if is_null else call(*arguments)], kind)[0]
        return from_stored(_called(call, values, rows, keep_nulls), kind)

    return kernel


def _called(call: Callable[..., Value], values: Sequence[Datum], rows: int, keep_nulls: bool) -> list[Value]:
    varying = [i for i, v in enumerate(values) if not isinstance(v, pa.Scalar)]
    fixed = [stored_scalar(v) if isinstance(v, pa.Scalar) else None for v in values]
    if not keep_nulls and any(fixed[i] is None for i in range(len(values)) if i not in varying):
        return [None] * rows
    if len(varying) == 1:
        return _called_per_distinct_value(call, values, varying[0], fixed, keep_nulls)
    columns = [stored(v) if i in varying else [fixed[i]] * rows for i, v in enumerate(values)]
    if keep_nulls:
        return list(map(call, *columns))
    return [None if None in row else call(*row) for row in zip(*columns, strict=True)]


def _called_per_distinct_value(
    call: Callable[..., Value], values: Sequence[Datum], varying: int, fixed: list[Value], keep_nulls: bool
) -> list[Value]:
    """Call the function once per value of the only column among the arguments."""
    before, after = fixed[:varying], fixed[varying + 1 :]
    inputs = stored(values[varying])
    if not keep_nulls:
        call = _null_if_null(call, varying)
    kind = values[varying].type
    if pa.types.is_nested(kind) or pa.types.is_floating(kind):
        return [call(*before, value, *after) for value in inputs]
    results = {value: call(*before, value, *after) for value in set(inputs)}
    return [results[value] for value in inputs]


def _null_if_null(call: Callable[..., Value], index: int) -> Callable[..., Value]:
    return lambda *arguments: None if arguments[index] is None else call(*arguments)
