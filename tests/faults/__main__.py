"""Fault injection: an exception or a kill -9 at all_cases step of the protocol; the sink must hold each result once.

    python -m tests.faults [--seeds 3] [--only STEP] [--action raise] [--job sql] [--local] [--set KEY=VALUE]

The job `kafka` goes from Kafka to Kafka; its broker is started for the test and killed, too.

Prints every case, and at the end points x seeds and the number of differences.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tests.faults.cases import (
    ACTIONS,
    JOBS,
    KAFKA,
    KILL_BROKER,
    RESCALED,
    Case,
    Outcome,
    cases,
    kafka_cases,
    local_cases,
    run,
    run_with_kafka,
)

from millstream.testing.servers.kafka import KafkaBroker


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", help="one step")
    parser.add_argument("--action", choices=[*ACTIONS, *RESCALED, KILL_BROKER])
    parser.add_argument("--first", type=int, default=1, help="the number of the first case to run")
    parser.add_argument("--job", choices=[*JOBS, KAFKA], default="stream")
    parser.add_argument("--local", action="store_true", help="without Spark: exceptions, and the driver's death")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="such as state.backend.type=lmdb"
    )
    options = parser.parse_args()
    # Every case fails on purpose: its log would hide the results.
    logging.getLogger("millstream").setLevel(logging.CRITICAL)
    if options.job == KAFKA:
        all_cases = kafka_cases(options.seeds)
    else:
        all_cases = (local_cases if options.local else cases)(options.seeds, options.job)
    chosen = [c for c in all_cases if options.only in (None, c.step) and options.action in (None, c.action)]
    chosen = [replace(case, settings=tuple(options.set)) for case in chosen]
    if options.job != KAFKA:
        return _run_all(chosen, options.first, options.seeds, run)
    with KafkaBroker() as broker:
        return _run_all(chosen, options.first, options.seeds, partial(run_with_kafka, broker=broker))


def _run_all(chosen: list[Case], first: int, seeds: int, run: Callable[[Case], Outcome]) -> int:
    differences, reached, started = 0, 0, time.monotonic()
    for i, case in list(enumerate(chosen, 1))[first - 1 :]:
        outcome = run(case)
        differences += outcome.differences
        reached += outcome.injected
        injected = "" if outcome.injected else " (the step was not reached)"
        print(f"[{i}/{len(chosen)}] {case}: {outcome.verdict()}, {outcome.seconds:.1f} s{injected}", flush=True)
    chosen = chosen[first - 1 :]
    points = len({(c.step, c.action) for c in chosen})
    print(
        f"{points} points x {seeds} seeds = {len(chosen)} runs, {reached} faults injected, "
        f"{differences} differences, {time.monotonic() - started:.0f} s"
    )
    return 1 if differences or reached < len(chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
