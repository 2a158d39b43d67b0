"""Functions of matches: the user's classes, and the one form that the operator calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeAlias

from millstream.cep.automaton import Match
from millstream.cep.conditions import RuntimeContext
from millstream.common.aliases import OUT_co, T, UserCode, Value
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


class SideOutputTag(Protocol):
    """An OutputTag of operators, which patterns do not import: they are independent of the engine."""

    tag_id: str


# (OutputTag, value)
SideOutput: TypeAlias = tuple[SideOutputTag, Value]


class MatchContext(Protocol):
    """The context of a function of matches."""

    def timestamp(self) -> int:
        """Return the match's timestamp: that of its last event, or of its timeout."""
        ...

    def current_processing_time(self) -> int:
        """Return the wall clock in milliseconds."""
        ...


class _Life:
    """A function that is opened and closed with its subtask."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Prepare for work; called once in each subtask."""

    def close(self) -> None:
        """Release the resources of `open`."""


class PatternProcessFunction(_Life, Generic[T, OUT_co]):
    """Called with every match, for `PatternStream.process()`.

    Example:
        >>> from millstream.cep import CEP, Pattern, PatternProcessFunction
        >>> class Alarm(PatternProcessFunction):
        ...     def process_match(self, match, ctx):
        ...         yield f"{match['small'][0]} and then {match['large'][0]}"
        >>> pattern = Pattern.begin("small").where(lambda e: e < 1).next("large").where(lambda e: e > 500)
        >>> matches = CEP.pattern(env.from_collection([0.5, 900.0]), pattern).in_processing_time()
        >>> list(matches.process(Alarm()).execute_and_collect())
        ['0.5 and then 900.0']
    """

    Context: TypeAlias = MatchContext

    def process_match(self, match: dict[str, list[T]], ctx: MatchContext) -> Iterable[OUT_co | SideOutput] | None:
        """Yield results, and `(OutputTag, value)` for side outputs.

        Args:
            match: the events by the name of the pattern that took them.
            ctx: provides the time.
        """
        raise NotImplementedError(f"{type(self).__name__} must define process_match(match, ctx).")


class TimedOutPartialMatchHandler(Generic[T]):
    """A second base class of a PatternProcessFunction that handles timed-out partial matches.

    Example:
        >>> from millstream.cep import Pattern, PatternProcessFunction, TimedOutPartialMatchHandler
        >>> from millstream.datastream import OutputTag
        >>> from millstream.testing import CepHarness
        >>> late = OutputTag("late")
        >>> class Watch(PatternProcessFunction, TimedOutPartialMatchHandler):
        ...     def process_match(self, match, ctx):
        ...         yield match
        ...     def process_timed_out_match(self, match, ctx):
        ...         yield late, match
        >>> pattern = Pattern.begin("order").next("payment").within(10)
        >>> with CepHarness(pattern, Watch(), side_outputs=[late]) as harness:
        ...     harness.process_element("tea", timestamp=0)
        ...     harness.process_watermark(10)
        ...     harness.side_output(late)
        [{'order': ['tea']}]
    """

    def process_timed_out_match(self, match: dict[str, list[T]], ctx: MatchContext) -> Iterable[SideOutput] | None:
        """Yield `(OutputTag, value)`; a timeout has no main output.

        Args:
            match: the partial match.
            ctx: provides the time of the timeout.
        """
        raise NotImplementedError(f"{type(self).__name__} must define process_timed_out_match(match, ctx).")


class PatternSelectFunction(Generic[T, OUT_co]):
    """Returns one result per match, for `PatternStream.select()`, which also takes a plain function.

    Example:
        >>> from millstream.cep import CEP, Pattern, PatternSelectFunction
        >>> class Upper(PatternSelectFunction):
        ...     def select(self, match):
        ...         return match["any"][0].upper()
        >>> matches = CEP.pattern(env.from_collection("ab"), Pattern.begin("any")).in_processing_time()
        >>> list(matches.select(Upper()).execute_and_collect())
        ['A', 'B']
    """

    def select(self, match: dict[str, list[T]]) -> OUT_co:
        """Return the result."""
        raise NotImplementedError(f"{type(self).__name__} must define select(match).")


class PatternFlatSelectFunction(Generic[T, OUT_co]):
    """Yields any number of results per match, for `PatternStream.flat_select()`, which also takes a plain function.

    Example:
        >>> from millstream.cep import CEP, Pattern, PatternFlatSelectFunction
        >>> class Twice(PatternFlatSelectFunction):
        ...     def flat_select(self, match):
        ...         yield from match["any"] * 2
        >>> matches = CEP.pattern(env.from_collection("ab"), Pattern.begin("any")).in_processing_time()
        >>> list(matches.flat_select(Twice()).execute_and_collect())
        ['a', 'a', 'b', 'b']
    """

    def flat_select(self, match: dict[str, list[T]]) -> Iterable[OUT_co] | None:
        """Yield results."""
        raise NotImplementedError(f"{type(self).__name__} must define flat_select(match).")


class PatternTimeoutFunction(Generic[T, OUT_co]):
    """Returns one result per timed-out partial match."""

    def timeout(self, match: dict[str, list[T]], timeout_timestamp: int) -> OUT_co:
        """Return the result."""
        raise NotImplementedError(f"{type(self).__name__} must define timeout(match, timeout_timestamp).")


class PatternFlatTimeoutFunction(Generic[T, OUT_co]):
    """Yields any number of results per timed-out partial match."""

    def timeout(self, match: dict[str, list[T]], timeout_timestamp: int) -> Iterable[OUT_co] | None:
        """Yield results."""
        raise NotImplementedError(f"{type(self).__name__} must define timeout(match, timeout_timestamp).")


class RichPatternSelectFunction(PatternSelectFunction[T, OUT_co], _Life):
    """A PatternSelectFunction that is opened and closed with its subtask."""


class RichPatternFlatSelectFunction(PatternFlatSelectFunction[T, OUT_co], _Life):
    """A PatternFlatSelectFunction that is opened and closed with its subtask."""


# --- the operator's form


class Handler:
    """Functions of the user's as the operator calls them.

    Attributes:
        functions: the user's objects, to be opened and closed.
        match: called with a match and a context; returns results.
        timed_out: called with a timed-out partial match and a context; returns results. None without a handler.
    """

    def __init__(
        self,
        functions: list[UserCode],
        match: Callable[[Match, MatchContext], Iterable[Value] | None],
        timed_out: Callable[[Match, MatchContext], Iterable[Value] | None] | None = None,
    ) -> None:
        self.functions = functions
        self.match = match
        self.timed_out = timed_out

    def open(self, runtime_context: RuntimeContext) -> None:
        for function in self.functions:
            if hasattr(function, "open"):
                function.open(runtime_context)

    def close(self) -> None:
        for function in self.functions:
            if hasattr(function, "close"):
                function.close()


def processing(function: UserCode) -> Handler:
    """Return the handler of `process(function)`."""
    return Handler(
        [function], _method(function, "process_match", "process"), getattr(function, "process_timed_out_match", None)
    )


def selecting(function: UserCode, tag: SideOutputTag | None = None, timeout: UserCode = None) -> Handler:
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


def flat_selecting(function: UserCode, tag: SideOutputTag | None = None, timeout: UserCode = None) -> Handler:
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


def _method(function: UserCode, method: str, operation: str) -> Callable[..., Value]:
    if isinstance(function, type) and hasattr(function, method):
        raise InvalidProgramError(
            f"{operation}() was given the class {function.__name__}: give it an instance, {function.__name__}()."
        )
    bound = getattr(function, method, function)
    if not callable(bound):
        raise InvalidProgramError(
            f"{operation}() takes a callable or an object with a method {method}(), "
            f"not {function!r} ({type(function).__name__})."
        )
    call: Callable[..., Value] = bound
    return call
