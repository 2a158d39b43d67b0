"""How much the operators of a slot may keep in memory before some of it goes to disk.

All of them share one budget. When more is kept than it allows, whoever keeps the most puts it on disk, until it is
enough. Pure bookkeeping: what is kept, and how it gets to disk, only its owner knows.
"""

from __future__ import annotations

from collections.abc import Callable


class Account:
    """What one owner keeps in memory.

    Attributes:
        used: how many bytes it keeps.
    """

    def __init__(self, budget: Budget, spill: Callable[[], None]) -> None:
        self._budget = budget
        self.spill = spill
        self.used = 0

    def keeps(self, size: int) -> None:
        """Say how many bytes are kept now; where that is too much for the slot, some are put on disk."""
        self.used = size
        self._budget.check()


class Budget:
    """The budget of a slot."""

    def __init__(self, limit: int | None = None) -> None:
        """Make one.

        Args:
            limit: how many bytes may be kept in memory; None for as many as there are.
        """
        self.limit = limit
        self._accounts: list[Account] = []
        self._is_spilling = False

    def account(self, spill: Callable[[], None]) -> Account:
        """Return an account for one who keeps something.

        Args:
            spill: puts on disk what can be, and says how much is kept then.
        """
        made = Account(self, spill)
        self._accounts.append(made)
        return made

    def check(self) -> None:
        """Have some of what is kept put on disk, if it is too much."""
        if self.limit is None or self._is_spilling:
            return
        total = sum(account.used for account in self._accounts)
        if total <= self.limit:
            return
        self._is_spilling = True
        try:
            for account in sorted(self._accounts, key=lambda a: a.used, reverse=True):
                before = account.used
                if not before:
                    break
                account.spill()
                total += account.used - before
                if total <= self.limit:
                    break
        finally:
            self._is_spilling = False
