"""Conditions of patterns: the user's functions, and the expressions that the compiler builds from them.

A condition is a function of the event, a function of the event and a context, or an object with a method `filter` of
one or the other form. Conditions of the event alone are evaluated once per event for all runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from millstream.common.aliases import UserCode, Value
from millstream.common.errors import InvalidProgramError
from millstream.common.tags import tagged

__all__ = ["ConditionContext", "IterativeCondition", "RichIterativeCondition", "SimpleCondition"]

# The RuntimeContext of operators, which patterns do not import: they are independent of the engine.
RuntimeContext: TypeAlias = Any


class ConditionContext(Protocol):
    """The context of a condition."""

    def get_events_for_pattern(self, name: str) -> list[Value]:
        """Return the events that a pattern has taken in this partial match, in order."""
        ...

    def timestamp(self) -> int:
        """Return the event's timestamp; in processing time, its arrival time."""
        ...

    def current_processing_time(self) -> int:
        """Return the wall clock in milliseconds."""
        ...


class IterativeCondition:
    """A condition that also uses the previous events of its partial match.

    Example:
        >>> from millstream.cep import CEP, IterativeCondition, Pattern
        >>> class Rising(IterativeCondition):
        ...     def filter(self, event, ctx):
        ...         return all(event > before for before in ctx.get_events_for_pattern("rising"))
        >>> pattern = Pattern.begin("rising").where(Rising()).times(3).consecutive()
        >>> matches = CEP.pattern(env.from_collection([3, 1, 2, 5]), pattern).in_processing_time().select(dict)
        >>> list(matches.execute_and_collect())
        [{'rising': [1, 2, 5]}]
    """

    def filter(self, event: Value, ctx: ConditionContext) -> bool:
        """Return whether the pattern takes the event."""
        raise NotImplementedError(f"{type(self).__name__} must define filter(event, ctx).")


class SimpleCondition:
    """A condition on the event alone.

    Example:
        >>> class Large(SimpleCondition):
        ...     def filter(self, event):
        ...         return event > 100
        >>> SimpleCondition.of(lambda event: event > 100).filter(7)
        False
    """

    def filter(self, event: Value) -> bool:
        """Return whether the pattern takes the event."""
        raise NotImplementedError(f"{type(self).__name__} must define filter(event).")

    @staticmethod
    def of(function: Callable[[Value], bool]) -> SimpleCondition:
        """Return a condition from a function of the event."""
        return _Of(function)


@tagged("cep-simple-condition", write=lambda condition: (condition.function,))
class _Of(SimpleCondition):
    def __init__(self, function: Callable[[Value], bool]) -> None:
        self.function = function

    def filter(self, event: Value) -> bool:
        return self.function(event)


class RichIterativeCondition(IterativeCondition):
    """An iterative condition that is opened and closed with its subtask.

    Example:
        >>> from millstream.cep import CEP, Pattern, RichIterativeCondition
        >>> class AboveLimit(RichIterativeCondition):
        ...     def open(self, runtime_context):
        ...         super().open(runtime_context)
        ...         self.limit = int(runtime_context.get_job_parameter("limit", "100"))
        ...     def filter(self, event, ctx):
        ...         return event > self.limit
        >>> pattern = Pattern.begin("large").where(AboveLimit())
        >>> matches = CEP.pattern(env.from_collection([99, 101]), pattern).in_processing_time().select(dict)
        >>> list(matches.execute_and_collect())
        [{'large': [101]}]
    """

    _runtime_context: RuntimeContext = None

    def open(self, runtime_context: RuntimeContext) -> None:
        """Prepare for work; called once in each subtask."""
        self._runtime_context = runtime_context

    def close(self) -> None:
        """Release the resources of `open`."""

    def get_runtime_context(self) -> RuntimeContext:
        """Return the runtime context of `open`."""
        if self._runtime_context is None:
            raise InvalidProgramError(
                f"{type(self).__name__} has no runtime context before open(), and an overridden open() must call "
                "super().open(runtime_context)."
            )
        return self._runtime_context


# --- expressions


class Expression:
    """A condition as the compiler sees it."""


@tagged("cep-always", write=lambda _: ())
@dataclass(frozen=True, eq=False)
class Always(Expression):
    """Holds for every event."""

    def __str__(self) -> str:
        return "true"


TRUE = Always()


def _read_atom(owner: UserCode, iterative: bool, pattern: str, text: str) -> Atom:
    return Atom(_call_of(owner), iterative, owner, pattern, text)


@tagged("cep-atom", write=lambda atom: (atom.owner, atom.iterative, atom.pattern, atom.text), read=_read_atom)
@dataclass(frozen=True, eq=False)
class Atom(Expression):
    """One condition of the user's.

    Attributes:
        call: the function to call.
        iterative: whether it takes the context, too.
        owner: the user's object, to open and close.
        pattern: the name of its pattern.
        text: its description.
    """

    call: Callable[..., Value]
    iterative: bool
    owner: UserCode
    pattern: str
    text: str

    def __str__(self) -> str:
        return self.text


@tagged("cep-not")
@dataclass(frozen=True, eq=False)
class Not(Expression):
    """Negates a condition."""

    inner: Expression

    def __str__(self) -> str:
        return f"not {self.inner}"


@tagged("cep-and")
@dataclass(frozen=True, eq=False)
class And(Expression):
    """Conjunction; the second condition is evaluated only if the first holds."""

    left: Expression
    right: Expression

    def __str__(self) -> str:
        return f"({self.left} and {self.right})"


@tagged("cep-or")
@dataclass(frozen=True, eq=False)
class Or(Expression):
    """Disjunction; the second condition is evaluated only if the first does not hold."""

    left: Expression
    right: Expression

    def __str__(self) -> str:
        return f"({self.left} or {self.right})"


@tagged("cep-subtype", write=lambda condition: (condition.kind,))
class Subtype:
    """Tests whether an event is an instance of a class."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def filter(self, event: Value) -> bool:
        return isinstance(event, self.kind)


def as_atom(condition: UserCode, pattern: str, method: str) -> Atom:
    """Return a user's condition in the compiler's form.

    Args:
        condition: the condition.
        pattern: the name of its pattern.
        method: the calling method, for errors.
    """
    call = _call_of(condition)
    if isinstance(condition, Subtype):
        return Atom(call, False, condition, pattern, f"is {condition.kind.__name__}")
    if not callable(call) or isinstance(condition, type):
        raise InvalidProgramError(
            f"{method}(...) of pattern {pattern!r} takes a function of the event, a function of (event, ctx) or an "
            f"object with filter(...), not {condition!r}."
        )
    text = f"{pattern}.{method}"
    iterative = isinstance(condition, IterativeCondition) or (
        not isinstance(condition, SimpleCondition) and _takes(call, condition, pattern, method) == 2
    )
    return Atom(call, iterative, condition, pattern, text)


def _call_of(condition: UserCode) -> UserCode:
    """Return the function of a condition: itself, its wrapped function, or its `filter` method."""
    return condition.function if isinstance(condition, _Of) else getattr(condition, "filter", condition)


def _takes(call: Callable[..., Value], condition: UserCode, pattern: str, method: str) -> int:
    """Return the number of arguments of a condition: the event, or the event and the context."""
    try:
        parameters = list(inspect.signature(call).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        return 1
    parameters_by_position = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in parameters_by_position if p.default is p.empty]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return max(1, len(parameters_by_position)) if len(parameters_by_position) <= 2 else 2
    if not parameters_by_position or len(needed) > 2:
        raise InvalidProgramError(
            f"{method}(...) of pattern {pattern!r} takes a function of the event or of (event, ctx), and "
            f"{condition!r} takes {len(parameters_by_position)} arguments."
        )
    return 2 if len(needed) == 2 else 1
