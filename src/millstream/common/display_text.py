"""Printable names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["closest", "did_you_mean"]


_SIMILARITY = 0.7


def closest(name: str, known: Iterable[str], similarity: float = _SIMILARITY) -> str | None:
    """Return the known name most similar to `name`, ignoring case; None if none is similar.

    Example:
        >>> closest("custmer", ["id", "Customer"])
        'Customer'
        >>> closest("total", ["id", "Customer"])
    """
    by_lower = {k.lower(): k for k in sorted(known, reverse=True)}
    matches = get_close_matches(name.lower(), by_lower, 1, similarity)
    return by_lower[matches[0]] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a suggestion of the closest known name for the end of an error message, or an empty string.

    Example:
        >>> did_you_mean("custmer", ["id", "customer"])
        "; did you mean 'customer'?"
    """
    match = closest(name, known)
    return f"; did you mean '{match}'?" if match is not None else ""


def printable(name: str, length: int | None = None) -> str:
    r"""Return a name with line breaks, control characters and lone surrogates escaped, truncated to a length.

    Example:
        >>> print(printable("two\nlines"))
        two\nlines
        >>> printable("a long name", 7)
        'a long…'
    """
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return text if length is None or len(text) <= length else f"{text[: length - 1]}…"


def in_bytes(size: int) -> str:
    """Format a number of bytes.

    Example:
        >>> in_bytes(340), in_bytes(123_456)
        ('340', '120.6 KiB')
    """
    amount, units = float(size), iter(("", " KiB", " MiB", " GiB", " TiB"))
    unit = next(units)
    while amount >= 1024 and unit != " TiB":
        amount, unit = amount / 1024, next(units)
    return f"{amount:.1f}{unit}" if unit else str(size)
