"""Failures of user code: the user's traceback, the operator, and the record."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from types import TracebackType

from millstream.common.aliases import Json, Key, Value
from millstream.common.error_rendering import suggestion
from millstream.common.errors import MillstreamError, TypeMismatchError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.operators.codegen.code_writer import Site, site_of

# Maximum characters of a record in messages.
_SHOWN = 300
# Directories of code that is not the user's: libraries, the standard library, and millstream.
_LIBRARIES = (
    *(sysconfig.get_path(kind) + os.sep for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
    os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep,
    "<",
)


@fast_dataclass
class Failure:
    """A failure in a subtask, as text; it is sent to the driver."""

    user_traceback: str
    operator: str
    uid: str | None
    operator_id: str
    subtask: int
    parallelism: int
    epoch: int
    record: str | None
    # Whether state could not be read.
    damaged: bool = False
    # Whether it would happen again after a restart.
    unrecoverable: bool = False
    # The program line that created the operator.
    made_at: str | None = None
    # The input to replay the operator with, see `failure_capture`, and a note on missing parts.
    replay_input: Json | None = None
    note: str = ""

    def describe(self) -> str:
        """Return the text: traceback, operator, record."""
        uid = f"uid {self.uid}" if self.uid else "no uid"
        location = f", made at {self.made_at}" if self.made_at else ""
        subtask = f"subtask {self.subtask + 1}/{self.parallelism}"
        lines = [
            self.user_traceback.rstrip(),
            f"in operator '{self.operator}' ({uid}){location}, {subtask}, epoch {self.epoch}",
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
    """A record as input of an operator.

    Attributes:
        index: the index of the operator's input.
        key: its key; None if the operator needs none.
        is_timestamped: whether records of the stream have timestamps, though this one may have none.
    """

    index: int
    value: Value
    timestamp: int | None = None
    key: Key = None
    is_timestamped: bool = False


@fast_dataclass
class Located:
    """The operator and record of an error, and the error as user code raises it."""

    operator: object | None
    record: Input | None
    error: Exception

    @property
    def shown_record(self) -> str | None:
        """The record as text."""
        return None if self.record is None else shorten(self.record.value)


class FailedFor(Exception):
    """Names the operator and record of its cause, an error that was not raised in the chain's loop."""

    def __init__(self, operator: object, record: object, timestamp: int | None) -> None:
        super().__init__(operator, record)
        self.operator = operator
        self.record = record
        self.timestamp = timestamp


def shorten(value: object) -> str:
    """Return a record as text of limited length, for messages."""
    try:
        shown = repr(value)
    except Exception as e:
        return f"<{type(value).__name__} whose repr raised {type(e).__name__}>"
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}... ({len(shown)} characters)"


def locate(error: Exception) -> Located:
    """Return the failed operator and its record, from the traceback alone, and the error as user code raises it."""
    if isinstance(error, FailedFor) and isinstance(error.__cause__, Exception):
        stamp = error.timestamp
        return Located(error.operator, Input(0, error.record, stamp, None, stamp is not None), error.__cause__)
    operator: object | None = None
    record: Input | None = None
    tb = error.__traceback__
    while tb is not None:
        site = site_of(tb.tb_frame, tb.tb_lineno)
        if site is not None:
            operator = site.operator
            variables = tb.tb_frame.f_locals
            if site.variable:
                record = _input(site, variables) or record
            if tb.tb_next is None:
                error = _call_again(site, variables, error)
        tb = tb.tb_next
    return Located(operator, record, _explained(error))


_NOT_ITERABLE = re.compile(r"'(.+)' object is not iterable")


def _explained(error: Exception) -> Exception:
    """Return a clear error if generated code failed because of the value that a user function returned."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    match = _NOT_ITERABLE.fullmatch(str(error)) if isinstance(error, TypeError) else None
    if match is None or last is None or not is_ours(last):
        return error
    return TypeMismatchError(
        f"The function returned a value of type {match.group(1)} where any number of results is expected: return a "
        "list of them or yield them, [value] for one and nothing for none."
    )


def _input(site: Site, variables: dict[str, Value]) -> Input | None:
    """Return the record of a line: a variable, or a tuple that is built from several."""
    try:
        value = eval(site.variable, {}, variables)
    except NameError:  # a line before the variable is set
        return None
    source = site.operator_input
    if source is None:
        return Input(0, value)
    stamp = None if source.timestamp is None else variables.get(source.timestamp)
    key = None if source.key is None else variables.get(source.key)
    return Input(source.input_index, value, stamp, key, source.timestamp is not None)


def _call_again(site: Site, variables: dict[str, Value], error: Exception) -> Exception:
    """Call the functions inlined in a failed line, so that the error shows the user's own lines."""
    for function, texts in site.inlined:
        arguments = [eval(text, {}, variables) for text in texts]
        try:
            function(*arguments)
        except Exception as again:
            # Remove the first error from its context: it is the same one.
            link: BaseException = again
            while link.__context__ is not None and link.__context__ is not error:
                link = link.__context__
            link.__context__ = None
            return again
    return error


def user_traceback(error: BaseException) -> str:
    """Format the traceback without millstream's frames; MillstreamErrors that no user code caused are only text."""
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
    """Return whether an error or its cause passed through user code; True without frames."""
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
