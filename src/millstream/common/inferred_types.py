"""Inferred types: what is known of a value before the program runs.

An inferred type is a set of values: ints from 0 to 9, pairs of a string and an int. With `null` it includes None. There
is none for mutable values, which may change after the inference.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
        place: identifies the other one, by a number of the caller's choice.
        least: the minimum that was added to it.
        most: the maximum.
    """

    place: int = 0
    least: int = 0
    most: int = 0


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

    members: tuple[Shape, ...]
    null: bool = False


Shape = Anything | Whole | Real | Some | Fixed

ANYTHING = Anything()
TRUTH = Some(bool, exact=True)
TEXT = Some(str, exact=True)


def within(shape: Shape, other: Shape) -> bool:
    """Return whether every value of a type belongs to another."""
    if isinstance(other, Anything):
        return True
    if isinstance(shape, Anything) or (shape.null and not other.null):
        return False
    if isinstance(shape, Whole) and isinstance(other, Whole):
        low = other.low is None or (shape.low is not None and shape.low >= other.low)
        return low and (other.high is None or (shape.high is not None and shape.high <= other.high))
    if isinstance(shape, Real) and isinstance(other, Real):
        return shape.single or not other.single
    if isinstance(shape, Some) and isinstance(other, Some):
        return _covers(other, shape)
    if isinstance(shape, Fixed) and isinstance(other, Fixed):
        return _same_width(shape, other) and all(map(within, shape.members, other.members))
    return False


def either(shape: Shape, other: Shape) -> Shape:
    """Return a type that includes both."""
    if isinstance(shape, Anything) or isinstance(other, Anything):
        return ANYTHING
    null = shape.null or other.null
    if isinstance(shape, Whole) and isinstance(other, Whole):
        low = None if shape.low is None or other.low is None else min(shape.low, other.low)
        return Whole(low, None if shape.high is None or other.high is None else max(shape.high, other.high), null)
    if isinstance(shape, Fixed) and isinstance(other, Fixed) and _same_width(shape, other):
        return Fixed(tuple(map(either, shape.members, other.members)), null)
    if isinstance(shape, Real) and isinstance(other, Real):
        return Real(shape.single and other.single, null)
    if isinstance(shape, Some) and isinstance(other, Some):
        wider = other if _covers(other, shape) else shape
        return Some(wider.kind, wider.exact, null) if _covers(wider, shape) and _covers(wider, other) else ANYTHING
    return ANYTHING


def _covers(wider: Some, other: Some) -> bool:
    if wider.exact:
        return other.exact and other.kind is wider.kind
    return issubclass(other.kind, wider.kind)


def _same_width(shape: Fixed, other: Fixed) -> bool:
    return len(shape.members) == len(other.members)


def widened(shape: Shape, other: Shape) -> Shape:
    """Return a type that includes both, without the bounds that the second one would move."""
    if isinstance(shape, Whole) and isinstance(other, Whole):
        both = either(shape, other)
        assert isinstance(both, Whole)
        return Whole(
            shape.low if both.low == shape.low else None, shape.high if both.high == shape.high else None, both.null
        )
    if isinstance(shape, Fixed) and isinstance(other, Fixed) and _same_width(shape, other):
        return Fixed(tuple(map(widened, shape.members, other.members)), shape.null or other.null)
    return either(shape, other)


def constant(shape: Shape) -> int | None:
    """Return the only value of a type if that is an int."""
    if isinstance(shape, Whole) and not shape.null and shape.low == shape.high:
        return shape.low
    return None


def null_as_in(shape: Shape, other: Shape) -> Shape:
    """Return a type without None where another one excludes it, also within tuples."""
    if isinstance(shape, Anything):
        return shape
    null = shape.null and (isinstance(other, Anything) or other.null)
    if not isinstance(shape, Fixed):
        return replace(shape, null=null)
    others = (
        other.members if isinstance(other, Fixed) and _same_width(shape, other) else (ANYTHING,) * len(shape.members)
    )
    return Fixed(tuple(map(null_as_in, shape.members, others)), null)


def shape_of(value: Any) -> Shape:
    """Return the narrowest type of a value."""
    kind = value.__class__
    if kind is int:
        return Whole(value, value)
    if kind is float:
        return Real()
    if kind is tuple:
        return Fixed(tuple(map(shape_of, value)))
    return Some(kind, exact=True) if kind in (bool, str, bytes) else ANYTHING
