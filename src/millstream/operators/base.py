"""The operator: one step of a chain, living in one subtask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millstream.operators.codegen import CodeWriter, Key, Var
from millstream.operators.context import RuntimeContext
from millstream.operators.functions import UserFunction
from millstream.operators.values import ATOMS
from millstream.state.key_groups import hashable
from millstream.state.keyed import KeyedState

Downstream = Callable[[Var], None]
# Takes records and, where they have one, their timestamp.
Emit = Callable[..., None]


@dataclass
class OperatorSetup:
    """What an operator is handed when its subtask is built."""

    context: RuntimeContext
    state: KeyedState | None
    emit: Emit
    batch: bool


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
    # Whether what it emits may be an (OutputTag, value) pair for a side output.
    tags_outputs = False

    setup: OperatorSetup

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
            function.open(self.setup.context)

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        """Write what happens to one record."""
        raise NotImplementedError(f"{type(self).__name__} writes no code")

    def on_watermark(self, watermark: int) -> None:
        """Event time has come this far."""

    def finish(self) -> None:
        """The input has ended; emit what is left."""

    def close(self) -> None:
        for function in self.functions():
            function.close()

    def set_key(self, w: CodeWriter, key: Key | None) -> None:
        """Write the line that makes `key` the current key, where functions can have keyed state."""
        if self.keyed and self._has_life:
            assert self.setup.state is not None and key is not None
            make_hashable(w, key)
            w.line(f"{w.bind(self.setup.state.cell, 'cell')}.key = {key.name}")


def make_hashable(w: CodeWriter, key: Key) -> None:
    """Write the lines after which a dict takes the key."""
    if not key.hashable:
        with w.block(f"if {key.name}.__class__ not in {w.bind(ATOMS, 'atoms')}:"):
            w.line(f"{key.name} = {w.bind(hashable, 'hashable')}({key.name})")
