"""A query that has changed: which of its operators cannot take the state that is there, and why. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher

# An operator of SQL is known by what it does and by what is before it.
_UID = re.compile(r"([A-Za-z]+)-[0-9a-f]{16}(-\d+)*")
_PART = re.compile(r"(\w+)=\[")


def is_of_sql(uid: str | None) -> bool:
    """Tell whether a uid is one that the planner gives.

    Example:
        >>> is_of_sql("GroupAggregate-3f9dcf96294178fc"), is_of_sql("my-operator")
        (True, False)
    """
    return uid is not None and _UID.fullmatch(uid) is not None


def why_it_does_not_fit(name: str, before: Sequence[str], now: Sequence[str]) -> str:
    """Return what has changed, of an operator whose state nobody takes.

    Args:
        name: the operator.
        before: the names of all operators that are not there any more.
        now: the names of all operators that are new.

    Example:
        >>> why_it_does_not_fit("Rank(by=[a])", ["Rank(by=[a])"], ["Rank(by=[b])"])
        'by was [a] and is [b]'
    """
    nearest = _nearest(name, now)
    if nearest is None:
        return f"the query has no {_kind(name)} of this kind any more"
    if nearest != name:
        return _differences(name, nearest)
    # It does the same, with other rows.
    for one in before:
        other = _nearest(one, now)
        if one != name and other is not None and other != one:
            return f"what comes before it has changed: of {_kind(one)}, {_differences(one, other)}"
    return "what comes before it has changed"


def _kind(name: str) -> str:
    return name.removeprefix("Source: ").partition("(")[0]


def _nearest(name: str, others: Sequence[str]) -> str | None:
    alike = [o for o in others if _kind(o) == _kind(name)]
    return max(alike, key=lambda o: SequenceMatcher(None, name, o).ratio(), default=None)


def _differences(before: str, now: str) -> str:
    old, new = parts_of(before), parts_of(now)
    words = [w for w in dict.fromkeys((*old, *new)) if old.get(w) != new.get(w)]
    return " and ".join(_difference(w, old.get(w), new.get(w)) for w in words) or f"it was {before} and is {now}"


def _difference(word: str, before: str | None, now: str | None) -> str:
    if before is None:
        return f"{word} is [{now}] and was not there"
    if now is None:
        return f"{word} was [{before}] and is gone"
    return f"{word} was [{before}] and is [{now}]"


def parts_of(name: str) -> Mapping[str, str]:
    """Return what an operator's name says, by word.

    Example:
        >>> parts_of("Rank(partitionBy=[a, b], select=[a, f(b[1])])")
        {'partitionBy': 'a, b', 'select': 'a, f(b[1])'}
    """
    found: dict[str, str] = {}
    at = 0
    while (start := _PART.search(name, at)) is not None:
        depth, at = 1, start.end()
        while at < len(name) and depth:
            depth += (name[at] == "[") - (name[at] == "]")
            at += 1
        found[start[1]] = name[start.end() : at - 1]
    return found
