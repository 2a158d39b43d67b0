"""Machines of a Spark cluster are killed, frozen, partitioned and added; the sink must hold exactly the expected rows.

    python -m tests.machines [--rounds 2] [--exchange resident] [--only freeze]

Each worker has its own network and its own disk if this machine allows it; checkpoints are in a shared directory.
Prints every run with the longest time without a result.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.machines.fault_run import FaultRun
from tests.support.spark_cluster import SparkCluster, can_separate

FAULTS = ["kill-executor", "kill", "freeze", "disconnect", "partition-from-driver", "partition", "add"]
# Faults that require a separate network per worker.
NETWORK_FAULTS = ["disconnect", "partition-from-driver", "partition"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--exchange", choices=["resident", "spark"])
    parser.add_argument("--only", choices=FAULTS)
    options = parser.parse_args()
    faults = [f for f in FAULTS if options.only in (None, f) and (f not in NETWORK_FAULTS or can_separate())]
    differences, runs, began = 0, 0, time.monotonic()
    for round_number in range(options.rounds):
        for exchange in [options.exchange] if options.exchange else ["resident", "spark"]:
            for fault in faults:
                differences += run_once(exchange, fault, random.Random(f"{fault} {exchange} {round_number}"))
                runs += 1
    print(f"{runs} runs, {differences} differences, {time.monotonic() - began:.0f} s")
    return 1 if differences else 0


def run_once(exchange: str, fault: str, dice: random.Random) -> int:
    """Run the job once on its own cluster; return the number of differences."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="millstream-machines-") as name:
        with SparkCluster(3, shared=name) as cluster:
            fault_run = FaultRun(cluster, Path(name), exchange, dice)
            differences = fault_run.run(fault)
        verdict = "exactly once" if not differences else f"{differences} DIFFERENCES"
        outages = ", ".join(f"{seconds:.1f}" for seconds in fault_run.outages)
        text = f"{outages} s without a result, {time.monotonic() - started:.0f} s"
        print(f"{exchange} {' '.join(fault_run.injected)}: {verdict}, {text}", flush=True)
    return differences


if __name__ == "__main__":
    sys.exit(main())
