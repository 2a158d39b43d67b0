"""Assigns the slots of a cluster to jobs. Pure.

request --> granted --> changed by another request --> released
  |            ^
  v            |  in request order
waiting -------'
  |
  v
refused: the cluster has fewer slots, or the timeout has passed
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Waiting:
    """A job that waits for slots."""

    job: str
    name: str
    count: int


class SlotPool:
    """The slots of a cluster."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._held: dict[str, int] = {}
        self._waiting: list[Waiting] = []

    @property
    def free(self) -> int:
        return self.total - sum(self._held.values())

    @property
    def waiting(self) -> list[Waiting]:
        return list(self._waiting)

    def ask(self, job: str, name: str, count: int) -> str | None:
        """Request the total number of slots of a job.

        Returns:
            Why the request can never be granted; else None, and `grant` returns the job later.

        Example:
            >>> pool = SlotPool(4)
            >>> pool.ask("a", "orders", 3), pool.grant(), pool.free
            (None, ['a'], 1)
            >>> pool.ask("b", "clicks", 2), pool.grant()
            (None, [])
            >>> pool.give_back("a"), pool.grant()
            (None, ['b'])
        """
        self._waiting = [w for w in self._waiting if w.job != job]
        if count > self.total:
            return (
                f"Job '{name}' needs {count} slots, and the cluster has {self.total}, of which {self.free} are free: "
                "run it with a smaller parallelism (-p), or start the cluster with a larger "
                "taskmanager.numberOfTaskSlots."
            )
        self._waiting.append(Waiting(job, name, count))
        return None

    def grant(self) -> list[str]:
        """Grant requests in order; return the jobs that now have their slots."""
        granted = []
        while self._waiting:
            first = self._waiting[0]
            if first.count > self.free + self._held.get(first.job, 0):
                # No overtaking: a large request would starve.
                break
            self._held[first.job] = first.count
            granted.append(first.job)
            del self._waiting[0]
        return granted

    def give_up(self, job: str, seconds: float) -> str | None:
        """Withdraw a request after its timeout; return the error, None if the job is not waiting."""
        request = next((w for w in self._waiting if w.job == job), None)
        if request is None:
            return None
        self._waiting.remove(request)
        return (
            f"Job '{request.name}' needs {request.count} slots, but {self.free} of {self.total} are free after "
            f"{seconds:g} s (slot.request.timeout). Cancel another job, run this one with a smaller parallelism (-p), "
            "or start the cluster with a larger taskmanager.numberOfTaskSlots."
        )

    def give_back(self, job: str) -> None:
        """Release a job's slots and withdraw its request."""
        self._held.pop(job, None)
        self._waiting = [w for w in self._waiting if w.job != job]
