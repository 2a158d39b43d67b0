"""Short jobs: a cold start of the README's first program, and small jobs in a process that is warm.

Prints one JSON object. Times are the best of several, because other load on the machine only slows a run down. A cold
start is the life of a process, with Spark's classes from an archive, as in every start but the first. Another run logs
the time of each step.

    python -m bench.short_jobs [--rounds 5] [--cold-rounds 5]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

README = Path(__file__).resolve().parents[1] / "README.md"
RECORDS = {"empty": 0, "1,000 records": 1_000, "1,000,000 records": 1_000_000}


def words() -> str:
    """Return the README's first program."""
    match = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert match is not None
    return match[1]


def cold_start(rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        program = os.path.join(directory, "words.py")
        Path(program).write_text(words())
        # The first run may have to write the archive.
        first, *seconds = [_seconds([program]) for _ in range(rounds + 1)]
        local = min(_seconds(["-m", "millstream.cli.main", "run", "--local", program]) for _ in range(rounds))
        return {
            "first_seconds": first,
            "seconds": min(seconds),
            "local_seconds": local,
        }


def _seconds(arguments: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
    return time.perf_counter() - began


def warm_jobs(rounds: int) -> dict[str, float]:
    """Run each job several times in this process, in sequence; return the best time of each."""
    best: dict[str, float] = {}
    _job(1_000)
    for _ in range(rounds):
        for name, records in RECORDS.items():
            best[name] = min(_job(records), best.get(name, 1e9))
    return best


def _job(records: int) -> float:
    from millstream.common import Configuration
    from millstream.datastream import StreamExecutionEnvironment
    from millstream.datastream.connectors.number_seq import NumberSequenceSource

    config = Configuration.from_dict({"spark.master": "local[2]", "millstream.quiet": "true"})
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(2)
    numbers = env.from_source(NumberSequenceSource(0, records - 1)) if records else env.from_collection([])
    sums = numbers.map(lambda x: (x % 1000, 1)).key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    sums.filter(lambda t: t[1] < 0).print()
    began = time.perf_counter()
    env.execute()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cold-rounds", type=int, default=5)
    options = parser.parse_args()
    cold = cold_start(options.cold_rounds)
    print(json.dumps({"cold": cold, "warm": warm_jobs(options.rounds)}))


if __name__ == "__main__":
    main()
