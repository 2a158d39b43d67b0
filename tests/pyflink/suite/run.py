"""Run PyFlink's own tests against Millstream, through the alias `pyflink`; a part of `make test-pyflink`.

    python -m tests.pyflink.suite.run [--only part-of-an-id] [--verbose]

The tests are not a part of this repository. Git takes them from Flink's sources, once, into the cache folder of the
benchmarks; FLINK_REPOSITORY names another place for those sources. Each job runs in the process of its test.
`exclusions.yaml` has the tests that do not count, since they are about Java's side of PyFlink, and those that count
and fail, since the behaviour is another here. Anything else that fails is an error, and so is an entry that passes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import yaml
from bench.venvs import CACHE

HERE = Path(__file__).resolve().parent

VERSION = "2.3.0"
SOURCES = os.environ.get("FLINK_REPOSITORY", "https://github.com/apache/flink.git")
PACKAGES = ("common/tests", "datastream/tests", "table/tests")
AT_LEAST = 0.97


def checkout() -> Path:
    """Return the folder `pyflink` of Flink's sources."""
    folder = CACHE / f"flink-python-{VERSION}"
    if not folder.exists():
        half = folder.with_suffix(".half")
        subprocess.run(["rm", "-rf", str(half)], check=True)
        clone = ["git", "clone", "--quiet", "--depth", "1", "--filter=blob:none", "--sparse"]
        subprocess.run([*clone, "--branch", f"release-{VERSION}", SOURCES, str(half)], check=True)
        subprocess.run(["git", "-C", str(half), "sparse-checkout", "set", "flink-python/pyflink"], check=True)
        half.rename(folder)
    return folder / "flink-python" / "pyflink"


@dataclass(frozen=True)
class Listed:
    """The tests that are expected to fail, by pattern."""

    excluded: dict[str, str]
    differs: dict[str, str]

    @staticmethod
    def read() -> Listed:
        given = yaml.safe_load((HERE / "exclusions.yaml").read_text())
        return Listed(*({t: why for why, tests in given[k].items() for t in tests} for k in ("excluded", "differs")))

    def kind(self, test: str) -> str:
        """Return "excluded", "differs" or "expected"."""
        for kind, patterns in (("excluded", self.excluded), ("differs", self.differs)):
            if any(fnmatchcase(test, pattern) for pattern in patterns):
                return kind
        return "expected"


def outcomes(folder: Path, only: str) -> dict[str, str]:
    """Return what came of each test: `passed`, `skipped: ..` or a traceback."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as place:
        for package in PACKAGES:
            output = Path(place) / "outcomes.json"
            command = [sys.executable, str(HERE / "one_package.py"), str(folder), str(output), package, "--only", only]
            done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
            if done.returncode:
                sys.exit(f"{package} did not run to its end:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
            found |= json.loads(output.read_text())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--verbose", action="store_true", help="show the tracebacks of all that fails")
    options = parser.parse_args()
    listed = Listed.read()
    wrong: list[str] = []
    counts: Counter[str] = Counter()
    for test, outcome in outcomes(checkout(), options.only).items():
        kind, passed = listed.kind(test), outcome == "passed"
        if outcome.startswith("skipped"):
            counts["skipped"] += 1
            continue
        counts["excluded" if kind == "excluded" else "passed" if passed else "failed"] += 1
        if passed != (kind == "expected"):
            wrong.append(f"{test} is listed and passes" if passed else f"{test} fails")
        if not passed and (options.verbose or kind == "expected"):
            print(f"--- {test}\n{outcome}")
    counted = counts["passed"] + counts["failed"]
    share = counts["passed"] / max(counted, 1)
    print("\n".join(wrong))
    print(f"PyFlink {VERSION}'s tests: {counts['passed']} of {counted} pass ({share:.1%}); ", end="")
    print(f"{counts['excluded']} are about Java's side of PyFlink, {counts['skipped']} PyFlink skips itself.")
    if wrong or (share < AT_LEAST and not options.only):
        sys.exit(1)


if __name__ == "__main__":
    main()
