"""Fault injection: at every step of the protocol, an exception or a kill -9; the sink must hold exactly the answer.

    python -m tests.faults [--seeds 3] [--only STEP] [--what raise] [--job sql]

Prints every case, and at the end points x seeds and the number of differences.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time

from tests.faults.cases import JOBS, WHATS, cases, run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", help="one step")
    parser.add_argument("--what", choices=WHATS)
    parser.add_argument("--first", type=int, default=1, help="go on with this case")
    parser.add_argument("--job", choices=JOBS, default="stream")
    options = parser.parse_args()
    # Every case fails on purpose: its log would hide what counts.
    logging.getLogger("millstream").setLevel(logging.CRITICAL)
    chosen = [
        c
        for c in cases(options.seeds, options.job)
        if options.only in (None, c.step) and options.what in (None, c.what)
    ]
    differences, reached, started = 0, 0, time.monotonic()
    for i, case in list(enumerate(chosen, 1))[options.first - 1 :]:
        outcome = run(case)
        differences += outcome.differences
        reached += outcome.injected
        verdict = "exactly once" if not outcome.differences else f"{outcome.differences} DIFFERENCES"
        injected = "" if outcome.injected else " (the step was not reached)"
        print(f"[{i}/{len(chosen)}] {case}: {verdict}, {outcome.seconds:.1f} s{injected}", flush=True)
    chosen = chosen[options.first - 1 :]
    points = len({(c.step, c.what) for c in chosen})
    print(
        f"{points} points x {options.seeds} seeds = {len(chosen)} runs, {reached} faults injected, "
        f"{differences} differences, {time.monotonic() - started:.0f} s"
    )
    return 1 if differences or reached < len(chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
