"""The time to the first row of a query on the local engine: a new process, its imports, the query, its first row.

    python -m bench.sql.first_row [--rounds 5]

Modules are compiled before the first round, as in an installed package.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.results import store

PROGRAM = """
from millstream.table import EnvironmentSettings, TableEnvironment
tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
tables.get_config().set("millstream.engine", "local")
with tables.execute_sql("SELECT x + 1, UPPER(y) FROM (VALUES (1, 'a'), (2, 'b')) AS t (x, y)").collect() as rows:
    print(next(iter(rows)), flush=True)
    import sys
    sys.stdin.read()
"""


def first_row(environment: dict[str, str]) -> float:
    """Return the seconds from the start of a process to its first row."""
    began = time.perf_counter()
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        row = process.stdout.readline()
        took = time.perf_counter() - began
        errors = process.communicate()[1]
    if row.strip() != "<Row(2, 'A')>" or process.returncode:
        raise SystemExit(f"{row}{errors}")
    return took


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    source = Path(__file__).resolve().parents[2] / "src"
    with tempfile.TemporaryDirectory() as compiled:
        environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        first_row(environment)
        times = sorted(first_row(environment) for _ in range(options.rounds))
    store("first-row", times)
    print(f"first row after {times[0]:.2f} s (best of {options.rounds}; worst {times[-1]:.2f} s)")


if __name__ == "__main__":
    main()
