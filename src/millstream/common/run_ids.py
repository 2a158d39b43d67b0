"""Ids of a job's runs, ordered by their start: a run may clean up only after earlier ones.

A run is a job under one driver. With several job managers, the ids of a job's runs end with the leader's term; else an
id is a UUID of version 7, which starts with its creation time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

# A term at the end of a run id, in hexadecimal.
_TERM_DIGITS = 8
# Milliseconds since 1970, at the start of a UUID of version 7.
_TIME_DIGITS = 12


def run_id(job_id: str, term: int) -> str:
    """Return the id of a job's run under a leader's term.

    Example:
        >>> run_id("0123456789abcdef0123456789abcdef", 3)
        '0123456789abcdef0123456700000003'
    """
    return f"{job_id[:-_TERM_DIGITS]}{term:0{_TERM_DIGITS}x}"


def new_run_id(former: Iterable[str] = ()) -> str:
    """Return a new id that is later than those of former runs, even if the clock was set back.

    Example:
        >>> first = new_run_id()
        >>> is_earlier(first, new_run_id([first]))
        True
    """
    now = max([time.time_ns() // 1_000_000, *(t + 1 for f in former if (t := _time(f)) is not None)])
    random = int.from_bytes(os.urandom(10))
    return f"{now:0{_TIME_DIGITS}x}7{random >> 62 & 0xFFF:03x}{8 | random >> 60 & 3:x}{random & (1 << 60) - 1:015x}"


def is_earlier(run: str, other: str) -> bool | None:
    """Return whether a run started before another; None if their ids do not determine it.

    Example:
        >>> is_earlier(run_id("ab" * 16, 3), run_id("ab" * 16, 4))
        True
        >>> is_earlier("ab" * 16, "cd" * 16)
    """
    if run[:-_TERM_DIGITS] == other[:-_TERM_DIGITS]:
        return run[-_TERM_DIGITS:] < other[-_TERM_DIGITS:]
    first, second = _time(run), _time(other)
    return None if first is None or second is None or first == second else first < second


def _time(run: str) -> int | None:
    """Return the creation time of an id, if it has one."""
    is_timed = len(run) == 32 and run[_TIME_DIGITS] == "7" and run[16] in "89ab"
    return int(run[:_TIME_DIGITS], 16) if is_timed else None
