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


OUT_OF_ORDER_MS, WINDOW_MS, GAP_MS = 1000, 10_000, 2_000


def _event_functions(n: int, keys: int) -> tuple[Any, Any, Any, Any]:
    half = n // 2
    make: Callable[[int], tuple[int, int, int]] = lambda i: (i * 7919 % keys, i % half // 5 - i * 31 % 1000, 1)
    time_of: Callable[[tuple[int, int, int]], int] = lambda e: e[1]
    key_of: Callable[[tuple[int, int, int]], int] = lambda e: e[0]
    add_up: Callable[[Any, Any], Any] = lambda a, b: (a[0], a[1], a[2] + b[2])
    return make, time_of, key_of, add_up


def tumbling(n: int, keys: int) -> None:
    """A dict of keys per window; windows are removed when the watermark, checked now and then, passes them."""
    make, time_of, key_of, add_up = _event_functions(n, keys)
    windows: dict[int, dict[int, Any]] = {}
    highest = -1 << 63
    half = n // 2
    for part in range(2):
        # The share of one core after the other: each covers the whole time range, as a subtask does.
        for i in range(part * half, (part + 1) * half):
            e = make(i)
            t = time_of(e)
            if t > highest:
                highest = t
            k = key_of(e)
            start = t - t % WINDOW_MS
            window = windows.get(start)
            if window is None:
                window = windows[start] = {}
            a = window.get(k)
            window[k] = e if a is None else add_up(a, e)
            if i % 4096 == 0:
                for over in [s for s in windows if s + WINDOW_MS <= highest - OUT_OF_ORDER_MS]:
                    for _ in windows.pop(over).values():
                        pass
        windows.clear()
        highest = -1 << 63


def session(n: int, keys: int) -> None:
    """The last session of each key, in a dict: events are out of order by less than the gap, so one is enough."""
    make, time_of, key_of, add_up = _event_functions(n, keys)
    half = n // 2
    for part in range(2):
        sessions: dict[int, list[Any]] = {}
        for i in range(part * half, (part + 1) * half):
            e = make(i)
            t = time_of(e)
            k = key_of(e)
            s = sessions.get(k)
            if s is None or t > s[1] + GAP_MS:
                sessions[k] = [t, t, e]
            else:
                if t > s[1]:
                    s[1] = t
                elif t < s[0]:
                    s[0] = t
                s[2] = add_up(s[2], e)


PROGRAMS: dict[str, Callable[[int, int], None]] = {
    "map_filter": map_filter,
    "keyed_reduce": keyed_reduce,
    "word_count": word_count,
    "tumbling": tumbling,
    "session": session,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", choices=sorted(PROGRAMS), required=True)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1_000)
    # Accepted because all peers have the same command line; a bare loop uses one core.
    parser.add_argument("--parallelism", type=int, default=1)
    args = parser.parse_args()

    started = time.perf_counter()
    PROGRAMS[args.program](args.records, args.keys)
    seconds = time.perf_counter() - started
    print(json.dumps({"records": args.records, "seconds": seconds}))


if __name__ == "__main__":
    main()
