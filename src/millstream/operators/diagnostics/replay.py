"""Runs an operator on the record or timer on which it failed, in this process."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from millstream.common.aliases import Key, Value
from millstream.common.errors import DamagedStateError
from millstream.common.pickles import adopt_main_classes
from millstream.operators.async_io import AsyncOperator, Requests
from millstream.operators.base import OperatorSetup, RuntimeServices
from millstream.operators.codegen.code_writer import CodeWriter, Var
from millstream.operators.diagnostics.epoch_input_log import LoggedRecord
from millstream.operators.diagnostics.failure_capture import CapturedInput
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.functions.metrics import MetricGroup
from millstream.operators.runtime.chain import ChainCompiler, ChainNode
from millstream.operators.watermarks import WatermarkEmitter
from millstream.state.keyed import KeyedState

_FILE = "captured"


@dataclass(frozen=True)
class Emitted:
    """An emitted value: its side output, None for the main output, and its timestamp."""

    tag: str | None
    value: Value
    timestamp: int | None


@dataclass(frozen=True)
class FailedInput:
    """The input on which the operator failed: a record or a timer."""

    is_record: bool
    value: Value
    timestamp: int | None
    key: Key


class _Collected:
    """Collects the output of an operator, in place of an edge."""

    def __init__(self, tag: str | None, emitted: list[Emitted]) -> None:
        self._tag = tag
        self._emitted = emitted

    def learn(self, w: CodeWriter, value: Var) -> None: ...

    def choose_layout(self) -> None: ...

    def code(self, w: CodeWriter, value: Var, operator: object) -> None:
        w.line(f"{w.bind(self.take, 'take')}({value.name}, {value.timestamp})")

    def take(self, value: Value, timestamp: int | None) -> None:
        self._emitted.append(Emitted(self._tag, value, timestamp))


class _OneFile:
    """A storage with one file, from which a state is read."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, name: str) -> bytes:
        return self._data

    def write(self, name: str, parts: Iterable[bytes]) -> int:
        raise DamagedStateError("A replay writes no state.")

    def drop_local_copies(self, names: list[str]) -> None: ...

    def scratch(self, name: str) -> str:
        raise DamagedStateError("A replay has no directory.")


class Replay:
    """An operator, its state, and its input.

    Args:
        node: the operator, alone.
        captured: its input and state.
        about: returns the runtime context of functions, for metrics and keyed state.
        batch: whether the job runs in BATCH.
        requests: creates a runner of asynchronous requests.
    """

    def __init__(
        self,
        node: ChainNode,
        captured: CapturedInput,
        about: Callable[[MetricGroup, KeyedState | None], RuntimeContext],
        batch: bool,
        requests: Callable[[int], Requests],
    ) -> None:
        self.emitted: list[Emitted] = []
        self.advanced: list[int | None] = []
        self._node = node
        self._captured = captured
        self._input = pickle.loads(base64.b64decode(captured["record" if "record" in captured else "firing"]))
        self._before: list[int | LoggedRecord] = (
            pickle.loads(base64.b64decode(captured["before"])) if "before" in captured else []
        )
        # A timer is fired by the watermark that fired it.
        fires = "firing" in captured and bool(self._before)
        self._last = self._before.pop() if fires else None
        # The record may bring the classes of values in the state.
        adopt_main_classes()
        operator, now = node.operator, captured["clock"]
        self.state = self._state("state", node.id) if operator.keyed else None
        own = self._state("operator-state", f"{node.id}.operator") if operator.has_operator_state else None
        services = RuntimeServices(lambda: now, requests, lambda: 0.0)
        context = about(MetricGroup((node.name,)), self.state)
        operator.prepare(OperatorSetup(context, self.state, _reject_emit, batch, services, own))
        writers: dict[int, Any] = {o.edge: _Collected(o.tag, self.emitted) for o in node.outputs}
        # User functions are called, not inlined: a debugger stops in their own lines.
        self._compiler = ChainCompiler([node], writers, inlining=False)
        operator.watermark = captured["watermark"]
        if isinstance(operator, (AsyncOperator, WatermarkEmitter)):
            operator.advance = self.advanced.append
        if operator.emits_later:
            operator.setup.emit = self._compiler.emit_function(node)
        for state, name in ((self.state, "state"), (own, "operator-state")):
            if state is not None and name in captured:
                state.prepare(_FILE)
            if state is not None:
                state.begin()

    def _state(self, name: str, owner: str) -> KeyedState:
        data = base64.b64decode(self._captured.get(name, ""))
        return KeyedState(owner, 0, _OneFile(data), lambda: self._captured["clock"])

    @property
    def is_exact(self) -> bool:
        """Whether the state is that before the failed record, not after it."""
        return "before" in self._captured

    @property
    def failed_input(self) -> FailedInput:
        """The input of the operator."""
        if "record" in self._captured:
            _, value, timestamp, key, _ = self._input
            return FailedInput(True, value, timestamp, key)
        when, key, value = self._input[1]
        return FailedInput(False, value, when if isinstance(when, int) else None, key)

    def open(self) -> None:
        """Open the functions, and process the key's earlier input of the epoch."""
        operator = self._node.operator
        operator.open()
        if isinstance(operator, AsyncOperator):
            # Before any input: this starts the requests that were in flight.
            operator.emit_responses()
        for element in self._before:
            self._process(element)
        operator.write_cached()
        self.emitted.clear()

    def _process(self, element: int | LoggedRecord) -> None:
        """Process a record or a watermark."""
        operator = self._node.operator
        if isinstance(element, int):
            operator.on_watermark(element)
            return
        index, value, timestamp, key, is_timestamped = element
        run = self._compiler.record_function(index, is_timestamped, operator.uses_key)
        run([(value, timestamp, key)])

    def run(self) -> None:
        """Process the input on which the operator failed."""
        operator = self._node.operator
        if "record" in self._captured:
            self._process(self._input)
        elif self._last is not None:
            self._process(self._last)
        else:
            method, arguments = self._input
            getattr(operator, method)(arguments)
        if operator.buffers_output:
            operator.flush()
        if isinstance(operator, AsyncOperator):
            operator.finish()

    def close(self) -> None:
        """Close the functions."""
        self._node.operator.close()


def _reject_emit(batch: Iterable[Value], timestamp: int | None = None) -> None:
    raise AssertionError("This operator emits outside of its loop without setting emits_later.")
