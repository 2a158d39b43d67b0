"""Two trees of millstream taking turns at the same programs: how much faster, or slower, has it become?

    git worktree add ../before <commit>
    python -m bench.compare ../before . [--only a,b,c,d,f,g,h,e] [--rounds 3] [--scale 0.25]

Both run with this Python. The best of each counts, because neighbours on the machine only ever make a run slower.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.empty_epoch import LEVELS
from bench.run import PROGRAMS


def _run(tree: Path, script: str, arguments: list[str]) -> Any:
    """Run a script of a tree's benchmark; return the JSON that it prints last."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, str(tree / "bench" / script), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def _speed(tree: Path, program: str, scale: float) -> float:
    arguments, records = PROGRAMS[program]
    count = int(records["millstream"] * scale)
    found = _run(tree, "millstream_job.py", [*arguments, "--records", str(count)])
    return float(found["records"]) / float(found["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--only", default="a,b,c,d,g,h,f,e")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=0.25, help="of the records that the benchmark has")
    options = parser.parse_args()
    trees = [options.before.resolve(), options.after.resolve()]
    for program in options.only.split(","):
        if program == "e":
            for levels in LEVELS:
                side = ["--side", "millstream", "--levels", str(levels)]
                rounds = [[_run(tree, "empty_epoch.py", side) for tree in trees] for _ in range(options.rounds)]
                before, after = (min(times) for times in zip(*rounds, strict=True))
                print(f"(e) empty epoch, {levels} levels: {before:.1f} -> {after:.1f} ms", flush=True)
        elif program == "f":
            for tree in trees * options.rounds:
                found = _run(tree, "millstream_job.py", ["--program", "latency"])
                print(
                    f"(f) latency, {tree.name}: p50 {found['p50_ms']:.1f} ms, p99 {found['p99_ms']:.1f} ms", flush=True
                )
        else:
            best = [0.0, 0.0]
            for _ in range(options.rounds):
                best = [max(b, _speed(tree, program, options.scale)) for b, tree in zip(best, trees, strict=True)]
            print(f"({program}) {best[0]:,.0f} -> {best[1]:,.0f} records/s: {best[1] / best[0]:.2f}", flush=True)


if __name__ == "__main__":
    main()
