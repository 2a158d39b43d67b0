"""Print a version's section of CHANGELOG.md: python -m tests.release.notes 0.1.0."""

from __future__ import annotations

import re
import sys

from millstream import __version__
from tests.support.paths import ROOT

CHANGELOG = ROOT / "CHANGELOG.md"


def section(changelog: str, version: str) -> str | None:
    """Return the text below a version's heading, up to the next version's."""
    found = re.search(rf"^## {re.escape(version)}( [^\n]*)?\n(.*?)(?=^## |\Z)", changelog, re.DOTALL | re.MULTILINE)
    return found[2].strip() if found else None


def fail(message: str) -> int:
    print(message, file=sys.stderr)
    return 1


def main(version: str) -> int:
    # The tag is v0.1.0: it must be of the package's own version.
    if version != __version__:
        return fail(f"src/millstream/__init__.py has version {__version__}, not {version}: set it before you tag.")
    text = section(CHANGELOG.read_text(), version)
    if not text:
        return fail(f'CHANGELOG.md has no section "## {version}": rename "Unreleased".')
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
