"""What went wrong in user code, told so that it helps: the user's traceback, the operator, the record."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from types import TracebackType

from millstream.common.errors import MillstreamError
from millstream.operators.codegen import site_of

_SHOWN = 300


@dataclass(frozen=True)
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

    def describe(self) -> str:
        """Say it in the order that helps."""
        where = f"in operator '{self.operator}' (uid {self.uid or 'not set, id ' + self.operator_id})"
        lines = [
            self.user_traceback.rstrip(),
            f"{where}, subtask {self.subtask + 1}/{self.parallelism}, epoch {self.epoch}",
        ]
        if self.record is not None:
            lines.append(f"record: {self.record}")
        return "\n".join(lines)


class SubtaskFailed(MillstreamError):
    """Carries a Failure out of a subtask."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.describe())
        self.failure = failure


def shorten(value: object) -> str:
    """Write a record so that it fits an error message."""
    try:
        shown = repr(value)
    except Exception as e:
        return f"<{type(value).__name__} whose repr raised {type(e).__name__}>"
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}... ({len(shown)} characters)"


def locate(error: BaseException) -> tuple[object | None, str | None]:
    """Find the operator that failed and its record, from the traceback alone."""
    operator: object | None = None
    record: str | None = None
    tb = error.__traceback__
    while tb is not None:
        site = site_of(tb.tb_frame.f_code.co_filename, tb.tb_lineno)
        if site is not None:
            operator = site.operator
            if site.variable in tb.tb_frame.f_locals:
                record = shorten(tb.tb_frame.f_locals[site.variable])
        tb = tb.tb_next
    return operator, record


def user_traceback(error: BaseException) -> str:
    """Format the traceback without the frames that are ours."""
    if isinstance(error, MillstreamError) and error.__cause__ is None:
        return str(error)
    tb = error.__traceback__
    inner = tb
    while tb is not None:
        if _is_ours(tb):
            inner = tb.tb_next
        tb = tb.tb_next
    return "".join(traceback.format_exception(type(error), error, inner))


def _is_ours(tb: TracebackType) -> bool:
    name = tb.tb_frame.f_code.co_filename
    return name.startswith("<millstream ") or ("/millstream/" in name.replace("\\", "/") and "/operators/" in name)
