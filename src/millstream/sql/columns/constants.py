"""Constants as columns.

Arrow looks for pandas before it makes an array of Python's values, and imports it if it is there, which takes longer
than all else that a small query does. So the columns of plain constants are put together from their bytes.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.sql.columns.numpy_arrays import base_of, from_python


def constants(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return a column of what `Constant.value` is."""
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


def _valid(values: list[Any]) -> pa.Buffer | None:
    return _bits([v is not None for v in values]) if None in values else None


def _bits(flags: list[bool]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.array(flags, np.bool_), bitorder="little").tobytes())
