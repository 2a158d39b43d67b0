"""Sinks: a writer in the subtask that stages output, a committer on the driver that makes it count."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Any

from millstream.operators.base import Downstream, Operator, OperatorSetup
from millstream.operators.codegen import CodeWriter, Key, Var
from millstream.operators.context import RuntimeContext
from millstream.operators.edges import settle
from millstream.operators.functions import UserFunction

# What a writer hands to the committer for one epoch; pickled on the way.
Committable = Any


class SinkWriter(ABC):
    """Takes records in the subtask."""

    # Whether it keeps the values it is given beyond the call, so that they must not change any more.
    keeps_values = True

    @abstractmethod
    def write(self, value: Any) -> None:
        """Take one record."""

    @abstractmethod
    def prepare_commit(self) -> Committable | None:
        """Stage what was written in this epoch and say how to commit it; None when there is nothing."""

    def close(self) -> None:
        """The subtask has ended."""


class Committer(ABC):
    """Makes staged output count. Lives on the driver; committing the same thing twice must do no harm."""

    @abstractmethod
    def commit(self, committables: list[tuple[int, Committable]]) -> None:
        """Commit what the subtasks staged, given as (subtask, committable) in the order of the subtasks."""

    def close(self) -> None:
        """The job has ended."""


class Sink(ABC):
    """A place records go to."""

    name = "Sink"

    @abstractmethod
    def create_writer(self, context: RuntimeContext) -> SinkWriter: ...

    @abstractmethod
    def create_committer(self) -> Committer | None: ...


class SinkOperator(Operator):
    """Ends a chain by writing to a sink."""

    writer: SinkWriter

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self.writer = self.sink.create_writer(setup.context)

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        if self.writer.keeps_values:
            value = settle(w, value)
        w.line(f"{w.bind(self.writer.write, 'write')}({value.name})", self, value.name)

    def close(self) -> None:
        self.writer.close()


class InvokeOperator(Operator):
    """Ends a chain by calling a user's function for every record; what it does cannot be taken back."""

    def __init__(self, function: UserFunction) -> None:
        self.function = function

    def functions(self) -> list[UserFunction]:
        return [self.function]

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        # Both `invoke(value)` and Flink's `invoke(value, context)` are accepted.
        call = self.function.call
        more = ["None"] if len(inspect.signature(call).parameters) > 1 else []
        w.line(w.call(call, value.name, *more), self, value.name)
