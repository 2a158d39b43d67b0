"""A live line on the terminal while a job runs: throughput, watermark and last checkpoint."""

from __future__ import annotations

import atexit
import datetime
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TextIO

from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.jobmaster.job import JobMaster

_INTERVAL_SECONDS = 0.5
# Number of readings over which rates are averaged: epochs can be longer than the interval.
_MAX_SAMPLES = 10
_NAME = 40
_CLEAR = "\r\x1b[K"


@dataclass(frozen=True)
class Sample:
    """The progress of a job at a time."""

    time: float
    records_in: int
    # Records that sinks received; None if not counted.
    records_out: int | None
    epoch: int
    watermark: int | None
    # Id and completion time of the last complete checkpoint.
    checkpoint: tuple[int, float] | None
    status: str
    # Busy seconds, by vertex and subtask; and the names of the vertices.
    seconds: Mapping[tuple[int, int], float] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)
    # Number of equal failures in a row if the job makes no progress because of them; else 0.
    stuck: int = 0


def read(job: JobMaster, now: float) -> Sample:
    """Read the progress of a job."""
    view = job.view
    sources = {v.id for v in view.plan.vertices if v.is_source}
    subtasks, latest = view.progress.subtasks, view.checkpoints.latest
    taken = [p.taken for p in subtasks.values()]
    return Sample(
        now,
        sum(p.records_in for (v, _), p in subtasks.items() if v in sources),
        None if None in taken else sum(filter(None, taken)),
        view.progress.epochs,
        view.watermark,
        None if latest is None or latest.completed_at is None else (latest.id, latest.completed_at),
        view.status.name,
        {address: p.seconds for address, p in subtasks.items()},
        {v.id: v.name for v in view.plan.vertices},
        view.repeated_failures if view.is_stuck else 0,
    )


def describe(before: Sample, after: Sample) -> str:
    """Say what has happened between two readings, in one line.

    Example:
        >>> start = Sample(0.0, 0, 0, 0, None, None, "RUNNING")
        >>> describe(start, Sample(2.0, 5000, 10, 7, 0, (3, 1.5), "RUNNING"))
        'epoch 7 | in 2,500/s | out 5/s | watermark 1970-01-01 00:00:00 | checkpoint 3, 0.5 s ago'
    """
    stuck = [f"failed {after.stuck:,} times in a row with the same error"] if after.stuck else []
    if after.status != "RUNNING":
        return " | ".join([after.status.lower(), *stuck])
    seconds = max(after.time - before.time, 1e-3)
    parts = [
        f"epoch {after.epoch:,}",
        f"in {(after.records_in - before.records_in) / seconds:,.0f}/s",
    ]
    if after.records_out is not None:
        parts.append(f"out {(after.records_out - (before.records_out or 0)) / seconds:,.0f}/s")
    parts += _slowest(before, after, seconds)
    if after.watermark is not None and MIN_WATERMARK < after.watermark < MAX_WATERMARK:
        parts.append(f"watermark {_time(after.watermark)}")
    if after.checkpoint is not None:
        number, done = after.checkpoint
        parts.append(f"checkpoint {number}, {max(after.time - done, 0.0):.1f} s ago")
    return " | ".join(parts + stuck)


def _slowest(before: Sample, after: Sample, seconds: float) -> list[str]:
    """Return the busiest of several operators, and its busy share."""
    worked = {address: total - before.seconds.get(address, 0.0) for address, total in after.seconds.items()}
    if len({vertex for vertex, _ in worked}) < 2:
        return []
    (vertex, _), busy = max(worked.items(), key=lambda item: item[1])
    name = after.names[vertex]
    shown = name if len(name) <= _NAME else f"{name[: _NAME - 3]}..."
    return [f"slowest {shown} ({min(busy / seconds, 1.0):.0%} busy)"]


def _time(millis: int) -> str:
    try:
        moment = datetime.datetime.fromtimestamp(millis / 1000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return str(millis)
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def _columns(terminal: TextIO) -> int | None:
    """Return the width of a terminal; None if unknown."""
    try:
        return os.get_terminal_size(terminal.fileno()).columns or None
    except (OSError, ValueError):
        return None


class LiveLine:
    """Shows a job's line on a terminal until the job has ended, below the program's output."""

    def __init__(self, job: JobMaster, terminal: TextIO) -> None:
        self._job = job
        self._terminal = terminal
        self._lock = threading.RLock()
        self._line = ""
        self._over = threading.Event()
        self._stdout = sys.stdout

    def start(self) -> Callable[[], None]:
        """Show the line; return a function that removes it."""
        if self._stdout.isatty():
            sys.stdout = _Above(self._stdout, self)
        threading.Thread(target=self._show, daemon=True).start()
        # Also if the program ends without waiting for its job.
        atexit.register(self.end)
        self._job.result.add_done_callback(lambda _: self.end())
        return self.end

    def end(self) -> None:
        """Remove the line."""
        with self._lock:
            if self._over.is_set():
                return
            self._over.set()
            self._write("")
        if isinstance(sys.stdout, _Above) and sys.stdout.belongs_to(self):
            sys.stdout = self._stdout
        atexit.unregister(self.end)

    def _show(self) -> None:
        readings = deque([read(self._job, time.time())], _MAX_SAMPLES)
        while not self._over.wait(_INTERVAL_SECONDS):
            readings.append(read(self._job, time.time()))
            with self._lock:
                if not self._over.is_set():
                    self._write(describe(readings[0], readings[-1]))

    def _write(self, line: str) -> None:
        # A wrapped line could not be cleared.
        self._line = line = line[: _columns(self._terminal)]
        self._terminal.write(_CLEAR + line)
        self._terminal.flush()

    def above(self, stream: TextIO, text: str) -> int:
        """Write text in place of the line, and the line again below it."""
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

    def belongs_to(self, line: LiveLine) -> bool:
        return self._live is line

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)
