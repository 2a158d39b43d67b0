"""The user's line that calls millstream: for errors, warnings and deprecated names."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from types import FrameType

__all__ = ["labelled", "old_names", "program_line", "users_frame", "warn_deprecated", "warn_user"]


_CELL = re.compile(r"ipykernel_\d+|^<ipython-input-")


def program_line() -> str | None:
    """Return the first line outside millstream on the call stack, as `job.py:12`; None if there is none."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").startswith("millstream."):
        if frame.f_back is None:
            return None
        frame = frame.f_back
    file = frame.f_code.co_filename
    return f"{'a notebook cell' if _CELL.search(file) else os.path.basename(file)}:{frame.f_lineno}"


def labelled(name: str, made_at: str | None) -> str:
    """Return how errors name an operator.

    Example:
        >>> labelled("Map", "job.py:12")
        "'Map' (made at job.py:12)"
    """
    return f"'{name}'" + (f" (made at {made_at})" if made_at else "")


def warn_deprecated(old: str, fix: str) -> None:
    """Warn, at the user's line, that a method is deprecated and how to replace it."""
    warnings.warn(f"{old} is deprecated: {fix}.", DeprecationWarning, stacklevel=_users_level())


def warn_user(text: str) -> None:
    """Warn of a probable mistake at the user's line."""
    warnings.warn(text, UserWarning, stacklevel=_users_level())


def users_frame() -> FrameType:
    """Return the innermost stack frame outside millstream."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("millstream."):
        frame = frame.f_back
    return frame


def _users_level() -> int:
    """Return the `stacklevel` of the first line outside millstream, counted from the caller of this function."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("millstream.", "importlib.")):
        frame = frame.f_back
        # warnings skips frames of the import system.
        level += not frame.f_globals.get("__name__", "").startswith("importlib.")
    return level


def old_names(module: str, names: Mapping[str, type]) -> Callable[[str], type]:
    """Return a module's `__getattr__` that resolves deprecated names.

    Args:
        module: the module's name.
        names: objects by deprecated name.
    """

    def find(name: str) -> type:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn_deprecated(name, f"use {names[name].__name__}")
        return names[name]

    return find
