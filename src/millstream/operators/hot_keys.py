"""Which keys come most often, from a few that are looked at now and then: the space-saving sketch. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# So many keys are counted; a key that comes more often than one in so many is found.
_COUNTED = 64
# Of how many looks the picture is made: of older ones less and less counts.
_MOST_LOOKS = 4096


class HotKeys:
    """Counts the keys that come most often.

    Example:
        >>> keys = HotKeys()
        >>> keys.saw(["a", "b", "a", "a"])
        >>> keys.hottest(1)
        [('a', 0.75)]
    """

    def __init__(self) -> None:
        self._counts: dict[Any, int] = {}
        self.looks = 0

    def saw(self, keys: Iterable[Any]) -> None:
        """Count some keys."""
        counts = self._counts
        for key in keys:
            self.looks += 1
            if key in counts:
                counts[key] += 1
            elif len(counts) < _COUNTED:
                counts[key] = 1
            else:
                # It takes the place of the one that comes least, and its count: so none that comes often is missed.
                least = min(counts, key=counts.__getitem__)
                counts[key] = counts.pop(least) + 1
        if self.looks > _MOST_LOOKS:
            self._counts = {key: count // 2 for key, count in counts.items() if count > 1}
            self.looks //= 2

    def hottest(self, most: int) -> list[tuple[Any, float]]:
        """Return the keys that come most often, and of how many records each is the key: a share, never too small."""
        first = sorted(self._counts.items(), key=lambda found: -found[1])[:most]
        return [(key, min(count / self.looks, 1.0)) for key, count in first]
