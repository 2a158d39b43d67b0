"""Run PyFlink's own tests against Millstream, through the alias `pyflink`; a part of `make test-pyflink`.

    python -m tests.pyflink.suite.run [--only part-of-an-id] [--verbose]

The tests are not in this repository. Git clones Flink's sources once into the cache folder of the benchmarks;
FLINK_REPOSITORY is another location of these sources. Each job runs in the process of its test. `exclusions.yaml` lists
the tests that do not count, because they test PyFlink's Java bindings, and those that count and fail, because the
behaviour differs. Any other failure is an error, and so is a listed test that passes.
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
MIN_PASSED_SHARE = 0.97


def checkout() -> Path:
    """Return the folder `pyflink` of Flink's sources; clone them if needed."""
    folder = CACHE / f"flink-python-{VERSION}"
    if not folder.exists():
        partial = folder.with_suffix(".half")
        subprocess.run(["rm", "-rf", str(partial)], check=True)
        clone = ["git", "clone", "--quiet", "--depth", "1", "--filter=blob:none", "--sparse"]
        subprocess.run([*clone, "--branch", f"release-{VERSION}", SOURCES, str(partial)], check=True)
        subprocess.run(["git", "-C", str(partial), "sparse-checkout", "set", "flink-python/pyflink"], check=True)
        partial.rename(folder)
    return folder / "flink-python" / "pyflink"


@dataclass(frozen=True)
class Exclusions:
    """The tests that are expected to fail, by pattern."""

    excluded: dict[str, str]
    differs: dict[str, str]

    @staticmethod
    def read() -> Exclusions:
        lists = yaml.safe_load((HERE / "exclusions.yaml").read_text())
        kinds = ("excluded", "differs")
        return Exclusions(*({t: reason for reason, tests in lists[k].items() for t in tests} for k in kinds))

    def kind(self, test: str) -> str:
        """Return "excluded", "differs" or "expected"."""
        for kind, patterns in (("excluded", self.excluded), ("differs", self.differs)):
            if any(fnmatchcase(test, pattern) for pattern in patterns):
                return kind
        return "expected"


def outcomes(folder: Path, only: str) -> dict[str, str]:
    """Return the outcome of each test: `passed`, `skipped: ..` or a traceback."""
    outcomes_by_test: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for package in PACKAGES:
            output = Path(temporary) / "outcomes.json"
            command = [sys.executable, str(HERE / "one_package.py"), str(folder), str(output), package, "--only", only]
            done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
            if done.returncode:
                sys.exit(f"{package} did not finish:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
            outcomes_by_test |= json.loads(output.read_text())
    return outcomes_by_test


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--verbose", action="store_true", help="show the tracebacks of all failed tests")
    options = parser.parse_args()
    exclusions = Exclusions.read()
    unexpected: list[str] = []
    counts: Counter[str] = Counter()
    for test, outcome in outcomes(checkout(), options.only).items():
        kind, passed = exclusions.kind(test), outcome == "passed"
        if outcome.startswith("skipped"):
            counts["skipped"] += 1
            continue
        counts["excluded" if kind == "excluded" else "passed" if passed else "failed"] += 1
        if passed != (kind == "expected"):
            unexpected.append(f"{test} is listed and passes" if passed else f"{test} fails")
        if not passed and (options.verbose or kind == "expected"):
            print(f"--- {test}\n{outcome}")
    counted = counts["passed"] + counts["failed"]
    share = counts["passed"] / max(counted, 1)
    print("\n".join(unexpected))
    print(f"PyFlink {VERSION}'s tests: {counts['passed']} of {counted} pass ({share:.1%}); ", end="")
    print(f"{counts['excluded']} test PyFlink's Java bindings, {counts['skipped']} PyFlink skips itself.")
    if unexpected or (share < MIN_PASSED_SHARE and not options.only):
        sys.exit(1)


if __name__ == "__main__":
    main()
