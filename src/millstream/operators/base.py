"""The operator interface: one step of a chain in one subtask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.typeinfo import TypeInformation
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.operators.codegen.range_vectorizer import Columns
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.functions.operator_state import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
    OperatorStateStore,
)
from millstream.operators.functions.user_function import UserFunction
from millstream.operators.runtime.budget import Budget
from millstream.operators.runtime.timers import Timers
from millstream.state.key_groups import PLAIN_KEYS, hashable
from millstream.state.keyed import KeyedState
from millstream.state.timers import Timer

Downstream = Callable[[Var], None]
# Emits records and, if they have one, their timestamp.
Emit = Callable[..., None]
# Emits a watermark (None: idle) after an operator.
Advance = Callable[[int | None], None]


def _nobody_knows() -> int:
    return 0


@fast_dataclass
class RuntimeServices:
    """The services that operators get from the runtime.

    Attributes:
        clock: the wall clock in milliseconds.
        requests: creates a runner of asynchronous requests with a capacity.
        stopwatch: returns elapsed seconds.
        timer_lag: the delay of processing-time timers in milliseconds.
        resident: returns the memory of this process in bytes; 0 if the process is shared.
    """

    clock: Callable[[], int]
    requests: Callable[[int], Any]
    stopwatch: Callable[[], float]
    timer_lag: int = 0
    resident: Callable[[], int] = _nobody_knows


@dataclass
class OperatorSetup:
    """The context that an operator receives when its subtask is built."""

    context: RuntimeContext
    state: KeyedState | None
    emit: Emit
    batch: bool
    services: RuntimeServices
    # State of the subtask rather than of a key, for operators with operator state.
    operator_state: KeyedState | None = None
    # The memory budget of operators that can spill to disk.
    budget: Budget = field(default_factory=Budget)
    spill_directory: str | None = None

    @property
    def clock(self) -> Callable[[], int]:
        return self.services.clock

    @property
    def requests(self) -> Callable[[int], Any]:
        return self.services.requests


class Operator:
    """One step of a chain.

    An operator writes its lines into the chain's loop (`code`). Output outside of the loop (at a watermark, at the end
    of input) goes through `self.setup.emit`.
    """

    # Whether its input is partitioned by key, so that it can have keyed state.
    keyed = False
    # The number of inputs: an operator with several always heads its chain.
    inputs = 1
    # Whether it emits outside of the loop.
    emits_later = False
    # Whether it buffers output until `flush`.
    holds_back = False
    # Whether its output may contain (OutputTag, value) pairs for side outputs.
    tags_outputs = False
    # The type that all its output already conforms to, if any.
    produced_type: TypeInformation | None = None
    # The declared type that its output is coerced to; set before the loop is written.
    declared_type: TypeInformation | None = None

    @property
    def has_operator_state(self) -> bool:
        """Whether it has operator state."""
        return any(f.is_checkpointed for f in self.functions())

    # Whether the values it emits in the loop are also its state, which downstream operators must not modify.
    emits_state = False

    # Whether its input must conform to the declared type, even within the chain.
    encodes_input = False

    # Whether its output has timestamps even if its input has none.
    assigns_timestamps = False
    # Whether its output has no timestamps even if its input has some.
    drops_timestamps = False

    # Whether its input, or output, consists of batches of rows, as between all SQL operators. Batches are immutable,
    # few of them are much work, and metrics count their rows.
    takes_batches = False
    emits_batches = False

    # Whether it generates watermarks, through `self.advance`.
    makes_watermarks = False

    # The stable kind of operator: generated operator ids hash it. It never changes.
    identity: ClassVar[str]

    # Set before the first record, for operators that generate watermarks.
    advance: Advance

    setup: OperatorSetup
    # The current watermark.
    watermark = MIN_WATERMARK
    # Set for operators with timers.
    timers: Timers | None = None
    # The label of its timers in diagnostics.
    waits_as = "timers"
    # The last late records that were dropped: value, timestamp, and the watermark at that time.
    late_records: Sequence[tuple[Any, int, int]] = ()
    # The method that is firing and its arguments, of which the second is the key. It stays set after a failure, so that
    # a replay can fire it again alone.
    firing: tuple[str, tuple[Any, ...]] | None = None

    @property
    def uses_key(self) -> bool:
        """Whether the loop must extract the key of a record."""
        return self.keyed and self._has_life

    @property
    def _has_life(self) -> bool:
        # Only a function with open() can use state.
        return any(f.has_life for f in self.functions())

    def functions(self) -> list[UserFunction]:
        """Return the user functions to open and close."""
        return []

    def prepare(self, setup: OperatorSetup) -> None:
        """Set the context; called once, before the loop is written."""
        self.setup = setup

    def open(self) -> None:
        for function in self.functions():
            if function.is_checkpointed:
                assert self.setup.operator_state is not None
                store = OperatorStateStore(self.setup.operator_state)
                function.function.initialize_state(FunctionInitializationContext(store))
            function.open(self.setup.context)

    def flush(self) -> None:
        """Emit buffered output at the end of an epoch; called if `holds_back`."""

    def settle(self) -> None:
        """Write values that are cached during the epoch to the state."""

    def snapshot(self, epoch: int) -> None:
        """Snapshot the operator state of functions at the end of an epoch."""
        for function in self.functions():
            if function.is_checkpointed:
                function.function.snapshot_state(FunctionSnapshotContext(epoch, self.setup.clock()))

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        """Write the lines that process one record."""
        raise NotImplementedError(f"{type(self).__name__} writes no code")

    def column_code(self, columns: Columns) -> bool:
        """Write the vectorized form for number columns; return whether there is one."""
        return False

    def on_watermark(self, watermark: int) -> int | None:
        """Advance event time: fire timers; return the watermark to emit, or None."""
        self.watermark = watermark
        if self.timers is not None:
            self._fire_event_timers(watermark)
        return watermark

    def _fire_event_timers(self, until: int) -> None:
        assert self.timers is not None
        for timer in self.timers.event.due(until):
            self.firing = "on_event_timer", timer
            self.on_event_timer(timer)
        self.firing = None

    def _fire_processing_timers(self, until: int) -> None:
        assert self.timers is not None
        for timer in self.timers.processing.due(until):
            self.firing = "on_processing_timer", timer
            self.on_processing_timer(timer)
        self.firing = None

    @property
    def sent(self) -> int:
        """The last watermark emitted, for operators that generate watermarks."""
        return MIN_WATERMARK

    def splits(self) -> Iterable[tuple[Any, int, bool, int]]:
        """Return the progress of each split, for operators that generate watermarks.

        Each row is the split's name (None without splits), its watermark, whether it is idle, and the time of its last
        record.
        """
        return ()

    def waiting(self) -> Iterable[tuple[str, int, int]]:
        """Return what waits for event time: kind (windows, timers), count, and earliest time."""
        if self.timers is not None and (first := self.timers.event.next_time()) is not None:
            yield self.waits_as, len(self.timers.event), first

    def starved(self) -> Iterable[tuple[int, int]]:
        """Return each input without records for which rows of the other input wait: its index, and their number."""
        return ()

    # How to exclude a silent split from the watermark.
    idle_advice = "Use with_idleness(...) in the WatermarkStrategy"

    def announce(self) -> None:
        """Emit the current watermark again, for new channels; called on operators that generate watermarks."""

    def on_idle(self) -> bool:
        """Handle idle input; return whether to notify downstream."""
        return True

    def on_processing_time(self) -> None:
        """Fire due processing-time timers."""
        if self.timers is not None:
            self._fire_processing_timers(self.setup.clock() - self.setup.services.timer_lag)

    @property
    def follows_clock(self) -> bool:
        """Whether it needs calls when processing time advances."""
        return self.timers is not None

    def on_end_of_key(self) -> None:
        """Fire all timers of a key in BATCH, after its last record."""
        if self.timers is not None:
            self.watermark = MAX_WATERMARK
            self._fire_event_timers(MAX_WATERMARK)
            self._fire_processing_timers(MAX_WATERMARK)
            self.watermark = MIN_WATERMARK

    def on_event_timer(self, timer: Timer) -> None:
        """Handle a due event-time timer."""

    def on_processing_timer(self, timer: Timer) -> None:
        """Handle a due processing-time timer."""

    def next_wake(self) -> int | None:
        """Return the wall-clock time of the next timer."""
        next_time = self.timers.processing.next_time() if self.timers is not None else None
        return None if next_time is None else next_time + self.setup.services.timer_lag

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Notify functions that implement CheckpointListener."""
        for function in self.functions():
            notify = getattr(function.function, "notify_checkpoint_complete", None)
            if notify is not None:
                notify(checkpoint_id)

    def carry(self) -> Any:
        """Return the operator's part of the runtime snapshot; None for nothing."""
        return None

    def restore(self, carried: Any) -> None:
        """Restore what `carry` returned, perhaps in another process."""

    def redistribute(self, carried: list[Any], subtask: int, reads: Callable[[Any], bool] | None) -> Any:
        """Return a subtask's part of the snapshots of all subtasks after a change of parallelism.

        Args:
            carried: the snapshots, by subtask.
            subtask: the subtask to restore.
            reads: returns whether that subtask reads a split of the chain's source; None without a source.
        """
        return None

    def finish(self) -> None:
        """Emit remaining output at the end of input."""

    def finishing(self) -> Iterator[None]:
        """Finish in steps: output is sent after each, so that it need not fit into memory."""
        self.finish()
        return iter(())

    def close(self) -> None:
        for function in self.functions():
            function.close()

    def set_key(self, w: CodeWriter, key: Key | None) -> None:
        """Write the line that sets the current key, if the loop has one."""
        if key is not None:
            assert self.setup.state is not None
            make_hashable(w, key)
            w.line(f"{w.bind(self.setup.state.cell, 'cell')}.key = {key.name}")


class FunctionOperator(Operator):
    """An operator around one user function."""

    def __init__(self, function: UserFunction, keyed: bool = False) -> None:
        self.function = function
        self.keyed = keyed

    def functions(self) -> list[UserFunction]:
        return [self.function]


def make_hashable(w: CodeWriter, key: Key) -> None:
    """Write the lines that make a key hashable."""
    if not key.hashable:
        with w.block(f"if {key.name}.__class__ not in {w.bind(PLAIN_KEYS, 'plain')}:"):
            w.line(f"{key.name} = {w.bind(hashable, 'hashable')}({key.name})")
