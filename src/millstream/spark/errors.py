"""Turns what Spark says into what a user wants to hear: their own traceback first, then where it happened."""

from __future__ import annotations

import base64
import json
import re

from py4j.protocol import Py4JError, Py4JJavaError

from millstream.common.errors import JobExecutionError
from millstream.operators.failures import Failure
from millstream.spark.worker import FAILURE_MARK

_REPORT = re.compile(re.escape(FAILURE_MARK) + r"([A-Za-z0-9+/=]+);")
_WORKER_DIED = (
    "Python worker exited unexpectedly",
    "Failed to connect to Python",
    "Connection reset",
    "Broken pipe",
)


class EpochFailed(JobExecutionError):
    """An epoch failed; carries what user code printed before it did."""

    def __init__(
        self, message: str, engine_trace: str, printed: str = "", operator_id: str | None = None, damaged: bool = False
    ) -> None:
        super().__init__(message, engine_trace=engine_trace)
        self.printed = printed
        # Where it happened, if that is known, and whether it is state that could not be read.
        self.operator_id = operator_id
        self.damaged = damaged


def translate(error: Exception, epoch: int) -> EpochFailed:
    """Return the error to show for one that Spark raised."""
    trace = _trace(error)
    found = _REPORT.search(trace)
    if found is not None:
        report = json.loads(base64.b64decode(found.group(1)))
        printed = report.pop("printed")
        failure = Failure(**report)
        return EpochFailed(failure.describe(), trace, printed, failure.operator_id, failure.damaged)
    if any(mark in trace for mark in _WORKER_DIED):
        return EpochFailed(
            f"A Python worker process died while it worked on epoch {epoch}: it was killed, ran out of memory, or user "
            "code ended it (os._exit, a crash in a native library).",
            trace,
        )
    if isinstance(error, (Py4JError, OSError, EOFError)) and not isinstance(error, Py4JJavaError):
        return EpochFailed(f"The connection to Spark broke in epoch {epoch}: its Java process has ended.", trace)
    python = re.search(r"(Traceback \(most recent call last\):\n.*?)(?:\n\s*\n|\n\tat )", trace, re.DOTALL)
    said = python.group(1) if python else trace.splitlines()[0]
    return EpochFailed(f"Spark could not run epoch {epoch}: {said}", trace)


def _trace(error: Exception) -> str:
    if isinstance(error, Py4JJavaError):
        try:
            return str(error)
        except Py4JError:
            return repr(error)
    return f"{type(error).__name__}: {error}"
