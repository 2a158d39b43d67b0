"""The short form of `make soak` and `make soak-sql`: jobs whose processes are killed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.soak.__main__ import BOUNDS, Soak
from tests.soak.nexmark import NexmarkSoak

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def test_soak_is_exact_and_measured_with_kills(tmp_path: Path) -> None:
    soak = Soak(tmp_path, minutes=0.2, rate=500, kills=1, dice=random.Random(1))
    assert soak.run() == 0
    assert soak.killed == 1
    # Some seconds are too short to detect growth.
    assert {t.name for t in soak.trends() if t.level > 0} == BOUNDS.keys()


def test_nexmark_soak_result_is_unchanged_with_kills(tmp_path: Path) -> None:
    """`make soak-sql` is the long form, with four queries."""
    soak = NexmarkSoak(tmp_path, "q7", minutes=0.2, rate=300, kills=2, dice=random.Random(1))
    expected = soak.expected()
    assert soak.actual() == expected
    assert sum(expected.values()) > 10
    assert (soak.slots_killed, soak.drivers_killed) == (1, 1)
