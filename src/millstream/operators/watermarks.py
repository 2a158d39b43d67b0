"""Timestamps and watermarks: the operator that assigns timestamps and generates watermarks.

Built-in strategies are periodic: a watermark is emitted at the end of a split range. A user's generator may also emit
at any record. With several splits the subtask's watermark is the minimum of those that are not idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from millstream.common.aliases import Value
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
from millstream.operators.base import Advance, Downstream, Operator, OperatorSetup, OperatorSnapshot, Split
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var


def _read_bounded(bound: int, highest: int) -> BoundedOutOfOrderness:
    generator = BoundedOutOfOrderness(bound)
    generator.highest = highest
    return generator


@tagged("bounded-out-of-orderness", write=lambda g: (g._bound, g.highest), read=_read_bounded)
class BoundedOutOfOrderness(WatermarkGenerator):
    """The maximum timestamp so far, minus the bound, minus one."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self.highest = MIN_WATERMARK + bound + 1

    def on_event(self, event: Value, event_timestamp: int, output: WatermarkOutput) -> None:
        if event_timestamp > self.highest:
            self.highest = event_timestamp

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        output.emit_watermark(Watermark(self.highest - self._bound - 1))


@tagged("no-watermarks", write=lambda _: ())
class _NoWatermarks(WatermarkGenerator):
    def on_event(self, event: Value, event_timestamp: int, output: WatermarkOutput) -> None:
        pass

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


class _Split(WatermarkOutput):
    """A split's generator and its progress."""

    def __init__(self, operator: WatermarkOperator, generator: WatermarkGenerator, now: int) -> None:
        self.generator = generator
        self.watermark = MIN_WATERMARK
        self.idle = False
        # Whether it is idle because of the timeout; a split that its generator marked idle stays so until it emits.
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
    # The advice in diagnostics for a split without records that holds back the watermark.
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
    """Assigns timestamps and generates watermarks; upstream watermarks are dropped, except the last."""

    identity = "watermarks"

    encodes_input = True

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self.strategy = strategy
        # Without an assigner a record retains its timestamp, if it has one.
        self.assigns_timestamps = strategy.assigner is not None

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._splits: dict[Split, _Split] = {}
        self._emitted = MIN_WATERMARK
        self._is_idle = False
        self._ended = False
        self._split = self._new_split(None)
        self._idle_ms = self.strategy.idleness.to_millis() if self.strategy.idleness else None

    @property
    def generates_watermarks(self) -> bool:
        """Whether it generates any watermarks."""
        return self.strategy.generator is not None or self.strategy.out_of_orderness is not None

    def _new_split(self, name: Split) -> _Split:
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
            # BoundedOutOfOrderness.on_event, inlined with a local variable.
            generator, highest = w.var("g"), w.var("h")
            w.before(f"{generator} = {w.bind(self, 'watermarks')}.current_generator()")
            w.before(f"{highest} = {generator}.highest")
            not_none = "" if self.strategy.assigner is not None else f"{stamp} is not None and "
            with w.block(f"if {not_none}{stamp} > {highest}:"):
                w.line(f"{highest} = {stamp}")
            w.after(f"{generator}.highest = {highest}")
        downstream(replace(value, timestamp=stamp))

    def current_generator(self) -> WatermarkGenerator:
        return self._split.generator

    def on_event(self, event: Value, timestamp: int | None) -> None:
        """Process a record."""
        split = self._split
        split.generator.on_event(event, MIN_WATERMARK if timestamp is None else timestamp, split)

    # --- splits

    def start_split(self, name: Split) -> None:
        """Assign the following records to a split."""
        if name is not None:
            # The initial split of operators without a source, or the last ended split.
            self._splits.pop(None, None)
        split = self._splits.get(name)
        if split is None:
            split = self._new_split(name)
        self._wake(split)
        self._split = split

    def end_split(self, name: Split) -> None:
        """Remove a split that is read to its end: the watermark no longer waits for it."""
        ended = self._splits.pop(name)
        if self._splits:
            self._split = next(iter(self._splits.values()))
            self.combine()
        else:
            # The watermark stays that of the last split until another one starts.
            self._splits[None] = ended

    def end_range(self, records: int) -> None:
        """Let the periodic generator emit after the records of a split range."""
        if records:
            self._wake(self._split)
        self._split.generator.on_periodic_emit(self._split)

    def keep_active(self) -> None:
        """Reset the idle timeout of the split, whose records are being processed."""
        if self._idle_ms is not None:
            self._wake(self._split)

    def expect_input(self, names: Iterable[Split]) -> None:
        """Reset the idle timeout of splits that have pending input."""
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
            # Any watermark ends the idleness downstream, even one that does not advance.
            self._is_idle = False
            self.advance(self._emitted)

    def on_processing_time(self) -> None:
        """Mark splits idle whose timeout has passed."""
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
        deadlines = [s.last_record + self._idle_ms for s in self._splits.values() if not s.idle]
        return min(deadlines, default=None)

    def combine(self) -> None:
        """Emit the minimum watermark of the splits that are not idle, if it has advanced."""
        active = [s.watermark for s in self._splits.values() if not s.idle]
        if not active:
            if not self._is_idle:
                self._is_idle = True
                self.advance(None)
            return
        min_watermark = min(active)
        if min_watermark > self._emitted or self._is_idle:
            self._emitted = max(min_watermark, self._emitted)
            self._is_idle = False
            self.advance(self._emitted)

    @property
    def emitted_watermark(self) -> int:
        return self._emitted

    def split_progress(self) -> Iterable[tuple[Split, int, bool, int]]:
        return [(name, s.watermark, s.idle, s.last_record) for name, s in self._splits.items()]

    def progress(self) -> tuple[str, int, dict[Split, int]]:
        """Return the alignment group, the watermark, and those of named splits that are not idle."""
        assert self.strategy.alignment is not None
        group = self.strategy.alignment[0]
        if self._is_idle or self._ended:
            return group, MAX_WATERMARK, {}
        splits = {n: s.watermark for n, s in self._splits.items() if n is not None and not s.idle}
        return group, self._emitted, splits

    def on_watermark(self, watermark: int) -> int | None:
        if watermark == MAX_WATERMARK and not self._ended:
            self._ended = True
            self._emitted = watermark
            return watermark
        return None

    def on_idle(self) -> bool:
        # This operator determines idleness itself.
        return False

    # --- runtime snapshots

    def runtime_snapshot(self) -> OperatorSnapshot:
        return {
            "sent": self._emitted,
            "ended": self._ended,
            "idle": self._is_idle,
            "splits": {
                name: (s.watermark, s.idle, s.timed_out, s.last_record, s.generator) for name, s in self._splits.items()
            },
        }

    def redistribute(
        self, snapshots: list[OperatorSnapshot], subtask: int, reads: Callable[[Split], bool] | None
    ) -> OperatorSnapshot:
        splits: dict[Split, OperatorSnapshot] = {}
        for snapshot in snapshots:
            for name, split in snapshot["splits"].items():
                # Without named splits there is one per subtask: the slowest represents all.
                if name not in splits or split[0] < splits[name][0]:
                    splits[name] = split
        if reads is not None:
            splits = {name: split for name, split in splits.items() if name is None or reads(name)}
        if not splits:
            return None
        return {
            "sent": min(s[0] for s in splits.values()),
            # Downstream does not know it over its new channels: it is emitted again.
            "ended": False,
            "idle": all(s[1] for s in splits.values()),
            "splits": splits,
        }

    def announce(self) -> None:
        """Emit the watermark, or idle, again."""
        if self._is_idle:
            self.advance(None)
        elif self._emitted > MIN_WATERMARK:
            self.advance(self._emitted)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._emitted, self._ended = snapshot["sent"], snapshot["ended"]
        self._splits.clear()
        self._is_idle = snapshot["idle"]
        for name, (watermark, idle, timed_out, last_record, generator) in snapshot["splits"].items():
            split = self._splits[name] = _Split(self, generator, last_record)
            split.watermark, split.idle, split.timed_out = watermark, idle, timed_out
        self._split = next(iter(self._splits.values()))


def _not_a_timestamp(timestamp: object) -> None:
    raise MillstreamError(
        f"The timestamp assigner returned {timestamp!r} ({type(timestamp).__name__}): it must return the event time in "
        "milliseconds as an int."
    )
