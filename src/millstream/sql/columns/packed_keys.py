"""Keys as words of 64 bits: a number or time is one, a short text two."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millstream.sql.columns.numpy_arrays import from_plain, is_number_like, plain, valid_of

Word = NDArray[np.uint64]

# The longest text that is two words, and where its length is in them.
_LONGEST = 15
_LENGTH = np.uint64(56)
_BYTES = np.uint64((1 << 56) - 1)


def have_words(kinds: Sequence[pa.DataType]) -> bool:
    """Tell whether keys of some types are words, unless there is a long text among them."""
    return bool(kinds) and all(is_number_like(kind) or pa.types.is_string(kind) for kind in kinds)


def count_of_words(kinds: Sequence[pa.DataType]) -> int:
    """Return how many words a key of some types has."""
    return sum(2 if pa.types.is_string(kind) else 1 for kind in kinds)


def words_of(columns: Sequence[pa.Array]) -> tuple[list[Word], Word | None] | None:
    """Return the words of keys, and which of their columns are null, if there is one; None where a text is too long."""
    words: list[Word] = []
    nulls: Word | None = None
    for i, column in enumerate(columns):
        found = _text(column) if pa.types.is_string(column.type) else [_number(column)]
        if found is None:
            return None
        valid = valid_of(column)
        if valid is not None:
            found = [np.where(valid, word, np.uint64(0)) for word in found]
            flags = (~valid).astype(np.uint64) << np.uint64(i)
            nulls = flags if nulls is None else nulls | flags
        words += found
    return words, nulls


def _number(column: pa.Array) -> Word:
    values = plain(column)
    if values.dtype.kind == "f":
        values = values.astype(np.float64) + 0.0
        return np.where(np.isnan(values), np.nan, values).view(np.uint64)
    return values.astype(np.int64, copy=False).view(np.uint64)


def _text(column: pa.Array) -> list[Word] | None:
    """Return the bytes of texts, of which the last is the length; None where one is too long."""
    if not len(column):
        return [np.zeros(0, np.uint64)] * 2
    text = column if column.null_count == 0 else column.fill_null("")
    lengths = pc.binary_length(text).to_numpy().astype(np.uint64)
    if lengths.max() > _LONGEST:
        return None
    # That it is ASCII is not looked at: it counts bytes.
    both = np.frombuffer(pc.ascii_rpad(text, 16, "\0").buffers()[2], "<u8", 2 * len(text))
    return [both[0::2].copy(), both[1::2] | lengths << _LENGTH]


def columns_of(words: Sequence[Word], nulls: Word | None, kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    """Return the columns of which `words_of` made words."""
    columns: list[pa.Array] = []
    left = list(words)
    for i, kind in enumerate(kinds):
        valid = None if nulls is None else (nulls >> np.uint64(i)) & np.uint64(1) == 0
        if pa.types.is_string(kind):
            columns.append(_texts(left.pop(0), left.pop(0), valid))
            continue
        word = left.pop(0)
        values = word.view(np.float64) if pa.types.is_floating(kind) else word.view(np.int64)
        columns.append(from_plain(values, valid, kind))
    return columns


def _texts(first: Word, last: Word, valid: NDArray[np.bool_] | None) -> pa.Array:
    lengths = (last >> _LENGTH).astype(np.int64)
    body = np.stack([first, last & _BYTES], axis=1).tobytes()
    texts = [body[16 * i : 16 * i + length].decode() for i, length in enumerate(lengths.tolist())]
    return pa.array(texts, pa.string(), mask=None if valid is None else ~valid)
