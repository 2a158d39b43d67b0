"""The leadership of this process: claims its jobs, and suspends them when it ends."""

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
    """One term of one leader, in a process that runs its jobs.

    Attributes:
        options: the high-availability settings.
        cells: shared by the job managers.
        scope: identifies the program: the same scope has the same job ids under every leader.
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
        """Return the fence of a job."""
        return Fence(self.cells.cell(f"job-{job_id}"), job_id, job_name, self.term)

    def on_end(self, suspend: Callable[[str], None]) -> None:
        """Register a function that suspends a job when the leadership ends; at once if it has."""
        with self._lock:
            if self._ended is None:
                self._on_end.append(suspend)
                return
        suspend(self._ended)

    def end(self, reason: str) -> None:
        """Suspend all jobs: this process no longer leads."""
        with self._lock:
            if self._ended is not None:
                return
            self._ended = reason
            callbacks, self._on_end = self._on_end, []
        for suspend in callbacks:
            suspend(reason)


# The leadership of this process, if any.
_current: list[Leadership] = []


def lead(leadership: Leadership) -> None:
    """Set the leadership of this process."""
    _current[:] = [leadership]


def leadership_of(config: Configuration) -> Leadership | None:
    """Return the leadership for a job; None without high availability."""
    if HaOptions.read(config) is None:
        return None
    if not _current:
        raise InvalidProgramError(
            f"{TYPE.key} is {TYPE.read(config).name}, which only `millstream run` and `millstream cluster start` "
            "support: they wait for leadership before they run a program. Start this one with `millstream run`, or "
            "remove the setting."
        )
    return _current[0]
