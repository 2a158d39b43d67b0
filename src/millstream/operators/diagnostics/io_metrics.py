"""I/O metrics of resident slots: Flink's busy, idle and back-pressured time, and the usage of buffer pools.

They are reported now and then, and are immutable.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelTraffic:
    """The traffic of one slot with another since the execution started.

    Attributes:
        slot: the other slot.
        queued, max_queued: bytes to be sent, now and at most since the last report (output pool).
        waiting, max_waiting: received bytes that wait for their level, now and at most (input pool).
        sent, received: total bytes.
        blocked: the number of times this slot waited for the other to accept data.
        back_pressured: the total seconds of these waits.
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
    """The seconds that a slot has spent on a level."""

    busy: float = 0.0
    back_pressured: float = 0.0

    def after(self, busy: float, back_pressured: float) -> LevelTimes:
        """Return the sums after another epoch."""
        return LevelTimes(busy=self.busy + busy, back_pressured=self.back_pressured + back_pressured)


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotTraffic:
    """The I/O metrics of a slot.

    Attributes:
        elapsed: seconds from the start of its first epoch to the end of its last; all times are parts of them.
        credit: the maximum bytes pending in a channel.
        levels: its times, by level.
        channels: the channels to other slots, or only the busiest: all would be the square of the number of slots, ten
            times a second.
    """

    elapsed: float
    credit: int
    levels: tuple[LevelTimes, ...]
    channels: tuple[ChannelTraffic, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SubtaskTraffic:
    """The I/O metrics of a subtask. Subtasks of a slot share its channels, and subtasks of a level share their times.

    Attributes:
        busy, back_pressured, idle: seconds up to the end of the slot's last epoch. A subtask is back-pressured while a
            channel does not accept its output, and while downstream subtasks process its output of this epoch. A
            subtask that is neither busy nor back-pressured waits for input and is idle.
        out_usage, in_usage: the maximum used fraction of a channel's credit since the last report.
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
