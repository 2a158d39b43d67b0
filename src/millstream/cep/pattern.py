"""Pattern: the user's description of an event sequence, checked while it is built.

    Pattern.begin("small").where(lambda p: p.amount < 1)
        .next("large").where(lambda p: p.amount > 500)
        .within(Duration.of_minutes(1))

Every method that adds a pattern returns the new one, which knows the one before it.
"""

from __future__ import annotations

from millstream.cep.compiler import can_be_empty, check_loop, compile_pattern, sequence
from millstream.cep.conditions import TRUE, And, Expression, Or, Subtype, as_atom
from millstream.cep.quantifier import (
    Contiguity,
    Length,
    MalformedPatternError,
    Quantifier,
    Times,
    WithinType,
    check_range,
    window_millis,
)
from millstream.cep.skip import AfterMatchSkipStrategy, checked_strategy
from millstream.common.aliases import UserCode
from millstream.common.tags import tagged

__all__ = ["GroupPattern", "MalformedPatternError", "Pattern", "Quantifier", "Times", "WithinType"]

# In state, the attributes after the quantifier: times, condition, until condition, windows.
_Settings = tuple[Times | None, Expression | None, Expression | None, dict[WithinType, int]]


def _written(pattern: Pattern) -> tuple[object, ...]:
    return (
        pattern._name,
        pattern._previous,
        pattern._skip_strategy,
        pattern._quantifier,
        pattern._times,
        pattern._condition,
        pattern._until,
        pattern._windows,
    )


def _read_pattern(
    name: str,
    previous: Pattern | None,
    skip_strategy: AfterMatchSkipStrategy,
    quantifier: Quantifier,
    *settings: *_Settings,
) -> Pattern:
    return _filled(Pattern(name, previous, quantifier.outer, skip_strategy), quantifier, *settings)


def _read_group(
    group: Pattern,
    _: str,
    previous: Pattern | None,
    skip_strategy: AfterMatchSkipStrategy,
    quantifier: Quantifier,
    *settings: *_Settings,
) -> Pattern:
    return _filled(GroupPattern(group, previous, quantifier.outer, skip_strategy), quantifier, *settings)


def _filled(pattern: Pattern, quantifier: Quantifier, *settings: *_Settings) -> Pattern:
    pattern._quantifier = quantifier
    pattern._times, pattern._condition, pattern._until, pattern._windows = settings
    return pattern


@tagged("cep-pattern", write=_written, read=_read_pattern)
class Pattern:
    """One pattern of a sequence; every method that adds one returns it, and `get_previous` leads to those before it.

    Not in PyFlink; named as in Flink's CEP library for Java.

    Example:
        >>> from millstream.cep import CEP, Pattern
        >>> pattern = Pattern.begin("a").where(lambda e: e == "a").followed_by("b").where(lambda e: e == "b")
        >>> matches = CEP.pattern(env.from_collection("acb"), pattern).in_processing_time().select(dict)
        >>> list(matches.execute_and_collect())
        [{'a': ['a'], 'b': ['b']}]
    """

    def __init__(
        self, name: str, previous: Pattern | None, contiguity: Contiguity, skip_strategy: AfterMatchSkipStrategy
    ) -> None:
        self._name = name
        self._previous = previous
        self._skip_strategy = skip_strategy
        self._quantifier = Quantifier(contiguity)
        self._times: Times | None = None
        self._condition: Expression | None = None
        self._until: Expression | None = None
        self._windows: dict[WithinType, int] = {}

    # --- the sequence

    @staticmethod
    def begin(pattern: str | Pattern, skip_strategy: AfterMatchSkipStrategy | None = None) -> Pattern:
        """Begin a sequence.

        Args:
            pattern: the name of the first pattern, or a sequence that is the first group.
            skip_strategy: the matches to drop after a match; by default none.

        Example:
            >>> Pattern.begin("first", AfterMatchSkipStrategy.skip_past_last_event()).next("second")
            <pattern first second>
        """
        return _appended(None, pattern, Contiguity.STRICT, checked_strategy(skip_strategy), "begin")

    def next(self, pattern: str | Pattern) -> Pattern:
        """Append a pattern or group that must follow directly.

        Example:
            >>> from millstream.cep import CEP, Pattern
            >>> pattern = Pattern.begin("a").where(lambda e: e == "a").next("b").where(lambda e: e == "b")
            >>> matches = CEP.pattern(env.from_collection("acbab"), pattern).in_processing_time().select(dict)
            >>> list(matches.execute_and_collect())
            [{'a': ['a'], 'b': ['b']}]
        """
        return _appended(self, pattern, Contiguity.STRICT, self._skip_strategy, "next")

    def followed_by(self, pattern: str | Pattern) -> Pattern:
        """Append a pattern or group that takes the next matching event and skips others before it.

        Example:
            >>> from millstream.cep import CEP, Pattern
            >>> pattern = Pattern.begin("a").where(lambda e: e == "a").followed_by("b").where(lambda e: e > "a")
            >>> matches = CEP.pattern(env.from_collection("abc"), pattern).in_processing_time().select(dict)
            >>> list(matches.execute_and_collect())
            [{'a': ['a'], 'b': ['b']}]
        """
        return _appended(self, pattern, Contiguity.RELAXED, self._skip_strategy, "followed_by")

    def followed_by_any(self, pattern: str | Pattern) -> Pattern:
        """Append a pattern or group for which every later matching event starts a separate match.

        Example:
            >>> from millstream.cep import CEP, Pattern
            >>> pattern = Pattern.begin("a").where(lambda e: e == "a").followed_by_any("b").where(lambda e: e > "a")
            >>> matches = CEP.pattern(env.from_collection("abc"), pattern).in_processing_time().select(dict)
            >>> list(matches.execute_and_collect())
            [{'a': ['a'], 'b': ['b']}, {'a': ['a'], 'b': ['c']}]
        """
        return _appended(self, pattern, Contiguity.ANY, self._skip_strategy, "followed_by_any")

    def not_next(self, name: str) -> Pattern:
        """Append a pattern that must not follow directly.

        Example:
            >>> from millstream.cep import CEP, Pattern
            >>> a = Pattern.begin("a").where(lambda e: e[0] == "a")
            >>> pattern = a.not_next("b").where(lambda e: e == "b").followed_by("c").where(lambda e: e == "c")
            >>> events = env.from_collection(["a1", "b", "a2", "d", "c"])
            >>> list(CEP.pattern(events, pattern).in_processing_time().select(dict).execute_and_collect())
            [{'a': ['a2'], 'c': ['c']}]
        """
        return self._negated(name, Contiguity.NOT_NEXT, "not_next")

    def not_followed_by(self, name: str) -> Pattern:
        """Append a pattern that must not occur before the next pattern or, as the last one, within the window.

        Example:
            >>> from millstream.cep import CEP, Pattern
            >>> a = Pattern.begin("a").where(lambda e: e[0] == "a")
            >>> pattern = a.not_followed_by("b").where(lambda e: e == "b").followed_by("c").where(lambda e: e == "c")
            >>> events = env.from_collection(["a1", "d", "b", "a2", "d", "c"])
            >>> list(CEP.pattern(events, pattern).in_processing_time().select(dict).execute_and_collect())
            [{'a': ['a2'], 'c': ['c']}]
        """
        return self._negated(name, Contiguity.NOT_FOLLOW, "not_followed_by")

    def _negated(self, name: str, contiguity: Contiguity, method: str) -> Pattern:
        if isinstance(name, Pattern):
            raise MalformedPatternError(f"{method}(...) takes the name of a pattern: a group cannot be negated.")
        if self._quantifier.is_optional or can_be_empty(self):
            raise MalformedPatternError(
                "Specifying a pattern with an optional path to NOT condition is not supported yet. You can simulate "
                "such pattern with two independent patterns, one with and the other without the optional part."
            )
        return _appended(self, name, contiguity, self._skip_strategy, method)

    # --- conditions

    def where(self, condition: UserCode) -> Pattern:
        """Add a condition: a function of the event, or of the event and a context; all conditions must hold.

        Example:
            >>> from millstream.cep import CEP, Pattern
            >>> pattern = Pattern.begin("large").where(lambda e: e > 100).where(lambda e: e % 2 == 0)
            >>> matches = CEP.pattern(env.from_collection([7, 101, 102]), pattern).in_processing_time().select(dict)
            >>> list(matches.execute_and_collect())
            [{'large': [102]}]
        """
        return self._restricted(condition, "where", And)

    def or_(self, condition: UserCode) -> Pattern:
        """Add an alternative condition.

        Example:
            >>> from millstream.cep import CEP, Pattern
            >>> pattern = Pattern.begin("n").where(lambda e: e < 10).or_(lambda e: e > 100)
            >>> matches = CEP.pattern(env.from_collection([7, 50, 102]), pattern).in_processing_time().select(dict)
            >>> list(matches.execute_and_collect())
            [{'n': [7]}, {'n': [102]}]
        """
        return self._restricted(condition, "or_", Or)

    def subtype(self, cls: type) -> Pattern:
        """Restrict the pattern to events of a class.

        Example:
            >>> from millstream.cep import CEP, Pattern
            >>> pattern = Pattern.begin("text").subtype(str)
            >>> matches = CEP.pattern(env.from_collection([7, "seven"]), pattern).in_processing_time().select(dict)
            >>> list(matches.execute_and_collect())
            [{'text': ['seven']}]
        """
        if not isinstance(cls, type):
            raise MalformedPatternError(f"subtype(...) of pattern {self._name!r} takes a class, not {cls!r}.")
        return self._restricted(Subtype(cls), "subtype", And)

    def _restricted(self, condition: UserCode, method: str, join: type[And | Or]) -> Pattern:
        atom = as_atom(condition, self._name, method)
        self._condition = atom if self._condition is None else join(self._condition, atom)
        return self

    def until(self, condition: UserCode) -> Pattern:
        """End the loop at the first event for which a condition holds; that event is not part of it.

        Example:
            >>> from millstream.cep import CEP, Pattern
            >>> loop = Pattern.begin("a").where(lambda e: e == "a").one_or_more().until(lambda e: e == "x")
            >>> matches = CEP.pattern(env.from_collection("aaxa"), loop).in_processing_time()
            >>> list(matches.select(lambda match: "".join(match["a"])).execute_and_collect())
            ['a', 'aa', 'a', 'a']
        """
        if self._until is not None:
            raise MalformedPatternError("Only one until condition can be applied. Join two with `or` in one function.")
        if not self._quantifier.is_looping:
            raise MalformedPatternError(
                "The until condition is only applicable to looping states. Call one_or_more() or times_or_more(n) "
                "before until(...)."
            )
        self._until = as_atom(condition, self._name, "until")
        return self

    # --- how often

    def one_or_more(self, window_time: Length | None = None) -> Pattern:
        """Take one or more events.

        Args:
            window_time: the maximum time between two events.

        Example:
            >>> from millstream.cep import CEP, Pattern
            >>> loop = Pattern.begin("a").where(lambda e: e == "a").one_or_more()
            >>> matches = CEP.pattern(env.from_collection("aa"), loop).in_processing_time()
            >>> list(matches.select(lambda match: "".join(match["a"])).execute_and_collect())
            ['a', 'aa', 'a']
        """
        return self.times_or_more(1, window_time)

    def times(self, times: int, to: int | None = None, window_time: Length | None = None) -> Pattern:
        """Take a fixed number or a range of events.

        Args:
            times: the minimum number.
            to: the maximum number; by default the minimum.
            window_time: the maximum time between two events.

        Example:
            >>> from millstream.cep import CEP, Pattern
            >>> pattern = Pattern.begin("a").where(lambda e: e == "a").times(2)
            >>> matches = CEP.pattern(env.from_collection("aba"), pattern).in_processing_time().select(dict)
            >>> list(matches.execute_and_collect())
            [{'a': ['a', 'a']}]
        """
        self._quantifier.check_unset()
        if to is None and times <= 0:
            raise MalformedPatternError("You should give a positive number greater than 0. For none, use optional().")
        at_most = times if to is None else to
        at_least = 1 if to is not None and times == 0 else times
        check_range(at_least, at_most)
        optional = to is not None and times == 0
        self._quantifier = Quantifier(self._quantifier.outer, "TIMES")
        self._quantifier.is_optional = optional
        self._times = Times(at_least, at_most, window_millis(window_time))
        return self

    def times_or_more(self, times: int, window_time: Length | None = None) -> Pattern:
        """Take at least a number of events.

        Args:
            times: the minimum number.
            window_time: the maximum time between two events.

        Example:
            >>> from millstream.cep import CEP, Pattern
            >>> loop = Pattern.begin("a").where(lambda e: e == "a").times_or_more(2)
            >>> matches = CEP.pattern(env.from_collection("aaa"), loop).in_processing_time()
            >>> list(matches.select(lambda match: "".join(match["a"])).execute_and_collect())
            ['aa', 'aaa', 'aa']
        """
        self._quantifier.check_unset()
        check_range(times, times)
        check_loop(self)
        self._quantifier = Quantifier(self._quantifier.outer, "LOOPING")
        self._times = Times(times, times, window_millis(window_time))
        return self

    def optional(self) -> Pattern:
        """Allow a match without this pattern.

        Example:
            >>> from millstream.cep import CEP, Pattern
            >>> b = Pattern.begin("a").where(lambda e: e == "a").next("b").where(lambda e: e == "b").optional()
            >>> pattern = b.next("c").where(lambda e: e == "c")
            >>> matches = CEP.pattern(env.from_collection("abcac"), pattern).in_processing_time().select(dict)
            >>> list(matches.execute_and_collect())
            [{'a': ['a'], 'b': ['b'], 'c': ['c']}, {'a': ['a'], 'c': ['c']}]
        """
        previous = self._previous
        if previous is not None and previous._quantifier.is_greedy:
            raise MalformedPatternError(
                "Optional pattern cannot be preceded by greedy pattern. Remove greedy() from the pattern before it."
            )
        if self._quantifier.is_optional:
            raise MalformedPatternError("Optional already applied! Call optional() once, and not after times(0, n).")
        if self._quantifier.is_negated:
            raise MalformedPatternError("NOT pattern cannot be optional. Remove it or optional().")
        self._quantifier.is_optional = True
        return self

    def greedy(self) -> Pattern:
        """Let the loop take events that the next pattern could take as well.

        Example:
            >>> from millstream.cep import CEP, Pattern
            >>> loop = Pattern.begin("low").where(lambda e: e < 5).one_or_more().greedy()
            >>> pattern = loop.next("any").where(lambda e: True)
            >>> matches = CEP.pattern(env.from_collection([1, 2, 9]), pattern).in_processing_time().select(dict)
            >>> list(matches.execute_and_collect())[0]
            {'low': [1, 2], 'any': [9]}
        """
        self._quantifier.check_not_negated()
        quantifier = self._quantifier
        if quantifier.inner is Contiguity.ANY:
            raise MalformedPatternError(
                "Option not applicable to FollowedByAny pattern. A loop with allow_combinations() cannot be greedy."
            )
        if quantifier.is_single:
            raise MalformedPatternError(
                "Option not applicable to singleton quantifier. Call one_or_more(), times(n, m) or times_or_more(n) "
                "before greedy()."
            )
        quantifier.is_greedy = True
        return self

    def consecutive(self) -> Pattern:
        """Require the events of a loop to follow each other directly.

        Example:
            >>> from millstream.cep import CEP, Pattern
            >>> pattern = Pattern.begin("a").where(lambda e: e == "a").times(2).consecutive()
            >>> matches = CEP.pattern(env.from_collection("abaa"), pattern).in_processing_time().select(dict)
            >>> list(matches.execute_and_collect())
            [{'a': ['a', 'a']}]
        """
        quantifier = self._quantifier
        if quantifier.is_single:
            raise MalformedPatternError(
                f"Consecutive not applicable to {quantifier}! Call one_or_more(), times(n) or times_or_more(n) first."
            )
        if quantifier.inner is Contiguity.ANY:
            raise MalformedPatternError("You can apply either combinations or consecutive, not both!")
        if quantifier.inner is Contiguity.STRICT:
            raise MalformedPatternError("Consecutive already applied!")
        quantifier.inner = Contiguity.STRICT
        return self

    def allow_combinations(self) -> Pattern:
        """Let a loop skip events that it could take, so that every combination is a match.

        Example:
            >>> from millstream.cep import CEP, Pattern
            >>> pattern = Pattern.begin("n").where(lambda e: e > 0).times(2).allow_combinations()
            >>> matches = CEP.pattern(env.from_collection([1, 2, 3]), pattern).in_processing_time()
            >>> list(matches.select(lambda match: match["n"]).execute_and_collect())
            [[1, 2], [1, 3], [2, 3]]
        """
        quantifier = self._quantifier
        if quantifier.is_single:
            raise MalformedPatternError(
                f"Combinations not applicable to {quantifier}! Call one_or_more(), times(n) or times_or_more(n) first."
            )
        if quantifier.inner is Contiguity.STRICT:
            raise MalformedPatternError("You can apply either combinations or consecutive, not both!")
        if quantifier.inner is Contiguity.ANY:
            raise MalformedPatternError("Combinations already applied!")
        quantifier.inner = Contiguity.ANY
        return self

    # --- time

    def within(self, window_time: Length | None, within_type: WithinType = WithinType.FIRST_AND_LAST) -> Pattern:
        """Set the time limit of a match, or of this pattern.

        Args:
            window_time: the limit; an event at exactly this distance is too late.
            within_type: the events it applies to; FIRST_AND_LAST limits the match, whichever pattern sets it.

        Example:
            >>> from millstream.testing import CepHarness
            >>> with CepHarness(Pattern.begin("first").followed_by("second").within(10)) as harness:
            ...     for time in (0, 9, 30):
            ...         harness.process_element(time, timestamp=time)
            ...     harness.end_input()
            ...     harness.output()
            [{'first': [0], 'second': [9]}]
        """
        length = window_millis(window_time)
        if length is not None:
            self._windows[within_type] = length
        return self

    # --- properties

    def get_name(self) -> str:
        """Return the name of this part of the sequence.

        Example:
            >>> Pattern.begin("a").next("b").get_name()
            'b'
        """
        return self._name

    def get_previous(self) -> Pattern | None:
        """Return the part before this one, None for the first.

        Example:
            >>> Pattern.begin("a").next("b").get_previous().get_name()
            'a'
        """
        return self._previous

    def get_quantifier(self) -> Quantifier:
        """Return the quantifier.

        Example:
            >>> Pattern.begin("a").one_or_more().get_quantifier()
            Quantifier{properties=[LOOPING], consumingStrategy=STRICT, innerConsumingStrategy=SKIP_TILL_NEXT}
        """
        return self._quantifier

    def get_times(self) -> Times | None:
        """Return the number of events, or None.

        Example:
            >>> Pattern.begin("a").times(2, 4).get_times()
            Times(at_least=2, at_most=4, window=None)
        """
        return self._times

    def get_condition(self) -> Expression:
        """Return the condition; by default one that always holds.

        Example:
            >>> str(Pattern.begin("a").where(lambda e: e > 1).or_(lambda e: e < 0).get_condition())
            '(a.where or a.or_)'
        """
        return TRUE if self._condition is None else self._condition

    def get_until_condition(self) -> Expression | None:
        """Return the condition that ends the loop, or None.

        Example:
            >>> str(Pattern.begin("a").one_or_more().until(lambda e: e == "x").get_until_condition())
            'a.until'
        """
        return self._until

    def get_window_size(self, within_type: WithinType = WithinType.FIRST_AND_LAST) -> int | None:
        """Return the length of a window in milliseconds, or None.

        Example:
            >>> Pattern.begin("a").within(60_000).get_window_size()
            60000
        """
        return self._windows.get(within_type)

    def get_after_match_skip_strategy(self) -> AfterMatchSkipStrategy:
        """Return the skip strategy after a match.

        Example:
            >>> Pattern.begin("a").get_after_match_skip_strategy()
            AfterMatchSkipStrategy.no_skip()
        """
        return self._skip_strategy

    @property
    def group(self) -> Pattern | None:
        """The last pattern of the sequence in a group; None for a single pattern."""
        return None

    def explain(self) -> str:
        """Return the states that the sequence is compiled to, and the edges between them, as text.

        Example:
            >>> print(Pattern.begin("a").followed_by("b").where(lambda e: e == "b").explain())
            start a
              take -> b when true
            state b
              take -> $endState$ when b.where
              ignore -> b when not b.where
            final $endState$
        """
        return compile_pattern(self).explain()

    def __repr__(self) -> str:
        return f"<pattern {' '.join(p.get_name() for p in sequence(self))}>"


@tagged("cep-group-pattern", write=lambda group: (group._group, *_written(group)), read=_read_group)
class GroupPattern(Pattern):
    """A sequence in place of a single pattern.

    Example:
        >>> Pattern.begin(Pattern.begin("a").next("b")).times(2).get_times()
        Times(at_least=2, at_most=2, window=None)
    """

    NAME = "GroupPattern"

    def __init__(
        self,
        group: Pattern,
        previous: Pattern | None,
        contiguity: Contiguity,
        skip_strategy: AfterMatchSkipStrategy,
    ) -> None:
        super().__init__(self.NAME, previous, contiguity, skip_strategy)
        self._group = group

    @property
    def group(self) -> Pattern:
        """The last pattern of the sequence in the group."""
        return self._group

    def get_raw_pattern(self) -> Pattern:
        """Return the last pattern of the sequence in the group.

        Example:
            >>> Pattern.begin(Pattern.begin("a").next("b")).get_raw_pattern().get_name()
            'b'
        """
        return self._group

    def _restricted(self, condition: UserCode, method: str, join: type[And | Or]) -> Pattern:
        raise MalformedPatternError(
            f"GroupPattern does not support {method.rstrip('_')} clause. Give it to the patterns inside the group."
        )

    def greedy(self) -> Pattern:
        """Raise an error: a group cannot be greedy."""
        raise MalformedPatternError("Option not applicable to group pattern. Make the patterns inside it greedy.")


def check_pattern(pattern: object) -> None:
    """Raise an error if an object is not a valid pattern."""
    if not isinstance(pattern, Pattern):
        raise MalformedPatternError(f"A pattern is created with Pattern.begin(...), not {pattern!r}.")
    compile_pattern(pattern)


def _appended(
    previous: Pattern | None,
    pattern: str | Pattern,
    contiguity: Contiguity,
    strategy: AfterMatchSkipStrategy,
    method: str,
) -> Pattern:
    if isinstance(pattern, Pattern):
        return GroupPattern(pattern, previous, contiguity, strategy)
    if not isinstance(pattern, str):
        raise MalformedPatternError(f"{method}(...) takes the name of a pattern or a pattern, not {pattern!r}.")
    if not pattern or ":" in pattern:
        raise MalformedPatternError(
            f"{method}({pattern!r}): the name of a pattern must not be empty and must not contain a colon."
        )
    return Pattern(pattern, previous, contiguity, strategy)
