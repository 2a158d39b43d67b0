"""Who has how many slots of a cluster. Pure.

asks --> has them --> has more, or fewer, when it asks again --> gives them back
  |         ^
  v         |  in the order in which they asked
 waits -----'
  |
  v
refused: there are not so many at all, or it has waited too long
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
        """Let a job ask for slots, as many as it shall have in all.

        Returns:
            Why it cannot have them ever; else None, and `grant` says when it has them.

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
        """Give slots to jobs that wait, in the order in which they asked; return those that have got them."""
        granted = []
        while self._waiting:
            first = self._waiting[0]
            if first.count > self.free + self._held.get(first.job, 0):
                # Nobody overtakes: a job that needs many would wait for ever.
                break
            self._held[first.job] = first.count
            granted.append(first.job)
            del self._waiting[0]
        return granted

    def give_up(self, job: str, seconds: float) -> str | None:
        """Let a job that has waited too long wait no more; return what to tell it, None if it does not wait."""
        found = next((w for w in self._waiting if w.job == job), None)
        if found is None:
            return None
        self._waiting.remove(found)
        return (
            f"Job '{found.name}' needs {found.count} slots, and {self.free} of {self.total} are free; it has waited "
            f"{seconds:g} s (slot.request.timeout). Cancel another job, run this one with a smaller parallelism (-p), "
            "or start the cluster with a larger taskmanager.numberOfTaskSlots."
        )

    def give_back(self, job: str) -> None:
        """Take back what a job has, and what it waits for."""
        self._held.pop(job, None)
        self._waiting = [w for w in self._waiting if w.job != job]
