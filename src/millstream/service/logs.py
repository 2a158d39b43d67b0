"""Recent log lines and printed text of this process, of each job's functions, and of each executor."""

from __future__ import annotations

import heapq
import logging
import threading
from collections import deque
from collections.abc import Iterable
from typing import TypeVar

from millstream.common.masking import masked_text
from millstream.operators.diagnostics.logs import line_text
from millstream.operators.runtime.messages import SlotReport

_LINES = 5000
# Longer lines are truncated.
_MAX_LENGTH = 8000
# Maximum jobs and executors with lines; the least recently used are discarded.
_MAX_OWNERS = 200
# Maximum slots with a known executor.
_MAX_SLOTS = 10_000
_FORMAT = "%(asctime)s %(levelname)-5s %(name)s - %(message)s"
_FORMATTER = logging.Formatter(_FORMAT)

T = TypeVar("T")

# The time and text of a line.
Line = tuple[float, str]


class RecentLines(logging.Handler):
    """Retains the last log lines."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(_FORMATTER)
        self._lines: deque[Line] = deque(maxlen=_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append((record.created, _shortened(self.format(record))))

    def lines(self) -> list[Line]:
        """Return the lines, oldest first."""
        return list(self._lines)

    def text(self) -> str:
        return text_of(self.lines())


class JobOutput:
    """Retains recent log lines and printed text of user functions, by job and by executor. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logged: dict[tuple[str, str], deque[Line]] = {}
        self._printed: dict[tuple[str, str], deque[str]] = {}
        self._executors: dict[tuple[str, int], str] = {}

    def on_report(self, job_id: str, report: SlotReport) -> None:
        """Store the output of an epoch; implements `jobmaster.output_listeners.Listener`."""
        with self._lock:
            if report.location is not None:
                self._executors[job_id, report.slot] = report.location.executor
                if len(self._executors) > _MAX_SLOTS:
                    del self._executors[next(iter(self._executors))]
            executor = self._executors.get((job_id, report.slot), "")
            owners = (("job", job_id), ("executor", executor))
            for line in report.logged:
                record = logging.LogRecord(line.name, line.level, "", 0, line_text(line), (), None)
                record.created, record.msecs = line.created, line.created % 1 * 1000
                entry = line.created, _shortened(_FORMATTER.format(record))
                for owner in owners:
                    _of(self._logged, owner).append(entry)
            if report.printed:
                for owner in owners:
                    _of(self._printed, owner).extend(_lines_of(report.printed))

    def on_printed(self, job_id: str, text: str) -> None:
        """Store text that a job printed on the driver; implements `jobmaster.output_listeners.Listener`."""
        with self._lock:
            # If the job runs on one executor only, the text was printed there.
            executors = {executor for (job, _), executor in self._executors.items() if job == job_id}
            owners = [("job", job_id), *(("executor", executor_id) for executor_id in executors if len(executors) == 1)]
            for owner in owners:
                _of(self._printed, owner).extend(_lines_of(text))

    def logged(self, job: str | None = None, executor: str | None = None) -> list[Line]:
        """Return log lines of a job's functions, or of an executor; by default of all jobs."""
        with self._lock:
            if job is None and executor is None:
                job_logs = [lines for (kind, _), lines in self._logged.items() if kind == "job"]
                return list(heapq.merge(*job_logs))
            return list(self._logged.get(_owner(job, executor), ()))

    def printed(self, job: str | None = None, executor: str | None = None) -> str:
        """Return text printed by a job's functions, or on an executor."""
        with self._lock:
            return "".join(self._printed.get(_owner(job, executor), ()))


def _shortened(line: str) -> str:
    """Return a line with secrets masked, truncated if it is too long."""
    return masked_text(line if len(line) <= _MAX_LENGTH else f"{line[:_MAX_LENGTH]} ... ({len(line):,} characters)")


def _lines_of(text: str) -> Iterable[str]:
    # More lines would be discarded anyway.
    for line in text.splitlines(keepends=True)[-_LINES:]:
        yield line if len(line) <= _MAX_LENGTH else f"{line[:_MAX_LENGTH]} ... ({len(line):,} characters)\n"


def _owner(job: str | None, executor: str | None) -> tuple[str, str]:
    return ("job", job) if job is not None else ("executor", executor or "")


def _of(lines: dict[tuple[str, str], deque[T]], owner: tuple[str, str]) -> deque[T]:
    """Return the lines of an owner, and mark it as the most recently used."""
    own = lines.pop(owner) if owner in lines else deque(maxlen=_LINES)
    lines[owner] = own
    if len(lines) > _MAX_OWNERS:
        del lines[next(iter(lines))]
    return own


def text_of(*logs: Iterable[Line]) -> str:
    """Return the lines of several logs as one text, sorted by time."""
    lines = [text for _, text in heapq.merge(*logs)]
    return "\n".join(lines) + "\n" if lines else ""
