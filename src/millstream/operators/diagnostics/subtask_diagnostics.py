"""What a subtask tells of itself now and then, for people: who holds its time back, what waits, which keys are hot.

Nothing here is done for each record. Keys are looked at in a few records of a block, twenty times a second at most;
the rest is put together where an epoch ends, so seldom that it takes a fifth of a percent of the time. Not more seldom:
when nothing comes any more there is no next epoch, and what was told last is all there is to explain that with.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from millstream.operators.base import Operator, RuntimeServices
from millstream.operators.diagnostics.failures import shorten
from millstream.operators.diagnostics.hot_keys import HotKeys
from millstream.operators.runtime.blocks import Block
from millstream.operators.runtime.channels import Channel
from millstream.operators.runtime.record_writer import Edge
from millstream.operators.watermarks import WatermarkEmitter
from millstream.state.key_groups import hashable, thaw
from millstream.state.keyed import KeyedState

# A subtask looks at the keys of a few records every so many seconds.
_LOOK = 0.05
# It tells of itself after so many times what that takes; no sooner than after so many seconds, the more subtasks there
# are, who all tell the one driver; and no later.
_TIMES, _SOONEST, _FOR_EACH, _LATEST = 500, 0.02, 0.01, 0.5
_RECORDS = 8
_BY_HAND = 60.0
# So many splits, late records and keys are told: the ones that are furthest behind, the last, the hottest.
_SPLITS, _LATE, _KEYS = 20, 3, 5
# So many looks at keys say something.
_ENOUGH = 100
# How large state is, is found out again after so many seconds.
_SIZED = 2.0


@dataclass(frozen=True, slots=True)
class SplitMark:
    """How far a split of a source has come; or, where there are no splits, the subtask that reads it.

    Attributes:
        operator: the operator that makes its watermarks.
        name: the split, in words; None where there are none.
        idle: whether it is left out of account because nothing comes.
        last_record: when, by the clock, its last record came.
        since: since when the watermark is what it is.
    """

    operator: str
    name: str | None
    watermark: int
    idle: bool
    last_record: int
    since: int


@dataclass(frozen=True, slots=True)
class InputMark:
    """How far an input has come: that of its channels which is furthest behind, of those that are not idle.

    Attributes:
        edge: the edge.
        sender: the subtask that sends.
        channels, idle: how many there are, and how many of them are idle.
        since: since when the watermark is what it is.
    """

    edge: int
    sender: int
    watermark: int
    channels: int
    idle: int
    since: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits for event time: windows or timers.

    Attributes:
        earliest: the time for which the first of them waits.
    """

    operator: str
    kind: str
    count: int
    earliest: int


@dataclass(frozen=True, slots=True)
class Starved:
    """An operator of two inputs that has rows of one, and none of the other, which they wait for.

    Attributes:
        input: the place of the input from which nothing has come, from 0.
        rows: how many rows wait.
    """

    operator: str
    input: int
    rows: int


@dataclass(frozen=True, slots=True)
class LateRecord:
    """A record that came too late for its windows and was dropped."""

    operator: str
    record: str
    timestamp: int
    watermark: int


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key, in words, and which share of the records has it."""

    key: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskDiagnostics:
    """What a subtask tells of itself.

    Attributes:
        at: when, by the clock.
        splits: those that are furthest behind; `split_count` are there.
        state_rows, state_bytes: how much keyed state it has; its size is estimated from some rows.
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
    """Looks at a subtask."""

    def __init__(
        self, operators: list[tuple[str, Operator]], services: RuntimeServices, subtask: int, parallelism: int
    ) -> None:
        self._operators = operators
        self._soonest = max(_SOONEST, _FOR_EACH * parallelism)
        self._clock = services.clock
        self._stopwatch = services.stopwatch
        self._keys = HotKeys()
        self._random = Random(subtask)
        self._next_look = self._next_tell = self._next_size = -math.inf
        self._sizes = 0, 0
        # Since when a split or an edge has the watermark that it has.
        self._marks: dict[Any, tuple[int, int]] = {}

    def sample_keys(self, edge: Edge, block: Block, at: int, end: int) -> None:
        """Records of a block are processed: look at the keys of a few of them."""
        now = self._stopwatch()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK
        start = self._random.randrange(at, max(end - _RECORDS, at) + 1)
        found = edge.partitioner.some_keys(block.part(start, min(start + _RECORDS, end)), self._random)
        self._keys.add(map(hashable, found))

    def collect(
        self, channels: Iterable[Channel], states: Mapping[str, KeyedState], is_last: bool = False
    ) -> SubtaskDiagnostics | None:
        """Return what there is to tell, if it is time to."""
        now = self._stopwatch()
        if now < self._next_tell and not is_last:
            return None
        told = self._told(channels, states)
        cost = self._stopwatch() - now
        # A clock that somebody sets by hand does not say what it has cost, and leaps.
        self._next_tell = now + (min(max(cost * _TIMES, self._soonest), _LATEST) if cost > 0 else _BY_HAND)
        return told

    def _told(self, channels: Iterable[Channel], states: Mapping[str, KeyedState]) -> SubtaskDiagnostics:
        at = self._clock()
        splits = [m for i, o in self._operators for m in self._splits(i, o, at)]
        rows, size = self._size(states)
        return SubtaskDiagnostics(
            at=at,
            splits=tuple(sorted(splits, key=lambda m: (m.idle, m.watermark))[:_SPLITS]),
            split_count=sum(m.name is not None for m in splits),
            inputs=tuple(self._inputs(channels, at)),
            waiting=tuple(
                Waiting(i, kind, count, earliest)
                for i, o in self._operators
                for kind, count, earliest in o.event_time_backlog()
            ),
            starved=tuple(Starved(i, place, rows) for i, o in self._operators for place, rows in o.starved_inputs()),
            late=tuple(
                LateRecord(i, shorten(value), stamp, watermark)
                for i, o in self._operators
                for value, stamp, watermark in list(o.late_records)[-_LATE:]
            ),
            keys=tuple(HotKey(shorten(thaw(key)), share) for key, share in self._hottest()),
            state_rows=rows,
            state_bytes=size,
        )

    def _size(self, states: Mapping[str, KeyedState]) -> tuple[int, int]:
        now = self._stopwatch()
        if now >= self._next_size:
            self._next_size = now + _SIZED
            sizes = [state.about_size() for state in states.values()]
            self._sizes = sum(rows for rows, _ in sizes), sum(size for _, size in sizes)
        return self._sizes

    def _hottest(self) -> list[tuple[Any, float]]:
        return self._keys.hottest(_KEYS) if self._keys.samples >= _ENOUGH else []

    def _splits(self, operator_id: str, operator: Operator, at: int) -> Iterable[SplitMark]:
        if not isinstance(operator, WatermarkEmitter):
            return
        for name, watermark, idle, last_record in operator.split_progress():
            since = self._since((operator_id, name), watermark, at)
            shown = None if name is None else name if isinstance(name, str) else shorten(name)
            yield SplitMark(operator_id, shown, watermark, idle, last_record, since)

    def _inputs(self, channels: Iterable[Channel], at: int) -> Iterable[InputMark]:
        by_edge: dict[int, list[Channel]] = {}
        for channel in channels:
            by_edge.setdefault(channel.edge.id, []).append(channel)
        for edge, found in by_edge.items():
            active = [c for c in found if not c.idle]
            least = min(active or found, key=lambda c: c.watermark)
            since = self._since(edge, least.watermark, at)
            yield InputMark(edge, least.number, least.watermark, len(found), len(found) - len(active), since)

    def _since(self, owner: Any, watermark: int, at: int) -> int:
        before = self._marks.get(owner)
        if before is None or before[0] != watermark:
            before = self._marks[owner] = watermark, at
        return before[1]
