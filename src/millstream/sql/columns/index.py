"""Maps keys to key ids: the keys of an index are numbered in order of arrival.

Keys of numbers, times and short texts are packed into 64-bit words, and their index is a hash table in numpy with
vectorized lookups. Other keys are Python objects in a dict. Figures are in adr/0020 and adr/0021.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millstream.common.aliases import Key
from millstream.sql.columns.append_buffer import GrowingArray
from millstream.sql.columns.keys import Grouped, grouped, hashable_values
from millstream.sql.columns.numpy_arrays import Ints, Mask, from_numpy, is_number_like, plain, valid_of
from millstream.state.array_storage import IN_MEMORY, Arrays

KeyIds = NDArray[np.int64]

# Table entries that are not key ids; from `_NUMBER` downwards, keys that are being added.
_EMPTY, _REMOVED, _NUMBER = -1, -2, -3
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_MIN_SIZE = 1 << 10
# Approximate bytes of a key in a dict.
_KEY_BYTES = 300
Word = NDArray[np.uint64]

# The longest text that fits two words, and the position of its length.
_MAX_TEXT = 15
_LENGTH = np.uint64(56)
_BYTES = np.uint64((1 << 56) - 1)


def first_rows(key_ids: KeyIds, scratch: Ints) -> KeyIds:
    """Return the rows in which key ids first occur, in order.

    Args:
        key_ids: the key id of each row.
        scratch: an array with an entry for every key id; its content is overwritten.
    """
    rows = np.arange(len(key_ids))
    # With duplicate indices numpy stores the last value.
    scratch[key_ids[::-1]] = rows[::-1]
    return np.flatnonzero(scratch.take(key_ids) == rows)


class Index(Protocol):
    """Maps key columns to key ids, numbered in the order in which keys were added."""

    def find(self, columns: Sequence[pa.Array], rows: int) -> KeyIds:
        """Return the key ids of keys; -1 for missing keys."""

    def find_or_add(self, columns: Sequence[pa.Array], rows: int) -> tuple[KeyIds, KeyIds]:
        """Return the key ids of keys, and the rows in which added keys first occur."""

    def remove(self, key_ids: KeyIds, columns: Sequence[pa.Array]) -> None:
        """Remove keys."""

    @property
    def nbytes(self) -> int:
        """The approximate size in bytes."""
        ...


def index_for(kinds: Sequence[pa.DataType], arrays: Arrays = IN_MEMORY) -> Index:
    """Return an empty index for keys of some types."""
    return KeyIndex(kinds, arrays) if can_pack(kinds) else DictIndex()


class DictIndex:
    """An index of keys of any type."""

    def __init__(self, key_ids: dict[Key, int] | None = None, count: int = 0) -> None:
        self._key_ids = {} if key_ids is None else key_ids
        self._next = count

    def find(self, columns: Sequence[pa.Array], rows: int) -> KeyIds:
        by_key = grouped(columns, rows)
        return self._key_ids_of(_distinct(columns, by_key))[by_key.codes]

    def _key_ids_of(self, keys: list[Key]) -> KeyIds:
        get = self._key_ids.get
        return np.fromiter((get(key, -1) for key in keys), np.int64, len(keys))

    def find_or_add(self, columns: Sequence[pa.Array], rows: int) -> tuple[KeyIds, KeyIds]:
        by_key = grouped(columns, rows)
        keys = _distinct(columns, by_key)
        key_ids = self._key_ids_of(keys)
        new = np.flatnonzero(key_ids < 0)
        key_ids[new] = np.arange(self._next, self._next + len(new))
        self._next += len(new)
        self._key_ids.update(zip([keys[i] for i in new.tolist()], key_ids[new].tolist(), strict=True))
        return key_ids[by_key.codes], by_key.first[new]

    def remove(self, key_ids: KeyIds, columns: Sequence[pa.Array]) -> None:
        for key in _python_keys(columns, len(key_ids)):
            del self._key_ids[key]

    @property
    def nbytes(self) -> int:
        """The approximate size in bytes."""
        return len(self._key_ids) * _KEY_BYTES


def _distinct(columns: Sequence[pa.Array], by_key: Grouped) -> list[Key]:
    first = pa.array(by_key.first)
    return _python_keys([c.take(first) for c in columns], by_key.count)


def _python_keys(columns: Sequence[pa.Array], rows: int) -> list[Key]:
    if len(columns) == 1:
        return hashable_values(columns[0])
    return list(zip(*map(hashable_values, columns), strict=True)) if columns else [()] * rows


class WordIndex:
    """An index of packed keys: open addressing with linear probing."""

    def __init__(self, width: int, arrays: Arrays = IN_MEMORY) -> None:
        self._arrays = arrays
        # The words of each key id's key, and its null columns once a key has one.
        self._words = [GrowingArray(np.uint64, arrays) for _ in range(width)]
        self._nulls: GrowingArray | None = None
        self._count = 0
        self._live = GrowingArray(np.bool_, arrays)
        self._make_table(_MIN_SIZE)

    def _make_table(self, size: int) -> None:
        self._table = self._arrays.make(size, np.int32)
        self._table[:] = _EMPTY
        self._shift = np.uint64(64 - (size.bit_length() - 1))
        self._mask = size - 1
        self._used = 0

    def find(self, words: list[Word], nulls: Word | None) -> KeyIds:
        """Return the key ids of keys; -1 for missing keys."""
        return self._lookup(words, self._with_nulls(nulls, len(words[0])))[0]

    def find_or_add(self, words: list[Word], nulls: Word | None) -> tuple[KeyIds, KeyIds]:
        """Return the key ids of keys, and the rows in which added keys first occur."""
        rows = len(words[0])
        nulls = self._with_nulls(nulls, rows)
        key_ids, positions = self._lookup(words, nulls)
        missing = np.flatnonzero(key_ids < 0)
        if not len(missing):
            return key_ids, missing
        if len(missing) < rows:
            words, nulls = [w.take(missing) for w in words], None if nulls is None else nulls.take(missing)
            positions = positions.take(missing)
        added, first = self._add(words, nulls, positions)
        if len(missing) == rows:
            return added, first
        key_ids[missing] = added
        return key_ids, missing.take(first)

    def _with_nulls(self, nulls: Word | None, rows: int) -> Word | None:
        """Return the null columns of all keys, once a key has one."""
        if nulls is not None and self._nulls is None:
            self._nulls = GrowingArray(np.uint64, self._arrays)
            self._nulls.extend(np.zeros(self._count, np.uint64))
            # From now on nulls are hashed, too.
            self._make_table(len(self._table))
            self._insert_all(np.flatnonzero(self._live.values))
        return np.zeros(rows, np.uint64) if nulls is None and self._nulls is not None else nulls

    def _positions(self, words: list[Word], nulls: Word | None) -> Ints:
        h = words[0] * _MULTIPLIER
        for word in words[1:] if nulls is None else [*words[1:], nulls]:
            h ^= h >> np.uint64(29)
            h = (h ^ word) * _MULTIPLIER
        h ^= h >> np.uint64(32)
        return (h * _MULTIPLIER >> self._shift).astype(np.int64)

    # Rows are selected by index, not by mask: numpy takes five times as long for an irregular mask.

    def _lookup(self, words: list[Word], nulls: Word | None) -> tuple[KeyIds, Ints]:
        """Return the key ids of keys, -1 for missing ones, and for those the position where they would be."""
        positions = self._positions(words, nulls)
        key_ids = self._table.take(positions).astype(np.int64)
        if not self._count:
            return key_ids, positions
        equal = self._equal(key_ids, words, nulls)
        if equal.all():
            return key_ids, positions
        left = np.flatnonzero(~equal)
        key_ids_of_left = key_ids.take(left)
        result, result[left] = key_ids, -1
        left = left.take(np.flatnonzero(key_ids_of_left != _EMPTY))
        position = positions.take(left)
        words, nulls = [w.take(left) for w in words], None if nulls is None else nulls.take(left)
        while len(left):
            position = (position + 1) & self._mask
            key_ids = self._table.take(position).astype(np.int64)
            equal = self._equal(key_ids, words, nulls)
            hits = np.flatnonzero(equal)
            result[left.take(hits)] = key_ids.take(hits)
            positions[left] = position
            unresolved = np.flatnonzero(~equal & (key_ids != _EMPTY))
            left, position = left.take(unresolved), position.take(unresolved)
            words, nulls = [w.take(unresolved) for w in words], None if nulls is None else nulls.take(unresolved)
        return result, positions

    def _equal(self, key_ids: KeyIds, words: list[Word], nulls: Word | None) -> Mask:
        equal: Mask = key_ids >= 0
        for stored, word in zip(self._words, words, strict=True):
            equal &= stored.values.take(key_ids, mode="clip") == word
        if nulls is not None and self._nulls is not None:
            equal &= self._nulls.values.take(key_ids, mode="clip") == nulls
        return equal

    def _add(self, words: list[Word], nulls: Word | None, positions: Ints) -> tuple[KeyIds, KeyIds]:
        """Add missing keys, some of which may be equal; return their key ids, and where each first occurs.

        Args:
            words, nulls: the keys.
            positions: where the search for a free entry begins, while the table is not resized.
        """
        if self._reserve(len(words[0])):
            positions = self._positions(words, nulls)
        all_words = words if nulls is None else [*words, nulls]
        owner, positions = self._claim_entries(all_words, positions)
        first = np.flatnonzero(positions >= 0)
        numbers = np.empty(len(owner), np.int64)
        numbers[first] = np.arange(self._count, self._count + len(first))
        self._table[positions.take(first)] = numbers.take(first)
        for stored, word in zip(self._words, words, strict=True):
            stored.extend(word.take(first))
        if nulls is not None and self._nulls is not None:
            self._nulls.extend(nulls.take(first))
        self._live.extend(np.ones(len(first), np.bool_))
        self._count += len(first)
        self._used += len(first)
        return numbers.take(owner), first

    def _claim_entries(self, words: list[Word], positions: Ints) -> tuple[Ints, Ints]:
        """Give each key a table entry; return which of equal keys owns it, and where; -1 for the others."""
        table, count = self._table, len(positions)
        owner, taken = np.arange(count), np.full(count, -1, np.int64)
        left = owner.copy()
        while len(left):
            free = np.flatnonzero(table.take(positions) == _EMPTY)
            claimed, claimants = (
                (positions, left) if len(free) == len(left) else (positions.take(free), left.take(free))
            )
            # Until key ids are assigned, an entry holds the number of the first key that claims it.
            table[claimed[::-1]] = _NUMBER - claimants[::-1]
            other = _NUMBER - table.take(positions).astype(np.int64)
            owned = np.flatnonzero(other == left)
            taken[left.take(owned)] = positions.take(owned)
            if len(owned) == len(left):
                break
            rest = np.flatnonzero(other != left)
            left, positions, other = left.take(rest), positions.take(rest), other.take(rest)
            equal = other >= 0
            for word in words:
                equal &= word.take(other, mode="clip") == word.take(left)
            same = np.flatnonzero(equal)
            owner[left.take(same)] = other.take(same)
            unresolved = np.flatnonzero(~equal)
            left, positions = left.take(unresolved), (positions.take(unresolved) + 1) & self._mask
        return owner, taken

    def _reserve(self, more: int) -> bool:
        """Reserve capacity for more keys; return whether the table was rebuilt."""
        if 3 * (self._used + more) <= len(self._table):
            return False
        live = np.flatnonzero(self._live.values)
        size = len(self._table)
        while 4 * (len(live) + more) > size:
            size *= 2
        self._make_table(size)
        self._insert_all(live)
        return True

    def _insert_all(self, key_ids: KeyIds) -> None:
        """Insert key ids whose keys are not in the table."""
        words = [stored.values[key_ids] for stored in self._words]
        positions = self._positions(words, None if self._nulls is None else self._nulls.values[key_ids])
        self._used += len(key_ids)
        table = self._table
        while len(key_ids):
            free = np.flatnonzero(table.take(positions) == _EMPTY)
            table[positions.take(free)] = key_ids.take(free)
            # One of several keys that claim the same entry gets it.
            lost = np.flatnonzero(table.take(positions) != key_ids)
            key_ids, positions = key_ids.take(lost), (positions.take(lost) + 1) & self._mask

    def keys(self) -> tuple[KeyIds, list[Word], Word | None]:
        """Return all used key ids, and their keys."""
        key_ids = np.flatnonzero(self._live.values)
        nulls = None if self._nulls is None else self._nulls.values.take(key_ids)
        return key_ids, [stored.values.take(key_ids) for stored in self._words], nulls

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        nulls = 0 if self._nulls is None else self._nulls.nbytes
        return sum(stored.nbytes for stored in self._words) + nulls + self._live.nbytes + self._table.nbytes

    def __len__(self) -> int:
        """Return the number of the next key id."""
        return self._count

    def remove(self, key_ids: KeyIds) -> None:
        """Remove keys."""
        self._live.values[key_ids] = False
        words = [stored.values[key_ids] for stored in self._words]
        positions = self._positions(words, None if self._nulls is None else self._nulls.values[key_ids])
        while len(key_ids):
            is_entry = self._table.take(positions) == key_ids
            self._table[positions.take(np.flatnonzero(is_entry))] = _REMOVED
            unresolved = np.flatnonzero(~is_entry)
            key_ids, positions = key_ids.take(unresolved), (positions.take(unresolved) + 1) & self._mask


class KeyIndex:
    """An index of packed keys that becomes a dict with the first long text."""

    def __init__(self, kinds: Sequence[pa.DataType], arrays: Arrays) -> None:
        self._kinds = list(kinds)
        self._words = WordIndex(packed_width(kinds), arrays)
        self._dict_index: DictIndex | None = None

    def find(self, columns: Sequence[pa.Array], rows: int) -> KeyIds:
        words = self._words_of(columns)
        return self._dict.find(columns, rows) if words is None else self._words.find(*words)

    def find_or_add(self, columns: Sequence[pa.Array], rows: int) -> tuple[KeyIds, KeyIds]:
        words = self._words_of(columns)
        return self._dict.find_or_add(columns, rows) if words is None else self._words.find_or_add(*words)

    def remove(self, key_ids: KeyIds, columns: Sequence[pa.Array]) -> None:
        if self._dict_index is None:
            self._words.remove(key_ids)
        else:
            self._dict_index.remove(key_ids, columns)

    @property
    def nbytes(self) -> int:
        """The approximate size in bytes."""
        return self._words.nbytes if self._dict_index is None else self._dict_index.nbytes

    def _words_of(self, columns: Sequence[pa.Array]) -> tuple[list[Word], Word | None] | None:
        return pack_keys(columns) if self._dict_index is None else None

    @property
    def _dict(self) -> DictIndex:
        """The same keys and key ids in a dict, from the first long text on."""
        if self._dict_index is None:
            key_ids, words, nulls = self._words.keys()
            keys = _python_keys(unpack_keys(words, nulls, self._kinds), len(key_ids))
            self._dict_index = DictIndex(dict(zip(keys, key_ids.tolist(), strict=True)), len(self._words))
            self._words = WordIndex(packed_width(self._kinds))
        return self._dict_index


def can_pack(kinds: Sequence[pa.DataType]) -> bool:
    """Return whether keys of some types can be packed, unless they have long texts."""
    return bool(kinds) and all(is_number_like(kind) or pa.types.is_string(kind) for kind in kinds)


def packed_width(kinds: Sequence[pa.DataType]) -> int:
    """Return the number of words of a key of some types."""
    return sum(2 if pa.types.is_string(kind) else 1 for kind in kinds)


def pack_keys(columns: Sequence[pa.Array]) -> tuple[list[Word], Word | None] | None:
    """Return the words of keys, and their null columns if there are any; None if a text is too long."""
    words: list[Word] = []
    nulls: Word | None = None
    for i, column in enumerate(columns):
        packed = _text(column) if pa.types.is_string(column.type) else [_number(column)]
        if packed is None:
            return None
        valid = valid_of(column)
        if valid is not None:
            packed = [np.where(valid, word, np.uint64(0)) for word in packed]
            flags = (~valid).astype(np.uint64) << np.uint64(i)
            nulls = flags if nulls is None else nulls | flags
        words += packed
    return words, nulls


def _number(column: pa.Array) -> Word:
    values = plain(column)
    if values.dtype.kind == "f":
        values = values.astype(np.float64) + 0.0
        return np.where(np.isnan(values), np.nan, values).view(np.uint64)
    return values.astype(np.int64, copy=False).view(np.uint64)


def _text(column: pa.Array) -> list[Word] | None:
    """Return texts as two words, the last byte being the length; None if one is too long."""
    if not len(column):
        return [np.zeros(0, np.uint64)] * 2
    text = column if column.null_count == 0 else column.fill_null("")
    lengths = pc.binary_length(text).to_numpy().astype(np.uint64)
    if lengths.max() > _MAX_TEXT:
        return None
    # ascii_rpad counts bytes, also for other texts.
    both = np.frombuffer(pc.ascii_rpad(text, 16, "\0").buffers()[2], "<u8", 2 * len(text))
    return [both[0::2].copy(), both[1::2] | lengths << _LENGTH]


def unpack_keys(words: Sequence[Word], nulls: Word | None, kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    """Return the key columns of packed words."""
    columns: list[pa.Array] = []
    left = list(words)
    for i, kind in enumerate(kinds):
        valid = None if nulls is None else (nulls >> np.uint64(i)) & np.uint64(1) == 0
        if pa.types.is_string(kind):
            columns.append(_texts(left.pop(0), left.pop(0), valid))
            continue
        word = left.pop(0)
        values = word.view(np.float64) if pa.types.is_floating(kind) else word.view(np.int64)
        columns.append(from_numpy(values, valid, kind))
    return columns


def _texts(first: Word, last: Word, valid: Mask | None) -> pa.Array:
    lengths = (last >> _LENGTH).astype(np.int64)
    body = np.stack([first, last & _BYTES], axis=1).tobytes()
    texts = [body[16 * i : 16 * i + length].decode() for i, length in enumerate(lengths.tolist())]
    return pa.array(texts, pa.string(), mask=None if valid is None else ~valid)
