"""Flink's names that millstream does not support: using one raises an error that says why."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from millstream.common.errors import MillstreamError

__all__ = ["JAVA", "NotSupportedError", "missing_class", "missing_function", "missing_names"]

JAVA = "there are no Java objects behind millstream's"


class NotSupportedError(MillstreamError, NotImplementedError, AttributeError):
    """A feature of Flink that millstream does not have was used."""

    is_of_program = True


def _refuse(name: str, why: str) -> NotSupportedError:
    return NotSupportedError(f"millstream has no {name}: {why} (see docs/parity.md).")


class _Missing(type):
    """The metaclass of unsupported classes; they can be imported, used in annotations and subclassed."""

    why: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise _refuse(cls.__name__, cls.why)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise _refuse(f"{cls.__name__}.{name}", cls.why)

    def __getitem__(cls, item: Any) -> Any:
        return cls


def missing_class(module: str, name: str, why: str) -> Any:
    """Return a class whose use raises NotSupportedError."""
    return _Missing(name, (), {"__module__": module, "__doc__": f"Not supported: {why}.", "why": why})


def missing_function(name: str, why: str) -> Callable[..., Any]:
    """Return a function or method that raises NotSupportedError."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise _refuse(f"{name}()", why)

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Not supported: {why}."
    refuse.is_missing = True  # type: ignore[attr-defined]
    return refuse


def is_missing(thing: Any) -> bool:
    """Return whether an object is an unsupported name."""
    return isinstance(thing, _Missing) or getattr(thing, "is_missing", False) is True


def missing_names(module: str, why: str, names: str) -> Callable[[str], Any]:
    """Return a module's `__getattr__` for unsupported names.

    Args:
        module: the module's name.
        why: the end of the sentence "millstream has no X: ...".
        names: the names, separated by spaces; lower-case names are functions.
    """
    known: Mapping[str, None] = dict.fromkeys(names.split())

    def find(name: str) -> Any:
        if name not in known:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        made = missing_function(name, why) if name.islower() else missing_class(module, name, why)
        setattr(sys.modules[module], name, made)
        return made

    return find
