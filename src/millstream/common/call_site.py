"""The user's line that calls millstream: for errors, warnings and deprecated names."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

__all__ = ["labelled", "old_names", "program_line", "users_frame", "warn_deprecated", "warn_user"]


_CELL = re.compile(r"ipykernel_\d+|^<ipython-input-")


def program_line() -> str | None:
    """Return the line of the program that has called us, as `job.py:12`; None when nobody has.

    It is the first one, from here outwards, that is not in millstream.
    """
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").startswith("millstream."):
        if frame.f_back is None:
            return None
        frame = frame.f_back
    file = frame.f_code.co_filename
    return f"{'a notebook cell' if _CELL.search(file) else os.path.basename(file)}:{frame.f_lineno}"


def labelled(name: str, made_at: str | None) -> str:
    """Return how an operator is called in errors.

    Example:
        >>> labelled("Map", "job.py:12")
        "'Map' (made at job.py:12)"
    """
    return f"'{name}'" + (f" (made at {made_at})" if made_at else "")


def warn_deprecated(old: str, fix: str) -> None:
    """Warn the caller of a deprecated method, at the line of its call, of what to do in its place."""
    warnings.warn(f"{old} is deprecated: {fix}.", DeprecationWarning, stacklevel=_users_level())


def warn_user(text: str) -> None:
    """Warn of what is probably a mistake, at the line of the program that makes it."""
    warnings.warn(text, UserWarning, stacklevel=_users_level())


def users_frame() -> FrameType:
    """Return the frame of the first line outside millstream."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("millstream."):
        frame = frame.f_back
    return frame


def _users_level() -> int:
    """Return the `stacklevel` of the first line outside millstream, seen from the caller of this function."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("millstream.", "importlib.")):
        frame = frame.f_back
        # warnings does not count the frames of the import system.
        level += not frame.f_globals.get("__name__", "").startswith("importlib.")
    return level


def old_names(module: str, names: Mapping[str, Any]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module in which things are also known by older names.

    Args:
        module: the module's name.
        names: what each old name stands for.
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn_deprecated(name, f"use {names[name].__name__}")
        return names[name]

    return find
