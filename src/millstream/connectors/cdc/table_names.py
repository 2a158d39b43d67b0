"""Which tables a list means, in full or by a pattern. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from millstream.common.errors import InvalidProgramError

__all__ = ["check_named", "is_wanted"]


def is_wanted(table: str, patterns: Iterable[str]) -> bool:
    """Tell whether a table is one of those that a list names, in full or by a pattern."""
    return any(table == p or _matches(p, table) for p in patterns)


def _matches(pattern: str, table: str) -> bool:
    try:
        return re.fullmatch(pattern, table) is not None
    except re.error:
        # It is a name, then.
        return False


def _is_name(pattern: str) -> bool:
    """Tell whether a pattern can only be a name: without anything that patterns have, or no pattern at all."""
    try:
        re.compile(pattern)
    except re.error:
        return True
    return not re.search(r"[\\*+?\[\](){}|^]", pattern)


def check_named(patterns: Iterable[str], found: Collection[str], server: str, inside: str) -> None:
    """Refuse a list that names a table in full that is not there.

    Args:
        server: what is asked, for the sentence.
        inside: what a table is in, and an example.
    """
    for pattern in patterns:
        if not any(is_wanted(table, (pattern,)) for table in found) and _is_name(pattern):
            raise InvalidProgramError(
                f"{server} has no table {pattern!r}: name tables with their {inside}, and see that the user may see it."
            )
