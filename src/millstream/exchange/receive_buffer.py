"""Frames that a slot has received from the others. Pure: frames in, blocks out.

Frames of a sender arrive in the order of its epochs and levels, and an END with the number of blocks closes each level.
So a lost, duplicate or late frame is out of order at the latest with the sender's next frame, and is detected. (The
very last frame can only be lost with its connection, which is detected as well.)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.exchange.frames import COUNT, Frame, Kind, ProtocolError


@dataclass
class _Level:
    """Frames received for one level of one epoch."""

    messages: list[bytes] = field(default_factory=list)
    ended: int = 0


@dataclass
class _Sender:
    """The progress of a sender.

    Attributes:
        levels: the levels it sends to here, in every epoch.
        epoch: its current or last epoch.
        index: the index in `levels` of the level it ends next.
        blocks: blocks sent for that level.
        pending, max_pending: bytes waiting for their level, now and at most.
    """

    levels: list[int]
    epoch: int = -1
    index: int = 0
    blocks: int = 0
    pending: int = 0
    max_pending: int = 0


class ReceiveBuffer:
    """The input of one slot, from all slots that send to it, including itself."""

    def __init__(self, slot: int, widths: list[int]) -> None:
        """Create an empty buffer.

        Args:
            slot: the number of the slot.
            widths: the number of slots of each level.
        """
        self._widths = widths
        self._levels: dict[tuple[int, int], _Level] = {}
        self._sizes: dict[tuple[int, int], dict[int, int]] = {}
        self._senders = {
            sender: _Sender([n for n in range(1, len(widths)) if slot < widths[n] and sender < widths[n - 1]])
            for sender in range(max(widths))
        }

    def take(self, sender: int, frame: Frame) -> None:
        """Add a frame of another slot or of this one. Raises ProtocolError."""
        state = self._senders[sender]
        self._check(sender, state, frame)
        key = frame.epoch, frame.level
        level = self._levels.setdefault(key, _Level())
        if frame.kind is Kind.DATA:
            state.blocks += 1
            state.pending += len(frame.payload)
            state.max_pending = max(state.max_pending, state.pending)
            sizes = self._sizes.setdefault(key, {})
            sizes[sender] = sizes.get(sender, 0) + len(frame.payload)
            level.messages.append(frame.payload)
            return
        announced = COUNT.unpack(frame.payload)[0]
        if announced != state.blocks:
            expected = f"{announced} blocks for {_name(key)}"
            raise ProtocolError(f"slot {sender} sent {expected}, of which {state.blocks} arrived")
        level.ended += 1
        state.blocks = 0
        state.index += 1

    def _check(self, sender: int, state: _Sender, frame: Frame) -> None:
        if frame.kind not in (Kind.DATA, Kind.END):
            raise ProtocolError(f"slot {sender} sent {frame.kind.name} to another slot")
        if state.index == len(state.levels) and frame.epoch > state.epoch:
            state.index = 0
        if state.index == 0 and not state.blocks and state.levels[:1] == [frame.level]:
            # A sender begins its first epoch, or the next one after it has ended all levels.
            state.epoch = frame.epoch
        expected = (state.epoch, state.levels[state.index]) if state.index < len(state.levels) else None
        if (frame.epoch, frame.level) != expected:
            deadline = f"before the end of {_name(expected)}" if expected else f"after the end of epoch {state.epoch}"
            raise ProtocolError(f"slot {sender} sent {frame.kind.name} of {_name(frame[1:3])} {deadline}")

    def is_complete(self, epoch: int, level: int) -> bool:
        """Return whether all input of a level has arrived."""
        arrived = self._levels.get((epoch, level))
        return arrived is not None and arrived.ended == self._widths[level - 1]

    def collect(self, epoch: int, level: int) -> list[bytes]:
        """Return the blocks of a complete level."""
        for sender, size in self._sizes.pop((epoch, level), {}).items():
            self._senders[sender].pending -= size
        return self._levels.pop((epoch, level)).messages

    def take_pending(self, sender: int) -> tuple[int, int]:
        """Return the bytes of a sender that wait for their level: now, and the maximum since the last call."""
        state = self._senders[sender]
        max_pending, state.max_pending = state.max_pending, state.pending
        return state.pending, max_pending


def _name(key: tuple[int, int]) -> str:
    epoch, level = key
    return f"level {level} of epoch {epoch}"
