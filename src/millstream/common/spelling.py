"""Suggests the known name that a misspelt one was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["closest", "did_you_mean"]

_SIMILARITY = 0.7


def closest(name: str, known: Iterable[str], similarity: float = _SIMILARITY) -> str | None:
    """Return the known name most like `name`, whatever the case; None when none is like it.

    Example:
        >>> closest("custmer", ["id", "Customer"])
        'Customer'
        >>> closest("total", ["id", "Customer"])
    """
    by_lower = {k.lower(): k for k in sorted(known, reverse=True)}
    matches = get_close_matches(name.lower(), by_lower, 1, similarity)
    return by_lower[matches[0]] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that suggests the closest known name; nothing when none is like it.

    Example:
        >>> did_you_mean("custmer", ["id", "customer"])
        "; did you mean 'customer'?"
    """
    match = closest(name, known)
    return f"; did you mean '{match}'?" if match is not None else ""
