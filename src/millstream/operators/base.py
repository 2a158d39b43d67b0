"""The operator: one step of a chain, living in one subtask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from millstream.common.fast_dataclass import record
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
# Takes records and, where they have one, their timestamp.
Emit = Callable[..., None]
# Sends a watermark (None: nothing is to be expected for now) down the chain behind an operator.
Advance = Callable[[int | None], None]


def _nobody_knows() -> int:
    return 0


@record
class RuntimeServices:
    """What an operator may know of the real world.

    Attributes:
        clock: the wall clock, in milliseconds.
        requests: makes a runner of asynchronous requests, so many at once.
        stopwatch: tells how many seconds have passed, from whenever on.
        timer_lag: how many milliseconds after their time timers fire that follow the clock.
        resident: how many bytes of memory this process has for itself; 0 where others share it.
    """

    clock: Callable[[], int]
    requests: Callable[[int], Any]
    stopwatch: Callable[[], float]
    timer_lag: int = 0
    resident: Callable[[], int] = _nobody_knows


@dataclass
class OperatorSetup:
    """What an operator is handed when its subtask is built."""

    context: RuntimeContext
    state: KeyedState | None
    emit: Emit
    batch: bool
    services: RuntimeServices
    # State of the subtask rather than of a key, for operators that have it.
    operator_state: KeyedState | None = None
    # How much the operators of the slot may keep in memory, of those that can put it on disk, and where on disk.
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

    An operator writes its lines into the chain's loop (`code`). What it emits outside that loop (at a
    watermark, at the end of input) goes through `self.setup.emit`.
    """

    # Whether the operator's input is partitioned by key, so that it can have keyed state.
    keyed = False
    # How many inputs it has: more than one means it always heads its chain.
    inputs = 1
    # Whether it emits outside the loop.
    emits_later = False
    # Whether it holds back what it could emit, until `flush` at the latest.
    holds_back = False
    # Whether what it emits may be an (OutputTag, value) pair for a side output.
    tags_outputs = False
    # The type that all it emits fits already, if there is one.
    produced_type: TypeInformation | None = None
    # The type that all it emits is made to fit, as the program declares it; set before the loop is written.
    declared_type: TypeInformation | None = None

    @property
    def has_operator_state(self) -> bool:
        """Whether it has state that belongs to the subtask rather than to a key."""
        return any(f.is_checkpointed for f in self.functions())

    # Whether what it emits in the loop is also its state, which an operator behind it must not change.
    emits_state = False

    # Whether a record that it takes must fit the type that was declared for it, even from within the chain.
    encodes_input = False

    # Whether the records it emits have timestamps even if those it takes have none.
    assigns_timestamps = False
    # Whether the records it emits have none even if those it takes have some.
    drops_timestamps = False

    # Whether a record that it takes, or emits, is a batch of rows, as all are between operators of SQL. They are never
    # changed, few of them are much work, and those who count them count their rows.
    takes_batches = False
    emits_batches = False

    # Whether it says how far event time has come, by `self.advance`.
    makes_watermarks = False

    # The kind of operator, on disk: ids of operators without a uid are hashes of it. It never changes.
    identity: ClassVar[str]

    # Set before the first record comes, of those that make watermarks.
    advance: Advance

    setup: OperatorSetup
    # How far event time has come.
    watermark = MIN_WATERMARK
    # Set where the operator has timers.
    timers: Timers | None = None
    # What its timers are to people.
    waits_as = "timers"
    # The last records that came too late and were dropped: value, timestamp, and how far time had come.
    late_records: Sequence[tuple[Any, int, int]] = ()
    # What is being fired: the method that does it and what that is given, of which the second is the key. It stays
    # when that fails, so that it can be fired again alone.
    firing: tuple[str, tuple[Any, ...]] | None = None

    @property
    def uses_key(self) -> bool:
        """Whether the loop must know the key of a record."""
        return self.keyed and self._has_life

    @property
    def _has_life(self) -> bool:
        # Only a function that is opened can ask for state.
        return any(f.has_life for f in self.functions())

    def functions(self) -> list[UserFunction]:
        """Return the user's functions, to be opened and closed."""
        return []

    def prepare(self, setup: OperatorSetup) -> None:
        """Take what the subtask hands over; called once, before the loop is written."""
        self.setup = setup

    def open(self) -> None:
        for function in self.functions():
            if function.is_checkpointed:
                assert self.setup.operator_state is not None
                store = OperatorStateStore(self.setup.operator_state)
                function.function.initialize_state(FunctionInitializationContext(store))
            function.open(self.setup.context)

    def flush(self) -> None:
        """The epoch's records have all been there: emit what is held back; asked of those that hold something back."""

    def settle(self) -> None:
        """The records of the epoch have all been there: put into the state what is kept elsewhere while they come."""

    def snapshot(self, epoch: int) -> None:
        """The epoch ends: let functions put their operator state away."""
        for function in self.functions():
            if function.is_checkpointed:
                function.function.snapshot_state(FunctionSnapshotContext(epoch, self.setup.clock()))

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        """Write what happens to one record."""
        raise NotImplementedError(f"{type(self).__name__} writes no code")

    def column_code(self, columns: Columns) -> bool:
        """Write what happens to columns of numbers before the loop; tell whether it can be written so."""
        return False

    def on_watermark(self, watermark: int) -> int | None:
        """Event time has come this far: fire timers; return the watermark to pass on, None for none."""
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
        """How far time has come behind this operator, of those that make watermarks."""
        return MIN_WATERMARK

    def splits(self) -> Iterable[tuple[Any, int, bool, int]]:
        """Return, of those that make watermarks, how far each split has come.

        That is its name, None where there are no splits, its watermark, whether it is idle, and when its last record
        came.
        """
        return ()

    def waiting(self) -> Iterable[tuple[str, int, int]]:
        """Return what waits for event time: windows or timers, how many, and for which time the first of them."""
        if self.timers is not None and (first := self.timers.event.next_time()) is not None:
            yield self.waits_as, len(self.timers.event), first

    def starved(self) -> Iterable[tuple[int, int]]:
        """Return each input of which nothing has come while rows of the other wait for it: its place, and how many."""
        return ()

    # How to have event time go on without a split that nothing comes from.
    idle_advice = "Use with_idleness(...) in the WatermarkStrategy"

    def announce(self) -> None:
        """Say again how far time has come, to those that have not heard it; asked of those that make watermarks."""

    def on_idle(self) -> bool:
        """Nothing is to be expected for now: tell whether those behind shall know."""
        return True

    def on_processing_time(self) -> None:
        """Fire the timers that the wall clock has reached."""
        if self.timers is not None:
            self._fire_processing_timers(self.setup.clock() - self.setup.services.timer_lag)

    @property
    def follows_clock(self) -> bool:
        """Whether it may have something to do because time has passed."""
        return self.timers is not None

    def on_end_of_key(self) -> None:
        """In BATCH: the records of a key have all been there; fire its timers."""
        if self.timers is not None:
            self.watermark = MAX_WATERMARK
            self._fire_event_timers(MAX_WATERMARK)
            self._fire_processing_timers(MAX_WATERMARK)
            self.watermark = MIN_WATERMARK

    def on_event_timer(self, timer: Timer) -> None:
        """An event-time timer is due."""

    def on_processing_timer(self, timer: Timer) -> None:
        """A processing-time timer is due."""

    def next_wake(self) -> int | None:
        """Return when, by the wall clock, there is something to do without input."""
        next_time = self.timers.processing.next_time() if self.timers is not None else None
        return None if next_time is None else next_time + self.setup.services.timer_lag

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """A checkpoint is complete: tell functions that want to know (CheckpointListener)."""
        for function in self.functions():
            notify = getattr(function.function, "notify_checkpoint_complete", None)
            if notify is not None:
                notify(checkpoint_id)

    def carry(self) -> Any:
        """Return what must outlive this process and is not keyed state; None for nothing."""
        return None

    def restore(self, carried: Any) -> None:
        """Take up what `carry` returned, perhaps in another process."""

    def redistribute(self, carried: list[Any], subtask: int, reads: Callable[[Any], bool] | None) -> Any:
        """Return a subtask's part of what all had carried when there were more or fewer of them.

        Args:
            carried: what they returned, by subtask.
            subtask: the subtask the part is for.
            reads: tells whether a split of the source that heads the chain is read by that subtask; None when the
                chain is not headed by a source.
        """
        return None

    def finish(self) -> None:
        """The input has ended; emit what is left."""

    def finishing(self) -> Iterator[None]:
        """Finish step by step: what was emitted is sent on after each of them, so that it need not fit into memory."""
        self.finish()
        return iter(())

    def close(self) -> None:
        for function in self.functions():
            function.close()

    def set_key(self, w: CodeWriter, key: Key | None) -> None:
        """Write the line that makes `key`, where the loop knows it, the current key."""
        if key is not None:
            assert self.setup.state is not None
            make_hashable(w, key)
            w.line(f"{w.bind(self.setup.state.cell, 'cell')}.key = {key.name}")


class FunctionOperator(Operator):
    """An operator around one function of the user's."""

    def __init__(self, function: UserFunction, keyed: bool = False) -> None:
        self.function = function
        self.keyed = keyed

    def functions(self) -> list[UserFunction]:
        return [self.function]


def make_hashable(w: CodeWriter, key: Key) -> None:
    """Write the lines after which a dict takes the key."""
    if not key.hashable:
        with w.block(f"if {key.name}.__class__ not in {w.bind(PLAIN_KEYS, 'plain')}:"):
            w.line(f"{key.name} = {w.bind(hashable, 'hashable')}({key.name})")
