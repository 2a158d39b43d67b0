"""The broadcast state pattern: a broadcast stream updates state that the other stream reads."""

from __future__ import annotations

from collections.abc import Callable

from millstream.common.aliases import Key as UserKey
from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.operators.base import Downstream, OperatorSetup
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.operators.functions.operator_state import (
    BroadcastState,
    OperatorStateStore,
    ReadOnlyBroadcastState,
    each_keyed_state,
)
from millstream.operators.functions.user_function import UserFunction
from millstream.operators.process import ProcessContext, TimedOperator
from millstream.operators.runtime.timers import TimerService
from millstream.state.descriptors import MapStateDescriptor, StateDescriptor
from millstream.state.key_groups import thaw
from millstream.state.table import NO_KEY, KeyCell


class BroadcastReadContext(ProcessContext):
    """The context of the function for the non-broadcast stream."""

    __slots__ = ("_operator",)

    def __init__(self, operator: BroadcastProcessOperator, cell: KeyCell | None, service: TimerService) -> None:
        super().__init__(cell, service)
        self._operator = operator

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState:
        """Return a broadcast state for reading."""
        return self._operator.broadcast_state(state_descriptor).read_only()

    def current_processing_time(self) -> int:
        """Return the wall-clock time in milliseconds."""
        return self._service.current_processing_time()

    def current_watermark(self) -> int:
        """Return the watermark in milliseconds."""
        return self._service.current_watermark()


class BroadcastWriteContext(BroadcastReadContext):
    """The context of the function for the broadcast stream; it may update the broadcast state."""

    __slots__ = ()

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState:
        """Return a broadcast state for reading and writing."""
        return self._operator.broadcast_state(state_descriptor)

    def apply_to_keyed_state(
        self, state_descriptor: StateDescriptor, function: Callable[[UserKey, Value], None]
    ) -> None:
        """Call `function(key, state)` for every key that has this state."""
        state = self._operator.setup.state
        if state is None:
            raise InvalidProgramError(
                "apply_to_keyed_state() needs a keyed stream: call key_by(...) before connect(...)."
            )
        each_keyed_state(state, state_descriptor, getattr(function, "process", function), thaw)


class BroadcastProcessOperator(TimedOperator):
    """Calls `process_element` for one stream, `process_broadcast_element` for the broadcast one, and `on_timer`."""

    identity = "broadcast-process"

    inputs = 2
    has_operator_state = True

    def __init__(self, function: UserFunction, keyed: bool, names: list[str]) -> None:
        super().__init__(function, keyed)
        self.names = names

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        assert setup.operator_state is not None
        self._store = OperatorStateStore(setup.operator_state)
        cell, service = setup.state.cell if setup.state is not None else None, self.timer_service()
        self._context = BroadcastReadContext(self, cell, service)
        self._writing = BroadcastWriteContext(self, cell, service)

    def broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastState:
        if descriptor.name not in self.names:
            known = ", ".join(map(repr, self.names))
            raise InvalidProgramError(
                f"Broadcast state {descriptor.name!r} was not passed to broadcast(...), which has {known}."
            )
        return self._store.get_broadcast_state(descriptor)

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        if input_index == 0:
            self.set_key(w, key)
            self.call(w, "process_element", self._context, value, downstream)
            return
        if self.setup.state is not None:
            w.line(f"{w.bind(self.setup.state.cell, 'cell')}.key = {w.bind(NO_KEY, 'no_key')}")
        self.call(w, "process_broadcast_element", self._writing, value, downstream)
