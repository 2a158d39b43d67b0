"""What has come to a slot from the others, and whether it is all of it. No socket and no clock: frames in, blocks out.

A sender's frames come in the order of its epochs and levels, each level closed by an END that says how many blocks it
had. So whatever is lost, doubled or left over from before is out of order at the latest with the sender's next frame,
and is noticed. (The last frame of all can only be lost with its link, which is noticed as well.)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.exchange.frames import COUNT, Frame, Kind, ProtocolError


@dataclass
class _Level:
    """What has come so far for one level of one epoch."""

    messages: list[bytes] = field(default_factory=list)
    ended: int = 0


@dataclass
class _Sender:
    """How far a sender has come.

    Attributes:
        levels: the levels it sends to here, in every epoch.
        epoch: the epoch it is in, or was in last.
        at: the place in `levels` of the level that it ends next.
        blocks: how many blocks it has sent for that level.
        waiting: how many bytes of it wait for their level.
    """

    levels: list[int]
    epoch: int = -1
    at: int = 0
    blocks: int = 0
    waiting: int = 0
    most_waiting: int = 0


class ReceiveBuffer:
    """The input of one slot, from all slots that send to it, itself included."""

    def __init__(self, slot: int, widths: list[int]) -> None:
        """Expect nothing yet.

        Args:
            slot: whose input it is.
            widths: how many slots each level has.
        """
        self._widths = widths
        self._levels: dict[tuple[int, int], _Level] = {}
        self._sizes: dict[tuple[int, int], dict[int, int]] = {}
        self._senders = {
            sender: _Sender([n for n in range(1, len(widths)) if slot < widths[n] and sender < widths[n - 1]])
            for sender in range(max(widths))
        }

    def take(self, sender: int, frame: Frame) -> None:
        """Take a frame of another slot, or of this one. Raises ProtocolError."""
        state = self._senders[sender]
        self._check(sender, state, frame)
        place = frame.epoch, frame.level
        level = self._levels.setdefault(place, _Level())
        if frame.kind is Kind.DATA:
            state.blocks += 1
            state.waiting += len(frame.payload)
            state.most_waiting = max(state.most_waiting, state.waiting)
            sizes = self._sizes.setdefault(place, {})
            sizes[sender] = sizes.get(sender, 0) + len(frame.payload)
            level.messages.append(frame.payload)
            return
        announced = COUNT.unpack(frame.payload)[0]
        if announced != state.blocks:
            what = f"{announced} blocks for {_name(place)}"
            raise ProtocolError(f"slot {sender} sent {what}, of which {state.blocks} came")
        level.ended += 1
        state.blocks = 0
        state.at += 1

    def _check(self, sender: int, state: _Sender, frame: Frame) -> None:
        if frame.kind not in (Kind.DATA, Kind.END):
            raise ProtocolError(f"slot {sender} said {frame.kind.name} to another slot")
        if state.at == len(state.levels) and frame.epoch > state.epoch:
            state.at = 0
        if state.at == 0 and not state.blocks and state.levels[:1] == [frame.level]:
            # A sender begins an epoch: its first, or a later one than that whose levels it has all ended.
            state.epoch = frame.epoch
        expected = (state.epoch, state.levels[state.at]) if state.at < len(state.levels) else None
        if (frame.epoch, frame.level) != expected:
            due = f"before the end of {_name(expected)}" if expected else f"after the end of epoch {state.epoch}"
            raise ProtocolError(f"slot {sender} sent {frame.kind.name} of {_name(frame[1:3])} {due}")

    def is_complete(self, epoch: int, level: int) -> bool:
        """Tell whether all that is to come for a level has come."""
        arrived = self._levels.get((epoch, level))
        return arrived is not None and arrived.ended == self._widths[level - 1]

    def collect(self, epoch: int, level: int) -> list[bytes]:
        """Hand out the blocks of a level that is complete."""
        for sender, size in self._sizes.pop((epoch, level), {}).items():
            self._senders[sender].waiting -= size
        return self._levels.pop((epoch, level)).messages

    def take_waiting(self, sender: int) -> tuple[int, int]:
        """Return how many bytes of a sender wait for their level: now, and at most since this was last asked."""
        state = self._senders[sender]
        most, state.most_waiting = state.most_waiting, state.waiting
        return state.waiting, most


def _name(place: tuple[int, int]) -> str:
    epoch, level = place
    return f"level {level} of epoch {epoch}"
