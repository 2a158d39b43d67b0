"""How long sums stay within the bounds of their type, however the records are dealt out over the keys.

A sum that began in the middle of its type's bounds and moves by at most so much with a record cannot leave them before
so many records have come. Who counts the records need not look at the sums.
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.common.fast_dataclass import record
from millstream.common.inferred_types import Fixed, Moved, Shape, Whole, within

# The full range of a value, from its initial bounds to those of its type. Headroom is a fraction of it, so that
# records that move values by different amounts can be counted together.
ALL = 1 << 64


@record
class Room:
    """What values begin as, and how much of their room a record takes.

    Attributes:
        begin: the shape in which a value has all its room before it.
        share: what one record may take, of ALL.
    """

    begin: Shape
    share: int


class Meter:
    """Counts how much of their room values may have used up.

    At first since the beginning, and nobody need look at a value. When that is too much, or there may be others than
    those that were counted, values are looked at when they are taken to be changed, and counted from there on.
    """

    def __init__(self) -> None:
        self._used = 0
        self.looks = False

    def take(self, share: int, others: bool, looked_at: bool) -> bool:
        """Count what records may use up; return whether all values that they change have room for that.

        Args:
            share: what the records may use up, of ALL.
            others: whether there may be values that were not counted.
            looked_at: whether the values that the records change are looked at, if values are.
        """
        self._used += share
        self.looks = self.looks or others or self._used > ALL
        return self._used <= ALL and (looked_at or not self.looks)

    def far(self) -> bool:
        """A value was found that has less room than all; return False."""
        self._used = ALL + 1
        return False

    def begin_anew(self) -> None:
        """All values will be looked at before they are changed again."""
        if self.looks:
            self._used = 0


def room_of(state: Shape, wanted: Shape | None, reduced: Callable[[Shape], Shape]) -> Room | None:
    """Return the room of values of a shape within the wanted one, None if they cannot be told to have any.

    Args:
        state: what values are, with open bounds where records move them.
        wanted: what they must stay.
        reduced: tells what comes of a value of some shape and a record.
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


def _numbered(shape: Shape, place: int) -> Shape:
    """Return the shape of a value of which one wants to know by how much it is moved."""
    return Moved(shape.low, shape.high, shape.null, place) if isinstance(shape, Whole) else shape


def _room(state: Shape, wanted: Shape, made: Shape, place: int) -> Room | None:
    if within(state, wanted):
        return Room(state, 0)
    if not (isinstance(state, Whole) and isinstance(wanted, Whole) and isinstance(made, Moved)):
        return None
    if made.place != place or (state.null and not wanted.null) or wanted.low is None or wanted.high is None:
        return None
    low, high = wanted.low // 2, wanted.high // 2
    low = low if state.low is None else max(state.low, low)
    high = high if state.high is None else min(state.high, high)
    if low > high:
        return None
    ways = [(wanted.high - high, made.most), (low - wanted.low, -made.least)]
    records = [room // step for room, step in ways if step > 0]
    if 0 in records:
        return None
    return Room(Whole(low, high, state.null), -(-ALL // min(records)) if records else 0)
