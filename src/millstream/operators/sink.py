"""Sinks: a writer in the subtask that stages output, a committer on the driver that makes it count."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Any, Generic

from millstream.common.aliases import T_contra
from millstream.common.fast_dataclass import record
from millstream.common.typeinfo import TypeInformation
from millstream.operators.base import Downstream, FunctionOperator, Operator, OperatorSetup
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.operators.codegen.object_reuse import detached
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.functions.user_function import UserFunction

# What a writer hands to the committer for one epoch; pickled on the way.
Committable = Any


class SinkWriter(ABC):
    """Takes records in the subtask."""

    # Whether it keeps the values it is given beyond the call, so that they must not change any more.
    keeps_values = True
    # Whether it is told the event time of records: `write_at` is called then, not `write`.
    takes_timestamps = False

    def begin(self, transaction: str) -> None:
        """An epoch begins; `transaction` is a name that nobody else has had or will have, not even in a retry."""

    @abstractmethod
    def write(self, value: Any) -> None:
        """Take one record."""

    def write_at(self, value: Any, timestamp: int | None) -> None:
        """Take one record with its timestamp, None where it has none; only where `takes_timestamps` is set."""
        self.write(value)

    def on_watermark(self, watermark: int) -> None:
        """Event time has come this far; only sinks of tables are told."""

    @abstractmethod
    def prepare_commit(self, flush: bool) -> Committable | None:
        """Stage what was written and say how to commit it; None when there is nothing to commit (yet).

        Args:
            flush: whether everything must be staged: a checkpoint is taken with this epoch, or the input has ended.
                Otherwise output may wait for more, but then `carry` must say what it takes to find it again.
        """

    def carry(self) -> Any:
        """Return what a writer in another process must know to go on after this epoch; None for nothing."""
        return None

    def restore(self, carried: Any) -> None:
        """Take up what the writer before this one had carried."""

    def close(self) -> None:
        """The subtask has ended."""


@record
class CommitContext:
    """Whose output a committer commits.

    Attributes:
        job_id: the job.
        operator_id: the sink in the job; the same in a job that goes on from another's checkpoint.
    """

    job_id: str
    operator_id: str

    def prefix(self, job_id: str | None = None) -> str:
        """Return how the names of all transactions of this sink begin, in this job or another."""
        return f"{job_id or self.job_id}-{self.operator_id}-"


class Committer(ABC):
    """Makes staged output count. Lives on the driver; committing the same thing twice must do no harm."""

    # Whether output must wait for the checkpoint it belongs to. Without, it counts when its epoch has ended, and comes
    # again when the epoch is run again.
    transactional = True

    def begin(self) -> None:
        """The job starts from nothing: abort what an earlier one may have left that never came to a checkpoint."""

    @abstractmethod
    def commit(self, committables: list[tuple[int, Committable]]) -> None:
        """Commit what the subtasks staged, given as (subtask, committable) in the order of epochs and subtasks."""

    def recover(self, committables: list[tuple[int, Committable]], former_job_id: str) -> None:
        """The job goes on from a checkpoint: commit what belongs to it, and abort whatever else was staged.

        Args:
            committables: what the checkpoint says was staged; it may have been committed already.
            former_job_id: the job that staged it: this one after a restart, another when a checkpoint of another is
                taken up. Even then this one may have staged something since, which is to be aborted too.
        """
        if committables:
            self.commit(committables)

    def waiting(self) -> list[tuple[int, Committable]]:
        """Return what was committed and is not done with: the next checkpoint names it and commits it again."""
        return []

    @property
    def wants_checkpoints(self) -> bool:
        """Whether what waits will be done with after some checkpoints: they are taken though nothing happens."""
        return False

    def finish(self) -> None:
        """Be done with what waits: the job ends, or a savepoint is taken, which names no output."""

    def close(self) -> None:
        """The job has ended."""


class Sink(ABC, Generic[T_contra]):
    """A place records go to."""

    name = "Sink"
    # Whether a record must fit the type that was declared for it.
    encodes = True

    def typed(self, type_info: TypeInformation | None) -> Sink[T_contra]:
        """Return the sink for records of a declared type; None when none was declared."""
        return self

    @abstractmethod
    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        """Return the writer of a subtask, in its process."""

    @abstractmethod
    def create_committer(self, context: CommitContext) -> Committer | None:
        """Return what makes staged output count, on the driver; None where nothing is staged."""


class Taken:
    """How many records a sink was given in an epoch; None where nobody counts."""

    def __init__(self) -> None:
        self.records: int | None = 0

    def count(self, w: CodeWriter, number_of: str = "1") -> None:
        """Write the lines that count a record: one addition, in the loop's own variable."""
        number = w.var("taken")
        w.before(f"{number} = 0")
        w.line(f"{number} += {number_of}")
        w.after(f"{w.bind(self, 'sink')}.records += {number}")


class SinkOperator(Operator):
    """Ends a chain by writing to a sink."""

    identity = "sink"

    writer: SinkWriter

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.encodes_input = sink.encodes
        self.taken = Taken()

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self.writer = self.sink.create_writer(setup.context)

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        if self.writer.keeps_values:
            value = detached(w, value)
        if self.writer.takes_timestamps:
            w.line(f"{w.bind(self.writer.write_at, 'write')}({value.name}, {value.timestamp})", self, value.name)
        else:
            w.line(f"{w.bind(self.writer.write, 'write')}({value.name})", self, value.name)
        self.taken.count(w, f"len({value.name})" if self.takes_batches else "1")

    def carry(self) -> Any:
        # In a tuple: a writer that is behind must also be told that nothing is carried any more.
        return (self.writer.carry(),)

    def restore(self, carried: Any) -> None:
        self.writer.restore(carried[0])

    def close(self) -> None:
        self.writer.close()


class InvokeOperator(FunctionOperator):
    """Ends a chain by calling a user's function for every record; what it does cannot be taken back."""

    identity = "invoke"

    encodes_input = True

    def __init__(self, function: UserFunction) -> None:
        super().__init__(function)
        self.taken = Taken()

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        # Both `invoke(value)` and Flink's `invoke(value, context)` are accepted.
        call = self.function.call
        more = ["None"] if len(inspect.signature(call).parameters) > 1 else []
        called = w.call(call, value.name, *more)
        w.line(called, self, value.name)
        if called.startswith("call_"):
            self.taken.count(w)
        else:
            # Written out in the loop: counting would cost more than what is done.
            self.taken.records = None
