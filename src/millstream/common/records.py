"""Classes that are only their fields: what `dataclass(frozen=True)` makes, in a fifth of its time.

A dataclass compiles six methods of its own for each class. A program that starts has hundreds of them, for trees and
messages; here they share all but `__init__`. That no field is assigned later is for mypy to see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["record"]

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:
    from dataclasses import dataclass

    def record(*, frozen: bool, kw_only: bool = False) -> Callable[[type], type]:
        """Make a class a record: `@record(frozen=True)`; for type checkers it is a dataclass."""
        assert frozen
        return lambda cls: _shared(dataclass(eq=False, repr=False, kw_only=kw_only)(cls))


_Class = TypeVar("_Class", bound=type)


def _shared(cls: _Class) -> _Class:
    compared = [f.name for f in fields(cls) if f.compare]
    cls._compared = staticmethod(attrgetter(*compared) if compared else lambda _: ())  # type: ignore[attr-defined]
    for name, method in (("__eq__", _equal), ("__repr__", _text)):
        if name not in cls.__dict__:
            setattr(cls, name, method)
    if cls.__dict__.get("__hash__") is None:
        cls.__hash__ = _hash  # type: ignore[method-assign, assignment]
    return cls


def _equal(one: Any, other: Any) -> Any:
    if one.__class__ is not other.__class__:
        return NotImplemented
    return one._compared(one) == one._compared(other)


def _hash(one: Any) -> int:
    return hash(one._compared(one))


def _text(one: Any) -> str:
    shown = [f.name for f in fields(one) if f.repr]
    return f"{type(one).__qualname__}({', '.join(f'{name}={getattr(one, name)!r}' for name in shown)})"
