"""Cases of pattern matching: patterns and inputs as plain data, for Flink and for Millstream.

A case is a JSON object:

    pattern     items: {"join", "name" or "group", "steps": [[method, argument ...]]}
    skip        [strategy, pattern, throws]
    processing  whether in processing time; comparator, timeouts, late: whether there is one
    input       ["e", key, name, value, timestamp], ["w", watermark] or ["p", wall clock]

A result is {"out": [[kind, key, events, timestamp]]} and, on failure, "error". Events are identified by their index
among the inputs.
"""

from __future__ import annotations

import gzip
import json
import random
from typing import Any

from millstream.cep.conditions import IterativeCondition
from millstream.cep.pattern import Pattern
from millstream.cep.quantifier import MalformedPatternError, WithinType
from millstream.cep.skip import AfterMatchSkipStrategy
from tests.support.paths import TESTS

Case = dict[str, Any]
# Cases with Flink's results, recorded by cep/record.py.
RECORDED = TESTS / "cep" / "recorded.jsonl.gz"
# (key, name, value, number)
Event = tuple[str, str, int, int]
END = 2**63 - 1


def recorded() -> list[tuple[Case, dict[str, Any]]]:
    """Return the recorded cases, with Flink's results."""
    with gzip.open(RECORDED, "rt") as lines:
        return [tuple(json.loads(line)) for line in lines]


# --- conditions


class Iterative(IterativeCondition):
    """Conditions on earlier events of the match."""

    def __init__(self, kind: str, pattern: str) -> None:
        self.kind = kind
        self.pattern = pattern

    def filter(self, event: Event, ctx: Any) -> bool:
        before = [e[2] for e in ctx.get_events_for_pattern(self.pattern)]
        if self.kind == "rises":
            return event[2] >= (before[-1] if before else -1)
        if self.kind == "sum_below":
            return sum(before) + event[2] < 12  # type: ignore[no-any-return]
        assert self.kind == "even"
        return (len(before) + ctx.timestamp()) % 2 == 0  # type: ignore[no-any-return]


def condition(spec: list[Any]) -> Any:
    kind, argument = spec
    if kind == "is":
        return lambda e: e[1] in argument
    if kind == "below":
        return lambda e: e[2] < argument
    if kind == "above":
        return lambda e: e[2] > argument
    return Iterative(kind, argument)


# --- patterns


def pattern_of(case: Case) -> Pattern:
    return _sequence(case["pattern"], _skip(case["skip"]))


def _skip(spec: list[Any]) -> AfterMatchSkipStrategy:
    if len(spec) == 1:
        strategy: AfterMatchSkipStrategy = getattr(AfterMatchSkipStrategy, spec[0])()
        return strategy
    to = getattr(AfterMatchSkipStrategy, spec[0])(spec[1])
    return to.throw_exception_on_miss() if spec[2] else to  # type: ignore[no-any-return]


def _sequence(items: list[dict[str, Any]], skip: AfterMatchSkipStrategy | None) -> Pattern:
    pattern: Pattern | None = None
    for item in items:
        head = _sequence(item["group"], None) if "group" in item else item["name"]
        pattern = Pattern.begin(head, skip) if pattern is None else getattr(pattern, item["join"])(head)
        for method, *arguments in item["steps"]:
            _apply(pattern, method, arguments)
    assert pattern is not None
    return pattern


def _apply(pattern: Pattern, method: str, arguments: list[Any]) -> None:
    if method in ("where", "until"):
        getattr(pattern, method)(condition(arguments[0]))
    elif method == "or":
        pattern.or_(condition(arguments[0]))
    elif method == "times":
        pattern.times(arguments[0], window_time=arguments[1] if len(arguments) > 1 else None)
    elif method == "times_from_to":
        pattern.times(*arguments)
    elif method == "within_previous":
        pattern.within(arguments[0], WithinType.PREVIOUS_AND_CURRENT)
    else:
        getattr(pattern, method)(*arguments)


# --- random cases


# From this seed on, cases have many events that most patterns accept.
DENSE = 1_000_000


class Maker:
    """Generates random cases, deterministically by seed."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.dense = seed >= DENSE
        self._names = iter("abcdefgh")

    def case(self) -> Case:
        r = self.r
        self._names = iter("abcdefgh")
        processing = r.random() < 0.1
        items = self._items(r.choice([1, 2, 2, 3, 3, 4]), 0)
        if r.random() < 0.6:
            r.choice(items)["steps"].append(["within", r.choice([2, 3, 5, 8, 12, 20])])
        return {
            "pattern": items,
            "skip": self._strategy(items),
            "processing": processing,
            "comparator": r.random() < 0.15,
            "timeouts": r.random() < 0.7,
            "late": r.random() < 0.5,
            "input": self._clocked() if processing else self._input(),
        }

    def _strategy(self, items: list[dict[str, Any]]) -> list[Any]:
        r = self.r
        kind = r.choice(["no_skip"] * 4 + ["skip_to_next", "skip_past_last_event", "skip_to_first", "skip_to_last"])
        if not kind.startswith(("skip_to_f", "skip_to_l")):
            return [kind]
        names = [i.get("name", "a") for i in items]
        return [kind, r.choice(names) if r.random() < 0.97 else "zz", r.random() < 0.1]

    def _items(self, many: int, depth: int) -> list[dict[str, Any]]:
        r = self.r
        items: list[dict[str, Any]] = []
        for index in range(many):
            join = "begin" if index == 0 else r.choice(["next", "followed_by", "followed_by", "followed_by_any"])
            if index > 0 and r.random() < 0.18:
                join = r.choice(["not_next", "not_followed_by", "not_followed_by"])
            item: dict[str, Any] = {"join": join}
            if depth < 2 and not join.startswith("not") and r.random() < (0.14 if depth == 0 else 0.08):
                item["group"] = self._items(r.choice([1, 2, 2, 3]), depth + 1)
                item["steps"] = self._quantified(True)
            else:
                item["name"] = next(self._names, "a")
                item["steps"] = self._conditions(item["name"])
                if not join.startswith("not") or r.random() < 0.02:
                    item["steps"] += self._quantified(False)
            if r.random() < 0.05:
                item["steps"].append(["within_previous", r.choice([1, 2, 3, 5])])
            if r.random() < 0.03:
                item["steps"].append(["within", r.choice([0, 2, 4, 9])])
            items.append(item)
        return items

    def _simple(self) -> list[Any]:
        r = self.r
        return r.choice(
            [["is", r.choice("abcd")]] * 6 + [["is", r.choice(["ab", "bc", "abc"])], ["below", 5], ["above", 2]]
        )

    def _conditions(self, name: str) -> list[list[Any]]:
        r = self.r
        if r.random() < 0.08:
            return []
        steps = [["where", ["is", name if name in "abcd" and r.random() < 0.6 else r.choice("abcd")]]]
        if r.random() < 0.12:
            steps.append(["where", self._simple()])
        if r.random() < 0.12:
            steps.append(["or", self._simple()])
        if r.random() < 0.15:
            steps.append(["where", [r.choice(["rises", "sum_below", "even"]), r.choice("abc" + name)]])
        return steps

    def _quantified(self, group: bool) -> list[list[Any]]:
        r = self.r
        steps: list[list[Any]] = []
        window = r.choice([1, 2, 3, 5]) if r.random() < 0.08 else None
        kind = r.random()
        if kind < 0.2:
            steps.append(["one_or_more", window])
        elif kind < 0.27:
            steps.append(["times", r.choice([1, 2, 2, 3]), window])
        elif kind < 0.36:
            steps.append(["times_from_to", *r.choice([(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (3, 1)]), window])
        elif kind < 0.43:
            steps.append(["times_or_more", r.choice([1, 2, 2, 3]), window])
        if steps:
            if steps[0][0] in ("one_or_more", "times_or_more") and r.random() < 0.25:
                steps.append(["until", self._simple()])
            if r.random() < 0.25:
                steps.append([r.choice(["consecutive", "allow_combinations"])])
            if r.random() < (0.3 if not group else 0.02):
                steps.append(["greedy"])
        if r.random() < 0.15:
            steps.append(["optional"])
        return steps

    def _event(self, timestamp: int) -> list[Any]:
        r = self.r
        keys, names = ("kkkkkj", "aabbbc") if self.dense else ("kkkj", "aaabbbccd")
        return ["e", r.choice(keys), r.choice(names), r.randrange(8), timestamp]

    def _input(self) -> list[list[Any]]:
        """Return events roughly in order, and watermarks: after every event, now and then, or only at the end."""
        r = self.r
        items: list[list[Any]] = []
        now = r.choice([1, 1, 1, 0, -3])
        often = r.choice([0.0, 0.15, 0.4, 1.0])
        for _ in range(r.choice([12, 18, 24]) if self.dense else r.choice([6, 9, 12, 15])):
            now += r.choice([0, 0, 1, 1, 2, 4])
            stamp = now - (r.choice([1, 2, 5]) if r.random() < 0.15 else 0)
            items.append(self._event(stamp))
            if r.random() < often:
                items.append(["w", now - r.choice([0, 0, 1, 3])])
        for index in range(r.choice([0, 0, 2])):
            items.append(["w", now + 5 * (index + 1)])
        items.append(["w", END])
        return _rising(items)

    def _clocked(self) -> list[list[Any]]:
        r = self.r
        items: list[list[Any]] = []
        now = r.choice([0, 10])
        items.append(["p", now])
        for _ in range(r.choice([6, 9, 12])):
            if r.random() < 0.6:
                now += r.choice([1, 1, 2, 4, 9])
                items.append(["p", now])
            items.append(self._event(0))
        items.append(["p", now + r.choice([1, 3, 30])])
        return items


def _rising(items: list[list[Any]]) -> list[list[Any]]:
    """Drop watermarks that do not advance."""
    rising, last = [], -(2**63)
    for item in items:
        if item[0] == "w":
            if item[1] <= last:
                continue
            last = item[1]
        rising.append(item)
    return rising


# --- results of the automaton alone


def answer(case: Case) -> dict[str, Any]:
    """Run a case on the automaton, with a minimal operator around it."""
    from millstream.cep.automaton import Automaton, Runs, match_of
    from millstream.cep.compiler import compile_pattern
    from millstream.cep.matcher import Matcher
    from millstream.cep.skip import SkipError

    out: list[Any] = []
    try:
        automaton = Automaton(compile_pattern(pattern_of(case)))
    except MalformedPatternError as e:
        return {"error": str(e), "out": out}
    compare = (lambda a, b: (a[2] > b[2]) - (a[2] < b[2])) if case["comparator"] else None
    matcher = Matcher(automaton, compare, case["processing"])
    keys: dict[str, tuple[Runs, list[tuple[int, Event]]]] = {}

    def add_matches(key: str, matches: list[Any]) -> None:
        for cell, timestamp, timed_out in matches:
            if timed_out and not case["timeouts"]:
                continue
            events = [[name, [e[3] for e in events]] for name, events in match_of(cell).items()]
            out.append(["timeout" if timed_out else "match", key, events, timestamp])

    def fire(now: int) -> None:
        for key, (runs, buffered) in keys.items():
            due = [(t, e) for t, e in buffered if t <= now]
            if case["processing"]:
                ripe = any(t + 1 <= now for t, _ in due) or any(t + 1 <= now for t in runs.timers)
            else:
                ripe = bool(due) or any(t <= now for t in runs.timers)
            if ripe:
                buffered[:] = [(t, e) for t, e in buffered if t > now]
                add_matches(key, matcher.fire(runs, sorted(due, key=lambda d: d[0]), now))

    time, number = (0 if case["processing"] else -(2**63)), 0
    try:
        for item in case["input"]:
            if item[0] == "e":
                _, key, name, value, timestamp = item
                event = (key, name, value, number)
                number += 1
                runs, buffered = keys.setdefault(key, (Runs(), []))
                if case["processing"] and compare is None:
                    add_matches(key, matcher.event(runs, event, time))
                elif case["processing"]:
                    buffered.append((time, event))
                elif timestamp > time:
                    buffered.append((timestamp, event))
                elif case["late"]:
                    out.append(["late", key, event[3], timestamp])
            else:
                time = item[1]
                fire(time)
    except SkipError as e:
        return {"error": str(e), "out": out}
    return {"out": out}


def by_key(answer: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the lines of a result by key, ordered within each key only; nothing for an error."""
    lines: dict[str, list[Any]] = {}
    if "error" in answer:
        return lines
    for line in answer["out"]:
        # Late events go to another output than matches.
        lines.setdefault(f"{line[1]} {'late' if line[0] == 'late' else ''}", []).append(line)
    return lines
