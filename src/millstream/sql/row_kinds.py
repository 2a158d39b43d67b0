"""What the rows of a table can say, as a set."""

from __future__ import annotations

from enum import Enum


class Changes(Enum):
    """One thing that a row can say."""

    INSERT = "I"
    UPDATE_BEFORE = "UB"
    UPDATE_AFTER = "UA"
    DELETE = "D"


INSERTS = frozenset({Changes.INSERT})
UPSERTS = frozenset({Changes.INSERT, Changes.UPDATE_AFTER, Changes.DELETE})
ALL_CHANGES = frozenset(Changes)
