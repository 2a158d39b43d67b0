"""Machines of a Spark cluster are killed, frozen, cut off and added; the sink must hold exactly the answer.

    python -m tests.machines [--rounds 2] [--exchange resident] [--only freeze]

Each worker has its own network and its own disk where this machine allows it; checkpoints are on a directory that all
share. Prints every run with the longest time without a result.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.machines.storm import Storm
from tests.support.spark_cluster import SparkCluster, can_separate

FAULTS = ["kill-executor", "kill", "freeze", "cut-off", "part-from-driver", "part", "add"]
# Those that take networks of the workers' own.
CUTS = ["cut-off", "part-from-driver", "part"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--exchange", choices=["resident", "spark"])
    parser.add_argument("--only", choices=FAULTS)
    options = parser.parse_args()
    faults = [f for f in FAULTS if options.only in (None, f) and (f not in CUTS or can_separate())]
    differences, runs, began = 0, 0, time.monotonic()
    for round_number in range(options.rounds):
        for exchange in [options.exchange] if options.exchange else ["resident", "spark"]:
            for fault in faults:
                differences += one(exchange, fault, random.Random(f"{fault} {exchange} {round_number}"))
                runs += 1
    print(f"{runs} runs, {differences} differences, {time.monotonic() - began:.0f} s")
    return 1 if differences else 0


def one(exchange: str, fault: str, dice: random.Random) -> int:
    """Run the job once on a cluster of its own; return the differences."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="millstream-machines-") as name:
        with SparkCluster(3, shared=name) as cluster:
            storm = Storm(cluster, Path(name), exchange, dice)
            differences = storm.run(fault)
        verdict = "exactly once" if not differences else f"{differences} DIFFERENCES"
        silences = ", ".join(f"{seconds:.1f}" for seconds in storm.silences)
        text = f"{silences} s without a result, {time.monotonic() - started:.0f} s"
        print(f"{exchange} {' '.join(storm.happened)}: {verdict}, {text}", flush=True)
    return differences


if __name__ == "__main__":
    sys.exit(main())
