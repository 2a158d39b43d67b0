"""How a schedule went."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """How a schedule went.

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
        """Whether that is an error in a program, rather than something that happened."""
        return self.difference is not None and self.difference.startswith("Traceback")
