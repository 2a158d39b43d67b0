"""Finds hot keys from samples, in bounded memory. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.common.aliases import Key

# Maximum keys with a count; then all but the most frequent are discarded. A key with a share above 1/512 is found.
_MAX_COUNTED, _RETAINED = 512, 64
# Number of samples after which all counts are halved, so that older samples weigh less.
_MAX_SAMPLES = 4096


class HotKeys:
    """Counts the most frequent keys.

    Example:
        >>> keys = HotKeys()
        >>> keys.add(["a", "b", "a", "a"])
        >>> keys.hottest(1)
        [('a', 0.75)]
    """

    def __init__(self) -> None:
        self._counts: dict[Key, int] = {}
        self.samples = 0

    def add(self, keys: Iterable[Key]) -> None:
        """Count sampled keys."""
        counts = self._counts
        for key in keys:
            self.samples += 1
            counts[key] = counts.get(key, 0) + 1
        if len(counts) > _MAX_COUNTED:
            self._counts = dict(sorted(counts.items(), key=lambda item: -item[1])[:_RETAINED])
        if self.samples > _MAX_SAMPLES:
            self._counts = {key: count // 2 for key, count in self._counts.items() if count > 1}
            self.samples //= 2

    def hottest(self, max_keys: int) -> list[tuple[Key, float]]:
        """Return the most frequent keys, each with its share of the records."""
        first = sorted(self._counts.items(), key=lambda item: -item[1])[:max_keys]
        return [(key, min(count / self.samples, 1.0)) for key, count in first]
