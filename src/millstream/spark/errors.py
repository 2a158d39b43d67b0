"""Translates Spark's errors: the user's traceback first, then its location."""

from __future__ import annotations

import base64
import json
import logging
import os
import re

from py4j.protocol import Py4JError, Py4JJavaError

from millstream.common.errors import StateNotSharedError
from millstream.jobmaster.engine import EpochFailed
from millstream.operators.diagnostics.failures import Failure
from millstream.operators.runtime.messages import LogLine
from millstream.spark.slot_runtime import FAILURE_MARK

_REPORT = re.compile(re.escape(FAILURE_MARK) + r"([A-Za-z0-9+/=]+);")
# A final error whose message is complete.
_NOT_SHARED = re.compile(rf"^{StateNotSharedError.__module__}\.{StateNotSharedError.__name__}: (.+)$", re.MULTILINE)
_WORKER_DIED = (
    "Python worker exited unexpectedly",
    "Failed to connect to Python",
    "Connection reset",
    "Broken pipe",
    # The daemon has died, and Spark fails to stop one of its idle workers.
    "PythonWorkerFactory.stopWorker",
)


def keep_bridge_quiet() -> None:
    """Suppress Py4J's log records of errors that it also raises."""
    root = logging.getLogger()
    if _not_of_bridge not in root.filters:
        root.addFilter(_not_of_bridge)


def _not_of_bridge(record: logging.LogRecord) -> bool:
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def translate(error: Exception, epoch: int) -> EpochFailed:
    """Return the failure for an error of Spark."""
    trace = _trace(error)
    reported = failure_in(trace)
    if reported is not None:
        return reported
    if is_worker_death(error):
        return worker_died(epoch, trace)
    if isinstance(error, (Py4JError, OSError, EOFError)) and not isinstance(error, Py4JJavaError):
        return java_ended(epoch, trace)
    python = re.search(r"(Traceback \(most recent call last\):\n.*?)(?:\n\s*\n|\n\tat )", trace, re.DOTALL)
    reason = python.group(1) if python else _cause(trace)
    return EpochFailed(f"Spark could not run epoch {epoch}: {reason}", engine_trace=trace)


def is_worker_death(error: Exception) -> bool:
    """Return whether a Python worker has died, perhaps before Spark gave it a task."""
    trace = _trace(error)
    return any(mark in trace for mark in _WORKER_DIED)


def _cause(trace: str) -> str:
    """Return the message of a Java error, without the failed Py4J call above it."""
    lines = trace.splitlines()
    return next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0])


def failure_in(trace: str) -> EpochFailed | None:
    """Return the failure that a slot has encoded in a text, if any."""
    match = _REPORT.search(trace)
    if match is None:
        not_shared = _NOT_SHARED.search(trace)
        return None if not_shared is None else EpochFailed(not_shared.group(1), engine_trace=trace, unrecoverable=True)
    report = json.loads(base64.b64decode(match.group(1)))
    printed, logged = report.pop("printed"), [LogLine(**line) for line in report.pop("logged")]
    return EpochFailed.of(Failure(**report), printed, logged, trace)


def worker_died(epoch: int, trace: str) -> EpochFailed:
    """Return the failure for a dead slot process."""
    return EpochFailed(
        f"A Python worker process died while it worked on epoch {epoch}: it was killed, ran out of memory, or user "
        "code ended it (os._exit, a crash in a native library).",
        engine_trace=trace,
    )


def java_ended(epoch: int, trace: str) -> EpochFailed:
    """Return the failure for a dead JVM."""
    text = f"The connection to Spark broke in epoch {epoch}: its Java process has ended."
    return EpochFailed(text, engine_trace=trace)


def _trace(error: Exception) -> str:
    if isinstance(error, Py4JJavaError):
        try:
            return str(error)
        except Py4JError:
            return repr(error)
    return f"{type(error).__name__}: {error}"
