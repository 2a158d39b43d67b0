"""Print the coverage of each package as a table, and write it to coverage.md: python -m tests.coverage.

Reads what `coverage combine` has written.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import ROOT


class Counts(NamedTuple):
    """Lines and branches of a package, and those that were run."""

    lines: int = 0
    covered_lines: int = 0
    branches: int = 0
    covered_branches: int = 0

    def plus(self, summary: dict[str, int]) -> Counts:
        names = ("num_statements", "covered_lines", "num_branches", "covered_branches")
        return Counts(*(count + summary[name] for count, name in zip(self, names, strict=True)))


def by_package(files: dict[str, dict[str, dict[str, int]]]) -> dict[str, Counts]:
    """Add up the files of each package below millstream, and of all."""
    packages: dict[str, Counts] = {}
    for path, file in files.items():
        inside = path.partition("millstream/")[2]
        package = inside.partition("/")[0] if "/" in inside else "(modules)"
        for name in (package, "all"):
            packages[name] = packages.get(name, Counts()).plus(file["summary"])
    return packages


def table(packages: dict[str, Counts]) -> str:
    """Return a table in Markdown, `all` last."""
    rows = [
        f"| {name} | {counts.lines:,} | {percent(counts.covered_lines, counts.lines)} | {counts.branches:,} "
        f"| {percent(counts.covered_branches, counts.branches)} |"
        for name, counts in sorted(packages.items(), key=lambda item: (item[0] == "all", item[0]))
    ]
    return "\n".join(["| package | lines | covered | branches | covered |", "|---|---:|---:|---:|---:|", *rows, ""])


def percent(covered: int, total: int) -> str:
    return f"{100 * covered / total:.1f}%" if total else "-"


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "coverage.json"
        command = [sys.executable, "-m", "coverage", "json", "--quiet", "-o", str(path)]
        subprocess.run(command, check=True, cwd=ROOT)
        files = json.loads(path.read_text())["files"]
    text = table(by_package(files))
    (ROOT / "coverage.md").write_text(text)
    print(text, end="", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
