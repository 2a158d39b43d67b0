"""ResultKind: whether a statement's result has rows."""

from __future__ import annotations

__all__ = ["ResultKind"]


class ResultKind:
    """Says whether a result has rows."""

    # For DDL and the like: the result is OK.
    SUCCESS = 0
    # For SHOW, queries and INSERT: the result has rows.
    SUCCESS_WITH_CONTENT = 1
