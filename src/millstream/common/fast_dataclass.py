"""Dataclasses that are cheap to define and to construct.

`dataclass` compiles six methods for each class, and a starting program has hundreds of them. Here all classes share
their methods but `__init__`, which is compiled with the first object: that takes a tenth of the import time of
`dataclass(frozen=True)`. An object compares and hashes by its fields, as that of a frozen dataclass does, and type
checkers reject assignments to them. At run time an assignment is not checked: a frozen object takes two to three times
as long to construct.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, TypeVar, dataclass_transform, overload

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["compares_fields", "fast_dataclass"]

T = TypeVar("T")
_Init = Callable[..., None]


class _Comparable(Protocol):
    """An object of a class that `fast_dataclass` has decorated."""

    _compared: Callable[[object], object]


@overload
def fast_dataclass(cls: type[T], /) -> type[T]: ...
@overload
def fast_dataclass(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def fast_dataclass(cls: type[T] | None = None, /, *, kw_only: bool = False) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a class a dataclass whose fields are read-only for type checkers, but not at run time."""
    if cls is None:
        return lambda decorated: _add_methods(dataclass(init=False, eq=False, repr=False, kw_only=kw_only)(decorated))
    return _add_methods(dataclass(init=False, eq=False, repr=False)(cls))


def _add_methods(cls: type[T]) -> type[T]:
    compared = [f.name for f in fields(cls) if f.compare]  # type: ignore[arg-type]
    cls._compared = staticmethod(attrgetter(*compared) if compared else lambda _: ())  # type: ignore[attr-defined]
    for name, method in (("__init__", _lazy_init(cls)), ("__eq__", _equal), ("__repr__", _repr)):
        if name not in cls.__dict__:
            setattr(cls, name, method)
    if cls.__dict__.get("__hash__") is None:
        cls.__hash__ = _hash  # type: ignore[method-assign, assignment]
    return cls


def _lazy_init(cls: type) -> _Init:
    """Return an `__init__` that compiles the real one on first use."""

    def __init__(self: object, *args: object, **kwargs: object) -> None:
        init = _compile_init(cls)
        type.__setattr__(cls, "__init__", init)
        init(self, *args, **kwargs)

    return __init__


def _compile_init(cls: type) -> _Init:
    """Compile the `__init__` of a class."""
    namespace: dict[str, object] = {"_MISSING": MISSING}
    positional, keyword_only, lines = ["self"], ["*"], []
    for one in fields(cls):
        name, value = one.name, one.name
        parameter = name
        if one.default_factory is not MISSING:
            namespace[f"_make_{name}"] = one.default_factory
            parameter = f"{name}=_MISSING"
            value = f"_make_{name}() if {name} is _MISSING else {name}" if one.init else f"_make_{name}()"
        elif one.default is not MISSING:
            namespace[f"_default_{name}"] = one.default
            parameter = f"{name}=_default_{name}"
        if one.init:
            (keyword_only if one.kw_only else positional).append(parameter)
        if one.init or one.default_factory is not MISSING:
            lines.append(f" self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    parameters = ", ".join(positional + (keyword_only if len(keyword_only) > 1 else []))
    exec("\n".join([f"def __init__({parameters}):", *(lines or [" pass"])]), namespace)
    init: _Init = namespace["__init__"]  # type: ignore[assignment]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _equal(one: _Comparable, other: _Comparable) -> object:
    if one.__class__ is not other.__class__:
        return NotImplemented
    return one._compared(one) == one._compared(other)


def compares_fields(equal: object) -> bool:
    """Return whether an `__eq__` is the one that `fast_dataclass` adds."""
    return equal is _equal


def _hash(one: _Comparable) -> int:
    return hash(one._compared(one))


def _repr(one: DataclassInstance) -> str:
    shown = [f.name for f in fields(one) if f.repr]
    return f"{type(one).__qualname__}({', '.join(f'{name}={getattr(one, name)!r}' for name in shown)})"
