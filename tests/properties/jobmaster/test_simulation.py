"""Simulated checkpoints, commits and restarts: the protocol passes, and every mutant of it fails."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.mutants import MUTANTS
from tests.support.paths import ROOT

# `make simulate` runs 20,000.
SEEDS = 400

# Seeds that detect mutants which few schedules detect. The search for the other mutants starts at seed 0.
DETECTING_SEEDS = {
    "failed-checkpoint-left-in-restart": 40,
    "final-abort-without-waiting": 50,
    "in-flight-data-duplicated-in-rescale": 497,
    "in-flight-data-lost-in-rescale": 134,
    "later-runs-aborted": 208,
    "missing-end-undetected": 62,
    "not-claimed": 32,
    "not-waiting-for-manifests": 92,
    "pending-ranges-duplicated-in-rescale": 35,
    "pending-ranges-lost-in-rescale": 35,
    "position-not-recorded": 136,
    "region-without-delta": 184,
    "region-without-state": 734,
    "removed-in-any-order": 271,
    "report-after-end": 28,
    "report-counted-twice": 29,
    "requests-duplicated-in-rescale": 25,
    "requests-lost-in-rescale": 52,
    "snapshot-before-commit": 61,
    "snapshot-without-state": 27,
    "state-of-another-checkpoint": 46,
    "takeover-not-recorded": 35,
    "timestamp-not-monotonic": 501,
    "unconfirmed-state-deleted": 152,
}
# The maximum number of schedules of a search.
MAX_SEARCHED = 2_000

_DIGEST = """
import hashlib
from tests.simulation.__main__ import SIMULATIONS
logs = [line for run in SIMULATIONS for seed in range(25) for line in run(seed, verbose=True).log]
print(len(logs), hashlib.sha256("\\n".join(logs).encode()).hexdigest())
"""


def _python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.timeout(600)
def test_simulation_finds_no_lost_or_duplicate_records() -> None:
    done = _python("-m", "tests.simulation", "--seeds", str(SEEDS))
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("differences: 0") == 3


@pytest.mark.parametrize("name", MUTANTS)
def test_simulation_detects_mutant(name: str) -> None:
    first = DETECTING_SEEDS.get(name, 0)
    with MUTANTS[name].in_place():
        outcomes = map(MUTANTS[name].simulation, [*range(first, MAX_SEARCHED), *range(first)])
        outcome = next((o for o in outcomes if o.difference is not None), None)
    assert outcome is not None, MUTANTS[name].description
    print(f"{name}: seed {outcome.seed}: {outcome.difference}")
    assert not outcome.is_error, outcome.difference


def test_simulation_schedule_depends_only_on_seed() -> None:
    first, second = (_python("-c", _DIGEST, PYTHONHASHSEED=seed) for seed in ("1", "2"))
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout


def test_simulation_violation_prints_replay_command() -> None:
    many = _python("-m", "tests.simulation", "--seeds", "20", "--mutant", "commit-before-manifest")
    assert many.returncode == 1
    replay = next(line.split() for line in many.stdout.splitlines() if "--seed " in line)
    assert replay[0] == "python"
    one = _python(*replay[1:])
    assert one.returncode == 1
    assert "VIOLATION: transaction" in one.stdout
