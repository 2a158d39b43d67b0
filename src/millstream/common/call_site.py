"""The line of the user's program that we are called from."""

from __future__ import annotations

import os
import re
import sys

__all__ = ["labelled", "program_line"]

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
