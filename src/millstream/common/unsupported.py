"""Flink's names that millstream does not support: using one raises an error that states the reason."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import NoReturn

from millstream.common.errors import MillstreamError

__all__ = ["JAVA", "NotSupportedError", "missing_class", "missing_function", "missing_names"]

JAVA = "Millstream has no Java objects"


class NotSupportedError(MillstreamError, NotImplementedError, AttributeError):
    """A feature of Flink that millstream does not have was used."""

    is_of_program = True


def _refuse(name: str, reason: str) -> NotSupportedError:
    return NotSupportedError(f"millstream has no {name}: {reason} (see docs/reference/parity.md).")


class _Missing(type):
    """The metaclass of unsupported classes; they can be imported, used in annotations and subclassed."""

    reason: str

    def __call__(cls, *args: object, **kwargs: object) -> NoReturn:
        raise _refuse(cls.__name__, cls.reason)

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise _refuse(f"{cls.__name__}.{name}", cls.reason)

    def __getitem__(cls, item: object) -> _Missing:
        return cls


def missing_class(module: str, name: str, reason: str) -> type:
    """Return a class whose use raises NotSupportedError."""
    return _Missing(name, (), {"__module__": module, "__doc__": f"Not supported: {reason}.", "reason": reason})


def missing_function(name: str, reason: str) -> Callable[..., NoReturn]:
    """Return a function or method that raises NotSupportedError."""

    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise _refuse(f"{name}()", reason)

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Not supported: {reason}."
    refuse.is_missing = True  # type: ignore[attr-defined]
    return refuse


def is_missing(thing: object) -> bool:
    """Return whether an object is an unsupported name."""
    return isinstance(thing, _Missing) or getattr(thing, "is_missing", False) is True


def missing_names(module: str, reason: str, names: str) -> Callable[[str], object]:
    """Return a module's `__getattr__` for unsupported names.

    Args:
        module: the module's name.
        reason: the end of the sentence "millstream has no X: ...".
        names: the names, separated by spaces; lower-case names are functions.
    """
    known: Mapping[str, None] = dict.fromkeys(names.split())

    def find(name: str) -> object:
        if name not in known:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        missing = missing_function(name, reason) if name.islower() else missing_class(module, name, reason)
        setattr(sys.modules[module], name, missing)
        return missing

    return find
