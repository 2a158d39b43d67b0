"""Which subtask owns a key: a hash that is the same in every process, and the key groups over it.

Keys that are equal in Python hash alike (1, 1.0 and True; a tuple of equal members), and nothing here
depends on PYTHONHASHSEED, the process, or the machine.
"""

from __future__ import annotations

import datetime
import pickle
import uuid
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from numbers import Number, Real
from typing import Any
from zlib import crc32

from millstream.common.errors import MillstreamError
from millstream.common.time import Instant
from millstream.common.types import Row

DEFAULT_MAX_PARALLELISM = 128
UPPER_BOUND_MAX_PARALLELISM = 1 << 15

_MASK = 0xFFFFFFFF
_GOLDEN = 0x9E3779B1
_NAN = 0x7FC00000
# The hash of a class that does not define one: each of its objects has its own.
_BY_IDENTITY: Any = object.__hash__
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


def default_max_parallelism(parallelism: int) -> int:
    """Return the number of key groups for a parallelism that came without one: Flink's rule."""
    wanted = parallelism + parallelism // 2
    power = 1 << max(wanted - 1, 1).bit_length()
    return min(max(power, DEFAULT_MAX_PARALLELISM), UPPER_BOUND_MAX_PARALLELISM)


def key_group(key: Any, max_parallelism: int) -> int:
    """Return the key group of a key."""
    h = hash(key) if key.__class__ is int else stable_hash(key)
    # Fibonacci hashing: the high bits of the product are spread, so that neighbours do not share a group.
    return ((h ^ h >> 32) * _GOLDEN & _MASK) * max_parallelism >> 32


def owner(group: int, parallelism: int, max_parallelism: int) -> int:
    """Return the subtask that owns a key group."""
    return group * parallelism // max_parallelism


def owned_groups(subtask: int, parallelism: int, max_parallelism: int) -> range:
    """Return the key groups a subtask owns."""
    start = -(-subtask * max_parallelism // parallelism)
    end = -(-(subtask + 1) * max_parallelism // parallelism)
    return range(start, end)


def stable_hash(key: Any) -> int:
    """Return 32 bits that are equal for equal keys, in every process.

    Example:
        >>> stable_hash(1) == stable_hash(1.0) == stable_hash(True)
        True
        >>> stable_hash("a")
        3904355907
    """
    hasher = _HASHERS.get(key.__class__)
    return hasher(key) if hasher is not None else _other(key)


def _mix(h: int) -> int:
    """Spread the bits (the finalizer of MurmurHash3), so that neighbours do not share a group."""
    h ^= h >> 16
    h = h * 0x85EBCA6B & _MASK
    h ^= h >> 13
    h = h * 0xC2B2AE35 & _MASK
    return h ^ h >> 16


def _number(key: Any) -> int:
    # Python defines the hash of numbers by their value alone; only NaN has none of its own.
    if key != key:
        return _NAN
    h = hash(key)
    return (h ^ h >> 32) & _MASK


def _text(key: str) -> int:
    return crc32(key.encode("utf-8", "surrogatepass"))


def _sequence(key: Any) -> int:
    h = 1
    for member in key:
        h = (h * 31 + stable_hash(member)) & _MASK
    return h


def _unordered(members: Any) -> int:
    h = 0
    for member in members:
        h = (h + _mix(stable_hash(member))) & _MASK
    return h


def _datetime(key: datetime.datetime) -> int:
    if key.utcoffset() is None:
        return _text(key.replace(fold=0).isoformat())
    return _number((key - _EPOCH) // _MICROSECOND)


def _time(key: datetime.time) -> int:
    return _text(key.replace(fold=0).isoformat())


_HASHERS: dict[type, Callable[[Any], int]] = {
    int: _number,
    bool: _number,
    float: _number,
    complex: _number,
    str: _text,
    bytes: crc32,
    bytearray: crc32,
    type(None): lambda _: 0x9E3779B9,
    tuple: _sequence,
    list: _sequence,
    Row: lambda key: _sequence(key) if key._fields is None else _unordered(key._values),
    frozenset: _unordered,
    set: _unordered,
    dict: lambda key: _unordered(key.items()),
    datetime.date: lambda key: _number(key.toordinal()),
    datetime.datetime: _datetime,
    datetime.time: _time,
    datetime.timedelta: lambda key: _number(key // _MICROSECOND),
    Instant: lambda key: _sequence((key.seconds, key.nanos)),
    uuid.UUID: lambda key: _number(key.int),
}


def _other(key: Any) -> int:
    if isinstance(key, FrozenNaN):
        return _NAN
    if isinstance(key, Enum):
        return _sequence((type(key).__qualname__, key.name)) if not isinstance(key, (int, str)) else _base(key)
    if isinstance(key, Number):
        return _number(key)
    for kind in (str, bytes, tuple, Row, list, frozenset, dict, datetime.datetime, datetime.date):
        if isinstance(key, kind):
            return _HASHERS[kind](key)
    if is_dataclass(key) and not isinstance(key, type):
        return _sequence([getattr(key, f.name) for f in fields(key) if f.compare])
    if getattr(type(key), "__hash__", None) is _BY_IDENTITY and not isinstance(key, type):
        raise MillstreamError(
            f"A key of class {type(key).__name__} is equal to no other: the class has no __eq__ and __hash__ by value, "
            "so every record would be a key of its own. Give it both (a frozen dataclass has them), or use a str, a "
            "number or a tuple as the key."
        )
    if type(key).__module__ == "numpy" and hasattr(key, "item"):
        if key != key:
            raise MillstreamError(f"The key {key!r} is not equal to itself: let the selector return None for it.")
        return stable_hash(key.item())
    try:
        return crc32(pickle.dumps(key, 5))
    except Exception as e:
        raise MillstreamError(
            f"A key of type {type(key).__name__} cannot be hashed the same way in every process: {e}. "
            "Use a str, a number, bytes, a date, or a tuple of those as the key."
        ) from e


def _base(key: Any) -> int:
    return _number(int(key)) if isinstance(key, int) else _text(str.__str__(key))


class FrozenList(tuple[Any, ...]):
    """A list that was used as a key."""

    __slots__ = ()


class FrozenDict(tuple[Any, ...]):
    """A dict that was used as a key: its items in a settled order."""

    __slots__ = ()


class FrozenNaN:
    """Not a number, used as a key: equal to itself, unlike the number, so that all of them are one key, as in Java."""

    __slots__ = ("_kind",)

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrozenNaN) and other._kind is self._kind

    def __hash__(self) -> int:
        return _NAN

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenNaN, (self._kind,)

    def __repr__(self) -> str:
        return "nan"

    def thaw(self) -> Any:
        """Return the number."""
        return self._kind("nan")


# Classes whose values are keys as they are: a dict takes them, and finds them again.
PLAIN_KEYS = frozenset({int, str, bool, type(None), bytes})
_NUMBERS = (float, Decimal, complex)


def hashable(key: Any) -> Any:
    """Return the key itself where a dict takes it and finds it again, else its frozen form."""
    try:
        hash(key)
    except TypeError:
        return freeze(key)
    return freeze(key) if _has_nan(key) else key


def _has_nan(key: Any) -> bool:
    if isinstance(key, _NUMBERS):
        return bool(key != key)
    if isinstance(key, (tuple, frozenset, Row)):
        return any(member.__class__ not in PLAIN_KEYS and _has_nan(member) for member in key)
    if isinstance(key, Number):
        # A scalar of numpy.
        return bool(key != key)
    if is_dataclass(key) and any(_has_nan(getattr(key, f.name)) for f in fields(key) if f.compare):
        raise MillstreamError(
            f"The key {key!r} has a NaN in a field, which is not equal to itself: use a tuple of the fields as the key."
        )
    return False


def freeze(key: Any) -> Any:
    """Return the key in a form that a dict takes and finds again; `thaw` gives the user's form back."""
    if isinstance(key, list):
        return FrozenList(map(freeze, key))
    if isinstance(key, tuple) and not isinstance(key, (FrozenList, FrozenDict)):
        if type(key) is tuple:
            return tuple(map(freeze, key))
        make = getattr(type(key), "_make", None)
        return key if make is None else make(map(freeze, key))
    if isinstance(key, dict):
        return FrozenDict(sorted(((freeze(k), freeze(v)) for k, v in key.items()), key=stable_hash))
    if isinstance(key, (set, frozenset)):
        return frozenset(map(freeze, key))
    if isinstance(key, bytearray):
        return bytes(key)
    if isinstance(key, Row):
        return Row.of(key._fields, list(map(freeze, key)), key.get_row_kind())
    if isinstance(key, Number) and key != key:
        kind = float if isinstance(key, Real) else Decimal if isinstance(key, Decimal) else complex
        return FrozenNaN(kind)
    try:
        hash(key)
    except TypeError:
        raise MillstreamError(
            f"A key of type {type(key).__name__} is not hashable: give the class __eq__ and __hash__, "
            "or use a str, a number or a tuple as the key."
        ) from None
    return key


def thaw(key: Any) -> Any:
    """Return the key as the user's selector gave it."""
    kind = key.__class__
    if kind in PLAIN_KEYS:
        return key
    if kind is FrozenList:
        return [thaw(k) for k in key]
    if kind is FrozenDict:
        return {thaw(k): thaw(v) for k, v in key}
    if kind is tuple:
        return tuple(map(thaw, key))
    if kind is FrozenNaN:
        return key.thaw()
    if kind is frozenset:
        return frozenset(map(thaw, key))
    if kind is Row:
        return Row.of(key._fields, list(map(thaw, key)), key.get_row_kind())
    if isinstance(key, tuple) and hasattr(kind, "_make"):
        return kind._make(map(thaw, key))
    return key
