"""Classes that are only their fields: what `dataclass(frozen=True)` makes, in a tenth of its time.

A dataclass compiles six methods of its own for each class. A program that starts has hundreds of them, for trees and
messages; here they share all but `__init__`, which is compiled for the first object. That no field is assigned later is
for mypy to see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["compares_fields", "record"]

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:
    from dataclasses import dataclass

    def record(*, frozen: bool, kw_only: bool = False) -> Callable[[type], type]:
        """Make a class a record: `@record(frozen=True)`; for type checkers it is a dataclass."""
        assert frozen
        return lambda cls: _shared(dataclass(init=False, eq=False, repr=False, kw_only=kw_only)(cls))


_Class = TypeVar("_Class", bound=type)


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
    """Return what makes the first object, and has all others made by what is compiled for them."""

    def __init__(self: Any, *values: Any, **named: Any) -> None:
        made = _made(cls)
        type.__setattr__(cls, "__init__", made)
        made(self, *values, **named)

    return __init__


def _made(cls: type) -> Callable[..., None]:
    """Compile the `__init__` of a class."""
    known: dict[str, Any] = {"_MISSING": MISSING}
    plain, named, lines = ["self"], ["*"], []
    for field in fields(cls):
        name, value = field.name, field.name
        given = name
        if field.default_factory is not MISSING:
            known[f"_make_{name}"] = field.default_factory
            given = f"{name}=_MISSING"
            value = f"_make_{name}() if {name} is _MISSING else {name}" if field.init else f"_make_{name}()"
        elif field.default is not MISSING:
            known[f"_default_{name}"] = field.default
            given = f"{name}=_default_{name}"
        if field.init:
            (named if field.kw_only else plain).append(given)
        if field.init or field.default_factory is not MISSING:
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
