"""The soak, short: a job whose processes are killed, looked at from outside; `make soak` is the long form."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.soak.__main__ import BOUNDS, Soak

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def test_a_job_with_kills_is_exact_and_measured(tmp_path: Path) -> None:
    soak = Soak(tmp_path, minutes=0.2, rate=500, kills=1, dice=random.Random(1))
    assert soak.run() == 0
    assert soak.killed == 1
    # Some seconds are too short to tell whether anything grows.
    assert {t.name for t in soak.trends() if t.level > 0} == BOUNDS.keys()
