"""What makes two objects of a class equal: a value of plain types, from which a hash is made that all processes share.

Python's own `hash` differs between processes, and so does a pickle of equal objects. For each class the value is found
once: what the class says itself (`__stable_key__`), what its inherited or generated `__eq__` compares, or what its
`__hash__` hashes. A class for which none of them is known is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from enum import Enum, Flag
from operator import attrgetter, methodcaller
from types import CodeType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from millstream.common.errors import MillstreamError
from millstream.common.fast_dataclass import compares_fields

Identity = Callable[[Any], Any]

# The name of the method with which a class says by what its objects are told apart.
STABLE_KEY = "__stable_key__"

# Classes of other packages by name, since importing them is for those who use them.
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
    # Fields are some of what it compares: those of equal models are equal.
    "pydantic.main.BaseModel": lambda key: tuple([getattr(key, name) for name in type(key).model_fields]),
    "pydantic.root_model.RootModel": attrgetter("root"),
    "pydantic.v1.main.BaseModel": methodcaller("dict"),
}

_generated_of: WeakKeyDictionary[type, Callable[[Any], tuple[Any, ...]] | None] = WeakKeyDictionary()


def compared(key: Any) -> tuple[Any, ...] | None:
    """Return what the fields of an object hold that its generated `__eq__` compares, None where there is none."""
    cls = key.__class__
    try:
        by_fields = _generated_of[cls]
    except KeyError:
        by_fields = _generated_of[cls] = _generated(_definer(cls, "__eq__"))
    return None if by_fields is None else by_fields(key)


def inherited_from(cls: type, kinds: Collection[type]) -> type | None:
    """Return the one of the kinds whose `__eq__` decides for a class, None where something else does."""
    definer = None if hasattr(cls, STABLE_KEY) else _definer(cls, "__eq__")
    return definer if definer in kinds else None


def _definer(cls: type, name: str) -> type:
    """Return the class that an attribute of a class comes from."""
    return next((base for base in cls.__mro__ if name in base.__dict__), object)


def identity_of(key: Any) -> Identity:
    """Return what gives a value that equal objects of the key's class have in common, in every process.

    Raises:
        MillstreamError: nobody knows it.
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


def _enum_value(key: Enum) -> Any:
    # Members are one object each; those that a Flag combines have a name in some versions of Python only.
    return type(key).__qualname__, key.value if isinstance(key, Flag) else key.name


def _numpy_value(key: Any) -> Any:
    if key != key:
        raise MillstreamError(f"The key {key!r} is not equal to itself: let the selector return None for it.")
    if key.dtype.kind in "mM":
        # Equal times may have different units.
        return key.astype(f"{key.dtype.kind}8[us]").item()
    return key.item()


def _generated(definer: type) -> Callable[[Any], tuple[Any, ...]] | None:
    """Return what reads the fields that a class's `__eq__` compares, where dataclass or attrs have written that."""
    equal = definer.__dict__.get("__eq__")
    if "__dataclass_fields__" in definer.__dict__:
        names = [f.name for f in dataclasses.fields(definer) if f.compare]
        if compares_fields(equal) or _same_code(equal, _dataclass_equal(names)):
            return _values_of(names)
    attributes = definer.__dict__.get("__attrs_attrs__")
    if attributes is not None and _filename(equal).startswith("<attrs generated "):
        read = [(attrgetter(a.name), a.eq_key) for a in attributes if a.eq]
        return lambda key: tuple([get(key) if made is None else made(get(key)) for get, made in read])
    return None


def _values_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda key: tuple([getattr(key, name) for name in names])


def _filename(function: Any) -> str:
    return function.__code__.co_filename if isinstance(function, FunctionType) else ""


def _dataclass_equal(names: list[str]) -> Any:
    return dataclasses.make_dataclass("_Like", names).__dict__["__eq__"]


def _same_code(one: Any, other: Any) -> bool:
    """Return whether two functions do the same: a class may be a dataclass and compare in a way of its own."""
    if not (isinstance(one, FunctionType) and isinstance(other, FunctionType)):
        return False
    return _steps(one.__code__) == _steps(other.__code__)


def _steps(code: CodeType) -> tuple[Any, ...]:
    return code.co_code, code.co_names, code.co_consts, code.co_varnames


class Hashed(int):
    """Stands for a hash while somebody looks at what was hashed."""

    value: Any


def _hashed(cls: type) -> Identity:
    """Return what gives the value whose hash `__hash__` returns: by its contract equal objects have equal ones."""
    function = cls.__hash__

    def look(value: Any) -> Hashed:
        seen = Hashed(0)
        seen.value = value
        return seen

    if isinstance(function, FunctionType):
        watched = FunctionType(
            function.__code__,
            {**function.__globals__, "hash": look},
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )

        def value_of(key: Any) -> Any:
            seen = watched(key)
            if seen.__class__ is not Hashed:
                raise _unknown(cls)
            return seen.value

        return value_of
    raise _unknown(cls)


def _unknown(cls: type) -> MillstreamError:
    return MillstreamError(
        f"A key of class {cls.__name__} cannot be found again in another process: it is not known what its __eq__ "
        f"compares; let a method {STABLE_KEY}(self) return that as a tuple of plain values, or use a frozen dataclass."
    )
