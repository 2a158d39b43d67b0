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

# Runs a program and prints the time of each step as the last line of stderr.
STEPS = """
import atexit, functools, json, runpy, sys, time
began = float(sys.argv[1])
reached = {"python": time.time() - began}

def note(owner, name, step):
    inner = getattr(owner, name)
    @functools.wraps(inner)
    def timed(*args, **kwargs):
        result = inner(*args, **kwargs)
        reached.setdefault(step, time.time() - began)
        return result
    setattr(owner, name, timed)

from millstream.datastream import StreamExecutionEnvironment
reached["millstream imported"] = time.time() - began
from millstream.spark import embedded, gateway
note(embedded, "start_ahead", "JVM started")
note(gateway.Gateway, "connect", "JVM reached")
launch = StreamExecutionEnvironment._launch
def watched(env, job):
    from millstream.spark import resident_epochs, session
    reached["PySpark imported"] = time.time() - began
    note(session, "_start", "Spark up")
    note(resident_epochs.ExchangeEpochs, "run", "first epoch")
    note(resident_epochs.ExchangeEpochs, "release", "job over")
    return launch(env, job)
StreamExecutionEnvironment._launch = watched
atexit.register(lambda: print(json.dumps(reached), file=sys.stderr))
runpy.run_path(sys.argv[2], run_name="__main__")
"""


def words() -> str:
    """Return the README's first program."""
    match = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert match is not None
    return match[1]


def cold_start(rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        program, steps = os.path.join(directory, "words.py"), os.path.join(directory, "steps.py")
        Path(program).write_text(words())
        Path(steps).write_text(STEPS)
        # The first run may have to write the archive.
        first, *seconds = [_seconds([program]) for _ in range(rounds + 1)]
        local = min(_seconds(["-m", "millstream.cli.main", "run", "--local", program]) for _ in range(rounds))
        return {
            "first_seconds": first,
            "seconds": min(seconds),
            "local_seconds": local,
            "steps": _steps(steps, program),
        }


def _seconds(arguments: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
    return time.perf_counter() - began


def _steps(steps: str, program: str) -> dict[str, float]:
    began = time.time()
    done = subprocess.run([sys.executable, steps, str(began), program], capture_output=True, text=True, check=True)
    reached: dict[str, float] = json.loads(done.stderr.strip().splitlines()[-1])
    return {**reached, "process over": time.time() - began}


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
