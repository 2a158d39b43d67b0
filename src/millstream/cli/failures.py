"""How an error of a program that was run from the command line is told: with the program's own lines, not ours."""

from __future__ import annotations

import os
from traceback import FrameSummary, StackSummary, TracebackException, extract_tb, format_list

import millstream
from millstream.common.errors import InvalidProgramError, MillstreamError, TypeMismatchError
from millstream.common.missing import NotSupportedError

_PACKAGE = os.path.dirname(millstream.__file__) + os.sep
# What runs a file as a program; the program's own frames come after its last.
_RUNNER = "<frozen runpy>"
# Found where the program was put together: the line matters.
_OF_THE_PROGRAM = (InvalidProgramError, NotSupportedError, TypeMismatchError)


def tell(error: Exception) -> str | None:
    """Return what to show of an error; None when no program has caused it."""
    frames = _program_frames(error)
    if isinstance(error, MillstreamError):
        shown = frames if isinstance(error, _OF_THE_PROGRAM) else None
        lines = format_list([f for f in shown or [] if not f.filename.startswith(_PACKAGE)])
        return f"{''.join(lines)}{error}\n"
    if frames is None:
        return None
    told = TracebackException.from_exception(error)
    told.stack = StackSummary.from_list(frames)
    return "".join(told.format()) + _advice(error)


def _program_frames(error: Exception) -> list[FrameSummary] | None:
    """Return the frames of the program, and of what it calls; None when the error comes from elsewhere."""
    frames = list(extract_tb(error.__traceback__))
    starts = [i for i, frame in enumerate(frames, 1) if frame.filename == _RUNNER]
    return frames[starts[-1] :] if starts else None


def _advice(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "pyflink":
        return "Run it with `millstream run --pyflink`, and pyflink means millstream.\n"
    return ""
