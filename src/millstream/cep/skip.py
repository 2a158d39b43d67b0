"""Skip strategies: which partial matches to drop after a match."""

from __future__ import annotations

from millstream.cep.quantifier import MalformedPatternError
from millstream.common.errors import MillstreamError
from millstream.common.tags import tagged

__all__ = ["AfterMatchSkipStrategy"]

# An event id: its timestamp, and its number among the taken events of that timestamp.
EventId = tuple[int, int]


class SkipError(MillstreamError):
    """A match has no event to skip to, and the strategy makes this an error."""


class AfterMatchSkipStrategy:
    """Decides which partial and pending matches to drop after a match, by their first event.

    Example:
        >>> from millstream.cep import AfterMatchSkipStrategy, CEP, Pattern
        >>> skip = AfterMatchSkipStrategy.skip_past_last_event()
        >>> pattern = Pattern.begin("n", skip).where(lambda e: e > 0).times(2).consecutive()
        >>> matches = CEP.pattern(env.from_collection([1, 2, 3, 4]), pattern).in_processing_time().select(dict)
        >>> list(matches.execute_and_collect())
        [{'n': [1, 2]}, {'n': [3, 4]}]
    """

    # Whether matches wait for partial matches that began earlier, and drop others when they are emitted.
    skips = True
    # The pattern to skip to, or None.
    pattern_name: str | None = None

    @staticmethod
    def no_skip() -> AfterMatchSkipStrategy:
        """Emit every match (the default).

        Example:
            >>> from millstream.cep import CEP, Pattern
            >>> skip = AfterMatchSkipStrategy.no_skip()
            >>> pattern = Pattern.begin("n", skip).where(lambda e: e > 0).times(2).consecutive()
            >>> matches = CEP.pattern(env.from_collection([1, 2, 3]), pattern).in_processing_time().select(dict)
            >>> list(matches.execute_and_collect())
            [{'n': [1, 2]}, {'n': [2, 3]}]
        """
        return NO_SKIP

    @staticmethod
    def skip_to_next() -> AfterMatchSkipStrategy:
        """Drop matches that started with the same event as the match.

        Example:
            >>> from millstream.cep import CEP, Pattern
            >>> pattern = Pattern.begin("n", AfterMatchSkipStrategy.skip_to_next()).where(lambda e: e > 0).one_or_more()
            >>> matches = CEP.pattern(env.from_collection([1, 2]), pattern).in_processing_time().select(dict)
            >>> list(matches.execute_and_collect())
            [{'n': [1]}, {'n': [2]}]
        """
        return _SkipToNext()

    @staticmethod
    def skip_past_last_event() -> AfterMatchSkipStrategy:
        """Drop matches that started before the match ended.

        Example:
            >>> from millstream.cep import CEP, Pattern
            >>> skip = AfterMatchSkipStrategy.skip_past_last_event()
            >>> pattern = Pattern.begin("n", skip).where(lambda e: e > 0).times(2).consecutive()
            >>> matches = CEP.pattern(env.from_collection([1, 2, 3]), pattern).in_processing_time().select(dict)
            >>> list(matches.execute_and_collect())
            [{'n': [1, 2]}]
        """
        return _SkipPastLastEvent()

    @staticmethod
    def skip_to_first(pattern_name: str) -> SkipToElement:
        """Drop matches that started before the first event of a pattern in the match.

        Example:
            >>> from millstream.cep import CEP, Pattern
            >>> skip = AfterMatchSkipStrategy.skip_to_first("b")
            >>> loop = Pattern.begin("a", skip).where(lambda e: e < 3).one_or_more()
            >>> pattern = loop.next("b").where(lambda e: e > 2)
            >>> matches = CEP.pattern(env.from_collection([1, 2, 3]), pattern).in_processing_time().select(dict)
            >>> list(matches.execute_and_collect())
            [{'a': [1, 2], 'b': [3]}]
        """
        return SkipToElement(pattern_name, "skip_to_first", 0)

    @staticmethod
    def skip_to_last(pattern_name: str) -> SkipToElement:
        """Drop matches that started before the last event of a pattern in the match.

        Example:
            >>> from millstream.cep import CEP, Pattern
            >>> skip = AfterMatchSkipStrategy.skip_to_last("n")
            >>> pattern = Pattern.begin("n", skip).where(lambda e: e > 0).times(3).consecutive()
            >>> matches = CEP.pattern(env.from_collection([1, 2, 3, 4, 5]), pattern).in_processing_time().select(dict)
            >>> list(matches.execute_and_collect())
            [{'n': [1, 2, 3]}, {'n': [3, 4, 5]}]
        """
        return SkipToElement(pattern_name, "skip_to_last", -1)

    def is_skip_strategy(self) -> bool:
        """Return whether the strategy drops matches.

        Example:
            >>> strategies = AfterMatchSkipStrategy.skip_to_next(), AfterMatchSkipStrategy.no_skip()
            >>> [strategy.is_skip_strategy() for strategy in strategies]
            [True, False]
        """
        return self.skips

    def bound(self, match: list[tuple[str, EventId]]) -> EventId | None:
        """Return the first event that remains valid; matches that started before it are dropped. None drops none.

        Args:
            match: the pattern and the id of each event of the match, in order.
        """
        raise NotImplementedError(f"{self!r} drops nothing")

    def __eq__(self, other: object) -> bool:
        return repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"AfterMatchSkipStrategy.{self._name}()"

    _name: str


@tagged("cep-no-skip", write=lambda _: ())
class _NoSkip(AfterMatchSkipStrategy):
    skips = False
    _name = "no_skip"


@tagged("cep-skip-to-next", write=lambda _: ())
class _SkipToNext(AfterMatchSkipStrategy):
    _name = "skip_to_next"

    def bound(self, match: list[tuple[str, EventId]]) -> EventId | None:
        return _after(min(event for _, event in match))


@tagged("cep-skip-past-last-event", write=lambda _: ())
class _SkipPastLastEvent(AfterMatchSkipStrategy):
    _name = "skip_past_last_event"

    def bound(self, match: list[tuple[str, EventId]]) -> EventId | None:
        return _after(max(event for _, event in match))


@tagged("cep-skip-to-element", write=lambda s: (s.pattern_name, s._name, s._index, s._throws))
class SkipToElement(AfterMatchSkipStrategy):
    """Skips to an event of a named pattern, created by `skip_to_first()` and `skip_to_last()`."""

    def __init__(self, pattern_name: str, name: str, index: int, throws: bool = False) -> None:
        self.pattern_name = pattern_name
        self._name = name
        self._index = index
        self._throws = throws

    def throw_exception_on_miss(self) -> SkipToElement:
        """Return the strategy that fails the job if there is no event to skip to.

        Example:
            >>> AfterMatchSkipStrategy.skip_to_last("b").throw_exception_on_miss()
            AfterMatchSkipStrategy.skip_to_last('b').throw_exception_on_miss()
        """
        return SkipToElement(self.pattern_name or "", self._name, self._index, True)

    def bound(self, match: list[tuple[str, EventId]]) -> EventId | None:
        taken = [event for name, event in match if name == self.pattern_name]
        if not taken:
            if self._throws:
                raise SkipError(
                    f"Could not skip to {self.pattern_name}. No such element in the found match {_shown(match)}: "
                    "remove throw_exception_on_miss(), or make the pattern obligatory."
                )
            return None
        target = taken[self._index]
        if self._throws and target == min(event for _, event in match):
            raise SkipError(
                "Could not skip to first element of a match. It would be found again and again: skip to a later one, "
                "or remove throw_exception_on_miss()."
            )
        return target

    def __repr__(self) -> str:
        end = ".throw_exception_on_miss()" if self._throws else ""
        return f"AfterMatchSkipStrategy.{self._name}({self.pattern_name!r}){end}"


NO_SKIP = _NoSkip()


def checked_strategy(strategy: AfterMatchSkipStrategy | None) -> AfterMatchSkipStrategy:
    """Return a strategy, by default the one that skips nothing."""
    if strategy is not None and not isinstance(strategy, AfterMatchSkipStrategy):
        raise MalformedPatternError(f"begin(..., skip_strategy) takes an AfterMatchSkipStrategy, not {strategy!r}.")
    return strategy or NO_SKIP


def _after(event: EventId) -> EventId:
    """Return the next id after an event's."""
    timestamp, number = event
    return timestamp, number + 1


def _shown(match: list[tuple[str, EventId]]) -> dict[str, list[int]]:
    """Return the timestamps of a match by pattern."""
    shown: dict[str, list[int]] = {}
    for name, (timestamp, _) in match:
        shown.setdefault(name, []).append(timestamp)
    return shown
