"""Identities of keys: a value of plain types that equal objects of a class share, to be hashed alike in all processes.

Python's own `hash` differs between processes, and so does a pickle of equal objects. The identity of a class is
determined once: the result of its `__stable_key__`, the fields that its inherited or generated `__eq__` compares, or
the value that its `__hash__` hashes. A class without any of them is rejected.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from enum import Enum, Flag
from operator import attrgetter, methodcaller
from types import CodeType, FunctionType
from weakref import WeakKeyDictionary

from millstream.common.aliases import Key
from millstream.common.errors import MillstreamError
from millstream.common.fast_dataclass import compares_fields

Identity = Callable[[Key], Key]

# The method of a class that returns the identity of an object.
STABLE_KEY = "__stable_key__"

# Classes of other packages by name: only programs that use them import them.
_BY_NAME: dict[str, Identity] = {
    "builtins.range": lambda key: (len(key), key.start, key.step) if len(key) > 1 else tuple(key),
    "datetime.timezone": lambda key: key.utcoffset(None),
    "ipaddress._BaseAddress": int,
    "ipaddress._BaseNetwork": lambda key: (int(key.network_address), key.prefixlen),
    "ipaddress.IPv4Interface": lambda key: (int(key), key.network.prefixlen),
    "ipaddress.IPv6Interface": lambda key: (int(key), key.network.prefixlen),
    "pathlib.PurePath": lambda key: key.as_posix().lower(),
    "pathlib._local.PurePath": lambda key: key.as_posix().lower(),
    "pandas._libs.tslibs.timestamps._Timestamp": lambda key: key.to_pydatetime(warn=False),
    "pandas._libs.tslibs.timedeltas._Timedelta": lambda key: key.to_pytimedelta(),
    # Models compare more than their fields, but the fields of equal models are equal.
    "pydantic.main.BaseModel": lambda key: tuple([getattr(key, name) for name in type(key).model_fields]),
    "pydantic.root_model.RootModel": attrgetter("root"),
    "pydantic.v1.main.BaseModel": methodcaller("dict"),
}

_generated_of: WeakKeyDictionary[type, Callable[[Key], tuple[Key, ...]] | None] = WeakKeyDictionary()


def compared(key: Key) -> tuple[Key, ...] | None:
    """Return the values of the fields that a generated `__eq__` compares, None if the class has none."""
    cls = key.__class__
    try:
        by_fields = _generated_of[cls]
    except KeyError:
        by_fields = _generated_of[cls] = _generated(_definer(cls, "__eq__"))
    return None if by_fields is None else by_fields(key)


def inherited_from(cls: type, kinds: Collection[type]) -> type | None:
    """Return the one of the kinds whose `__eq__` a class inherits; None if it defines its own."""
    definer = None if hasattr(cls, STABLE_KEY) else _definer(cls, "__eq__")
    return definer if definer in kinds else None


def _definer(cls: type, name: str) -> type:
    """Return the class that defines an attribute of a class."""
    return next((base for base in cls.__mro__ if name in base.__dict__), object)


def identity_of(key: Key) -> Identity:
    """Return the function that returns the identity of objects of the key's class.

    Raises:
        MillstreamError: the class has none.
    """
    cls = key.__class__
    if isinstance(key, type):
        return attrgetter("__module__", "__qualname__")
    if hasattr(cls, STABLE_KEY):
        return methodcaller(STABLE_KEY)
    definer = _definer(cls, "__eq__")
    if definer.__module__.partition(".")[0] == "numpy" and hasattr(key, "item"):
        return _numpy_value
    known = _BY_NAME.get(f"{definer.__module__}.{definer.__qualname__}")
    if known is not None:
        return known
    if definer is object and isinstance(key, Enum):
        return _enum_value
    if definer is object or cls.__hash__ is object.__hash__:
        raise MillstreamError(
            f"A key of class {cls.__name__} is equal to no other: the class has no __eq__ and __hash__ by value, so "
            "every record would be a key of its own. Give it both (a frozen dataclass has them), or use a str, a "
            "number or a tuple as the key."
        )
    return _generated(definer) or _hashed(cls)


def _enum_value(key: Enum) -> Key:
    # Members are singletons; combinations of a Flag have a name in some versions of Python only.
    return type(key).__qualname__, key.value if isinstance(key, Flag) else key.name


def _numpy_value(key: Key) -> Key:
    if key != key:
        raise MillstreamError(f"The key {key!r} is not equal to itself: let the selector return None for it.")
    if key.dtype.kind in "mM":
        # Equal times may have different units.
        return key.astype(f"{key.dtype.kind}8[us]").item()
    return key.item()


def _generated(definer: type) -> Callable[[Key], tuple[Key, ...]] | None:
    """Return a reader of the fields that a class's `__eq__` compares, if dataclass or attrs generated it."""
    equal = definer.__dict__.get("__eq__")
    if "__dataclass_fields__" in definer.__dict__:
        names = [f.name for f in dataclasses.fields(definer) if f.compare]
        if compares_fields(equal) or _same_code(equal, _dataclass_equal(names)):
            return _values_of(names)
    attributes = definer.__dict__.get("__attrs_attrs__")
    if attributes is not None and _filename(equal).startswith("<attrs generated "):
        read = [(attrgetter(a.name), a.eq_key) for a in attributes if a.eq]
        return lambda key: tuple([get(key) if convert is None else convert(get(key)) for get, convert in read])
    return None


def _values_of(names: list[str]) -> Callable[[Key], tuple[Key, ...]]:
    return lambda key: tuple([getattr(key, name) for name in names])


def _filename(function: object) -> str:
    return function.__code__.co_filename if isinstance(function, FunctionType) else ""


def _dataclass_equal(names: list[str]) -> object:
    return dataclasses.make_dataclass("_Like", names).__dict__["__eq__"]


def _same_code(one: object, other: object) -> bool:
    """Return whether two functions have the same code: a dataclass may define its own comparison."""
    if not (isinstance(one, FunctionType) and isinstance(other, FunctionType)):
        return False
    return _steps(one.__code__) == _steps(other.__code__)


def _steps(code: CodeType) -> tuple[object, ...]:
    return code.co_code, code.co_names, code.co_consts, code.co_varnames


class Hashed(int):
    """A fake hash that records the hashed value."""

    value: Key


def _hashed(cls: type) -> Identity:
    """Return a reader of the value that `__hash__` hashes: by its contract equal objects have equal ones."""
    function = cls.__hash__

    def record_value(value: Key) -> Hashed:
        recorded = Hashed(0)
        recorded.value = value
        return recorded

    if isinstance(function, FunctionType):
        recording = FunctionType(
            function.__code__,
            {**function.__globals__, "hash": record_value},
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )

        def value_of(key: Key) -> Key:
            recorded = recording(key)
            if recorded.__class__ is not Hashed:
                raise _unknown(cls)
            return recorded.value

        return value_of
    raise _unknown(cls)


def _unknown(cls: type) -> MillstreamError:
    return MillstreamError(
        f"A key of class {cls.__name__} cannot be found again in another process, because the fields that its __eq__ "
        f"compares are unknown: return them as a tuple from a method {STABLE_KEY}(self), or use a frozen dataclass."
    )
