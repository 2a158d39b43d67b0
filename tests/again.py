"""Run a folder of tests, and once more the few that failed.

    python -m tests.again tests/unit

Thousands of tests with real servers and killed processes share two noisy cores: now and then one of them fails for
want of time. Up to three that failed are run again by themselves. Those that pass then are named at the end, as
unstable: each is a mistake, of the test or of what it tests, and wants to be found. More than three, or one that
fails twice, fail the run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

MOST = 3
SLOWEST = ("--durations=20", "--durations-min=5")
SOME_FAILED = 1


def run(cache: Path, *arguments: str) -> int:
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *SLOWEST, *arguments]
    return subprocess.run(command, check=False).returncode


def failed(cache: Path) -> list[str]:
    path = cache / "v" / "cache" / "lastfailed"
    return list(json.loads(path.read_text())) if path.exists() else []


def main(folder: str) -> int:
    with tempfile.TemporaryDirectory() as directory:
        cache = Path(directory)
        code = run(cache, folder)
        suspects = failed(cache)
        if code != SOME_FAILED or not 0 < len(suspects) <= MOST:
            return code
        print(f"Once more, by themselves: {' '.join(suspects)}", flush=True)
        code = run(cache, *suspects)
        if code == 0:
            print(
                "\n".join(f"UNSTABLE {name}: failed beside others, passed by itself" for name in suspects), flush=True
            )
        return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
