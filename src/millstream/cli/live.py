"""One live line while a job runs on a terminal: how fast it is, how far it has come, and its last checkpoint."""

from __future__ import annotations

import datetime
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any, TextIO

from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.jobmaster.job import JobMaster

_EVERY = 0.5
_CLEAR = "\r\x1b[K"


@dataclass(frozen=True)
class Reading:
    """What a job has done by some time."""

    at: float
    records_in: int
    records_out: int
    epoch: int
    watermark: int | None
    # The last complete checkpoint, and when it was complete.
    checkpoint: tuple[int, float] | None
    status: str


def read(job: JobMaster, now: float) -> Reading:
    """Look at a job."""
    view = job.view
    sources = {v.id for v in view.plan.vertices if v.is_source}
    ends = {v.id for v in view.plan.vertices if not v.out_edges}
    subtasks, latest = view.progress.subtasks, view.checkpoints.latest
    marks = [p.watermark for (v, _), p in subtasks.items() if v in ends and p.watermark is not None]
    return Reading(
        now,
        sum(p.records_in for (v, _), p in subtasks.items() if v in sources),
        sum(p.records_in for (v, _), p in subtasks.items() if v in ends),
        view.progress.epochs,
        min(marks, default=None),
        None if latest is None or latest.completed_at is None else (latest.id, latest.completed_at),
        view.status.name,
    )


def describe(before: Reading, after: Reading) -> str:
    """Say what has happened between two looks, in one line.

    Example:
        >>> start = Reading(0.0, 0, 0, 0, None, None, "RUNNING")
        >>> describe(start, Reading(2.0, 5000, 10, 7, 0, (3, 1.5), "RUNNING"))
        'epoch 7 | in 2,500/s | out 5/s | watermark 1970-01-01 00:00:00 | checkpoint 3, 0.5 s ago'
    """
    if after.status != "RUNNING":
        return after.status.lower()
    seconds = max(after.at - before.at, 1e-3)
    parts = [
        f"epoch {after.epoch:,}",
        f"in {(after.records_in - before.records_in) / seconds:,.0f}/s",
        f"out {(after.records_out - before.records_out) / seconds:,.0f}/s",
    ]
    if after.watermark is not None and MIN_WATERMARK < after.watermark < MAX_WATERMARK:
        parts.append(f"watermark {_time(after.watermark)}")
    if after.checkpoint is not None:
        number, done = after.checkpoint
        parts.append(f"checkpoint {number}, {max(after.at - done, 0.0):.1f} s ago")
    return " | ".join(parts)


def _time(millis: int) -> str:
    try:
        moment = datetime.datetime.fromtimestamp(millis / 1000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return str(millis)
    return moment.strftime("%Y-%m-%d %H:%M:%S")


class LiveLine:
    """Shows a job's line on a terminal until the job has ended. What the program prints stays readable."""

    def __init__(self, job: JobMaster, terminal: TextIO) -> None:
        self._job = job
        self._terminal = terminal
        self._lock = threading.RLock()
        self._line = ""
        self._over = threading.Event()
        job.result.add_done_callback(lambda _: self._over.set())

    def start(self) -> None:
        threading.Thread(target=self._show, daemon=True).start()

    def _show(self) -> None:
        stdout = sys.stdout
        if stdout.isatty():
            sys.stdout = _Above(stdout, self)
        before = read(self._job, time.time())
        while not self._over.wait(_EVERY):
            after = read(self._job, time.time())
            self._put(describe(before, after))
            before = after
        self._put("")
        if isinstance(sys.stdout, _Above):
            sys.stdout = stdout

    def _put(self, line: str) -> None:
        with self._lock:
            self._line = line
            self._terminal.write(_CLEAR + line)
            self._terminal.flush()

    def above(self, stream: TextIO, text: str) -> int:
        """Write text where the line is, and the line below it again."""
        with self._lock:
            self._terminal.write(_CLEAR)
            self._terminal.flush()
            count = stream.write(text)
            stream.flush()
            if text.endswith("\n"):
                self._terminal.write(self._line)
                self._terminal.flush()
            return count


class _Above:
    """The program's standard output, written above the live line."""

    def __init__(self, stream: TextIO, line: LiveLine) -> None:
        self._stream = stream
        self._live = line

    def write(self, text: str) -> int:
        return self._live.above(self._stream, text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
