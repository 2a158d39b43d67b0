"""Key columns: grouping of equal keys, and their hashes."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.common.aliases import Key
from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.columns.numpy_arrays import Ints, is_number_like, plain, valid_of
from millstream.state.key_groups import stable_hash
from millstream.state.vector_key_groups import hashes_of_ints, hashes_of_texts

_NULL_HASH = stable_hash(None)
_MAX_COMBINED = 1 << 62
# Texts up to this average length are hashed byte by byte, all at once; longer ones once per distinct value.
_SHORT = 24


@fast_dataclass
class Grouped:
    """Rows by key.

    Attributes:
        codes: the key number of each row; keys are numbered by first occurrence.
        count: the number of keys.
        first: the first row of each key.
    """

    codes: Ints
    count: int
    first: Ints

    @cached_property
    def order(self) -> Ints:
        """The rows sorted by key number; stable."""
        return stable_order(self.codes, self.count)

    @cached_property
    def sizes(self) -> Ints:
        """The number of rows of each key."""
        return np.bincount(self.codes, minlength=self.count)


def stable_order(values: Ints, bound: int) -> Ints:
    """Return the stable sort order of values from 0 up to a bound."""
    # numpy sorts 16 bits by radix, in a tenth of the time: sort by the low half, then by the high half.
    order = np.argsort(values.astype(np.uint16), kind="stable")
    if bound > 1 << 16:
        high = values >> 16
        if bound > 1 << 32:
            return np.argsort(values, kind="stable")
        order = order[np.argsort(high[order].astype(np.uint16), kind="stable")]
    return order


def grouped(columns: Sequence[pa.Array], rows: int) -> Grouped:
    """Group rows with equal keys; nulls are equal."""
    if not columns:
        return Grouped(np.zeros(rows, np.int64), min(rows, 1), np.zeros(min(rows, 1), np.int64))
    codes, count = _codes(columns[0])
    for column in columns[1:]:
        more, size = _codes(column)
        if count * size >= _MAX_COMBINED:
            codes, count = _codes(pa.array(codes))
        codes, count = codes * size + more, count * size
    if len(columns) > 1:
        codes, count = _codes(pa.array(codes))
    return Grouped(codes, count, _first(codes, count))


def _codes(column: pa.Array) -> tuple[Ints, int]:
    encoded = _encodable(column).dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def _first(codes: Ints, count: int) -> Ints:
    if count == len(codes):
        return np.arange(count)
    before = np.empty_like(codes)
    if len(codes):
        before[0] = -1
        np.maximum.accumulate(codes[:-1], out=before[1:])
    return np.flatnonzero(codes > before)


def _encodable(column: pa.Array) -> pa.Array:
    """Return a column that Arrow can dictionary-encode: nested values as bytes."""
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.int8())
    if pa.types.is_floating(column.type):
        # Both zeros are one value, and Arrow treats all NaNs as one.
        return pa.array(plain(column) + 0.0, mask=None if (v := valid_of(column)) is None else ~v)
    if not pa.types.is_nested(column.type):
        return column
    return pa.array([None if v is None else pickle.dumps(v) for v in column.to_pylist()], pa.binary())


def hashable_values(column: pa.Array) -> list[Key]:
    """Return values as hashable Python objects."""
    return _encodable(column).to_pylist()  # type: ignore[no-any-return]


def hashes(columns: Sequence[pa.Array], rows: int) -> NDArray[np.uint32]:
    """Return the `stable_hash` of keys: of one column that of its values, of several that of a tuple.

    It equals a DataStream's for ints, strings, bytes, booleans and None. Times are hashed as integers.
    """
    if len(columns) == 1:
        return _hashes(columns[0])
    combined = np.ones(rows, np.uint32)
    for column in columns:
        combined = combined * np.uint32(31) + _hashes(column)
    return combined


def _bytes_of(column: pa.Array) -> tuple[NDArray[np.uint8], Ints, Ints]:
    """Return the bytes of texts, and the start and end of each."""
    _, positions, body = column.buffers()
    edges = np.frombuffer(positions, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    data = np.zeros(0, np.uint8) if body is None else np.frombuffer(body, np.uint8)[edges[0] : edges[-1]]
    edges -= edges[0]
    return data, edges[:-1], edges[1:]


def _hashes(column: pa.Array) -> NDArray[np.uint32]:
    if is_number_like(column.type) and not pa.types.is_floating(column.type):
        hashed, valid = hashes_of_ints(plain(column).astype(np.int64)), valid_of(column)
        return hashed if valid is None else np.where(valid, hashed, np.uint32(_NULL_HASH)).astype(np.uint32)
    if pa.types.is_string(column.type) and len(column):
        texts = _bytes_of(column)
        if len(texts[0]) <= _SHORT * len(column):
            hashed, valid = hashes_of_texts(*texts), valid_of(column)
            return hashed if valid is None else np.where(valid, hashed, np.uint32(_NULL_HASH)).astype(np.uint32)
    encoded = _encodable(column).dictionary_encode(null_encoding="encode")
    distinct = np.fromiter(map(stable_hash, encoded.dictionary.to_pylist()), np.uint32, len(encoded.dictionary))
    return distinct[encoded.indices.to_numpy()]  # type: ignore[no-any-return]
