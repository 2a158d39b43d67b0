"""Dataclasses that are cheap to define: a tenth of the import time of `dataclass(frozen=True)`.

`dataclass` compiles six methods for each class, and a starting program has hundreds of them. Here all classes share
their methods but `__init__`, which is compiled with the first object. Type checkers refuse assignments to fields; at
run time nothing does, because that would cost each construction a call per field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

__all__ = ["compares_fields", "record"]

_Class = TypeVar("_Class", bound=type)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: _Class | None = None, /, *, kw_only: bool = False) -> Any:
    """Make a class a record. Type checkers refuse assignments to its fields; nothing checks them at run time."""
    if cls is None:
        return lambda decorated: _shared(dataclass(init=False, eq=False, repr=False, kw_only=kw_only)(decorated))
    return _shared(dataclass(init=False, eq=False, repr=False)(cls))


def _shared(cls: _Class) -> _Class:
    compared = [f.name for f in fields(cls) if f.compare]
    cls._compared = staticmethod(attrgetter(*compared) if compared else lambda _: ())  # type: ignore[attr-defined]
    for name, method in (("__init__", _compiled_later(cls)), ("__eq__", _equal), ("__repr__", _text)):
        if name not in cls.__dict__:
            setattr(cls, name, method)
    if cls.__dict__.get("__hash__") is None:
        cls.__hash__ = _hash  # type: ignore[method-assign, assignment]
    return cls


def _compiled_later(cls: type) -> Callable[..., None]:
    """Return an `__init__` that compiles the real one on first use."""

    def __init__(self: Any, *values: Any, **named: Any) -> None:
        made = _made(cls)
        type.__setattr__(cls, "__init__", made)
        made(self, *values, **named)

    return __init__


def _made(cls: type) -> Callable[..., None]:
    """Compile the `__init__` of a class."""
    known: dict[str, Any] = {"_MISSING": MISSING}
    plain, named, lines = ["self"], ["*"], []
    for one in fields(cls):
        name, value = one.name, one.name
        given = name
        if one.default_factory is not MISSING:
            known[f"_make_{name}"] = one.default_factory
            given = f"{name}=_MISSING"
            value = f"_make_{name}() if {name} is _MISSING else {name}" if one.init else f"_make_{name}()"
        elif one.default is not MISSING:
            known[f"_default_{name}"] = one.default
            given = f"{name}=_default_{name}"
        if one.init:
            (named if one.kw_only else plain).append(given)
        if one.init or one.default_factory is not MISSING:
            lines.append(f" self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    parameters = ", ".join(plain + (named if len(named) > 1 else []))
    exec("\n".join([f"def __init__({parameters}):", *(lines or [" pass"])]), known)
    made: Callable[..., None] = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _equal(one: Any, other: Any) -> Any:
    if one.__class__ is not other.__class__:
        return NotImplemented
    return one._compared(one) == one._compared(other)


def compares_fields(equal: Any) -> bool:
    """Return whether an `__eq__` is the one of records."""
    return equal is _equal


def _hash(one: Any) -> int:
    return hash(one._compared(one))


def _text(one: Any) -> str:
    shown = [f.name for f in fields(one) if f.repr]
    return f"{type(one).__qualname__}({', '.join(f'{name}={getattr(one, name)!r}' for name in shown)})"
