"""Run a folder of tests and retry up to three failures once.

    python -m tests.again tests/unit [options of pytest]

Some tests kill real processes and start real servers on two noisy cores. A test that passes on the retry is reported as
UNSTABLE: that is a bug in the test or in the code; `make flaky` helps to find it. More than three failures, or a test
that fails twice, fail the run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

MAX_RETRIED = 3
SLOWEST = ("--durations=20", "--durations-min=5")
SOME_FAILED = 1


def run(cache: Path, *arguments: str) -> int:
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *SLOWEST, *arguments]
    return subprocess.run(command, check=False).returncode


def failed(cache: Path) -> list[str]:
    path = cache / "v" / "cache" / "lastfailed"
    return list(json.loads(path.read_text())) if path.exists() else []


def main(folder: str, *options: str) -> int:
    with tempfile.TemporaryDirectory() as directory:
        cache = Path(directory)
        code = run(cache, folder, *options)
        failures = failed(cache)
        if code != SOME_FAILED or not 0 < len(failures) <= MAX_RETRIED:
            return code
        print(f"Retrying: {' '.join(failures)}", flush=True)
        code = run(cache, *failures)
        if code == 0:
            print("\n".join(f"UNSTABLE {name}: failed, then passed on retry" for name in failures), flush=True)
        return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
