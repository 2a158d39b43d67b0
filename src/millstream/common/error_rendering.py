"""Renders errors with the user's lines, without millstream's frames."""

from __future__ import annotations

import io
import linecache
import os
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr
from traceback import extract_tb, format_list
from types import TracebackType
from typing import ClassVar

__all__ = [
    "RenderedError",
    "install_excepthook",
    "render_error",
    "render_program_error",
    "suggestion",
    "with_source_lines",
]

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_PYTHON = os.path.dirname(os.__file__) + os.sep
# Frames that run a file or a cell; the program's own frames follow the last of them.
_RUNNERS = ("<frozen runpy>", f"IPython{os.sep}core{os.sep}interactiveshell.py")
_SUGGESTED = re.compile(r"\. Did you mean: .*\?\s*\Z")
_FRAME = re.compile(r'  File "(.*)", line (\d+)(, in .*)?')


class RenderedError(Exception):
    """An error that is shown with the user's lines, without millstream's frames.

    Attributes:
        is_of_program: raised while the program is built, so that the user's line is shown with it.
    """

    is_of_program: ClassVar[bool] = False

    def _render_traceback_(self) -> list[str]:
        """Show the user's lines and the message in notebooks."""
        return render_error(self).splitlines()


def render_error(error: RenderedError) -> str:
    """Return the text of a millstream error: the user's lines that led to it, then the message."""
    lines: list[str] = []
    if error.is_of_program:
        frames = extract_tb(_inside_program(error))
        lines = format_list([f for f in frames if _is_of_program(f.filename)])
    return f"{''.join(lines)}{error}\n"


def _is_of_program(file: str) -> bool:
    """Return whether a file belongs neither to millstream nor to Python."""
    is_of_python = file.startswith(_PYTHON) and f"{os.sep}site-packages{os.sep}" not in file
    return not file.startswith(_PACKAGE) and not is_of_python


def render_program_error(error: Exception) -> str | None:
    """Return the text of any error of a program run as a file; None if the error is not the program's."""
    inner = _inside_program(error)
    if inner is error.__traceback__:
        return f"{error}\n" if isinstance(error, RenderedError) else None
    if isinstance(error, RenderedError):
        return render_error(error)
    return _as_python_shows_it(error.with_traceback(inner))


def _as_python_shows_it(error: BaseException) -> str:
    """Return Python's own rendering with name suggestions, which `traceback` has only from 3.12 on."""
    shown = io.StringIO()
    with redirect_stderr(shown):
        sys.__excepthook__(type(error), error, error.__traceback__)
    return shown.getvalue()


def suggestion(error: BaseException) -> str:
    """Return Python's suggestion for a misspelt name, or an empty string.

    Example:
        >>> try:
        ...     "a b".splt()
        ... except AttributeError as e:
        ...     suggestion(e)
        ". Did you mean: 'split'?"
    """
    if not isinstance(error, (NameError, AttributeError, ImportError)):
        return ""
    match = _SUGGESTED.search(_as_python_shows_it(error))
    return match.group().rstrip() if match else ""


def _inside_program(error: Exception) -> TracebackType | None:
    """Return the traceback from the program's first frame on."""
    inner = error.__traceback__
    for tb in _frames(error.__traceback__):
        if tb.tb_frame.f_code.co_filename.endswith(_RUNNERS):
            inner = tb.tb_next
    return inner


def _frames(tb: TracebackType | None) -> Iterator[TracebackType]:
    while tb is not None:
        yield tb
        tb = tb.tb_next


def install_excepthook() -> None:
    """Render uncaught millstream errors with `render_error`, unless the program has set its own excepthook."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _hook


def _hook(kind: type[BaseException], error: BaseException, tb: TracebackType | None) -> None:
    if isinstance(error, RenderedError):
        sys.stderr.write(render_error(error.with_traceback(tb)))
    else:
        sys.__excepthook__(kind, error, tb)


def with_source_lines(text: str) -> str:
    """Add source lines to a traceback of another process where only this one has them (notebook cells).

    Example:
        >>> with_source_lines('  File "<nowhere>", line 1, in f')
        '  File "<nowhere>", line 1, in f'
    """
    lines = text.split("\n")
    completed: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        completed.append(line)
        match = _FRAME.fullmatch(line)
        if match and not following.startswith("    "):
            source = linecache.getline(match.group(1), int(match.group(2))).strip()
            completed += [f"    {source}"] if source else []
    return "\n".join(completed)
