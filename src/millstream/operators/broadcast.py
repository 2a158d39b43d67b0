"""The broadcast pattern: a stream that reaches every subtask and fills a state which the other stream reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.common.errors import InvalidProgramError
from millstream.operators.base import Downstream, Operator, OperatorSetup
from millstream.operators.codegen import CodeWriter, Key, Var
from millstream.operators.functions import UserFunction
from millstream.operators.operator_state import (
    BroadcastState,
    OperatorStateStore,
    ReadOnlyBroadcastState,
    each_keyed_state,
)
from millstream.operators.process import ProcessContext, one_by_one
from millstream.operators.timers import TimeDomain, Timers, TimerService
from millstream.state.descriptors import MapStateDescriptor, StateDescriptor
from millstream.state.key_groups import thaw
from millstream.state.table import NO_KEY
from millstream.state.timers import Timer


class BroadcastReadContext(ProcessContext):
    """What the function of the stream that is not broadcast can ask."""

    __slots__ = ("_operator",)

    def __init__(self, operator: BroadcastProcessOperator, cell: Any, service: TimerService) -> None:
        super().__init__(cell, service)
        self._operator = operator

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState:
        return ReadOnlyBroadcastState(self._operator.broadcast_state(state_descriptor)._state)

    def current_processing_time(self) -> int:
        return self._service.current_processing_time()

    def current_watermark(self) -> int:
        return self._service.current_watermark()


class BroadcastWriteContext(BroadcastReadContext):
    """What the function of the broadcast stream can ask; it may change the broadcast state."""

    __slots__ = ()

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState:
        return self._operator.broadcast_state(state_descriptor)

    def apply_to_keyed_state(self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], None]) -> None:
        """Call `function(key, state)` for every key that has this state."""
        state = self._operator.setup.state
        if state is None:
            raise InvalidProgramError(
                "apply_to_keyed_state() needs a keyed stream: call key_by(...) before connect(...)."
            )
        each_keyed_state(state, state_descriptor, getattr(function, "process", function), thaw)


class BroadcastProcessOperator(Operator):
    """Calls `process_element` for one stream, `process_broadcast_element` for the broadcast one, and `on_timer`."""

    inputs = 2
    tags_outputs = True
    has_operator_state = True

    def __init__(self, function: UserFunction, keyed: bool, names: list[str]) -> None:
        self.function = function
        self.keyed = keyed
        self.names = names
        self.emits_later = keyed and function.overrides("on_timer")

    def functions(self) -> list[UserFunction]:
        return [self.function]

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        assert setup.operator_state is not None
        self._store = OperatorStateStore(setup.operator_state)
        cell = setup.state.cell if setup.state is not None else None
        if setup.state is not None:
            self.timers = Timers(setup.state)
        service = TimerService(self, self.timers, setup.state, setup.clock, setup.context.get_task_name())
        self._reading = BroadcastReadContext(self, cell, service)
        self._writing = BroadcastWriteContext(self, cell, service)

    def broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastState:
        if descriptor.name not in self.names:
            known = ", ".join(map(repr, self.names))
            raise InvalidProgramError(
                f"Broadcast state {descriptor.name!r} was not given to broadcast(...), which was given {known}."
            )
        return self._store.get_broadcast_state(descriptor)

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        method = "process_element" if input_index == 0 else "process_broadcast_element"
        context = w.bind(self._reading if input_index == 0 else self._writing, "ctx")
        if input_index == 0:
            self.set_key(w, key)
        elif self.setup.state is not None:
            w.line(f"{w.bind(self.setup.state.cell, 'cell')}.key = {w.bind(NO_KEY, 'no_key')}")
        call, many, out = w.bind(getattr(self.function.function, method), "process"), w.var("r"), w.var()
        if value.timestamp is not None:
            w.line(f"{context}._timestamp = {value.timestamp}")
        w.line(f"{many} = {call}({value.name}, {context})", self, value.name)
        with w.block(f"if {many} is not None:"), w.block(f"for {out} in {many}:", self, value.name):
            downstream(value.renamed(out, False))

    def on_event_timer(self, timer: Timer) -> None:
        self._on_timer(timer, TimeDomain.EVENT_TIME)

    def on_processing_timer(self, timer: Timer) -> None:
        self._on_timer(timer, TimeDomain.PROCESSING_TIME)

    def _on_timer(self, timer: Timer, domain: TimeDomain) -> None:
        if not self.emits_later:
            return
        timestamp, key, _ = timer
        assert self.setup.state is not None
        self.setup.state.cell.key = key
        self._reading._timestamp, self._reading._domain = timestamp, domain
        results = self.function.function.on_timer(timestamp, self._reading)
        if results is not None:
            self.setup.emit(one_by_one(results), timestamp if domain is TimeDomain.EVENT_TIME else None)
