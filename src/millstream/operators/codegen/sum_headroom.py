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
ALL = 1 << 64


@fast_dataclass
class Room:
    """The initial bounds of values, and the headroom that a record uses.

    Attributes:
        begin: the type of values with full headroom.
        share: the fraction of ALL that one record may use.
    """

    begin: InferredType
    share: int


class Meter:
    """Tracks how much headroom values may have used.

    First since the start, without testing values. Once that is exceeded, or there may be values that were not counted,
    values are tested when they are first changed, and counted from then on.
    """

    def __init__(self) -> None:
        self._used = 0
        self.looks = False

    def take(self, share: int, others: bool, looked_at: bool) -> bool:
        """Count the headroom that records may use; return whether all values they change have enough.

        Args:
            share: the headroom that the records may use, of ALL.
            others: whether there may be values that were not counted.
            looked_at: whether the values that the records change are tested.
        """
        self._used += share
        self.looks = self.looks or others or self._used > ALL
        return self._used <= ALL and (looked_at or not self.looks)

    def far(self) -> bool:
        """Note a value with less than full headroom; return False."""
        self._used = ALL + 1
        return False

    def begin_anew(self) -> None:
        """Restart: all values will be tested before they change again."""
        if self.looks:
            self._used = 0


def room_of(
    state: InferredType, wanted: InferredType | None, reduced: Callable[[InferredType], InferredType]
) -> Room | None:
    """Return the headroom of values of a type within the expected one, None if it is unknown.

    Args:
        state: the type of values, with open bounds where records change them.
        wanted: the type that they must conform to.
        reduced: returns the type of a value combined with a record.
    """
    if isinstance(state, Fixed) and isinstance(wanted, Fixed) and len(state.members) == len(wanted.members):
        if state.null and not wanted.null:
            return None
        made = reduced(Fixed(tuple(_numbered(m, i) for i, m in enumerate(state.members))))
        if not isinstance(made, Fixed) or len(made.members) != len(state.members):
            return None
        rooms = [
            _room(*each, i) for i, each in enumerate(zip(state.members, wanted.members, made.members, strict=True))
        ]
        found = [r for r in rooms if r is not None]
        if len(found) < len(rooms):
            return None
        return Room(Fixed(tuple(r.begin for r in found), state.null), max((r.share for r in found), default=0))
    return None if wanted is None else _room(state, wanted, reduced(_numbered(state, 0)), 0)


def _numbered(shape: InferredType, place: int) -> InferredType:
    """Return the type of a value whose changes are tracked."""
    return Moved(shape.low, shape.high, shape.null, place) if isinstance(shape, Whole) else shape


def _room(state: InferredType, wanted: InferredType, made: InferredType, place: int) -> Room | None:
    if within(state, wanted):
        return Room(state, 0)
    if not (isinstance(state, Whole) and isinstance(wanted, Whole) and isinstance(made, Moved)):
        return None
    if made.base != place or (state.null and not wanted.null) or wanted.low is None or wanted.high is None:
        return None
    low, high = wanted.low // 2, wanted.high // 2
    low = low if state.low is None else max(state.low, low)
    high = high if state.high is None else min(state.high, high)
    if low > high:
        return None
    ways = [(wanted.high - high, made.max_step), (low - wanted.low, -made.min_step)]
    records = [room // step for room, step in ways if step > 0]
    if 0 in records:
        return None
    return Room(Whole(low, high, state.null), -(-ALL // min(records)) if records else 0)
