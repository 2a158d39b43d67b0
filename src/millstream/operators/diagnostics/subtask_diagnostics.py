"""Diagnostics of a subtask: watermarks of splits and inputs, what waits for event time, late records, and hot keys.

Nothing is done per record. Keys of a few records of a block are sampled at most twenty times a second; the rest is
collected at the end of an epoch, at intervals that keep the cost at a fifth of a percent of the time. Intervals are not
longer, because without input there is no next epoch, and the last diagnostics must explain why.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random

from millstream.common.aliases import Key
from millstream.operators.base import Operator, RuntimeServices, Split
from millstream.operators.diagnostics.failures import shorten
from millstream.operators.runtime.blocks import Block
from millstream.operators.runtime.record_writer import Channel, Edge
from millstream.operators.watermarks import WatermarkEmitter
from millstream.state.key_groups import hashable, thaw
from millstream.state.keyed import KeyedState

# Maximum keys with a count; then all but the most frequent are discarded. A key with a share above 1/512 is found.
_MAX_COUNTED, _RETAINED = 512, 64
# Number of samples after which all counts are halved, so that older samples weigh less.
_MAX_SAMPLES = 4096


class HotKeys:
    """Counts the most frequent keys.

    Example:
        >>> keys = HotKeys()
        >>> keys.add(["a", "b", "a", "a"])
        >>> keys.hottest(1)
        [('a', 0.75)]
    """

    def __init__(self) -> None:
        self._counts: dict[Key, int] = {}
        self.samples = 0

    def add(self, keys: Iterable[Key]) -> None:
        """Count sampled keys."""
        counts = self._counts
        for key in keys:
            self.samples += 1
            counts[key] = counts.get(key, 0) + 1
        if len(counts) > _MAX_COUNTED:
            self._counts = dict(sorted(counts.items(), key=lambda item: -item[1])[:_RETAINED])
        if self.samples > _MAX_SAMPLES:
            self._counts = {key: count // 2 for key, count in self._counts.items() if count > 1}
            self.samples //= 2

    def hottest(self, max_keys: int) -> list[tuple[Key, float]]:
        """Return the most frequent keys, each with its share of the records."""
        first = sorted(self._counts.items(), key=lambda item: -item[1])[:max_keys]
        return [(key, min(count / self.samples, 1.0)) for key, count in first]


# Seconds between two samples of keys.
_KEY_SAMPLE_INTERVAL = 0.05
# Maximum records per sample of keys.
_SAMPLED_RECORDS = 8
# The interval of reports is this multiple of their cost, within bounds in seconds; the minimum grows with the number of
# subtasks, because all report to one driver.
_COST_MULTIPLE, _MIN_INTERVAL, _MIN_INTERVAL_PER_SUBTASK, _MAX_INTERVAL = 500, 0.02, 0.01, 0.5
# The interval if the cost is unknown, because a test sets the clock.
_INTERVAL_WITHOUT_COST = 60.0
# Maximum reported splits (the furthest behind), late records (the last) and keys (the hottest).
_MAX_SPLITS, _MAX_LATE, _MAX_KEYS = 20, 3, 5
# Minimum samples before hot keys are reported.
_MIN_SAMPLES = 100
# Seconds between two estimates of the state size.
_SIZE_INTERVAL = 2.0


@dataclass(frozen=True, slots=True)
class SplitMark:
    """The watermark of a split of a source, or of the subtask if the source has no splits.

    Attributes:
        operator: the operator that generates its watermarks.
        name: the split as text; None without splits.
        idle: whether it is idle, and the watermark does not wait for it.
        last_record: the wall-clock time of its last record.
        since: the wall-clock time since which the watermark has not changed.
    """

    operator: str
    name: str | None
    watermark: int
    idle: bool
    last_record: int
    since: int


@dataclass(frozen=True, slots=True)
class InputMark:
    """The watermark of an input: that of the slowest channel that is not idle.

    Attributes:
        edge: the edge.
        sender: the sending subtask of that channel.
        channels, idle: the number of channels, and of idle ones.
        since: the wall-clock time since which the watermark has not changed.
    """

    edge: int
    sender: int
    watermark: int
    channels: int
    idle: int
    since: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """Windows or timers that wait for event time.

    Attributes:
        earliest: the earliest event time among them.
    """

    operator: str
    kind: str
    count: int
    earliest: int


@dataclass(frozen=True, slots=True)
class Starved:
    """An operator with two inputs whose rows of one input wait for rows of the other, which has none.

    Attributes:
        input: the index of the input without rows.
        rows: the number of waiting rows.
    """

    operator: str
    input: int
    rows: int


@dataclass(frozen=True, slots=True)
class LateRecord:
    """A dropped late record."""

    operator: str
    record: str
    timestamp: int
    watermark: int


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key as text, and its share of the records."""

    key: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskDiagnostics:
    """The diagnostics of a subtask.

    Attributes:
        at: the wall-clock time.
        splits: the splits that are furthest behind, of `split_count`.
        state_rows, state_bytes: the size of its keyed state, estimated from some rows.
    """

    at: int
    splits: tuple[SplitMark, ...] = ()
    split_count: int = 0
    inputs: tuple[InputMark, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    starved: tuple[Starved, ...] = ()
    late: tuple[LateRecord, ...] = ()
    keys: tuple[HotKey, ...] = ()
    state_rows: int = 0
    state_bytes: int = 0


class DiagnosticsCollector:
    """Collects the diagnostics of a subtask."""

    def __init__(
        self, operators: list[tuple[str, Operator]], services: RuntimeServices, subtask: int, parallelism: int
    ) -> None:
        self._operators = operators
        self._min_interval = max(_MIN_INTERVAL, _MIN_INTERVAL_PER_SUBTASK * parallelism)
        self._clock = services.clock
        self._stopwatch = services.stopwatch
        self._keys = HotKeys()
        self._random = Random(subtask)
        self._next_sample = self._next_report = self._next_size = -math.inf
        self._sizes = 0, 0
        # The watermark of each split or edge, and the time since which it has not changed.
        self._marks: dict[int | tuple[str, Split], tuple[int, int]] = {}

    def sample_keys(self, edge: Edge, block: Block, first: int, end: int) -> None:
        """Sample the keys of a few records of a block."""
        now = self._stopwatch()
        if now < self._next_sample:
            return
        self._next_sample = now + _KEY_SAMPLE_INTERVAL
        start = self._random.randrange(first, max(end - _SAMPLED_RECORDS, first) + 1)
        keys = edge.partitioner.some_keys(block.part(start, min(start + _SAMPLED_RECORDS, end)), self._random)
        self._keys.add(map(hashable, keys))

    def collect(
        self, channels: Iterable[Channel], states: Mapping[str, KeyedState], is_last: bool = False
    ) -> SubtaskDiagnostics | None:
        """Return the diagnostics, None before the interval has passed."""
        now = self._stopwatch()
        if now < self._next_report and not is_last:
            return None
        diagnostics = self._collect(channels, states)
        cost = self._stopwatch() - now
        # A clock that a test sets shows no cost.
        self._next_report = now + (
            min(max(cost * _COST_MULTIPLE, self._min_interval), _MAX_INTERVAL) if cost > 0 else _INTERVAL_WITHOUT_COST
        )
        return diagnostics

    def _collect(self, channels: Iterable[Channel], states: Mapping[str, KeyedState]) -> SubtaskDiagnostics:
        now = self._clock()
        splits = [m for i, o in self._operators for m in self._splits(i, o, now)]
        rows, size = self._size(states)
        return SubtaskDiagnostics(
            at=now,
            splits=tuple(sorted(splits, key=lambda m: (m.idle, m.watermark))[:_MAX_SPLITS]),
            split_count=sum(m.name is not None for m in splits),
            inputs=tuple(self._inputs(channels, now)),
            waiting=tuple(
                Waiting(i, kind, count, earliest)
                for i, o in self._operators
                for kind, count, earliest in o.event_time_backlog()
            ),
            starved=tuple(Starved(i, index, rows) for i, o in self._operators for index, rows in o.starved_inputs()),
            late=tuple(
                LateRecord(i, shorten(value), stamp, watermark)
                for i, o in self._operators
                for value, stamp, watermark in list(o.late_records)[-_MAX_LATE:]
            ),
            keys=tuple(HotKey(shorten(thaw(key)), share) for key, share in self._hottest()),
            state_rows=rows,
            state_bytes=size,
        )

    def _size(self, states: Mapping[str, KeyedState]) -> tuple[int, int]:
        now = self._stopwatch()
        if now >= self._next_size:
            self._next_size = now + _SIZE_INTERVAL
            sizes = [state.about_size() for state in states.values()]
            self._sizes = sum(rows for rows, _ in sizes), sum(size for _, size in sizes)
        return self._sizes

    def _hottest(self) -> list[tuple[Key, float]]:
        return self._keys.hottest(_MAX_KEYS) if self._keys.samples >= _MIN_SAMPLES else []

    def _splits(self, operator_id: str, operator: Operator, now: int) -> Iterable[SplitMark]:
        if not isinstance(operator, WatermarkEmitter):
            return
        for name, watermark, idle, last_record in operator.split_progress():
            since = self._since((operator_id, name), watermark, now)
            shown = None if name is None else name if isinstance(name, str) else shorten(name)
            yield SplitMark(operator_id, shown, watermark, idle, last_record, since)

    def _inputs(self, channels: Iterable[Channel], now: int) -> Iterable[InputMark]:
        by_edge: dict[int, list[Channel]] = {}
        for channel in channels:
            by_edge.setdefault(channel.edge.id, []).append(channel)
        for edge, all_channels in by_edge.items():
            active = [c for c in all_channels if not c.idle]
            slowest = min(active or all_channels, key=lambda c: c.watermark)
            since, count = self._since(edge, slowest.watermark, now), len(all_channels)
            yield InputMark(edge, slowest.number, slowest.watermark, count, count - len(active), since)

    def _since(self, owner: int | tuple[str, Split], watermark: int, now: int) -> int:
        before = self._marks.get(owner)
        if before is None or before[0] != watermark:
            before = self._marks[owner] = watermark, now
        return before[1]
