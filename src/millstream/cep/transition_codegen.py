"""Compiles the edges of a state to a decision tree over conditions, written out as Python code.

The outcome of an event for a run depends on which conditions hold. Instead of walking the edges for every event, each
state is walked once per possible combination of condition results: an unknown condition makes two branches. Each
condition is thus evaluated at most once, no condition is evaluated that Flink would not evaluate, and there is no code
between two conditions.

    def decide(event, ctx):
        if is_b(event):
            return TAKES_B
        return WAITS
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Any

from millstream.cep.conditions import And, Atom, ConditionContext, Expression, Not, Or
from millstream.cep.states import Action, Edge, State, StateKind
from millstream.common.aliases import Value

# A tree with more leaves than this is not generated but grows as it is evaluated.
MAX_LEAVES = 128
# Maximum nesting of `if`; Python limits the nesting of blocks.
MAX_DEPTH = 40

_NUMBERS = count(1)


@dataclass(frozen=True, eq=False, slots=True)
class Outcome:
    """The outcome of an event for a run.

    Attributes:
        runs: for each continuing run, the pattern that took the event, or None, and its next state.
        matches: for each match that is complete, the pattern that took the event, or None.
        stopped: whether a negated pattern matched.
        unchanged: whether the run stays unchanged.
        takes: whether the event is taken.
        ends_run: whether the run ends without a successor; False for the start's run.
        begins: the pattern and the state, if the only outcome for the start's run is one run that takes the event.
    """

    runs: tuple[tuple[str | None, str], ...]
    matches: tuple[str | None, ...]
    stopped: bool
    unchanged: bool
    takes: bool
    ends_run: bool
    begins: tuple[str, str] | None


# The context is None where no condition reads it.
Decide = Callable[[Value, ConditionContext | None], Outcome]


@dataclass(frozen=True)
class Decision:
    """Computes the outcome of an event for runs in one state.

    Attributes:
        decide: returns the outcome for a run in the state; its second argument is the condition's context.
        iterative: whether the outcome depends on the run, not only on the event.
        patterns: the pattern whose condition is on each line of the generated code.
    """

    decide: Decide
    iterative: bool
    patterns: dict[int, str]

    def failed_pattern(self, tb: TracebackType) -> str | None:
        """Return the pattern whose condition a traceback's frame evaluates; None for frames of other code."""
        if tb.tb_frame.f_code is not self.decide.__code__:
            return None
        atom = tb.tb_frame.f_locals.get("atom")
        return self.patterns.get(tb.tb_lineno) if atom is None else atom.pattern


class _Unknown(Exception):
    """A condition whose result is not known yet."""

    def __init__(self, atom: Atom) -> None:
        self.atom = atom


Answers = dict[int, bool]


class _Walk:
    """Walks the edges of a state with known results of conditions."""

    def __init__(self, state: State) -> None:
        self._state = state
        # Equal outcomes are the same object, so that code can compare by identity.
        self._outcomes: dict[tuple[object, ...], Outcome] = {}

    def outcome(self, answers: Answers) -> Outcome:
        """Return the outcome for a run; raise `_Unknown` at a condition without a result."""
        state = self._state
        is_start = state.kind is StateKind.START
        runs: list[tuple[str | None, str]] = []
        matches: list[str | None] = []
        stopped = False
        for taken, target in list(self._results(answers, is_start)):
            if target.kind is StateKind.FINAL:
                matches.append(taken)
            elif target.kind is StateKind.STOP:
                stopped = True
            else:
                runs.append((taken, target.name))
        if stopped:
            runs.clear()
        same = [] if is_start else [(None, state.name)]
        unchanged = runs == same and not matches and not stopped
        takes = any(pattern is not None for pattern, _ in runs) or any(pattern is not None for pattern in matches)
        ends_run = not runs and not matches and not is_start
        begins = None
        if is_start and len(runs) == 1 and not matches and not stopped:
            ((pattern, state_name),) = runs
            begins = None if pattern is None else (pattern, state_name)
        outcome_key = (tuple(runs), tuple(matches), stopped, unchanged, takes, ends_run, begins)
        return self._outcomes.setdefault(outcome_key, Outcome(*outcome_key))

    def _results(self, answers: Answers, is_start: bool) -> Iterator[tuple[str | None, State]]:
        for edge in self._edges(answers):
            if edge.action is Action.TAKE:
                yield edge.pattern, edge.target
                end = _end_after(edge.target, answers)
                if end is not None:
                    yield edge.pattern, end
            elif not is_start:
                # The run of the start is renewed with every event anyway.
                yield None, edge.target

    def _edges(self, answers: Answers) -> list[Edge]:
        edges = []
        states = [self._state]
        while states:
            for edge in states.pop().edges:
                if _holds(edge.condition, answers):
                    if edge.action is Action.PROCEED:
                        states.append(edge.target)
                    else:
                        edges.append(edge)
        return edges


def _end_after(state: State, answers: Answers) -> State | None:
    """Return the final state, if PROCEED edges that hold lead to it."""
    states = [state]
    while states:
        for edge in states.pop().edges:
            if edge.action is Action.PROCEED and _holds(edge.condition, answers):
                if edge.target.kind is StateKind.FINAL:
                    return edge.target
                states.append(edge.target)
    return None


def _holds(condition: Expression, answers: Answers) -> bool:
    if isinstance(condition, Atom):
        answer = answers.get(id(condition))
        if answer is None:
            raise _Unknown(condition)
        return answer
    if isinstance(condition, Not):
        return not _holds(condition.inner, answers)
    if isinstance(condition, And):
        return _holds(condition.left, answers) and _holds(condition.right, answers)
    if isinstance(condition, Or):
        return _holds(condition.left, answers) or _holds(condition.right, answers)
    return True


@dataclass
class _ConditionNode:
    """A condition to evaluate, and the next node per result; None if not expanded yet."""

    atom: Atom
    answers: Answers
    yes: _ConditionNode | Outcome | None = None
    no: _ConditionNode | Outcome | None = None


def _grow(walk: _Walk, answers: Answers) -> _ConditionNode | Outcome:
    try:
        return walk.outcome(answers)
    except _Unknown as unknown:
        return _ConditionNode(unknown.atom, answers)


def _branch(walk: _Walk, node: _ConditionNode, answer: bool) -> _ConditionNode | Outcome:
    branch = node.yes if answer else node.no
    if branch is None:
        branch = _grow(walk, {**node.answers, id(node.atom): answer})
        if answer:
            node.yes = branch
        else:
            node.no = branch
    return branch


class _TooLarge(Exception):
    """The tree is too large to be generated."""


def decision_of(state: State) -> Decision:
    """Return the decision of a state."""
    walk = _Walk(state)
    root = _grow(walk, {})
    iterative = any(a.iterative for a in _atoms(state))
    try:
        return _Writer(walk, state.name).write(root, iterative)
    except _TooLarge:
        return Decision(_lazy_decide(walk, root), iterative, {})


def atoms_of(states: tuple[State, ...]) -> list[Atom]:
    """Return the user's conditions in states, each once."""
    atoms: dict[int, Atom] = {}
    for state in states:
        for edge in state.edges:
            atoms.update({id(a): a for a in _in(edge.condition)})
    return list(atoms.values())


def _atoms(state: State) -> list[Atom]:
    """Return the conditions that a state may evaluate."""
    seen: dict[int, State] = {}
    states = [state]
    while states:
        node = states.pop()
        if id(node) in seen:
            continue
        seen[id(node)] = node
        # Also after a taken event: whether the match is complete is evaluated there.
        for edge in node.edges:
            if edge.action is Action.PROCEED or node is state or edge.action is Action.TAKE:
                states.append(edge.target)
    return [a for s in seen.values() for e in s.edges for a in _in(e.condition)]


def _in(condition: Expression) -> Iterator[Atom]:
    if isinstance(condition, Atom):
        yield condition
    elif isinstance(condition, Not):
        yield from _in(condition.inner)
    elif isinstance(condition, (And, Or)):
        yield from _in(condition.left)
        yield from _in(condition.right)


def _lazy_decide(walk: _Walk, root: _ConditionNode | Outcome) -> Decide:
    def decide(event: Value, ctx: ConditionContext | None) -> Outcome:
        node = root
        while isinstance(node, _ConditionNode):
            atom = node.atom
            holds = bool(atom.call(event, ctx) if atom.iterative else atom.call(event))
            node = _branch(walk, node, holds)
        return node

    return decide


class _Writer:
    """Writes a tree out as a function."""

    def __init__(self, walk: _Walk, name: str) -> None:
        self._walk = walk
        self._name = name
        self._lines: list[str] = []
        self._bound: dict[str, Outcome | Callable[..., Value]] = {}
        self._names: dict[int, str] = {}
        self._patterns: dict[int, str] = {}
        self._leaves = 0
        self._iterative = False

    def write(self, root: _ConditionNode | Outcome, iterative: bool) -> Decision:
        self._write(root, 1)
        bound = "".join(f", {n}={n}" for n in self._bound)
        source = "\n".join([f"def decide(event, ctx{bound}):", *self._lines]) + "\n"
        filename = f"<millstream pattern state {self._name} {next(_NUMBERS)}>"
        namespace: dict[str, Any] = dict(self._bound)
        exec(compile(source, filename, "exec"), namespace)
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        # If the tree never depends on the run, one outcome holds for all runs.
        return Decision(namespace["decide"], iterative and self._iterative, self._patterns)

    def _write(self, node: _ConditionNode | Outcome, depth: int) -> None:
        if isinstance(node, Outcome):
            self._leaves += 1
            if self._leaves > MAX_LEAVES:
                raise _TooLarge
            self._line(depth, f"return {self._bind(node)}")
            return
        if depth > MAX_DEPTH:
            raise _TooLarge
        atom = node.atom
        self._iterative |= atom.iterative
        self._line(depth, f"if {self._bind(atom.call)}(event{', ctx' if atom.iterative else ''}):", atom.pattern)
        self._write(_branch(self._walk, node, True), depth + 1)
        self._write(_branch(self._walk, node, False), depth)

    def _line(self, depth: int, text: str, pattern: str | None = None) -> None:
        self._lines.append("    " * depth + text)
        if pattern is not None:
            self._patterns[len(self._lines) + 1] = pattern

    def _bind(self, value: Outcome | Callable[..., Value]) -> str:
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = f"x{len(self._bound)}"
            self._bound[name] = value
        return name
