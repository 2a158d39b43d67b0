"""The result of a schedule."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """The result of a schedule.

    Attributes:
        difference: the violated invariant; None without one.
        faults: the number of injected faults by kind.
        log: the events, if requested.
    """

    seed: int
    difference: str | None
    faults: Counter[str]
    log: list[str]

    @property
    def is_error(self) -> bool:
        """Whether the difference is an exception of the simulation or Millstream rather than a violated invariant."""
        return self.difference is not None and self.difference.startswith("Traceback")
