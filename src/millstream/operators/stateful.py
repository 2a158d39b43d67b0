"""Base classes of operators with user functions and operators with timers."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.operators.base import Operator
from millstream.operators.functions.operator_state import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
    OperatorStateStore,
)
from millstream.operators.functions.user_function import UserFunction
from millstream.operators.runtime.timers import Timers
from millstream.state.timers import Timer


class FunctionsOperator(Operator):
    """An operator with user functions: opens, snapshots, notifies and closes them."""

    def functions(self) -> list[UserFunction]:
        """Return the user functions."""
        return []

    @property
    def has_operator_state(self) -> bool:
        return any(f.is_checkpointed for f in self.functions())

    @property
    def uses_key(self) -> bool:
        return self.keyed and self.may_use_state

    @property
    def may_use_state(self) -> bool:
        """Whether a function may use state: only one with open() can."""
        return any(f.is_rich for f in self.functions())

    def open(self) -> None:
        for function in self.functions():
            if function.is_checkpointed:
                assert self.setup.operator_state is not None
                store = OperatorStateStore(self.setup.operator_state)
                function.function.initialize_state(FunctionInitializationContext(store))
            function.open(self.setup.context)

    def snapshot(self, epoch: int) -> None:
        for function in self.functions():
            if function.is_checkpointed:
                function.function.snapshot_state(FunctionSnapshotContext(epoch, self.setup.clock()))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Notify the functions that implement CheckpointListener."""
        for function in self.functions():
            notify = getattr(function.function, "notify_checkpoint_complete", None)
            if notify is not None:
                notify(checkpoint_id)

    def close(self) -> None:
        for function in self.functions():
            function.close()


class FunctionOperator(FunctionsOperator):
    """An operator around one user function."""

    def __init__(self, function: UserFunction, keyed: bool = False) -> None:
        self.function = function
        self.keyed = keyed

    def functions(self) -> list[UserFunction]:
        return [self.function]


class TimerOperator(Operator):
    """An operator with timers: fires them when event time or processing time advances."""

    # Set by operators that are keyed.
    timers: Timers | None = None
    # The label of its timers in diagnostics.
    timer_label = "timers"

    def on_event_timer(self, timer: Timer) -> None:
        """Handle a due event-time timer."""

    def on_processing_timer(self, timer: Timer) -> None:
        """Handle a due processing-time timer."""

    @property
    def follows_clock(self) -> bool:
        return self.timers is not None

    def on_watermark(self, watermark: int) -> int | None:
        self.watermark = watermark
        if self.timers is not None:
            self._fire_event_timers(self.timers, watermark)
        return watermark

    def on_processing_time(self) -> None:
        if self.timers is not None:
            self._fire_processing_timers(self.timers, self.setup.clock() - self.setup.services.timer_lag)

    def on_end_of_key(self) -> None:
        """Fire all timers of a key in BATCH, after its last record."""
        if self.timers is not None:
            self.watermark = MAX_WATERMARK
            self._fire_event_timers(self.timers, MAX_WATERMARK)
            self._fire_processing_timers(self.timers, MAX_WATERMARK)
            self.watermark = MIN_WATERMARK

    def next_wake(self) -> int | None:
        next_time = self.timers.processing.next_time() if self.timers is not None else None
        return None if next_time is None else next_time + self.setup.services.timer_lag

    def event_time_backlog(self) -> Iterable[tuple[str, int, int]]:
        if self.timers is not None and (first := self.timers.event.next_time()) is not None:
            yield self.timer_label, len(self.timers.event), first

    def _fire_event_timers(self, timers: Timers, until: int) -> None:
        for timer in timers.event.due(until):
            self.firing = "on_event_timer", timer
            self.on_event_timer(timer)
        self.firing = None

    def _fire_processing_timers(self, timers: Timers, until: int) -> None:
        for timer in timers.processing.due(until):
            self.firing = "on_processing_timer", timer
            self.on_processing_timer(timer)
        self.firing = None
