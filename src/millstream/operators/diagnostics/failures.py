"""What went wrong in user code, told so that it helps: the user's traceback, the operator, the record."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from types import TracebackType
from typing import Any

from millstream.common.error_rendering import suggestion
from millstream.common.errors import MillstreamError, TypeMismatchError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.operators.codegen.code_writer import Site, site_of

_SHOWN = 300
# Where code is that is not the user's: libraries, Python's own, and ours.
_LIBRARIES = (
    *(sysconfig.get_path(kind) + os.sep for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
    os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep,
    "<",
)


@fast_dataclass
class Failure:
    """One failure in a subtask, in words; it travels to the driver as it is."""

    user_traceback: str
    operator: str
    uid: str | None
    operator_id: str
    subtask: int
    parallelism: int
    epoch: int
    record: str | None
    # Whether it is state that could not be read.
    damaged: bool = False
    # Whether it would happen again if the job were started again.
    incurable: bool = False
    # The line of the program that made the operator.
    made_at: str | None = None
    # What the operator can be run on once more, see `operators.evidence`, and why not on all of it.
    kept: dict[str, Any] | None = None
    note: str = ""

    def describe(self) -> str:
        """Say it in the order that helps."""
        uid = f"uid {self.uid}" if self.uid else "no uid"
        made = f", made at {self.made_at}" if self.made_at else ""
        subtask = f"subtask {self.subtask + 1}/{self.parallelism}"
        lines = [
            self.user_traceback.rstrip(),
            f"in operator '{self.operator}' ({uid}){made}, {subtask}, epoch {self.epoch}",
        ]
        if self.record is not None:
            lines.append(f"record: {self.record}")
        return "\n".join(lines)


class SubtaskFailed(MillstreamError):
    """Carries a Failure out of a subtask."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.describe())
        self.failure = failure


@fast_dataclass
class Input:
    """A record as an operator was given it.

    Attributes:
        index: of which of the operator's inputs it is.
        key: its key; None where the operator needs none.
        is_timestamped: whether records of the stream have timestamps, though this one may have none.
    """

    index: int
    value: Any
    timestamp: int | None = None
    key: Any = None
    is_timestamped: bool = False


@fast_dataclass
class Located:
    """Where an error was raised: in which operator, for which record, and the error as user code raises it."""

    operator: object | None
    found: Input | None
    error: Exception

    @property
    def record(self) -> str | None:
        """The record, in words."""
        return None if self.found is None else shorten(self.found.value)


class FailedFor(Exception):
    """Tells operator and record of an error, its cause, that was not raised in the chain's loop."""

    def __init__(self, operator: object, record: object, timestamp: int | None) -> None:
        super().__init__(operator, record)
        self.operator = operator
        self.record = record
        self.timestamp = timestamp


def shorten(value: object) -> str:
    """Write a record so that it fits an error message."""
    try:
        shown = repr(value)
    except Exception as e:
        return f"<{type(value).__name__} whose repr raised {type(e).__name__}>"
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}... ({len(shown)} characters)"


def locate(error: Exception) -> Located:
    """Find the operator that failed and its record, from the traceback alone; and the error as user code raises it."""
    if isinstance(error, FailedFor) and isinstance(error.__cause__, Exception):
        stamp = error.timestamp
        return Located(error.operator, Input(0, error.record, stamp, None, stamp is not None), error.__cause__)
    operator: object | None = None
    found: Input | None = None
    tb = error.__traceback__
    while tb is not None:
        site = site_of(tb.tb_frame, tb.tb_lineno)
        if site is not None:
            operator = site.operator
            variables = tb.tb_frame.f_locals
            if site.variable:
                found = _input(site, variables) or found
            if tb.tb_next is None:
                error = _call_again(site, variables, error)
        tb = tb.tb_next
    return Located(operator, found, _explained(error))


_NOT_ITERABLE = re.compile(r"'(.+)' object is not iterable")


def _explained(error: Exception) -> Exception:
    """Return what to say of an error that arose in our lines, and is about what a user's function returned."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    found = _NOT_ITERABLE.fullmatch(str(error)) if isinstance(error, TypeError) else None
    if found is None or last is None or not is_ours(last):
        return error
    return TypeMismatchError(
        f"The function returned a value of type {found.group(1)} where any number of results is expected: return a "
        "list of them or yield them, [value] for one and nothing for none."
    )


def _input(site: Site, variables: dict[str, Any]) -> Input | None:
    """Return the record of a line: a variable, or a tuple that is put together from several."""
    try:
        value = eval(site.variable, {}, variables)
    except NameError:  # a line before the variable is set
        return None
    taken = site.operator_input
    if taken is None:
        return Input(0, value)
    stamp = None if taken.timestamp is None else variables.get(taken.timestamp)
    key = None if taken.key is None else variables.get(taken.key)
    return Input(taken.input_index, value, stamp, key, taken.timestamp is not None)


def _call_again(site: Site, variables: dict[str, Any], error: Exception) -> Exception:
    """Call the functions whose text stands in a line that failed, so that the error shows the user's own lines."""
    for function, texts in site.inlined:
        arguments = [eval(text, {}, variables) for text in texts]
        try:
            function(*arguments)
        except Exception as again:
            # It was raised while the first one is handled; that is our doing and not part of the story.
            link: BaseException = again
            while link.__context__ is not None and link.__context__ is not error:
                link = link.__context__
            link.__context__ = None
            return again
    return error


def user_traceback(error: BaseException) -> str:
    """Format the traceback without the frames that are ours; what we say of a library's error is said in our words."""
    if isinstance(error, MillstreamError) and (error.__cause__ is None or not _is_of_users_code(error)):
        return str(error)
    tb = error.__traceback__
    inner = tb
    while tb is not None:
        if is_ours(tb):
            inner = tb.tb_next
        tb = tb.tb_next
    text = "".join(traceback.format_exception(type(error), error, inner)).rstrip("\n")
    hint = suggestion(error)
    return f"{text if text.endswith(hint) else text + hint}\n"


def _is_of_users_code(error: BaseException) -> bool:
    """Tell whether an error, or what has caused it, has come through code of the user's; without frames it may have."""
    tb = error.__traceback__
    if tb is None:
        return True
    while tb is not None:
        if not tb.tb_frame.f_code.co_filename.startswith(_LIBRARIES):
            return True
        tb = tb.tb_next
    return error.__cause__ is not None and _is_of_users_code(error.__cause__)


# Packages whose frames a user's traceback leaves out.
_OUR_PACKAGES = ("operators", "cep", "sql", "table", "connectors", "formats")


def is_ours(tb: TracebackType) -> bool:
    """Return whether a traceback's frame is code of this package."""
    name = tb.tb_frame.f_code.co_filename
    if name.startswith("<millstream "):
        return True
    path = name.replace("\\", "/")
    return any(f"/millstream/{package}/" in path for package in _OUR_PACKAGES)
