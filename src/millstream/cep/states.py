"""States of a compiled pattern and the edges between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from millstream.cep.conditions import Expression
from millstream.cep.skip import AfterMatchSkipStrategy


class StateKind(Enum):
    """The kind of a state."""

    START = "start"
    NORMAL = "state"
    # Waits for the end of its window, which completes the match.
    PENDING = "pending"
    STOP = "stop"
    FINAL = "final"


class Action(Enum):
    """The action of an edge on the event."""

    TAKE = "take"
    IGNORE = "ignore"
    PROCEED = "proceed"


@dataclass(eq=False)
class Edge:
    """A way out of a state.

    Attributes:
        pattern: the pattern that takes the event, if any.
    """

    action: Action
    pattern: str
    target: State
    condition: Expression


@dataclass(eq=False)
class State:
    """A state, its edges in order of evaluation, and the maximum time of a run since its last event."""

    name: str
    kind: StateKind
    edges: list[Edge] = field(default_factory=list)
    window: int | None = None

    @property
    def pattern(self) -> str:
        """The pattern that the state belongs to."""
        return self.name.partition(":")[0]

    def take(self, target: State, condition: Expression) -> None:
        self._add(Action.TAKE, target, condition)

    def ignore(self, target: State, condition: Expression) -> None:
        self._add(Action.IGNORE, target, condition)

    def proceed(self, target: State, condition: Expression) -> None:
        self._add(Action.PROCEED, target, condition)

    def _add(self, action: Action, target: State, condition: Expression) -> None:
        self.edges.append(Edge(action, self.pattern, target, condition))

    def __repr__(self) -> str:
        return f"<{self.kind.value} {self.name}>"


@dataclass(frozen=True, eq=False)
class StateGraph:
    """A compiled sequence.

    Attributes:
        states: all states.
        start: the start state.
        window: the maximum milliseconds of a match; 0 for no limit.
        skip_strategy: the matches to drop after a match.
        names: the patterns that take events, in order.
    """

    states: tuple[State, ...]
    start: State
    window: int
    skip_strategy: AfterMatchSkipStrategy
    names: tuple[str, ...]

    def explain(self) -> str:
        """Return the states and their edges as text, the start first."""
        lines: list[str] = []
        for state in reversed(self.states):
            within = f" within {state.window} ms of the event before" if state.window else ""
            lines.append(f"{state.kind.value} {state.name}{within}")
            if state.kind is not StateKind.STOP:
                lines += [f"  {e.action.value} -> {e.target.name} when {e.condition}" for e in state.edges]
        if self.window > 0:
            lines.append(f"within {self.window} ms of the first event")
        if self.skip_strategy.skips:
            lines.append(f"after a match: {self.skip_strategy!r}")
        return "\n".join(lines)

    def can_be_empty(self) -> bool:
        """Return whether a match may be empty: PROCEED edges lead from the start to the end."""
        seen: set[int] = set()
        todo = [self.start]
        while todo:
            state = todo.pop()
            if state.kind is StateKind.FINAL:
                return True
            if id(state) not in seen:
                seen.add(id(state))
                todo += [e.target for e in state.edges if e.action is Action.PROCEED]
        return False
