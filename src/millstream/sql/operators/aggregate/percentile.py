"""PERCENTILE: how often each value is there, and the values in order."""

from __future__ import annotations

from bisect import bisect_left, insort
from math import ceil, floor
from typing import Any

from millstream.sql.errors import TableException
from millstream.sql.operators.aggregate.object_accumulators import ObjectAccumulator


class Percentile(ObjectAccumulator):
    """Of a value, a share or several, and how often the value counts."""

    def begin(self) -> Any:
        # How often each value is there, less than never where it was taken back first; those that are, in order; how
        # many there are in all; and the share, which is a constant.
        return [{}, [], 0, None]

    def add(self, kept: Any, values: tuple[Any, ...]) -> Any:
        return self._counted(kept, values, 1)

    def take_back(self, kept: Any, values: tuple[Any, ...]) -> Any:
        return self._counted(kept, values, -1)

    def _counted(self, kept: Any, values: tuple[Any, ...], sign: int) -> Any:
        value, share, times = values if len(values) == 3 else (*values, 1)
        if value is None or times is None or times <= 0:
            return kept
        counts, ordered, total, _ = kept
        value = float(value) if not isinstance(value, float) else value
        before = counts.get(value, 0)
        after = before + sign * int(times)
        if before <= 0 < after:
            insort(ordered, value)
        elif after <= 0 < before:
            del ordered[bisect_left(ordered, value)]
        if after:
            counts[value] = after
        else:
            del counts[value]
        kept[2] = total + max(after, 0) - max(before, 0)
        kept[3] = share
        return kept

    def value(self, kept: Any) -> Any:
        counts, ordered, total, share = kept
        if not total or share is None:
            return None
        if isinstance(share, list):
            return [self._at(counts, ordered, total, s) for s in share]
        return self._at(counts, ordered, total, share)

    def _at(self, counts: dict[float, int], ordered: list[float], total: int, share: float) -> float:
        if not 0 <= share <= 1:
            raise TableException(f"Percentage of PERCENTILE should be between [0.0, 1.0], but was '{share}'.")
        place = (total - 1) * share
        low, high = floor(place), ceil(place)
        if total == len(ordered):
            below, above = ordered[low], ordered[high]
        else:
            below, above = self._counting(counts, ordered, low), self._counting(counts, ordered, high)
        return below if low == high or below == above else below + (above - below) * (place - low)

    @staticmethod
    def _counting(counts: dict[float, int], ordered: list[float], place: int) -> float:
        """Return the value at a place, where each counts as often as it is there."""
        for value in ordered:
            place -= counts[value]
            if place < 0:
                return value
        return ordered[-1]
