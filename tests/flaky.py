"""Repeat tests while the machine is overloaded, to find tests that depend on timing.

    python -m tests.flaky --count 50 tests/integration/leader

Busy processes raise the load to `--load` while pytest runs each test `--count` times, up to the first failure. Most
of these tests wait, so `--processes` of them run at a time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from contextlib import ExitStack

BUSY_LOOP = "while True: pass"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.flaky", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=50, help="runs of each test (default: %(default)s)")
    parser.add_argument("--load", type=int, default=10, help="busy processes beside the tests (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=4, help="tests that run at a time (default: %(default)s)")
    parser.add_argument("tests", nargs="+", help="files, folders or ids of tests")
    options = parser.parse_args()
    # A process gets one test at a time, so that a failure ends the run at once.
    repeated = ["--exitfirst", "--count", str(options.count), "--numprocesses", str(options.processes)]
    repeated += ["--maxschedchunk", "1"]
    pytest = [sys.executable, "-m", "pytest", *repeated, *options.tests]
    with ExitStack() as stack:
        for _ in range(options.load):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", BUSY_LOOP]))
            stack.callback(process.kill)
        return subprocess.run(pytest, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
