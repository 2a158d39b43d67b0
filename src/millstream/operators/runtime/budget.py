"""The memory budget of a slot's operators: beyond it, rows are spilled to disk.

All operators of a slot share one budget. When it is exceeded, the largest accounts spill first. Pure bookkeeping: only
the owner of an account knows what it retains and how it spills.
"""

from __future__ import annotations

from collections.abc import Callable


class Account:
    """The memory that one owner retains.

    Attributes:
        used: the number of bytes.
    """

    def __init__(self, budget: Budget, spill: Callable[[], None]) -> None:
        self._budget = budget
        self.spill = spill
        self.used = 0

    def set_used(self, size: int) -> None:
        """Set the number of retained bytes; spill if the budget is exceeded."""
        self.used = size
        self._budget.check()


class Budget:
    """The memory budget of a slot."""

    def __init__(self, limit: int | None = None) -> None:
        """Create a budget.

        Args:
            limit: the maximum number of bytes in memory; None for no limit.
        """
        self.limit = limit
        self._accounts: list[Account] = []
        self._is_spilling = False

    def account(self, spill: Callable[[], None]) -> Account:
        """Open an account.

        Args:
            spill: spills rows to disk and updates the account.
        """
        account = Account(self, spill)
        self._accounts.append(account)
        return account

    def check(self) -> None:
        """Spill the largest accounts while the budget is exceeded."""
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
