"""The sequence of java.util.Random."""

from __future__ import annotations

_MASK = (1 << 48) - 1


class JavaRandom:
    """Random numbers as Java makes them from a seed.

    Example:
        >>> JavaRandom(42).next_double()
        0.7275636800328681
    """

    def __init__(self, seed: int) -> None:
        self._seed = (seed ^ 0x5DEECE66D) & _MASK

    def _next(self, bits: int) -> int:
        self._seed = (self._seed * 0x5DEECE66D + 0xB) & _MASK
        found = self._seed >> (48 - bits)
        return found - (1 << bits) if found >= 1 << (bits - 1) else found

    def next_double(self) -> float:
        """Return a number from 0 up to 1."""
        high = self._next(26) & ((1 << 26) - 1)
        low = self._next(27) & ((1 << 27) - 1)
        return ((high << 27) + low) * 2.0**-53

    def next_int(self, bound: int) -> int:
        """Return a whole number from 0 up to `bound`."""
        found = self._next(31) & 0x7FFFFFFF
        if bound & (bound - 1) == 0:
            return (bound * found) >> 31
        value = found % bound
        while found - value + (bound - 1) >= 1 << 31:
            found = self._next(31) & 0x7FFFFFFF
            value = found % bound
        return value
