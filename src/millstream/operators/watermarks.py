"""Timestamps and watermarks: the operator that reads event time off records and says how far it has come.

Built-in strategies are periodic: a watermark leaves at the end of a split's share of an epoch. A generator of the
user's may also emit at any record. With several splits the subtask's watermark is the least over those not idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from millstream.common.errors import MillstreamError
from millstream.common.tags import tagged
from millstream.common.watermark_strategy import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    Watermark,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from millstream.operators.base import Advance, Downstream, Operator, OperatorSetup, Split
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var


def _read_bounded(bound: int, highest: int) -> BoundedOutOfOrderness:
    generator = BoundedOutOfOrderness(bound)
    generator.highest = highest
    return generator


@tagged("bounded-out-of-orderness", write=lambda g: (g._bound, g.highest), read=_read_bounded)
class BoundedOutOfOrderness(WatermarkGenerator):
    """The highest timestamp so far, less the bound, less one."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self.highest = MIN_WATERMARK + bound + 1

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        if event_timestamp > self.highest:
            self.highest = event_timestamp

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.emit_watermark(Watermark(self.highest - self._bound - 1))


@tagged("no-watermarks", write=lambda _: ())
class _NoWatermarks(WatermarkGenerator):
    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        pass

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


class _Split(WatermarkOutput):
    """One split's generator and how far it has come."""

    def __init__(self, operator: WatermarkOperator, generator: WatermarkGenerator, now: int) -> None:
        self.generator = generator
        self.watermark = MIN_WATERMARK
        self.idle = False
        # Idle because nothing came for so long; one that its generator marked stays so until it says more.
        self.timed_out = False
        self.last_record = now
        self._operator = operator

    def emit_watermark(self, watermark: Watermark) -> None:
        timestamp = watermark.timestamp if isinstance(watermark, Watermark) else watermark
        self.idle = self.timed_out = False
        self.watermark = max(self.watermark, timestamp)
        self._operator.combine()

    def mark_idle(self) -> None:
        if not self.idle:
            self.idle = True
            self._operator.combine()

    def mark_active(self) -> None:
        self.idle = False


class WatermarkEmitter(Operator):
    """An operator that generates watermarks and emits them through `self.advance`."""

    # Set before the first record.
    advance: Advance
    # How to exclude a silent split from the watermark.
    idle_advice = "Use with_idleness(...) in the WatermarkStrategy"

    @property
    def emitted_watermark(self) -> int:
        """The last watermark emitted."""
        raise NotImplementedError(f"{type(self).__name__} does not define emitted_watermark")

    def split_progress(self) -> Iterable[tuple[Split, int, bool, int]]:
        """Return the progress of each split.

        Each row is the split (None without splits), its watermark, whether it is idle, and the time of its last record.
        """
        return ()

    def announce(self) -> None:
        """Emit the current watermark again, for new channels."""


class WatermarkOperator(WatermarkEmitter):
    """Assigns timestamps and makes watermarks; those that come from before it end here, but for the last."""

    identity = "watermarks"

    encodes_input = True

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self.strategy = strategy
        # Without an assigner a record keeps the timestamp that it has, if it has one.
        self.assigns_timestamps = strategy.assigner is not None

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._splits: dict[Any, _Split] = {}
        self._sent = MIN_WATERMARK
        self._is_idle = False
        self._ended = False
        self._split = self._new_split(None)
        self._idle_ms = self.strategy.idleness.to_millis() if self.strategy.idleness else None

    @property
    def makes_any(self) -> bool:
        """Whether it makes watermarks at all."""
        return self.strategy.generator is not None or self.strategy.out_of_orderness is not None

    def _new_split(self, name: Any) -> _Split:
        split = self._splits[name] = _Split(self, self._generator(), self.setup.clock())
        return split

    def _generator(self) -> WatermarkGenerator:
        strategy = self.strategy
        if strategy.generator is not None:
            return strategy.generator()
        if strategy.out_of_orderness is not None:
            return BoundedOutOfOrderness(strategy.out_of_orderness.to_millis())
        return _NoWatermarks()

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        stamp = value.timestamp
        if self.strategy.assigner is not None:
            stamp = w.var("t")
            before = value.timestamp or str(MIN_WATERMARK)
            text = w.call(self.strategy.assigner, value.name, before)
            w.line(f"{stamp} = {text}", self, value.name)
            w.copy(stamp, text)
            with w.block(f"if {stamp}.__class__ is not int:"):
                w.line(f"{w.bind(_not_a_timestamp, 'refuse')}({stamp})", self, value.name)
        if self.strategy.generator is not None:
            downstream(replace(value, timestamp=stamp))
            w.line(f"{w.bind(self, 'watermarks')}.on_event({value.name}, {stamp})", self, value.name)
            return
        if self.strategy.out_of_orderness is not None and stamp is not None:
            # What BoundedOutOfOrderness.on_event does, in a local variable.
            generator, highest = w.var("g"), w.var("h")
            w.before(f"{generator} = {w.bind(self, 'watermarks')}.current_generator()")
            w.before(f"{highest} = {generator}.highest")
            known = "" if self.strategy.assigner is not None else f"{stamp} is not None and "
            with w.block(f"if {known}{stamp} > {highest}:"):
                w.line(f"{highest} = {stamp}")
            w.after(f"{generator}.highest = {highest}")
        downstream(replace(value, timestamp=stamp))

    def current_generator(self) -> WatermarkGenerator:
        return self._split.generator

    def on_event(self, event: Any, timestamp: int | None) -> None:
        """A record has passed."""
        split = self._split
        split.generator.on_event(event, MIN_WATERMARK if timestamp is None else timestamp, split)

    # --- splits

    def start_split(self, name: Any) -> None:
        """The records that follow are of this split."""
        if name is not None:
            # What every operator starts with, for those that are not behind a source; or the split before this one.
            self._splits.pop(None, None)
        split = self._splits.get(name)
        if split is None:
            split = self._new_split(name)
        self._wake(split)
        self._split = split

    def end_split(self, name: Any) -> None:
        """A split has been read to its end: it holds the others back no more."""
        ended = self._splits.pop(name)
        if self._splits:
            self._split = next(iter(self._splits.values()))
            self.combine()
        else:
            # Time stands where the last split has left it, until another one starts.
            self._splits[None] = ended

    def end_range(self, records: int) -> None:
        """The split's records of this epoch have passed: the tick of periodic generators."""
        if records:
            self._wake(self._split)
        self._split.generator.on_periodic_emit(self._split)

    def keep_active(self) -> None:
        """Records of the split have passed: it is not silent."""
        if self._idle_ms is not None:
            self._wake(self._split)

    def expect_input(self, names: Iterable[Any]) -> None:
        """There are records of these splits that nobody has come to read yet: they do not fall silent."""
        if self._idle_ms is not None:
            now = self.setup.clock()
            for split in [self._splits[name] for name in names if name in self._splits]:
                if not split.idle:
                    split.last_record = now

    @property
    def follows_clock(self) -> bool:
        return self._idle_ms is not None

    def _wake(self, split: _Split) -> None:
        split.last_record = self.setup.clock()
        if not split.timed_out:
            return
        split.idle = split.timed_out = False
        if self._is_idle:
            # Any watermark says that something is to be expected again, even one that brings nothing new.
            self._is_idle = False
            self.advance(self._sent)

    def on_processing_time(self) -> None:
        """Find splits that have been silent for too long."""
        if self._idle_ms is None or self._ended:
            return
        now = self.setup.clock()
        for split in self._splits.values():
            if not split.idle and now - split.last_record >= self._idle_ms:
                split.timed_out = True
                split.mark_idle()

    def next_wake(self) -> int | None:
        if self._idle_ms is None or self._ended:
            return None
        waiting = [s.last_record + self._idle_ms for s in self._splits.values() if not s.idle]
        return min(waiting, default=None)

    def combine(self) -> None:
        """Send on the least watermark of the splits that are not idle, when it has grown."""
        active = [s.watermark for s in self._splits.values() if not s.idle]
        if not active:
            if not self._is_idle:
                self._is_idle = True
                self.advance(None)
            return
        least = min(active)
        if least > self._sent or self._is_idle:
            self._sent = max(least, self._sent)
            self._is_idle = False
            self.advance(self._sent)

    @property
    def emitted_watermark(self) -> int:
        return self._sent

    def split_progress(self) -> Iterable[tuple[Split, int, bool, int]]:
        return [(name, s.watermark, s.idle, s.last_record) for name, s in self._splits.items()]

    def progress(self) -> tuple[str, int, dict[Any, int]]:
        """Return the alignment group, how far time has come here, and the splits that have names and are not idle."""
        assert self.strategy.alignment is not None
        group = self.strategy.alignment[0]
        if self._is_idle or self._ended:
            return group, MAX_WATERMARK, {}
        splits = {n: s.watermark for n, s in self._splits.items() if n is not None and not s.idle}
        return group, self._sent, splits

    def on_watermark(self, watermark: int) -> int | None:
        if watermark == MAX_WATERMARK and not self._ended:
            self._ended = True
            self._sent = watermark
            return watermark
        return None

    def on_idle(self) -> bool:
        # What is to be expected here is this operator's to say.
        return False

    # --- life in several processes

    def carry(self) -> Any:
        return {
            "sent": self._sent,
            "ended": self._ended,
            "idle": self._is_idle,
            "splits": {
                name: (s.watermark, s.idle, s.timed_out, s.last_record, s.generator) for name, s in self._splits.items()
            },
        }

    def redistribute(self, carried: list[Any], subtask: int, reads: Callable[[Any], bool] | None) -> Any:
        splits: dict[Any, Any] = {}
        for one in carried:
            for name, split in one["splits"].items():
                # Where splits have no names, there is one of each subtask: the slowest stands for all.
                if name not in splits or split[0] < splits[name][0]:
                    splits[name] = split
        if reads is not None:
            splits = {name: split for name, split in splits.items() if name is None or reads(name)}
        if not splits:
            return None
        return {
            "sent": min(s[0] for s in splits.values()),
            # Those behind have not heard it over their new channels: it is said once more.
            "ended": False,
            "idle": all(s[1] for s in splits.values()),
            "splits": splits,
        }

    def announce(self) -> None:
        """Say again how far time has come, to those that have not heard it."""
        if self._is_idle:
            self.advance(None)
        elif self._sent > MIN_WATERMARK:
            self.advance(self._sent)

    def restore(self, carried: Any) -> None:
        self._sent, self._ended = carried["sent"], carried["ended"]
        self._splits.clear()
        self._is_idle = carried["idle"]
        for name, (watermark, idle, timed_out, last_record, generator) in carried["splits"].items():
            split = self._splits[name] = _Split(self, generator, last_record)
            split.watermark, split.idle, split.timed_out = watermark, idle, timed_out
        self._split = next(iter(self._splits.values()))


def _not_a_timestamp(timestamp: Any) -> None:
    raise MillstreamError(
        f"The timestamp assigner returned {timestamp!r} ({type(timestamp).__name__}): it must return the event time in "
        "milliseconds as an int."
    )
