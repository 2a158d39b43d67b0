"""Inferred types: knowledge about a value before the program runs.

An inferred type is a set of values: ints from 0 to 9, pairs of a string and an int. With `null` it includes None. There
is none for mutable values, which may change after the inference.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.common.aliases import Value
from millstream.common.fast_dataclass import fast_dataclass


@fast_dataclass
class Anything:
    """Any value: nothing is known."""


@fast_dataclass
class Whole:
    """An `int` (no subclass) within bounds; None is unbounded."""

    low: int | None = None
    high: int | None = None
    null: bool = False

    @property
    def size(self) -> int | None:
        """The largest absolute value, None when there is none."""
        return None if self.low is None or self.high is None else max(-self.low, self.high, 0)


@fast_dataclass
class Moved(Whole):
    """An `int` that is another one plus a bounded number.

    Attributes:
        base: identifies the other one, by a number of the caller's choice.
        min_step: the minimum that was added to it.
        max_step: the maximum.
    """

    base: int = 0
    min_step: int = 0
    max_step: int = 0


@fast_dataclass
class Real:
    """A `float` (no subclass), of single precision if `single`."""

    single: bool = False
    null: bool = False


@fast_dataclass
class Some:
    """An instance of an immutable class; if `exact`, of no subclass."""

    kind: type
    exact: bool
    null: bool = False


@fast_dataclass
class Fixed:
    """A `tuple` (no subclass) with inferred types of its members."""

    members: tuple[InferredType, ...]
    null: bool = False


InferredType = Anything | Whole | Real | Some | Fixed

ANYTHING = Anything()
TRUTH = Some(bool, exact=True)
TEXT = Some(str, exact=True)


def within(inferred: InferredType, other: InferredType) -> bool:
    """Return whether every value of a type belongs to another."""
    if isinstance(other, Anything):
        return True
    if isinstance(inferred, Anything) or (inferred.null and not other.null):
        return False
    if isinstance(inferred, Whole) and isinstance(other, Whole):
        low = other.low is None or (inferred.low is not None and inferred.low >= other.low)
        return low and (other.high is None or (inferred.high is not None and inferred.high <= other.high))
    if isinstance(inferred, Real) and isinstance(other, Real):
        return inferred.single or not other.single
    if isinstance(inferred, Some) and isinstance(other, Some):
        return _covers(other, inferred)
    if isinstance(inferred, Fixed) and isinstance(other, Fixed):
        return _same_width(inferred, other) and all(map(within, inferred.members, other.members))
    return False


def either(inferred: InferredType, other: InferredType) -> InferredType:
    """Return a type that includes both."""
    if isinstance(inferred, Anything) or isinstance(other, Anything):
        return ANYTHING
    null = inferred.null or other.null
    if isinstance(inferred, Whole) and isinstance(other, Whole):
        low = None if inferred.low is None or other.low is None else min(inferred.low, other.low)
        return Whole(low, None if inferred.high is None or other.high is None else max(inferred.high, other.high), null)
    if isinstance(inferred, Fixed) and isinstance(other, Fixed) and _same_width(inferred, other):
        return Fixed(tuple(map(either, inferred.members, other.members)), null)
    if isinstance(inferred, Real) and isinstance(other, Real):
        return Real(inferred.single and other.single, null)
    if isinstance(inferred, Some) and isinstance(other, Some):
        wider = other if _covers(other, inferred) else inferred
        return Some(wider.kind, wider.exact, null) if _covers(wider, inferred) and _covers(wider, other) else ANYTHING
    return ANYTHING


def _covers(wider: Some, other: Some) -> bool:
    if wider.exact:
        return other.exact and other.kind is wider.kind
    return issubclass(other.kind, wider.kind)


def _same_width(inferred: Fixed, other: Fixed) -> bool:
    return len(inferred.members) == len(other.members)


def widened(inferred: InferredType, other: InferredType) -> InferredType:
    """Return a type that includes both, without the bounds that the second one would move."""
    if isinstance(inferred, Whole) and isinstance(other, Whole):
        both = either(inferred, other)
        assert isinstance(both, Whole)
        return Whole(
            inferred.low if both.low == inferred.low else None,
            inferred.high if both.high == inferred.high else None,
            both.null,
        )
    if isinstance(inferred, Fixed) and isinstance(other, Fixed) and _same_width(inferred, other):
        return Fixed(tuple(map(widened, inferred.members, other.members)), inferred.null or other.null)
    return either(inferred, other)


def constant(inferred: InferredType) -> int | None:
    """Return the only value of a type if that is an int."""
    if isinstance(inferred, Whole) and not inferred.null and inferred.low == inferred.high:
        return inferred.low
    return None


def null_as_in(inferred: InferredType, other: InferredType) -> InferredType:
    """Return a type without None where another one excludes it, also within tuples."""
    if isinstance(inferred, Anything):
        return inferred
    null = inferred.null and (isinstance(other, Anything) or other.null)
    if not isinstance(inferred, Fixed):
        return replace(inferred, null=null)
    others = (
        other.members
        if isinstance(other, Fixed) and _same_width(inferred, other)
        else (ANYTHING,) * len(inferred.members)
    )
    return Fixed(tuple(map(null_as_in, inferred.members, others)), null)


def inferred_type_of(value: Value) -> InferredType:
    """Return the narrowest type of a value."""
    kind = value.__class__
    if kind is int:
        return Whole(value, value)
    if kind is float:
        return Real()
    if kind is tuple:
        return Fixed(tuple(map(inferred_type_of, value)))
    return Some(kind, exact=True) if kind in (bool, str, bytes) else ANYTHING
