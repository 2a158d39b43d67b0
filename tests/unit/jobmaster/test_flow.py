from __future__ import annotations

import math

import pytest

from millstream.jobmaster.machine.flow import EpochSizer


def simulate(seconds_per_record: float, epochs: int = 30, **kwargs: int) -> tuple[EpochSizer, float]:
    sizer = EpochSizer(**kwargs)
    took = 0.0
    for _ in range(epochs):
        took = 0.08 + sizer.budget * seconds_per_record
        sizer.finished(took, limited=True, records=sizer.budget, max_bytes=sizer.budget * 20)
    return sizer, took


def test_epoch_sizer_reaches_the_target_duration_with_a_backlog() -> None:
    for cost in (1e-6, 1e-5, 1e-3, 0.2):
        _, took = simulate(cost)
        assert 0.7 < took < 1.3, cost


def test_epoch_sizer_limits_the_first_epochs_of_a_slow_job() -> None:
    sizer = EpochSizer()
    worst = 0.0
    for _ in range(10):
        took = sizer.budget * 1e-3
        worst = max(worst, took)
        sizer.finished(took, limited=True, records=sizer.budget, max_bytes=1)
    assert worst < 2


def test_epoch_sizer_tolerates_a_high_fixed_cost_per_epoch() -> None:
    """A Spark job that takes 2 s on a busy cluster regardless of its input."""
    sizer, read = EpochSizer(), 0
    sizer.aim_at(1.0)
    for _ in range(100):
        read += sizer.budget
        sizer.finished(2.0 + sizer.budget * 1e-4, limited=True, records=sizer.budget, max_bytes=1)
    # Overhead takes at most half of the time.
    assert read > 0.2 * 100 * 2.0 / 1e-4
    # When the cluster is no longer busy, epochs become as short as intended.
    took = 0.0
    for _ in range(100):
        took = 0.02 + sizer.budget * 1e-4
        sizer.finished(took, limited=True, records=sizer.budget, max_bytes=1)
    assert 0.6 < took < 0.9


def test_epoch_sizer_ignores_epochs_without_records() -> None:
    sizer = EpochSizer(budget=100)
    for seconds in (5.0, 5.0, 0.0, 0.0, 5.0):
        sizer.finished(seconds, limited=True, records=0, max_bytes=0)
    assert 1 <= sizer.budget <= 100 * 16**2


def test_epoch_sizer_distinguishes_slow_records_from_fixed_cost() -> None:
    sizer = EpochSizer()
    sizer.aim_at(1.0)
    for cost in (1e-5, 1e-3, 1e-5, 1e-2):
        for _ in range(30):
            took = 0.03 + sizer.budget * cost
            sizer.finished(took, limited=True, records=sizer.budget, max_bytes=1)
        assert took < 1.0, cost


def test_epoch_sizer_reads_large_input_in_few_epochs() -> None:
    sizer, left, epochs = EpochSizer(), 500_000, 0
    while left > 0:
        read = min(sizer.budget, left)
        left -= read
        epochs += 1
        # The first epoch waits for its slots.
        took = (0.1 if epochs == 1 else 0.001) + read * 0.7e-6
        sizer.finished(took, limited=left > 0, records=read, max_bytes=read * 20)
    assert epochs <= 4


def test_epoch_sizer_limits_the_budget_by_bytes() -> None:
    sizer, _ = simulate(1e-7, max_bytes=1 << 20)
    assert sizer.budget <= (1 << 20) / 20


def test_epoch_sizer_keeps_the_budget_without_a_backlog() -> None:
    sizer = EpochSizer(budget=5000)
    sizer.finished(0.08, limited=False, records=3, max_bytes=60)
    assert sizer.budget == 5000


def test_epoch_sizer_never_exceeds_max_records() -> None:
    sizer, _ = simulate(1e-9, max_records=10_000)
    assert sizer.budget == 10_000


def test_epoch_sizer_lowers_the_budget_of_a_slow_source_only() -> None:
    sizer = EpochSizer(budget=1000, fixed_target=0.2)
    # Some records assigned by source 1 are processed seconds later.
    sizer.epoch_processed({1, 2}, {1}, {1: 300, 2: 1000}, 0.0, 0.2)
    assert (sizer.budget_of(1), sizer.budget_of(2)) == (1000, 1000)
    sizer.epoch_processed({2}, {1}, {1: 700, 2: 1000}, 0.2, 0.4)
    sizer.epoch_processed({2}, {}, {2: 1000}, 1.8, 2.0)
    assert (sizer.budget_of(1), sizer.budget_of(2)) == (100, 1000)
    # The budget was used up, so a larger one may be possible.
    sizer.epoch_processed({1, 2}, {}, {1: 100, 2: 1000}, 2.0, 2.2)
    assert (sizer.budget_of(1), sizer.budget_of(2)) == (200, 1000)
    for _ in range(5):
        sizer.epoch_processed({1}, {}, {1: 100}, 3.0, 3.2)
    assert sizer.budget_of(1) == sizer.budget == 1000
    sizer.epoch_processed({1}, {1}, {1: 1}, 4.0, 4.2)
    sizer.epoch_processed((), {}, {}, 4.2, 9.0)
    assert sizer.budget_of(1) == 1


def test_epoch_sizer_does_not_extrapolate_from_few_records() -> None:
    sizer = EpochSizer(budget=1000, fixed_target=0.2)
    # A source that was assigned less than the budget has more input.
    sizer.finished(0.18, limited=True, records=500, max_bytes=1)
    assert sizer.budget < 600


def test_epoch_sizer_targets_most_of_a_slice_by_default() -> None:
    for fixed, target in ((None, pytest.approx(0.15)), (3.0, 3.0)):
        sizer = EpochSizer(fixed_target=fixed)
        sizer.aim_at(0.2)
        assert sizer.target_seconds == target
        sizer.aim_at(math.inf)
        assert sizer.target_seconds == target
