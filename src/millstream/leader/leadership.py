"""What it means to a process that it leads, or works for who leads: its jobs are claimed, and let go of."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.leader.cas_cells import Cells
from millstream.leader.fence import Fence
from millstream.leader.options import TYPE, HaOptions


@dataclass
class Leadership:
    """One term of one leader, in a process that runs jobs of it.

    Attributes:
        options: how the job managers were made highly available.
        cells: what they share.
        scope: what the jobs belong to: a program with the same scope has the same jobs under every leader.
    """

    options: HaOptions
    cells: Cells
    term: int
    scope: str
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _on_end: list[Callable[[str], None]] = field(default_factory=list)
    _ended: str | None = None

    def job_id(self, job_name: str) -> str:
        """Return the id of a job: the same under every leader."""
        return hashlib.md5(f"{self.scope}/{job_name}".encode(), usedforsecurity=False).hexdigest()

    def fence(self, job_id: str, job_name: str) -> Fence:
        """Return what a job's checkpoints have to pass."""
        return Fence(self.cells.cell(f"job-{job_id}"), job_id, job_name, self.term)

    def on_end(self, suspend: Callable[[str], None]) -> None:
        """Have a job suspended when this ends; at once if it has."""
        with self._lock:
            if self._ended is None:
                self._on_end.append(suspend)
                return
        suspend(self._ended)

    def end(self, reason: str) -> None:
        """Suspend all jobs: this process leads no longer."""
        with self._lock:
            if self._ended is not None:
                return
            self._ended = reason
            told, self._on_end = self._on_end, []
        for suspend in told:
            suspend(reason)


# This process's, if it has one.
_current: list[Leadership] = []


def lead(leadership: Leadership) -> None:
    """Let the jobs of this process run under a leader."""
    _current[:] = [leadership]


def leadership_of(config: Configuration) -> Leadership | None:
    """Return under which leader a job is started; None where its settings ask for none."""
    if HaOptions.read(config) is None:
        return None
    if not _current:
        raise InvalidProgramError(
            f"{TYPE.key} is {TYPE.read(config).name}, which is for `millstream run` and `millstream cluster start`: "
            "they wait until they lead before they run a program. Start this one with `millstream run`, or take the "
            "setting out."
        )
    return _current[0]
