"""Simulated checkpoints, commits and restarts: the protocol passes, and every mutant of it fails."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.mutants import MUTANTS
from tests.support.paths import ROOT

# `make simulate` runs many more.
SEEDS = 2_000

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
    with MUTANTS[name].in_place():
        found = next((o for o in map(MUTANTS[name].simulation, range(SEEDS)) if o.difference is not None), None)
    assert found is not None, MUTANTS[name].what
    print(f"{name}: seed {found.seed}: {found.difference}")
    assert not found.is_error, found.difference


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
