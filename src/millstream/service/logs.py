"""What was logged and printed last: by this process, by the functions of each job, on each executor."""

from __future__ import annotations

import heapq
import logging
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any

from millstream.common.masking import masked_text
from millstream.operators.diagnostics.logs import line_text
from millstream.operators.runtime.messages import SlotReport

_LINES = 5000
# So much of a line is kept.
_LONGEST = 8000
# So many jobs and executors have lines of their own; those heard of longest ago are forgotten.
_OWNERS = 200
# Of so many slots it is remembered where they are.
_SLOTS = 10_000
_FORMAT = "%(asctime)s %(levelname)-5s %(name)s - %(message)s"
_FORMATTER = logging.Formatter(_FORMAT)

# A line, and when it was said.
Line = tuple[float, str]


class RecentLines(logging.Handler):
    """Keeps the last lines that were logged."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(_FORMATTER)
        self._lines: deque[Line] = deque(maxlen=_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append((record.created, _kept(self.format(record))))

    def lines(self) -> list[Line]:
        """Return the lines, the oldest first."""
        return list(self._lines)

    def text(self) -> str:
        return text_of(self.lines())


class Heard:
    """Keeps what functions have logged and printed last, by job and by executor. Any thread may tell and ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logged: dict[tuple[str, str], deque[Line]] = {}
        self._printed: dict[tuple[str, str], deque[str]] = {}
        self._executors: dict[tuple[str, int], str] = {}

    def hear(self, job_id: str, report: SlotReport) -> None:
        """Take what was said in an epoch; follows `jobmaster.hearsay.Listener`."""
        with self._lock:
            if report.location is not None:
                self._executors[job_id, report.slot] = report.location.executor
                if len(self._executors) > _SLOTS:
                    del self._executors[next(iter(self._executors))]
            executor = self._executors.get((job_id, report.slot), "")
            owners = (("job", job_id), ("executor", executor))
            for line in report.logged:
                record = logging.LogRecord(line.name, line.level, "", 0, line_text(line), (), None)
                record.created, record.msecs = line.created, line.created % 1 * 1000
                told = line.created, _kept(_FORMATTER.format(record))
                for owner in owners:
                    _of(self._logged, owner).append(told)
            if report.printed:
                for owner in owners:
                    _of(self._printed, owner).extend(_lines_of(report.printed))

    def hear_printed(self, job_id: str, text: str) -> None:
        """Take what a job has printed on the driver; follows `jobmaster.hearsay.Listener`."""
        with self._lock:
            # Where all of a job runs on one executor, that is where it was printed.
            executors = {executor for (job, _), executor in self._executors.items() if job == job_id}
            owners = [("job", job_id), *(("executor", one) for one in executors if len(executors) == 1)]
            for owner in owners:
                _of(self._printed, owner).extend(_lines_of(text))

    def logged(self, job: str | None = None, executor: str | None = None) -> list[Line]:
        """Return what the functions of a job, or on an executor, have logged; of all jobs where none is named."""
        with self._lock:
            if job is None and executor is None:
                every = [lines for (kind, _), lines in self._logged.items() if kind == "job"]
                return list(heapq.merge(*every))
            return list(self._logged.get(_owner(job, executor), ()))

    def printed(self, job: str | None = None, executor: str | None = None) -> str:
        """Return what the functions of a job, or on an executor, have printed."""
        with self._lock:
            return "".join(self._printed.get(_owner(job, executor), ()))


def _kept(line: str) -> str:
    """Return what is kept of a line: not its secrets, and not more than anybody reads."""
    return masked_text(line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ... ({len(line):,} characters)")


def _lines_of(text: str) -> Iterable[str]:
    # Of very many only the last are kept anyway.
    for line in text.splitlines(keepends=True)[-_LINES:]:
        yield line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ... ({len(line):,} characters)\n"


def _owner(job: str | None, executor: str | None) -> tuple[str, str]:
    return ("job", job) if job is not None else ("executor", executor or "")


def _of(kept: dict[tuple[str, str], deque[Any]], owner: tuple[str, str]) -> deque[Any]:
    """Return what is kept of one, who is then the last that something was heard of."""
    found = kept.pop(owner) if owner in kept else deque(maxlen=_LINES)
    kept[owner] = found
    if len(kept) > _OWNERS:
        del kept[next(iter(kept))]
    return found


def text_of(*several: Iterable[Line]) -> str:
    """Return lines of several as one text, in the order in which they were said."""
    lines = [text for _, text in heapq.merge(*several)]
    return "\n".join(lines) + "\n" if lines else ""
