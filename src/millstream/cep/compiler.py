"""Compiles a sequence of patterns into states and the edges between them.

The sequence is compiled from its last pattern to its first, as in Flink, because a pattern's states lead to those of
the next pattern. States have Flink's names, as in its documentation and logs. `automaton.py` runs the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.cep.conditions import TRUE, And, Expression, Not
from millstream.cep.quantifier import Contiguity, MalformedPatternError, Times, WithinType
from millstream.cep.states import Action, Edge, State, StateGraph, StateKind

if TYPE_CHECKING:
    from millstream.cep.pattern import Pattern

FINAL_NAME = "$endState$"


def compile_pattern(pattern: Pattern) -> StateGraph:
    """Compile a sequence, identified by its last pattern; raise an error for an unsupported one.

    Example:
        >>> from millstream.cep import Pattern
        >>> [s.name for s in compile_pattern(Pattern.begin("a").times(2).next("b")).states]
        ['$endState$', 'b', 'a', 'a:0']
    """
    _check(pattern)
    compiler = _Compiler()
    graph = compiler.compile(pattern)
    _check_windows(pattern, graph, compiler.has_window)
    return graph


def sequence(last: Pattern) -> list[Pattern]:
    """Return the patterns of a sequence, first to last; groups are one each.

    Example:
        >>> from millstream.cep import Pattern
        >>> sequence(Pattern.begin("a").next("b"))[0].get_name()
        'a'
    """
    patterns: list[Pattern] = []
    pattern: Pattern | None = last
    while pattern is not None:
        patterns.append(pattern)
        pattern = pattern.get_previous()
    return patterns[::-1]


def all_patterns(last: Pattern) -> Iterator[Pattern]:
    """Yield the patterns of a sequence and of its groups, without the groups."""
    for pattern in sequence(last):
        if pattern.group is not None:
            yield from all_patterns(pattern.group)
        else:
            yield pattern


def can_be_empty(last: Pattern) -> bool:
    """Return whether a pattern is a group of optional patterns only."""
    if last.group is None:
        return False
    return all(p.get_quantifier().is_optional or can_be_empty(p) for p in sequence(last.group))


def check_loop(pattern: Pattern) -> None:
    if can_be_empty(pattern):
        raise MalformedPatternError(
            "A loop over a group in which everything is optional would never end: make one pattern inside it "
            "obligatory."
        )


def _check(last: Pattern) -> None:
    seen = {FINAL_NAME}
    for pattern in reversed(list(all_patterns(last))):
        name = pattern.get_name()
        if name in seen:
            raise MalformedPatternError(
                f"Duplicate pattern name: {name}. Names must be unique. Also across groups: give one of them another."
            )
        seen.add(name)
    target = last.get_after_match_skip_strategy().pattern_name
    if target is not None and all(p.get_name() != target for p in sequence(last)):
        raise MalformedPatternError(
            "The pattern name specified in AfterMatchSkipStrategy can not be found in the given Pattern: "
            f"{target!r} is none of {', '.join(repr(p.get_name()) for p in sequence(last))}. Patterns inside groups "
            "cannot be skipped to."
        )
    _check_groups(last)


def _check_groups(last: Pattern) -> None:
    """Reject sequences that Flink accepts but cannot run."""
    for pattern in sequence(last):
        previous = pattern.get_previous()
        if pattern.get_quantifier().is_negated and previous is not None and can_be_empty(previous):
            raise MalformedPatternError(
                f"Pattern {pattern.get_name()!r} is negated and follows a group that can be empty: "
                "make one pattern inside the group obligatory."
            )
        if pattern.group is not None:
            if pattern.get_quantifier().is_looping:
                check_loop(pattern)
            _check_groups(pattern.group)


def _check_windows(last: Pattern, graph: StateGraph, has_window: bool) -> None:
    if has_window and any(s.window is not None and s.window > graph.window for s in graph.states):
        raise MalformedPatternError(
            "The window length between the previous and current event cannot be larger than the window length between "
            f"the first and last event for a Pattern. That is {graph.window} ms here."
        )
    guard = next((s.window for s in graph.states if s.name == last.get_name()), None)
    if (
        last.get_quantifier().outer is Contiguity.NOT_FOLLOW
        and (guard is None or guard <= 0)
        and (not has_window or graph.window == 0)
    ):
        raise MalformedPatternError(
            "NotFollowedBy is not supported without windowTime as a last part of a Pattern! Call within(...) after "
            f"not_followed_by({last.get_name()!r})."
        )


@dataclass(frozen=True)
class _Position:
    """The compiler's position.

    Attributes:
        pattern: the pattern that is compiled.
        following: the next pattern, in the sequence or in the one that contains the group.
        group: the enclosing group.
        first_round: whether this is the first round through the group.
    """

    pattern: Pattern
    following: Pattern | None
    group: Pattern | None
    first_round: bool

    @property
    def is_head(self) -> bool:
        """Whether the pattern is the first of a group."""
        return self.group is not None and self.pattern.get_previous() is None

    @property
    def until(self) -> Expression | None:
        """The condition that ends the loop around."""
        return None if self.group is None else self.group.get_until_condition()

    def before(self) -> _Position:
        """Return the position of the pattern before this one."""
        previous = self.pattern.get_previous()
        assert previous is not None
        return _Position(previous, self.pattern, self.group, self.first_round)

    # --- conditions of its edges

    def take_condition(self, pattern: Pattern | None = None) -> Expression:
        return _until(self.until, (pattern or self.pattern).get_condition())

    def proceed_condition(self) -> Expression:
        return _until(self.until, TRUE)

    def outer_ignore(self) -> Expression | None:
        """Return when an event between the pattern before and this one is passed over, None for never."""
        contiguity = self.pattern.get_quantifier().outer
        if self.is_head:
            assert self.group is not None
            quantifier = self.group.get_quantifier()
            contiguity = quantifier.outer if self.first_round else quantifier.inner
        return self._ignore(contiguity)

    def inner_ignore(self) -> Expression | None:
        """Return when an event between two of this pattern's is passed over, None for never."""
        contiguity = self.pattern.get_quantifier().inner
        if self.is_head:
            assert self.group is not None
            contiguity = self.group.get_quantifier().inner
        return self._ignore(contiguity)

    def _ignore(self, contiguity: Contiguity) -> Expression | None:
        if contiguity is Contiguity.RELAXED:
            return _until(self.until, Not(self.pattern.get_condition()))
        if contiguity is Contiguity.ANY:
            return _until(self.until, TRUE)
        return None

    # --- negations

    def negations(self) -> list[Pattern]:
        """Return the not_followed_by patterns before this one, across optional patterns."""
        negated: list[Pattern] = []
        previous = self.pattern.get_previous()
        while previous is not None:
            quantifier = previous.get_quantifier()
            is_negated = quantifier.outer is Contiguity.NOT_FOLLOW
            if not is_negated and not quantifier.is_optional:
                break
            if is_negated:
                negated.append(previous)
            previous = previous.get_previous()
        return negated

    @property
    def ends_negations(self) -> bool:
        """Whether taking an event here ends the preceding not_followed_by patterns."""
        return self.pattern.get_quantifier().is_optional and bool(self.negations())


def _until(until: Expression | None, condition: Expression) -> Expression:
    return condition if until is None else And(Not(until), condition)


def _until_or_none(until: Expression | None, condition: Expression | None) -> Expression | None:
    return None if condition is None else _until(until, condition)


class _Compiler:
    """Builds the states of one sequence."""

    def __init__(self) -> None:
        self._states: list[State] = []
        self._names: set[str] = set()
        self._stops: dict[str, State] = {}
        # The copy of a state that a greedy loop with an until condition leads to when that condition holds.
        self._unrestricted: dict[str, State] = {}
        self._window: int | None = None

    @property
    def has_window(self) -> bool:
        return self._window is not None

    def compile(self, last: Pattern) -> StateGraph:
        end = self._state(FINAL_NAME, StateKind.FINAL)
        self._window = last.get_window_size()
        start = self._sequence(_Position(last, None, None, True), end)
        start.kind = StateKind.START
        names = tuple(p.get_name() for p in all_patterns(last) if not p.get_quantifier().is_negated)
        strategy = last.get_after_match_skip_strategy()
        return StateGraph(tuple(self._states), start, self._window or 0, strategy, names)

    # --- sequences

    def _sequence(self, position: _Position, sink: State) -> State:
        """Build the states of a sequence that leads to a state; return the first."""
        while position.pattern.get_previous() is not None:
            outer = position.pattern.get_quantifier().outer
            if outer is Contiguity.NOT_FOLLOW:
                sink = self._pending(position, sink)
            elif outer is Contiguity.NOT_NEXT:
                sink = self._not_next(position, sink)
            else:
                sink = self._pattern(position, sink)
            position = position.before()
            # The window of the match is the minimum of all windows.
            length = position.pattern.get_window_size()
            if length is not None and (self._window is None or length < self._window):
                self._window = length
        return self._pattern(position, sink)

    def _pending(self, position: _Position, sink: State) -> State:
        """Build the state that waits for the end of the window, which only a last pattern has."""
        guarded = position.pattern.get_window_size(WithinType.PREVIOUS_AND_CURRENT) is not None
        if sink.kind is not StateKind.FINAL or not (guarded or (self._window or 0) > 0):
            return sink
        pending = self._taking_state(position, StateKind.PENDING)
        condition = position.take_condition()
        stop = self._stop(condition, position.pattern.get_name())
        pending.proceed(stop, condition)
        pending.ignore(pending, Not(condition))
        return pending

    def _not_next(self, position: _Position, sink: State) -> State:
        state = self._taking_state(position)
        condition = position.take_condition()
        stop = self._stop(condition, position.pattern.get_name())
        if sink.kind is StateKind.FINAL:
            # The match completes with the next event, not before.
            state.ignore(sink, Not(condition))
        else:
            state.proceed(sink, Not(condition))
        state.proceed(stop, condition)
        return state

    def _pattern(self, position: _Position, sink: State) -> State:
        quantifier = position.pattern.get_quantifier()
        times = position.pattern.get_times()
        if quantifier.is_looping:
            assert times is not None
            loop = self._loop(position, self._without_stop_edges(position, sink))
            first = self._times(position, loop, sink, times)
        elif quantifier.is_times:
            assert times is not None
            first = self._times(position, sink, sink, times)
        else:
            first = self._single(
                position, sink, sink, position.take_condition(), position.outer_ignore(), quantifier.is_optional, True
            )
        self._add_stop_edges(position, first)
        return first

    # --- one pattern

    def _times(self, position: _Position, sink: State, skip_target: State, times: Times) -> State:
        """Build the counting states: the optional ones last, the required ones before them."""
        until = position.pattern.get_until_condition()
        ignore = _until_or_none(until, position.inner_ignore())
        take = _until(until, position.take_condition())
        quantifier = position.pattern.get_quantifier()
        if quantifier.is_greedy and times.at_least != times.at_most:
            if until is not None:
                self._unrestricted[sink.name] = self._copy(sink)
            _restrict(sink, take)
        state = sink
        for _ in range(times.at_least, times.at_most):
            state = self._single(position, state, skip_target, take, ignore, True, False)
            self._add_following_stop_edge(position, state)
        for _ in range(times.at_least - 1):
            state = self._single(position, state, None, take, ignore, False, False)
            self._add_following_stop_edge(position, state)
        return self._single(position, state, skip_target, take, position.outer_ignore(), quantifier.is_optional, True)

    def _single(
        self,
        position: _Position,
        sink: State,
        skip_target: State | None,
        take: Expression,
        ignore: Expression | None,
        optional: bool,
        first_round: bool,
    ) -> State:
        """Build the state that takes one event, or one round of a group; return it."""
        pattern = position.pattern
        if pattern.group is not None:
            return self._group(position, pattern.group, sink, skip_target if optional else None, first_round)
        state = self._taking_state(position)
        taken = self._without_stop_edges(position, sink)
        state.take(taken, take)
        if optional:
            assert skip_target is not None
            self._leave(position, state, skip_target)
        if ignore is not None:
            waiting = state
            if optional or _heads_optional_group(position):
                # The first event decides whether the pattern is skipped, so the later state cannot proceed past it.
                waiting = self._state(pattern.get_name(), StateKind.NORMAL)
                waiting.take(taken, take)
                waiting.ignore(waiting, ignore)
                self._add_stop_edges(position, waiting)
            state.ignore(waiting, ignore)
        return state

    def _loop(self, position: _Position, sink: State) -> State:
        """Build the state that takes any number of events."""
        pattern = position.pattern
        if pattern.group is not None:
            return self._group_loop(position, pattern.group, sink)
        until = pattern.get_until_condition()
        ignore = _until_or_none(until, position.inner_ignore())
        take = _until(until, position.take_condition())
        state = self._taking_state(position)
        if pattern.get_quantifier().is_greedy:
            if until is not None:
                self._unrestricted[sink.name] = self._copy(sink)
            self._leave(position, state, sink)
            _restrict(sink, position.take_condition())
        else:
            state.proceed(sink, position.proceed_condition())
        state.take(state, take)
        self._add_following_stop_edge(position, state)
        if ignore is not None:
            waiting = self._state(pattern.get_name(), StateKind.NORMAL)
            waiting.take(state, take)
            waiting.ignore(waiting, ignore)
            state.ignore(waiting, ignore)
            self._add_following_stop_edge(position, waiting)
        return state

    def _leave(self, position: _Position, state: State, skip_target: State) -> None:
        """Add the edge that skips a pattern; a greedy pattern with an until condition needs two."""
        always = position.proceed_condition()
        until = position.pattern.get_until_condition()
        if not position.pattern.get_quantifier().is_greedy or until is None:
            state.proceed(skip_target, always)
            return
        unrestricted = self._unrestricted.get(skip_target.name)
        if unrestricted is None:
            raise MalformedPatternError(
                f"Pattern {position.pattern.get_name()!r} is greedy, optional and has an until condition, and there is "
                "a negated pattern before it: remove one of the four."
            )
        state.proceed(unrestricted, And(always, until))
        state.proceed(skip_target, And(always, Not(until)))

    # --- groups

    def _group(
        self, position: _Position, last: Pattern, sink: State, skip_target: State | None, first_round: bool
    ) -> State:
        inside = _Position(last, position.following, position.pattern, first_round)
        first = self._sequence(inside, sink)
        if skip_target is not None:
            first.proceed(skip_target, position.proceed_condition())
        return first

    def _group_loop(self, position: _Position, last: Pattern, sink: State) -> State:
        # The end of a round, where the next one may begin or the loop may end.
        round_end = self._taking_state(position)
        inside = _Position(last, position.following, position.pattern, False)
        first = self._sequence(inside, round_end)
        first.proceed(sink, position.proceed_condition())
        round_end.proceed(first, position.proceed_condition())
        return first

    # --- negations

    def _stop(self, condition: Expression, name: str) -> State:
        stop = self._stops.get(name)
        if stop is None:
            stop = self._stops[name] = self._state(name, StateKind.STOP)
            stop.take(stop, condition)
        return stop

    def _add_stop_edges(self, position: _Position, state: State) -> None:
        """Add the STOP edges of the not_followed_by patterns before this pattern."""
        for pattern in position.negations():
            condition = position.take_condition(pattern)
            state.proceed(self._stop(condition, pattern.get_name()), condition)

    def _add_following_stop_edge(self, position: _Position, state: State) -> None:
        """Add a STOP edge to a looping state that is followed by not_followed_by."""
        following = position.following
        if following is not None and following.get_quantifier().outer is Contiguity.NOT_FOLLOW:
            condition = position.take_condition(following)
            state.proceed(self._stop(condition, following.get_name()), condition)

    def _without_stop_edges(self, position: _Position, state: State) -> State:
        """Return the state after an optional pattern took an event, without the STOP edges that this event removes."""
        if not position.ends_negations:
            return state
        ended = {pattern.get_name() for pattern in position.negations()}
        copy = self._state(state.name, state.kind)
        for edge in state.edges:
            if edge.action is not Action.PROCEED:
                target = copy if edge.target is state else edge.target
                copy.edges.append(Edge(edge.action, copy.pattern, target, edge.condition))
            elif edge.target.kind is not StateKind.STOP:
                copy.proceed(self._without_stop_edges(position, edge.target), edge.condition)
            elif edge.target.name not in ended:
                copy.proceed(edge.target, edge.condition)
        return copy

    # --- states

    def _taking_state(self, position: _Position, kind: StateKind = StateKind.NORMAL) -> State:
        """Build a state that checks the window since the previous event, if there is one."""
        state = self._state(position.pattern.get_name(), kind)
        times = position.pattern.get_times()
        if times is None:
            state.window = position.pattern.get_window_size(WithinType.PREVIOUS_AND_CURRENT)
        elif ":" in state.name:
            # In Flink only states with a numbered name are checked, which omits one.
            state.window = times.window
        return state

    def _copy(self, state: State) -> State:
        copy = self._state(state.pattern, state.kind)
        for edge in state.edges:
            target = copy if edge.target is state else edge.target
            copy.edges.append(Edge(edge.action, copy.pattern, target, edge.condition))
        return copy

    def _state(self, name: str, kind: StateKind) -> State:
        unique = next(n for n in _candidates(name) if n not in self._names)
        self._names.add(unique)
        state = State(unique, kind)
        self._states.append(state)
        return state


def _candidates(name: str) -> Iterator[str]:
    yield name
    number = 0
    while True:
        yield f"{name}:{number}"
        number += 1


def _heads_optional_group(position: _Position) -> bool:
    return (
        position.is_head
        and position.first_round
        and position.group is not None
        and position.group.get_quantifier().is_optional
    )


def _restrict(state: State, taken: Expression) -> None:
    """Give a greedy loop precedence: exclude its condition from the edges of the next state."""
    for edge in state.edges:
        edge.condition = And(edge.condition, Not(taken))
