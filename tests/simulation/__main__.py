"""Runs many schedules: python -m tests.simulation --seeds 10000 [--seed S] [--mutant NAME] [--verbose]."""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator

from .leaders import run_leaders
from .mutants import MUTANTS, Simulation
from .outcome import Outcome
from .schedule import run_schedule
from .transport import run_transport

# Every seed is a schedule of a job, one of the transport, and one of several job managers.
SIMULATIONS: tuple[Simulation, ...] = (run_schedule, run_transport, run_leaders)
# The duration of a schedule relative to others, by simulation: fewer schedules of slow ones are run.
_COSTS: dict[Simulation, int] = {run_leaders: 5}

# The maximum number of differences to print.
_MAX_PRINTED = 10


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m tests.simulation", description="Simulate checkpoints, restarts and the exchange."
    )
    parser.add_argument("--seeds", type=int, default=10_000, help="number of schedules, starting at seed 0")
    parser.add_argument("--seed", type=int, help="run only the schedule of this seed")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="inject this bug into the protocol")
    parser.add_argument("--verbose", action="store_true", help="print the event log; requires --seed")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    mutant = MUTANTS[options.mutant] if options.mutant else None
    simulations = [mutant.simulation] if mutant else SIMULATIONS
    with mutant.in_place() if mutant else contextlib.nullcontext():
        if options.seed is not None:
            return max(_run_one(simulation, options.seed, options.verbose) for simulation in simulations)
        return max(
            _run_many(s, options.seeds // _COSTS.get(s, 1), options.processes, options.mutant) for s in simulations
        )


def _run_one(simulation: Simulation, seed: int, verbose: bool) -> int:
    outcome = simulation(seed, verbose)
    for line in outcome.log:
        print(line)
    print(f"{simulation.__name__}, seed {seed}: {outcome.difference or 'no difference'}")
    return int(outcome.difference is not None)


def _run_many(simulation: Simulation, seeds: int, processes: int, mutant: str | None) -> int:
    began = time.monotonic()
    faults: Counter[str] = Counter()
    differences = 0
    for outcome in _outcomes(simulation, seeds, processes):
        faults += outcome.faults
        if outcome.difference is not None:
            differences += 1
            if differences <= _MAX_PRINTED:
                _show(outcome, mutant)
    seconds = time.monotonic() - began
    print(f"faults: {', '.join(f'{kind} {count}' for kind, count in faults.most_common())}")
    pace = f"{seeds} in {seconds:.1f} s ({seeds / seconds * 60:.0f} a minute)"
    print(f"{simulation.__name__}: schedules: {pace}, differences: {differences}")
    return int(differences > 0)


def _outcomes(simulation: Simulation, seeds: int, processes: int) -> Iterator[Outcome]:
    if processes <= 1:
        yield from map(simulation, range(seeds))
        return
    # Forked processes inherit the mutant.
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap(simulation, range(seeds), chunksize=50)


def _show(outcome: Outcome, mutant: str | None) -> None:
    with_mutant = f" --mutant {mutant}" if mutant else ""
    print(f"seed {outcome.seed}: {outcome.difference}")
    print(f"    python -m tests.simulation --seed {outcome.seed}{with_mutant} --verbose", flush=True)


if __name__ == "__main__":
    sys.exit(main())
