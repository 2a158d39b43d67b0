"""How often a pattern takes events, how they must follow each other, and between which events a window applies."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from millstream.common.errors import InvalidProgramError
from millstream.common.tags import tagged
from millstream.common.time import Duration, Time, to_millis

Length = Duration | Time | int


class MalformedPatternError(InvalidProgramError):
    """Raised for an invalid pattern, when it is built."""


@tagged("cep-within-type")
class WithinType(Enum):
    """The events between which a time window applies."""

    PREVIOUS_AND_CURRENT = "from the last taken event to the one for this pattern"
    FIRST_AND_LAST = "from the first event of the match to its last"


@tagged("cep-contiguity")
class Contiguity(Enum):
    """How an event must follow the one before it; the values are Flink's words."""

    STRICT = "STRICT"
    RELAXED = "SKIP_TILL_NEXT"
    ANY = "SKIP_TILL_ANY"
    NOT_FOLLOW = "NOT_FOLLOW"
    NOT_NEXT = "NOT_NEXT"


_NEGATED = (Contiguity.NOT_FOLLOW, Contiguity.NOT_NEXT)


def _read_quantifier(outer: Contiguity, inner: Contiguity, kind: str, is_optional: bool, is_greedy: bool) -> Quantifier:
    quantifier = Quantifier(outer, kind)
    quantifier.inner, quantifier.is_optional, quantifier.is_greedy = inner, is_optional, is_greedy
    return quantifier


@tagged(
    "cep-quantifier",
    write=lambda q: (q.outer, q.inner, q.kind, q.is_optional, q.is_greedy),
    read=_read_quantifier,
)
class Quantifier:
    """How often a pattern takes events, and how they must follow each other.

    Example:
        >>> from millstream.cep import Pattern
        >>> Pattern.begin("a").times(2).consecutive().get_quantifier()
        Quantifier{properties=[TIMES], consumingStrategy=STRICT, innerConsumingStrategy=STRICT}
    """

    def __init__(self, outer: Contiguity, kind: str = "SINGLE") -> None:
        self.outer = outer
        self.inner = Contiguity.RELAXED
        self.kind = kind
        self.is_optional = False
        self.is_greedy = False

    @property
    def is_single(self) -> bool:
        """Whether the pattern takes one event."""
        return self.kind == "SINGLE"

    @property
    def is_looping(self) -> bool:
        """Whether the pattern takes any number of events."""
        return self.kind == "LOOPING"

    @property
    def is_times(self) -> bool:
        """Whether the pattern takes a fixed number of events."""
        return self.kind == "TIMES"

    @property
    def is_negated(self) -> bool:
        """Whether the pattern is negated."""
        return self.outer in _NEGATED

    def check_unset(self) -> None:
        """Raise an error if the pattern already takes a number of events, or is negated."""
        self.check_not_negated()
        if not self.is_single:
            raise MalformedPatternError(
                f"Already applied quantifier to this Pattern. Current quantifier is: {self}. "
                "Give a pattern one of one_or_more, times and times_or_more."
            )

    def check_not_negated(self) -> None:
        """Raise an error if the pattern is negated."""
        if self.is_negated:
            raise MalformedPatternError("Option not applicable to NOT pattern. A negated pattern occurs once.")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantifier) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        more = [word for word, holds in (("OPTIONAL", self.is_optional), ("GREEDY", self.is_greedy)) if holds]
        return (
            f"Quantifier{{properties=[{', '.join([self.kind, *more])}], consumingStrategy={self.outer.value}, "
            f"innerConsumingStrategy={self.inner.value}}}"
        )

    __repr__ = __str__


@tagged("cep-times")
@dataclass(frozen=True)
class Times:
    """The minimum and maximum number of events, and the maximum milliseconds between two of them."""

    at_least: int
    at_most: int
    window: int | None = None

    def get_from(self) -> int:
        """Return the minimum number of events."""
        return self.at_least

    def get_to(self) -> int:
        """Return the maximum number of events."""
        return self.at_most

    def get_window_size(self) -> int | None:
        """Return the maximum milliseconds between two events, or None."""
        return self.window


def check_range(at_least: int, at_most: int) -> None:
    """Raise an error for an invalid number of events."""
    if at_least <= 0:
        raise MalformedPatternError(
            "The from should be a positive number greater than 0. For none, use times(0, n) or optional()."
        )
    if at_most < at_least:
        raise MalformedPatternError(
            f"The to should be a number greater than or equal to from: {at_least}. It is {at_most}."
        )


def window_millis(length: Length | None) -> int | None:
    """Return the length of a window in milliseconds."""
    if length is None:
        return None
    if not isinstance(length, (Duration, Time, int)) or isinstance(length, bool):
        raise MalformedPatternError(
            f"A window takes a Duration, a Time or milliseconds as an int, not {length!r}: "
            "for example Duration.of_minutes(10)."
        )
    return to_millis(length)
