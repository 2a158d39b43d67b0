"""Sinks: a writer in each subtask stages output, a committer on the driver commits it."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Generic

from millstream.common.aliases import T_contra, Value
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.typeinfo import TypeInformation
from millstream.operators.base import Downstream, Operator, OperatorSetup
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.operators.codegen.object_reuse import detached
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.functions.user_function import UserFunction
from millstream.operators.stateful import FunctionOperator

# What a writer passes to the committer for one epoch; it is pickled.
Committable = Value
# The state that a writer passes to the writer of the next epoch; only the writer knows its type.
WriterSnapshot = Value


class SinkWriter(ABC):
    """Writes records in the subtask; see Sink for an example."""

    # Whether it retains values beyond the call, so that they must not change.
    keeps_values = True
    # Whether it uses event time: `write_at` is called instead of `write`.
    takes_timestamps = False

    def begin(self, transaction: str) -> None:
        """Start an epoch; `transaction` is globally unique, even across retries."""

    @abstractmethod
    def write(self, value: Value) -> None:
        """Write a record."""

    def write_at(self, value: Value, timestamp: int | None) -> None:
        """Write a record with its timestamp, None if it has none; called only if `takes_timestamps` is set."""
        self.write(value)

    def on_watermark(self, watermark: int) -> None:
        """Handle a watermark; called only for table sinks."""

    @abstractmethod
    def prepare_commit(self, flush: bool) -> Committable | None:
        """Stage the written output and return a committable; None if there is nothing to commit (yet).

        Args:
            flush: whether all output must be staged, because of a checkpoint or the end of input. Otherwise output may
                wait for more, and `runtime_snapshot` must return what is needed to find it again.
        """

    def runtime_snapshot(self) -> WriterSnapshot:
        """Return the state that a writer in another process needs after this epoch; None for nothing."""
        return None

    def restore(self, snapshot: WriterSnapshot) -> None:
        """Restore the state that the previous writer returned from `runtime_snapshot`."""

    def close(self) -> None:
        """Release resources at the end of the subtask."""


@fast_dataclass
class CommitContext:
    """Identifies the sink whose output a committer commits.

    Attributes:
        job_id: the job.
        operator_id: the sink's operator id; the same in a job that restores another's checkpoint.
    """

    job_id: str
    operator_id: str

    def prefix(self, job_id: str | None = None) -> str:
        """Return the common prefix of all transaction names of this sink, in this job or another."""
        return f"{job_id or self.job_id}-{self.operator_id}-"


class Committer(ABC):
    """Commits staged output. Runs on the driver; commits must be idempotent.

    Example:
        >>> class StagingWriter(SinkWriter):
        ...     def begin(self, transaction): self.staged = []
        ...     def write(self, value): self.staged.append(value)
        ...     def prepare_commit(self, flush): return self.staged
        >>> class PrintingCommitter(Committer):
        ...     def commit(self, committables): print([staged for subtask, staged in committables])
        >>> class Staging(Sink):
        ...     def create_writer(self, context): return StagingWriter()
        ...     def create_committer(self, context): return PrintingCommitter()
        >>> _ = env.from_collection(["to", "be"]).sink_to(Staging())
        >>> _ = env.execute()
        [['to', 'be']]
    """

    # Whether output waits for its checkpoint. Otherwise it is committed at the end of its epoch, and repeated if the
    # epoch is.
    transactional = True

    def begin(self) -> None:
        """Abort uncommitted output of earlier runs when the job starts without a checkpoint."""

    @abstractmethod
    def commit(self, committables: list[tuple[int, Committable]]) -> None:
        """Commit staged output, as (subtask, committable) in the order of epochs and subtasks."""

    def recover(self, committables: list[tuple[int, Committable]], former_job_id: str) -> None:
        """Commit the output of a restored checkpoint, and abort all other staged output.

        Args:
            committables: the output that the checkpoint names; it may be committed already.
            former_job_id: the job that staged it: this one after a restart, or another one. Even then output that this
                job has staged since is aborted too.
        """
        if committables:
            self.commit(committables)

    def waiting(self) -> list[tuple[int, Committable]]:
        """Return committed output that needs further work: the next checkpoint names and commits it again."""
        return []

    @property
    def wants_checkpoints(self) -> bool:
        """Whether that work needs further checkpoints, which are then taken even without input."""
        return False

    def finish(self) -> None:
        """Complete that work: the job ends, or takes a savepoint, which names no output."""

    def close(self) -> None:
        """Release resources at the end of the job."""


class Sink(ABC, Generic[T_contra]):
    """Writes records to an external system, with a writer in each subtask and a committer on the driver.

    Example:
        >>> class PrintingWriter(SinkWriter):
        ...     def write(self, value): print(value)
        ...     def prepare_commit(self, flush): return None
        >>> class Printing(Sink):
        ...     def create_writer(self, context): return PrintingWriter()
        ...     def create_committer(self, context): return None
        >>> _ = env.from_collection(["to", "be"]).sink_to(Printing())
        >>> _ = env.execute()
        to
        be
    """

    name = "Sink"
    # Whether records must conform to their declared type.
    encodes = True

    def typed(self, type_info: TypeInformation | None) -> Sink[T_contra]:
        """Return the sink for records of a declared type, None if none is declared."""
        return self

    @abstractmethod
    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        """Return the writer of a subtask; called in its process."""

    @abstractmethod
    def create_committer(self, context: CommitContext) -> Committer | None:
        """Return the committer, on the driver; None if nothing is staged."""


class RecordCount:
    """Counts the records of a sink in an epoch; None if not counted."""

    def __init__(self) -> None:
        self.records: int | None = 0

    def count(self, w: CodeWriter, number_of: str = "1") -> None:
        """Write the lines that count a record: one addition to a local variable."""
        number = w.var("taken")
        w.before(f"{number} = 0")
        w.line(f"{number} += {number_of}")
        w.after(f"{w.bind(self, 'sink')}.records += {number}")


class SinkOperator(Operator):
    """The end of a chain that writes to a sink."""

    identity = "sink"

    writer: SinkWriter

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.encodes_input = sink.encodes
        self.taken = RecordCount()

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

    def runtime_snapshot(self) -> tuple[WriterSnapshot]:
        # In a tuple, because None alone is not restored: it must clear the state of an outdated writer.
        return (self.writer.runtime_snapshot(),)

    def restore(self, snapshot: tuple[WriterSnapshot]) -> None:
        self.writer.restore(snapshot[0])

    def close(self) -> None:
        self.writer.close()


class InvokeOperator(FunctionOperator):
    """The end of a chain that calls a user function for each record; its effects cannot be rolled back."""

    identity = "invoke"

    encodes_input = True

    def __init__(self, function: UserFunction) -> None:
        super().__init__(function)
        self.taken = RecordCount()

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        # Both `invoke(value)` and Flink's `invoke(value, context)` are accepted.
        call = self.function.call
        more = ["None"] if len(inspect.signature(call).parameters) > 1 else []
        called = w.call(call, value.name, *more)
        w.line(called, self, value.name)
        if called.startswith("call_"):
            self.taken.count(w)
        else:
            # Inlined: counting would cost more than the function.
            self.taken.records = None
