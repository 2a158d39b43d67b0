"""Headroom of sums: how many records they can take before they could leave the bounds of their type.

A sum that starts within bounds and changes by at most d per record cannot leave its type's bounds before a known number
of records, however they are distributed over keys. Counting records then replaces testing sums.
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.inferred_types import Fixed, InferredType, Moved, Whole, within

# The full range of a value, from its initial bounds to those of its type. Headroom is a fraction of it, so that
# records that move values by different amounts can be counted together.
FULL_HEADROOM = 1 << 64


@fast_dataclass
class Headroom:
    """The initial bounds of values, and the headroom that a record uses.

    Attributes:
        initial_type: the type of values with full headroom.
        share: the fraction of FULL_HEADROOM that one record may use.
    """

    initial_type: InferredType
    share: int


class HeadroomMeter:
    """Tracks how much headroom values may have used.

    First since the start, without testing values. Once that is exceeded, or there may be values that were not counted,
    values are tested when they are first changed, and counted from then on.
    """

    def __init__(self) -> None:
        self._used = 0
        self.must_test = False

    def take(self, share: int, has_uncounted: bool, are_tested: bool) -> bool:
        """Count the headroom that records may use; return whether all values they change have enough.

        Args:
            share: the headroom that the records may use, of FULL_HEADROOM.
            has_uncounted: whether there may be values that were not counted.
            are_tested: whether the values that the records change are tested.
        """
        self._used += share
        self.must_test = self.must_test or has_uncounted or self._used > FULL_HEADROOM
        return self._used <= FULL_HEADROOM and (are_tested or not self.must_test)

    def exhaust(self) -> bool:
        """Note a value with less than full headroom; return False."""
        self._used = FULL_HEADROOM + 1
        return False

    def restart(self) -> None:
        """Restart: all values will be tested before they change again."""
        if self.must_test:
            self._used = 0


def headroom_of(
    state: InferredType, declared: InferredType | None, reduced: Callable[[InferredType], InferredType]
) -> Headroom | None:
    """Return the headroom of values of a type within the declared one, None if it is unknown.

    Args:
        state: the type of values, with open bounds where records change them.
        declared: the type that they must conform to.
        reduced: returns the type of a value combined with a record.
    """
    if isinstance(state, Fixed) and isinstance(declared, Fixed) and len(state.members) == len(declared.members):
        if state.null and not declared.null:
            return None
        result = reduced(Fixed(tuple(_numbered(m, i) for i, m in enumerate(state.members))))
        if not isinstance(result, Fixed) or len(result.members) != len(state.members):
            return None
        headrooms = [
            _int_headroom(*each, i)
            for i, each in enumerate(zip(state.members, declared.members, result.members, strict=True))
        ]
        known = [r for r in headrooms if r is not None]
        if len(known) < len(headrooms):
            return None
        return Headroom(
            Fixed(tuple(r.initial_type for r in known), state.null), max((r.share for r in known), default=0)
        )
    return None if declared is None else _int_headroom(state, declared, reduced(_numbered(state, 0)), 0)


def _numbered(inferred_type: InferredType, base: int) -> InferredType:
    """Return the type of a value whose changes are tracked."""
    return (
        Moved(inferred_type.low, inferred_type.high, inferred_type.null, base)
        if isinstance(inferred_type, Whole)
        else inferred_type
    )


def _int_headroom(state: InferredType, declared: InferredType, result: InferredType, base: int) -> Headroom | None:
    if within(state, declared):
        return Headroom(state, 0)
    if not (isinstance(state, Whole) and isinstance(declared, Whole) and isinstance(result, Moved)):
        return None
    if result.base != base or (state.null and not declared.null) or declared.low is None or declared.high is None:
        return None
    low, high = declared.low // 2, declared.high // 2
    low = low if state.low is None else max(state.low, low)
    high = high if state.high is None else min(state.high, high)
    if low > high:
        return None
    directions = [(declared.high - high, result.max_step), (low - declared.low, -result.min_step)]
    records = [distance // step for distance, step in directions if step > 0]
    if 0 in records:
        return None
    return Headroom(Whole(low, high, state.null), -(-FULL_HEADROOM // min(records)) if records else 0)
