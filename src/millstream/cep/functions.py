"""What is done with matches: functions of the user's, and the forms in which they are handed to the operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeAlias

from millstream.cep.automaton import Match
from millstream.common.aliases import OUT_co, T
from millstream.common.errors import InvalidProgramError

__all__ = [
    "PatternFlatSelectFunction",
    "PatternFlatTimeoutFunction",
    "PatternProcessFunction",
    "PatternSelectFunction",
    "PatternTimeoutFunction",
    "RichPatternFlatSelectFunction",
    "RichPatternSelectFunction",
    "TimedOutPartialMatchHandler",
]


# (OutputTag, value)
SideOutput: TypeAlias = tuple[Any, Any]


class MatchContext(Protocol):
    """What a function of matches can ask."""

    def timestamp(self) -> int:
        """Return the match's timestamp: that of its last event, or of what ended its time."""
        ...

    def current_processing_time(self) -> int:
        """Return the wall clock in milliseconds."""
        ...


class _Life:
    """A function that is opened and closed with its subtask."""

    def open(self, runtime_context: Any) -> None:
        """Prepare for work; called once in each subtask."""

    def close(self) -> None:
        """Let go of what `open` took."""


class PatternProcessFunction(_Life, Generic[T, OUT_co]):
    """Called with every match.

    Example:
        >>> class Alarm(PatternProcessFunction):
        ...     def process_match(self, match, ctx):
        ...         yield f"{match['small'][0]} and then {match['large'][0]} at {ctx.timestamp()}"
    """

    Context: TypeAlias = MatchContext

    def process_match(self, match: dict[str, list[T]], ctx: MatchContext) -> Iterable[OUT_co | SideOutput] | None:
        """Yield results, and `(OutputTag, value)` for side outputs.

        Args:
            match: the events by the name of the pattern that took them.
            ctx: tells the time.
        """
        raise NotImplementedError(f"{type(self).__name__} must define process_match(match, ctx).")


class TimedOutPartialMatchHandler(Generic[T]):
    """Added to a PatternProcessFunction that wants to know of partial matches whose time was up.

    Example:
        >>> class Watch(PatternProcessFunction, TimedOutPartialMatchHandler):
        ...     def process_match(self, match, ctx):
        ...         yield match
        ...     def process_timed_out_match(self, match, ctx):
        ...         yield LATE, match
    """

    def process_timed_out_match(self, match: dict[str, list[T]], ctx: MatchContext) -> Iterable[SideOutput] | None:
        """Yield `(OutputTag, value)`; a time-out has no other output.

        Args:
            match: what had been taken.
            ctx: tells when the time was up.
        """
        raise NotImplementedError(f"{type(self).__name__} must define process_timed_out_match(match, ctx).")


class PatternSelectFunction(Generic[T, OUT_co]):
    """Makes one result of every match."""

    def select(self, match: dict[str, list[T]]) -> OUT_co:
        """Return the result."""
        raise NotImplementedError(f"{type(self).__name__} must define select(match).")


class PatternFlatSelectFunction(Generic[T, OUT_co]):
    """Makes any number of results of every match."""

    def flat_select(self, match: dict[str, list[T]]) -> Iterable[OUT_co] | None:
        """Yield results."""
        raise NotImplementedError(f"{type(self).__name__} must define flat_select(match).")


class PatternTimeoutFunction(Generic[T, OUT_co]):
    """Makes one result of every partial match whose time was up."""

    def timeout(self, match: dict[str, list[T]], timeout_timestamp: int) -> OUT_co:
        """Return the result."""
        raise NotImplementedError(f"{type(self).__name__} must define timeout(match, timeout_timestamp).")


class PatternFlatTimeoutFunction(Generic[T, OUT_co]):
    """Makes any number of results of every partial match whose time was up."""

    def timeout(self, match: dict[str, list[T]], timeout_timestamp: int) -> Iterable[OUT_co] | None:
        """Yield results."""
        raise NotImplementedError(f"{type(self).__name__} must define timeout(match, timeout_timestamp).")


class RichPatternSelectFunction(PatternSelectFunction[T, OUT_co], _Life):
    """A PatternSelectFunction that is opened and closed with its subtask."""


class RichPatternFlatSelectFunction(PatternFlatSelectFunction[T, OUT_co], _Life):
    """A PatternFlatSelectFunction that is opened and closed with its subtask."""


# --- the one form that the operator takes


class Handler:
    """Functions of the user's as the operator calls them.

    Attributes:
        functions: the user's objects, to be opened and closed.
        match: called with a match and a context; returns results.
        timed_out: called with a partial match whose time was up and a context; returns results. None where nobody asks.
    """

    def __init__(
        self,
        functions: list[Any],
        match: Callable[[Match, Any], Iterable[Any] | None],
        timed_out: Callable[[Match, Any], Iterable[Any] | None] | None = None,
    ) -> None:
        self.functions = functions
        self.match = match
        self.timed_out = timed_out

    def open(self, runtime_context: Any) -> None:
        for function in self.functions:
            if hasattr(function, "open"):
                function.open(runtime_context)

    def close(self) -> None:
        for function in self.functions:
            if hasattr(function, "close"):
                function.close()


def processing(function: Any) -> Handler:
    """Return the handler of `process(function)`."""
    return Handler(
        [function], _method(function, "process_match", "process"), getattr(function, "process_timed_out_match", None)
    )


def selecting(function: Any, tag: Any = None, timeout: Any = None) -> Handler:
    """Return the handler of `select(...)`, with a time-out function or without."""
    select = _method(function, "select", "select")
    if timeout is None:
        return Handler([function], lambda match, ctx: (select(match),))
    late = _method(timeout, "timeout", "select")
    return Handler(
        [function, timeout],
        lambda match, ctx: (select(match),),
        lambda match, ctx: ((tag, late(match, ctx.timestamp())),),
    )


def flat_selecting(function: Any, tag: Any = None, timeout: Any = None) -> Handler:
    """Return the handler of `flat_select(...)`, with a time-out function or without."""
    select = _method(function, "flat_select", "flat_select")
    if timeout is None:
        return Handler([function], lambda match, ctx: select(match))
    late = _method(timeout, "timeout", "flat_select")
    return Handler(
        [function, timeout],
        lambda match, ctx: select(match),
        lambda match, ctx: [(tag, value) for value in late(match, ctx.timestamp()) or ()],
    )


def _method(function: Any, method: str, operation: str) -> Callable[..., Any]:
    if isinstance(function, type) and hasattr(function, method):
        raise InvalidProgramError(
            f"{operation}() was given the class {function.__name__}: give it an instance, {function.__name__}()."
        )
    found = getattr(function, method, function)
    if not callable(found):
        raise InvalidProgramError(
            f"{operation}() takes a callable or an object with a method {method}(), "
            f"not {function!r} ({type(function).__name__})."
        )
    call: Callable[..., Any] = found
    return call
