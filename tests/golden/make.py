"""Generates the golden files of the current version of the format: python -m tests.golden.make [case...]"""

from __future__ import annotations

import sys
from pathlib import Path

from millstream.checkpoint.manifest import VERSION

# Import the classes of the programs under the names that golden pickles refer to.
sys.path.insert(0, str(Path(__file__).parents[1]))


def main(names: list[str]) -> None:
    from golden.cases import CASES, HERE, make

    for case in CASES:
        if not names or case.name in names:
            make(case, HERE / f"v{VERSION}" / case.name)
            print(case.name)


if __name__ == "__main__":
    main(sys.argv[1:])
