"""Growth of measurements over time: slopes that a few outliers do not change."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

# Memory allocated during start-up is not growth.
WARM_UP = 1 / 3


@dataclass(frozen=True)
class Bound:
    """The growth during a run that still counts as flat: a share of the level, or an absolute minimum."""

    share: float
    minimum: float


@dataclass(frozen=True)
class Trend:
    """The trend of a measurement.

    Attributes:
        name: of the measurement.
        level: its median.
        slope: growth per hour.
        grown: growth from the end of the warm-up to the end, by that slope.
        allowed: the maximum growth.
    """

    name: str
    level: float
    slope: float
    grown: float
    allowed: float

    @property
    def is_flat(self) -> bool:
        return self.grown <= self.allowed


def trend(name: str, samples: list[tuple[float, float]], bound: Bound) -> Trend:
    """Return the trend of samples, which are pairs of seconds and values.

    The slope is the median of the slopes between all pairs of samples (Theil-Sen estimator), so that a process that has
    just been killed, and is missing in a sample, does not count.
    """
    warm = samples[int(len(samples) * WARM_UP) :]
    slopes = [(y2 - y1) / (x2 - x1) for i, (x1, y1) in enumerate(warm) for x2, y2 in warm[i + 1 :] if x2 > x1]
    slope = median(slopes) if slopes else 0.0
    level = median(y for _, y in warm)
    grown = slope * (warm[-1][0] - warm[0][0])
    return Trend(name, level, slope * 3600, grown, max(bound.share * level, bound.minimum))
