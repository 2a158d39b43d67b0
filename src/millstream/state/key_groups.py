"""Key groups, which assign keys to subtasks, and the hash under them, which is the same in every process.

Keys that are equal in Python hash alike (1, 1.0 and True; a tuple of equal members). Hashes do not depend on
PYTHONHASHSEED, the process, or the machine.
"""

from __future__ import annotations

import datetime
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from numbers import Number, Real
from weakref import WeakKeyDictionary
from zlib import crc32

from millstream.common.aliases import Key
from millstream.common.errors import MillstreamError
from millstream.common.tags import tagged
from millstream.common.time import Instant
from millstream.common.types import Row, field_names
from millstream.state.key_identity import Hashed, Identity, compared, identity_of, inherited_from

DEFAULT_MAX_PARALLELISM = 128
UPPER_BOUND_MAX_PARALLELISM = 1 << 15

_MASK = 0xFFFFFFFF
_GOLDEN = 0x9E3779B1
_NAN = 0x7FC00000
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


def default_max_parallelism(parallelism: int) -> int:
    """Return Flink's default number of key groups for a parallelism."""
    target = parallelism + parallelism // 2
    power = 1 << max(target - 1, 1).bit_length()
    return min(max(power, DEFAULT_MAX_PARALLELISM), UPPER_BOUND_MAX_PARALLELISM)


def key_group(key: Key, max_parallelism: int) -> int:
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


def stable_hash(key: Key) -> int:
    """Return 32 bits that are equal for equal keys, in every process.

    Example:
        >>> stable_hash(1) == stable_hash(1.0) == stable_hash(True)
        True
        >>> stable_hash("a")
        3904355907
    """
    hasher = _HASHERS.get(key.__class__)
    return hasher(key) if hasher is not None else _hash_by_class(key)


def _mix(h: int) -> int:
    """Spread the bits (the finalizer of MurmurHash3), so that neighbours do not share a group."""
    h ^= h >> 16
    h = h * 0x85EBCA6B & _MASK
    h ^= h >> 13
    h = h * 0xC2B2AE35 & _MASK
    return h ^ h >> 16


def _number(key: Key) -> int:
    # Python defines the hash of numbers by their value alone; only NaN has none of its own.
    if key != key:
        return _NAN
    h = hash(key)
    return (h ^ h >> 32) & _MASK


def _text(key: str) -> int:
    return crc32(str.encode(key, "utf-8", "surrogatepass"))


def _sequence(key: Key) -> int:
    h = 1
    for member in key:
        h = (h * 31 + stable_hash(member)) & _MASK
    return h


def _unordered(members: Iterable[Key]) -> int:
    h = 0
    for member in members:
        h = (h + _mix(stable_hash(member))) & _MASK
    return h


def _datetime(key: datetime.datetime) -> int:
    # Python compares them without regard to fold.
    key = key.replace(fold=0)
    if key.utcoffset() is None:
        return _text(key.isoformat())
    return _number((key - _EPOCH) // _MICROSECOND)


def _time(key: datetime.time) -> int:
    key = key.replace(fold=0)
    offset = key.utcoffset()
    if offset is None:
        return _text(key.isoformat())
    since_midnight = datetime.datetime.combine(_EPOCH.date(), key.replace(tzinfo=None)) - _EPOCH.replace(tzinfo=None)
    return _number((since_midnight - offset) // _MICROSECOND)


@tagged("frozen-list", write=lambda key: (tuple(key),))
class FrozenList(tuple[Key, ...]):
    """A list used as a key: like a list, it equals no tuple."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return other.__class__ is FrozenList and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__


@tagged("frozen-dict", write=lambda key: (tuple(key),))
class FrozenDict(tuple[Key, ...]):
    """A dict used as a key: its items, whose order is irrelevant."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return other.__class__ is FrozenDict and frozenset(self) == frozenset(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(frozenset(self))


_HASHERS: dict[type, Callable[[Key], int]] = {
    int: _number,
    bool: _number,
    float: _number,
    complex: _number,
    Decimal: _number,
    Fraction: _number,
    str: _text,
    bytes: crc32,
    bytearray: crc32,
    type(None): lambda _: 0x9E3779B9,
    tuple: _sequence,
    list: _sequence,
    FrozenList: _sequence,
    Row: lambda key: _sequence(key) if field_names(key) is None else _unordered(key),
    frozenset: _unordered,
    set: _unordered,
    dict: lambda key: _unordered(key.items()),
    OrderedDict: lambda key: _unordered(key.items()),
    FrozenDict: _unordered,
    datetime.date: lambda key: _number(key.toordinal()),
    datetime.datetime: _datetime,
    datetime.time: _time,
    datetime.timedelta: lambda key: _number(key // _MICROSECOND),
    Instant: lambda key: _sequence((key.seconds, key.nanos)),
    uuid.UUID: lambda key: _number(key.int),
    Hashed: lambda key: stable_hash(key.value),
}


# Hash functions of other classes, found at their first key.
_hashers_of_classes: WeakKeyDictionary[type, Callable[[Key], int]] = WeakKeyDictionary()


def _hash_by_class(key: Key) -> int:
    if isinstance(key, FrozenNaN):
        return _NAN
    cls = key.__class__
    hasher = _hashers_of_classes.get(cls)
    if hasher is None:
        kind = inherited_from(cls, _HASHERS)
        hasher = _hashers_of_classes[cls] = _by_identity(identity_of(key)) if kind is None else _HASHERS[kind]
    return hasher(key)


def _by_identity(identity: Identity) -> Callable[[Key], int]:
    return lambda key: stable_hash(identity(key))


@tagged("frozen-nan", write=lambda key: (key._kind,))
class FrozenNaN:
    """NaN used as a key: it equals itself, so that all of them are one key, as in Java."""

    __slots__ = ("_kind",)

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrozenNaN) and other._kind is self._kind

    def __hash__(self) -> int:
        return _NAN

    def __repr__(self) -> str:
        return "nan"

    def thaw(self) -> Key:
        """Return the NaN."""
        return self._kind("nan")


# Classes whose values are keys unchanged: they are hashable and equal to themselves.
PLAIN_KEYS = frozenset({int, str, bool, type(None), bytes})
_NUMBERS = (float, Decimal, complex)


def hashable(key: Key) -> Key:
    """Return the key itself if a dict can find it again, else its frozen form."""
    try:
        hash(key)
    except TypeError:
        return freeze(key)
    return freeze(key) if _has_nan(key) else key


def _has_nan(key: Key) -> bool:
    if isinstance(key, _NUMBERS):
        return bool(key != key)
    if isinstance(key, (tuple, frozenset, Row)):
        return any(member.__class__ not in PLAIN_KEYS and _has_nan(member) for member in key)
    if isinstance(key, Number):
        # A scalar of numpy.
        return bool(key != key)
    values = compared(key)
    if values is not None and any(map(_has_nan, values)):
        raise MillstreamError(
            f"The key {key!r} has a NaN in a field, which is not equal to itself: use a tuple of the fields as the key."
        )
    return False


def freeze(key: Key) -> Key:
    """Return the key in a form that a dict can find again; `thaw` restores the user's form."""
    if isinstance(key, list):
        return FrozenList(map(freeze, key))
    if isinstance(key, tuple) and not isinstance(key, (FrozenList, FrozenDict)):
        if type(key) is tuple:
            return tuple(map(freeze, key))
        make = getattr(type(key), "_make", None)
        return key if make is None else make(map(freeze, key))
    if isinstance(key, dict):
        return FrozenDict((freeze(k), freeze(v)) for k, v in key.items())
    if isinstance(key, (set, frozenset)):
        return frozenset(map(freeze, key))
    if isinstance(key, bytearray):
        return bytes(key)
    if isinstance(key, Row):
        return Row.of(field_names(key), list(map(freeze, key)), key.get_row_kind())
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


def thaw(key: Key) -> Key:
    """Return the key in the form that the user's selector returned."""
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
        return Row.of(field_names(key), list(map(thaw, key)), key.get_row_kind())
    if isinstance(key, tuple) and hasattr(kind, "_make"):
        return kind._make(map(thaw, key))
    return key
