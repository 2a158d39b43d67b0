"""The same programs as a bare Python loop: one core, no library, no state backend.

S is the wall time of the loop alone; interpreter start-up is outside it.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any, Callable

WORDS = 10_000


def line(i: int) -> str:
    return " ".join(["w%d" % ((i * 31 + j * 977) % WORDS) for j in range(10)])


def add(a: tuple[Any, int], b: tuple[Any, int]) -> tuple[Any, int]:
    return (a[0], a[1] + b[1])


def map_filter(n: int, keys: int) -> None:
    m: Callable[[int], int] = lambda x: x * 3 + 1
    keep: Callable[[int], bool] = lambda x: x % 2 == 0
    for x in range(n):
        y = m(x)
        if keep(y):
            pass


def keyed_reduce(n: int, keys: int) -> None:
    m: Callable[[int], tuple[int, int]] = lambda x: (x * 7919 % keys, 1)
    key: Callable[[tuple[int, int]], int] = lambda t: t[0]
    state: dict[int, tuple[int, int]] = {}
    for x in range(n):
        t = m(x)
        k = key(t)
        a = state.get(k)
        state[k] = t if a is None else add(a, t)


def word_count(n: int, keys: int) -> None:
    split: Callable[[str], list[tuple[str, int]]] = lambda s: [(w, 1) for w in s.split()]
    key: Callable[[tuple[str, int]], str] = lambda t: t[0]
    state: dict[str, tuple[str, int]] = {}
    for i in range(n):
        for t in split(line(i)):
            k = key(t)
            a = state.get(k)
            state[k] = t if a is None else add(a, t)


PROGRAMS: dict[str, Callable[[int, int], None]] = {
    "map_filter": map_filter,
    "keyed_reduce": keyed_reduce,
    "word_count": word_count,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", choices=sorted(PROGRAMS), required=True)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1_000)
    # Accepted so that every peer takes the same command line; a bare loop has one core.
    parser.add_argument("--parallelism", type=int, default=1)
    args = parser.parse_args()

    started = time.perf_counter()
    PROGRAMS[args.program](args.records, args.keys)
    seconds = time.perf_counter() - started
    print(json.dumps({"records": args.records, "seconds": seconds}))


if __name__ == "__main__":
    main()
