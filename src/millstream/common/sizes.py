"""Sizes in words."""

from __future__ import annotations


def in_bytes(size: int) -> str:
    """Write a number of bytes.

    Example:
        >>> in_bytes(340), in_bytes(123_456)
        ('340', '120.6 KiB')
    """
    amount, units = float(size), iter(("", " KiB", " MiB", " GiB", " TiB"))
    unit = next(units)
    while amount >= 1024 and unit != " TiB":
        amount, unit = amount / 1024, next(units)
    return f"{amount:.1f}{unit}" if unit else str(size)
