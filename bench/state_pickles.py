"""The size of a window and a row in a pickle of state, and the microseconds to write and read them.

python -m bench.state_pickles
"""

from __future__ import annotations

import pickle
from timeit import repeat
from typing import Any

from millstream.common import Row
from millstream.common.pickles import dump
from millstream.operators.windows.windows import TimeWindow

_COUNT = 2_000


def _microseconds(action: Any) -> float:
    return min(repeat(action, number=5, repeat=15)) / 5 / _COUNT * 1e6


def main() -> None:
    """Measure both."""
    windows = [(i, TimeWindow(i, i + 10)) for i in range(_COUNT)]
    rows = [Row(a=i, b="x") for i in range(_COUNT)]
    for name, records in (("(key, TimeWindow)", windows), ("Row of two fields", rows)):
        data = dump(records)
        write, read = _microseconds(lambda r=records: dump(r)), _microseconds(lambda d=data: pickle.loads(d))
        print(f"{name}: {len(data) // _COUNT} bytes, write {write:.2f} us, read {read:.2f} us")


if __name__ == "__main__":
    main()
