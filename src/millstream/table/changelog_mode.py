"""ChangelogMode: the row kinds of a changelog."""

from __future__ import annotations

from millstream.sql.schema import ALL_CHANGES, INSERTS, UPSERTS, Changes

__all__ = ["ChangelogMode"]


class ChangelogMode:
    """Holds the kinds of rows that a changelog may have.

    Example:
        >>> sorted(c.name for c in ChangelogMode.upsert().changes)
        ['DELETE', 'INSERT', 'UPDATE_AFTER']
    """

    def __init__(self, changes: frozenset[Changes]) -> None:
        self.changes = changes

    @staticmethod
    def insert_only() -> ChangelogMode:
        """Return the append-only mode: INSERT only.

        Example:
            >>> [c.name for c in ChangelogMode.insert_only().changes]
            ['INSERT']
        """
        return ChangelogMode(INSERTS)

    @staticmethod
    def upsert() -> ChangelogMode:
        """Return the upsert mode: an update is one row, which replaces the row of its key."""
        return ChangelogMode(UPSERTS)

    @staticmethod
    def all() -> ChangelogMode:
        """Return the mode of all kinds, with UPDATE_BEFORE and UPDATE_AFTER.

        Example:
            >>> len(ChangelogMode.all().changes)
            4
        """
        return ChangelogMode(ALL_CHANGES)
