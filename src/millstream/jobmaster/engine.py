"""What a job needs of the engine that runs its epochs."""

from __future__ import annotations

from typing import Protocol

from millstream.operators.slot import JobPlan, LevelTask, SlotReport


class EpochRunner(Protocol):
    """Runs the epochs of one execution on an engine."""

    def open(self) -> None: ...

    def run(self, tasks: list[LevelTask]) -> list[SlotReport]: ...

    def cancel(self) -> None: ...

    def release(self) -> None: ...


class Engine(Protocol):
    """Where the executions of a job run."""

    def runner(self, plan: JobPlan, attempt: int) -> EpochRunner:
        """Return a runner with slots of its own."""
        ...
