"""Explains why events did not match: which run ended at which event, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from millstream.cep.automaton import Automaton, Match, Runs, match_of
from millstream.cep.matcher import Comparator, Matcher, MatchResult
from millstream.cep.states import Action, State, StateKind
from millstream.common.aliases import Value


class Ended(NamedTuple):
    """A run that ended without a match.

    Attributes:
        taken: the events of the run.
        state: the state it was in.
        timestamp: when it ended.
        event: the event at which it ended, None when its time was up.
        reason: the condition that failed or the stop that applied.
    """

    taken: Match
    state: str
    timestamp: int
    event: Value
    reason: str

    def __str__(self) -> str:
        at = "when its time was up" if self.event is None else f"at event {self.event!r}"
        return f"{self.taken} in state {self.state} ended {at} ({self.timestamp}): {self.reason}"


class Tracer:
    """Follows the runs of one key.

    Example:
        >>> from millstream.cep.pattern import Pattern
        >>> from millstream.cep.compiler import compile_pattern
        >>> pattern = Pattern.begin("a").where(lambda e: e == "a").next("b").where(lambda e: e == "b")
        >>> tracer = Tracer(Automaton(compile_pattern(pattern)))
        >>> tracer.fire([(1, "a"), (2, "c")], 2)
        >>> print(tracer.ended[0])
        {'a': ['a']} in state b ended at event 'c' (2): take needs b.where
    """

    def __init__(self, automaton: Automaton, comparator: Comparator | None = None) -> None:
        self.ended: list[Ended] = []
        self._automaton = automaton
        self._matcher = Matcher(automaton, comparator)
        self._states = {state.name: state for state in automaton.graph.states}
        self._runs = Runs()

    def fire(self, events: Iterable[tuple[int, Value]], now: int) -> None:
        """Process events up to a time, in order, and advance to it."""
        for timestamp, event in events:
            # Time advances before the event, so runs that it ends have timed out.
            self._timed_out(self._matcher.fire(self._runs, [], timestamp), timestamp)
            self._event(event, timestamp)
            self._matcher.fire(self._runs, [(timestamp, event)], timestamp)
        self._timed_out(self._matcher.fire(self._runs, [], now), now)

    def _event(self, event: Value, timestamp: int) -> None:
        for run in self._runs.queue or ():
            outcome = self._automaton.outcome(run, event, timestamp)
            if run[2] is not None and (outcome.ends_run or outcome.stopped):
                state = self._states[run[1]]
                reason = _stop(state) if outcome.stopped else _missing(state)
                self.ended.append(Ended(match_of(run[2]), run[1], timestamp, event, reason))

    def _timed_out(self, matches: Iterable[MatchResult], now: int) -> None:
        for cell, timestamp, timed_out in matches:
            if timed_out:
                self.ended.append(Ended(match_of(cell), "", timestamp, None, "its time window ended"))


def _missing(state: State) -> str:
    needed = [f"{e.action.value} needs {e.condition}" for e in state.edges if e.action is not Action.PROCEED]
    return "; ".join(needed) or "there is no way on"


def _stop(state: State) -> str:
    stops = [e for e in state.edges if e.target.kind is StateKind.STOP]
    names = ", ".join(e.target.pattern for e in stops)
    return f"a negated pattern matched: {names}"
