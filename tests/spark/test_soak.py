"""The soak, short: a job whose processes are killed, looked at from outside; `make soak` is the long form."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.soak.__main__ import BOUNDS, Soak
from tests.soak.nexmark import NexmarkSoak

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def test_a_job_with_kills_is_exact_and_measured(tmp_path: Path) -> None:
    soak = Soak(tmp_path, minutes=0.2, rate=500, kills=1, dice=random.Random(1))
    assert soak.run() == 0
    assert soak.killed == 1
    # Some seconds are too short to tell whether anything grows.
    assert {t.name for t in soak.trends() if t.level > 0} == BOUNDS.keys()


def test_a_query_with_kills_leaves_the_rows_of_one_without(tmp_path: Path) -> None:
    """`make soak-sql` is the long form, of four queries."""
    soak = NexmarkSoak(tmp_path, "q7", minutes=0.2, rate=300, kills=2, dice=random.Random(1))
    wanted = soak.wanted()
    assert soak.found() == wanted
    assert sum(wanted.values()) > 10
    assert (soak.slots_killed, soak.drivers_killed) == (1, 1)
