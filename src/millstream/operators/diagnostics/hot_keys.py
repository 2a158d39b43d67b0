"""Which keys come most often, from a few that are looked at now and then, in little memory. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# When so many keys are counted, all but the most frequent are forgotten: a key that is one in so many is found.
_COUNTED, _KEPT = 512, 64
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
            counts[key] = counts.get(key, 0) + 1
        if len(counts) > _COUNTED:
            self._counts = dict(sorted(counts.items(), key=lambda found: -found[1])[:_KEPT])
        if self.looks > _MOST_LOOKS:
            self._counts = {key: count // 2 for key, count in self._counts.items() if count > 1}
            self.looks //= 2

    def hottest(self, most: int) -> list[tuple[Any, float]]:
        """Return the keys that come most often, and of which share of the records each is the key."""
        first = sorted(self._counts.items(), key=lambda found: -found[1])[:most]
        return [(key, min(count / self.looks, 1.0)) for key, count in first]
