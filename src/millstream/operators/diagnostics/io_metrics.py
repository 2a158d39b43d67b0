"""What a slot that stays tells of its time and of its channels to other slots: Flink's busy, idle and back-pressured
time, and the usage of its pools. Told with a report now and then, never changed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelTraffic:
    """What one slot has had to do with another since the execution began.

    Attributes:
        slot: the other.
        queued, max_queued: bytes that wait to be sent: now, and at most since this was last told. The out-pool.
        waiting, max_waiting: bytes that have come and wait for their level, likewise. The in-pool.
        sent, received: bytes in all.
        blocked: how often this slot had to wait until the other took something.
        back_pressured: for how many seconds in all.
    """

    slot: int
    queued: int
    max_queued: int
    waiting: int
    max_waiting: int
    sent: int
    received: int
    blocked: int
    back_pressured: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelTimes:
    """How many seconds a slot has spent on a level."""

    busy: float = 0.0
    back_pressured: float = 0.0

    def after(self, busy: float, back_pressured: float) -> LevelTimes:
        """Return the sums after another epoch."""
        return LevelTimes(busy=self.busy + busy, back_pressured=self.back_pressured + back_pressured)


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotTraffic:
    """What one slot tells.

    Attributes:
        elapsed: seconds from its first epoch's beginning to its last one's end: all times are of these.
        credit: how many bytes may wait in a channel.
        levels: its times, by level.
        channels: those to other slots, or the busiest of them: with many slots the driver would have the square of
            their number to look at, ten times a second.
    """

    elapsed: float
    credit: int
    levels: tuple[LevelTimes, ...]
    channels: tuple[ChannelTraffic, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SubtaskTraffic:
    """What that means for one subtask. Subtasks of a slot share its channels, and those of a level their times.

    Attributes:
        busy, back_pressured, idle: seconds up to the end of the slot's last epoch. A subtask is back-pressured
            while a channel has no room for its output, and while those behind it work on what it has sent in this
            epoch; who is neither busy nor back-pressured waits for input, and is idle.
        out_usage, in_usage: of the credit of the fullest channel, at most since the slot last told.
    """

    busy: float
    back_pressured: float
    idle: float
    out_usage: float
    in_usage: float
    channels: tuple[ChannelTraffic, ...]

    @staticmethod
    def of(slot: SlotTraffic, level: int) -> SubtaskTraffic:
        times = slot.levels[level]
        return SubtaskTraffic(
            busy=times.busy,
            back_pressured=times.back_pressured,
            idle=max(0.0, slot.elapsed - times.busy - times.back_pressured),
            out_usage=max((c.max_queued for c in slot.channels), default=0) / slot.credit,
            in_usage=max((c.max_waiting for c in slot.channels), default=0) / slot.credit,
            channels=slot.channels,
        )
