"""The growth criterion of the soak test."""

from __future__ import annotations

import random

from tests.soak.trends import Bound, trend

BOUND = Bound(share=0.1, minimum=5)
DICE = random.Random(4)


def test_soak_trend_of_an_oscillating_series_is_flat() -> None:
    saw = [(float(t), 100 + t % 17 + DICE.random()) for t in range(300)]
    result = trend("saw", saw, BOUND)
    assert result.is_flat and 100 < result.level < 120


def test_soak_trend_ignores_the_warm_up() -> None:
    warming_up = [(float(t), min(t, 90) * 2.0) for t in range(300)]
    assert trend("start", warming_up, BOUND).is_flat


def test_soak_trend_detects_a_leak_despite_missing_samples() -> None:
    leaking = [(float(t), 0.0 if t % 10 == 0 else 100 + t * 0.2 + DICE.random()) for t in range(300)]
    result = trend("leak", leaking, BOUND)
    assert not result.is_flat
    # 0.2 per second.
    assert 600 < result.slope < 840


def test_soak_trend_allows_growth_below_the_minimum() -> None:
    assert trend("few", [(float(t), t / 100) for t in range(300)], BOUND).is_flat
