"""Runs one operator on the one record, or timer, that it has failed on, in this process."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from millstream.common.errors import DamagedStateError
from millstream.common.pickles import adopt_main_classes
from millstream.operators.async_io import AsyncOperator
from millstream.operators.base import OperatorSetup, RuntimeServices
from millstream.operators.codegen.code_writer import CodeWriter, Var
from millstream.operators.diagnostics.failure_capture import Kept
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.functions.metrics import MetricGroup
from millstream.operators.runtime.chain import ChainCompiler, ChainNode
from millstream.operators.watermarks import WatermarkEmitter
from millstream.state.keyed import KeyedState

_FILE = "kept"


@dataclass(frozen=True)
class Emitted:
    """What came out: the side output it goes to, None for the main one, the value and its timestamp."""

    tag: str | None
    value: Any
    timestamp: int | None


@dataclass(frozen=True)
class Given:
    """What the operator failed on: a record, or what was to be fired."""

    is_record: bool
    value: Any
    timestamp: int | None
    key: Any


class _Collected:
    """Takes what an operator sends to one of its outputs, in the place of an edge."""

    def __init__(self, tag: str | None, emitted: list[Emitted]) -> None:
        self._tag = tag
        self._emitted = emitted

    def learn(self, w: CodeWriter, value: Var) -> None: ...

    def settle(self) -> None: ...

    def code(self, w: CodeWriter, value: Var, operator: Any) -> None:
        w.line(f"{w.bind(self.take, 'take')}({value.name}, {value.timestamp})")

    def take(self, value: Any, timestamp: int | None) -> None:
        self._emitted.append(Emitted(self._tag, value, timestamp))


class _OneFile:
    """A storage that has the one file from which a state is read."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, name: str) -> bytes:
        return self._data

    def write(self, name: str, parts: Iterable[bytes]) -> int:
        raise DamagedStateError("What is replayed writes no state.")

    def forget(self, names: list[str]) -> None: ...

    def scratch(self, name: str) -> str:
        raise DamagedStateError("What is replayed has no directory.")


class Replay:
    """An operator, its state, and what it is to be run on.

    Args:
        node: the operator, alone.
        kept: what it failed on.
        about: makes the context that functions get, given the metrics and the keyed state.
        batch: whether the job is a BATCH one.
        requests: makes a runner of asynchronous requests.
    """

    def __init__(
        self,
        node: ChainNode,
        kept: Kept,
        about: Callable[[MetricGroup, KeyedState | None], RuntimeContext],
        batch: bool,
        requests: Callable[[int], Any],
    ) -> None:
        self.emitted: list[Emitted] = []
        self.advanced: list[int | None] = []
        self._node = node
        self._kept = kept
        self._given = pickle.loads(base64.b64decode(kept["record" if "record" in kept else "firing"]))
        self._before: list[Any] = pickle.loads(base64.b64decode(kept["before"])) if "before" in kept else []
        # A timer is fired by the watermark that fired it.
        fires = "firing" in kept and bool(self._before)
        self._last: int | None = self._before.pop() if fires else None
        # What the state is made of may have come with the record.
        adopt_main_classes()
        operator, now = node.operator, kept["clock"]
        self.state = self._state("state", node.id) if operator.keyed else None
        own = self._state("operator-state", f"{node.id}.operator") if operator.has_operator_state else None
        services = RuntimeServices(lambda: now, requests, lambda: 0.0)
        context = about(MetricGroup((node.name,)), self.state)
        operator.prepare(OperatorSetup(context, self.state, _emits_nothing, batch, services, own))
        writers: dict[int, Any] = {o.edge: _Collected(o.tag, self.emitted) for o in node.outputs}
        # Users' functions are called, not written out: a debugger stops in their own lines.
        self._compiler = ChainCompiler([node], writers, inlining=False)
        operator.watermark = kept["watermark"]
        if isinstance(operator, (AsyncOperator, WatermarkEmitter)):
            operator.advance = self.advanced.append
        if operator.emits_later:
            operator.setup.emit = self._compiler.emit_function(node)
        for state, name in ((self.state, "state"), (own, "operator-state")):
            if state is not None and name in kept:
                state.prepare(_FILE)
            if state is not None:
                state.begin()

    def _state(self, name: str, owner: str) -> KeyedState:
        data = base64.b64decode(self._kept.get(name, ""))
        return KeyedState(owner, 0, _OneFile(data), lambda: self._kept["clock"])

    @property
    def is_exact(self) -> bool:
        """Whether the state is what the operator found, and not what it left."""
        return "before" in self._kept

    @property
    def given(self) -> Given:
        """What the operator is run on."""
        if "record" in self._kept:
            _, value, timestamp, key, _ = self._given
            return Given(True, value, timestamp, key)
        when, key, value = self._given[1]
        return Given(False, value, when if isinstance(when, int) else None, key)

    def open(self) -> None:
        """Open the functions, and let the operator have what it was given in the epoch before."""
        operator = self._node.operator
        operator.open()
        if isinstance(operator, AsyncOperator):
            # Before anything comes: it makes the requests that were in flight.
            operator.emit_responses()
        for one in self._before:
            self._let_have(one)
        operator.settle()
        self.emitted.clear()

    def _let_have(self, given: Any) -> None:
        """Let the operator have a record, or a watermark."""
        operator = self._node.operator
        if isinstance(given, int):
            operator.on_watermark(given)
            return
        index, value, timestamp, key, is_timestamped = given
        run = self._compiler.record_function(index, is_timestamped, operator.uses_key)
        run([(value, timestamp, key)])

    def run(self) -> None:
        """Let the operator have what it failed on."""
        operator = self._node.operator
        if "record" in self._kept:
            self._let_have(self._given)
        elif self._last is not None:
            self._let_have(self._last)
        else:
            method, arguments = self._given
            getattr(operator, method)(arguments)
        if operator.holds_back:
            operator.flush()
        if isinstance(operator, AsyncOperator):
            operator.finish()

    def close(self) -> None:
        """Close the functions."""
        self._node.operator.close()


def _emits_nothing(batch: Iterable[Any], timestamp: int | None = None) -> None:
    raise AssertionError("this operator has not announced that it emits outside the loop")
