"""Compare two source trees of Millstream, which alternate between the same programs.

    git worktree add ../before <commit>
    python -m bench.compare ../before . [--only a,b,c,d,f,g,h,e,q3,q4] [--rounds 3] [--scale 0.25] [--seconds 10]

Both run with this Python. `q3` is query 3 of Nexmark; it runs for about `--seconds`. The best round counts, because
other load on the machine only slows a run down.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.empty_epoch import LEVELS
from bench.run import PROGRAMS
from bench.sql.nexmark import Bench, in_turns, query_text


def _run(tree: Path, script: str, arguments: list[str]) -> Any:
    """Run a script of a tree's benchmark; return the JSON of its last output line."""
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{tree}"}
    command = [sys.executable, str(tree / "bench" / script), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def _records_per_second(tree: Path, program: str, scale: float) -> float:
    arguments, records = PROGRAMS[program]
    count = int(records["millstream"] * scale)
    result = _run(tree, "millstream_job.py", [*arguments, "--records", str(count)])
    return float(result["records"]) / float(result["seconds"])


def _compare_empty_epochs(trees: list[Path], rounds: int) -> None:
    for levels in LEVELS:
        arguments = ["--side", "millstream", "--levels", str(levels)]
        times = [[_run(tree, "empty_epoch.py", arguments) for tree in trees] for _ in range(rounds)]
        before, after = (min(times_of_tree) for times_of_tree in zip(*times, strict=True))
        print(f"(e) empty epoch, {levels} levels: {before:.2f} -> {after:.2f} ms", flush=True)


def _compare_latency(trees: list[Path], rounds: int) -> None:
    for tree in trees * rounds:
        result = _run(tree, "millstream_job.py", ["--program", "latency"])
        print(f"(f) latency, {tree.name}: p50 {result['p50_ms']:.1f} ms, p99 {result['p99_ms']:.1f} ms", flush=True)


def _compare_nexmark(trees: list[Path], name: str, rounds: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as before, tempfile.TemporaryDirectory() as after:
        sides = []
        try:
            for tree, folder in zip(trees, (before, after), strict=True):
                sides.append(Bench(Path(folder), [], "spark", tree).ours(name, query_text(name)))
            events, times = in_turns(sides, name, seconds, rounds)
        finally:
            for side in sides:
                side.close()
    rates = [events / best for best in times]
    print(f"({name}) {rates[0]:,.0f} -> {rates[1]:,.0f} events/s: {rates[1] / rates[0]:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--only", default="a,b,c,d,g,h,f,e")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=0.25, help="of the records of bench.run")
    parser.add_argument("--seconds", type=float, default=10.0, help="of a run of a Nexmark query")
    options = parser.parse_args()
    trees = [options.before.resolve(), options.after.resolve()]
    for program in options.only.split(","):
        if program == "e":
            _compare_empty_epochs(trees, options.rounds)
        elif program == "f":
            _compare_latency(trees, options.rounds)
        elif program.startswith("q"):
            _compare_nexmark(trees, program, options.rounds, options.seconds)
        else:
            rounds = [[_records_per_second(t, program, options.scale) for t in trees] for _ in range(options.rounds)]
            before, after = (max(rates) for rates in zip(*rounds, strict=True))
            print(f"({program}) {before:,.0f} -> {after:,.0f} records/s: {after / before:.2f}", flush=True)


if __name__ == "__main__":
    main()
