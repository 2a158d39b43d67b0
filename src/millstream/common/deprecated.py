"""Names and methods of older Flinks that still work: what says so."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

__all__ = ["old_names", "users_frame", "warn_deprecated", "warn_user"]


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
