"""Runs random programs and compares their results with DuckDB's.

python -m tests.sql.oracle [--count 2000] [--seed 0]     (`make sql-oracle`)
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from .running import Skipped, difference, is_refused, make, smallest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--raw", action="store_true", help="print failing programs without shrinking them")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    operators: Counter[str] = Counter()
    started = time.monotonic()
    for seed in range(options.seed, options.seed + options.count):
        case = make(seed)
        try:
            result = difference(case)
        except Skipped as e:
            counts[f"skipped: {str(e)[:60]}"] += 1
            continue
        operators.update(case.program.labels())
        if result is None:
            counts["right"] += 1
        elif is_refused(result):
            counts[f"refused: {result.summary[:200]}"] += 1
            print(f"refused: seed {seed} {result.summary}", flush=True)
        else:
            counts["wrong"] += 1
            print(result if options.raw else smallest(result), flush=True)
        if seed % 500 == 499:
            print(
                f"{seed + 1 - options.seed} programs, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True
            )
    for kind, n in counts.most_common():
        print(f"{n:6} {kind}")
    print(dict(operators.most_common()))
    sys.exit(counts["wrong"] > 0)


if __name__ == "__main__":
    main()
