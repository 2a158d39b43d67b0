"""The operator interface: one step of a chain in one subtask, and its traits.

Subclasses add what only some operators have: user functions and timers (`stateful`), watermarks (`watermarks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from millstream.common.aliases import Value
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.typeinfo import TypeInformation
from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.operators.codegen.range_vectorizer import Columns
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.runtime.budget import Budget
from millstream.state.key_groups import PLAIN_KEYS, hashable
from millstream.state.keyed import KeyedState

if TYPE_CHECKING:
    from millstream.operators.async_io import Requests


class OperatorTraits:
    """How an operator consumes and emits records: the job graph and the chain compiler read it."""

    # Whether its input is partitioned by key, so that it can have keyed state.
    keyed = False
    # The number of inputs: an operator with several always heads its chain.
    inputs = 1
    # Whether its input consists of batches of rows, as between all SQL operators. Batches are immutable, each takes
    # much longer than a record, and metrics count their rows.
    takes_batches = False
    # Whether its output consists of batches of rows.
    emits_batches = False
    # Whether its input must conform to the declared type, even within the chain.
    encodes_input = False
    # Whether it emits outside of the loop.
    emits_later = False
    # Whether it buffers output until `flush`.
    buffers_output = False
    # Whether the values it emits in the loop are also its state, which downstream operators must not modify.
    emits_state = False
    # Whether its output may contain (OutputTag, value) pairs for side outputs.
    tags_outputs = False
    # Whether its output has timestamps even if its input has none.
    assigns_timestamps = False
    # Whether its output has no timestamps even if its input has some.
    drops_timestamps = False
    # The type that all its output already conforms to, if any.
    produced_type: TypeInformation | None = None
    # The declared type that its output is coerced to; set before the loop is written.
    declared_type: TypeInformation | None = None

    @property
    def uses_key(self) -> bool:
        """Whether the loop must extract the key of a record."""
        return False

    @property
    def has_operator_state(self) -> bool:
        """Whether it has operator state."""
        return False

    @property
    def follows_clock(self) -> bool:
        """Whether it needs calls when processing time advances."""
        return False


Downstream = Callable[[Var], None]
# Emits records and, if they have one, their timestamp.
Emit = Callable[..., None]
# Emits a watermark (None: idle) after an operator.
Advance = Callable[[int | None], None]
# An operator's part of the runtime snapshot; only the operator knows its type.
OperatorSnapshot = Value
# A split of a source; only the source knows its type.
Split = Value


def _unknown_memory() -> int:
    return 0


@fast_dataclass
class RuntimeServices:
    """The services that operators get from the runtime.

    Attributes:
        clock: the wall clock in milliseconds.
        requests: creates a runner of asynchronous requests with a capacity.
        stopwatch: returns elapsed seconds.
        timer_lag: the delay of processing-time timers in milliseconds.
        resident: returns the memory of this process in bytes; 0 if the process is shared.
    """

    clock: Callable[[], int]
    requests: Callable[[int], Requests]
    stopwatch: Callable[[], float]
    timer_lag: int = 0
    resident: Callable[[], int] = _unknown_memory


@dataclass
class OperatorSetup:
    """The context that an operator receives when its subtask is built."""

    context: RuntimeContext
    state: KeyedState | None
    emit: Emit
    batch: bool
    services: RuntimeServices
    # State of the subtask rather than of a key, for operators with operator state.
    operator_state: KeyedState | None = None
    # The memory budget of operators that can spill to disk.
    budget: Budget = field(default_factory=Budget)
    spill_directory: str | None = None

    @property
    def clock(self) -> Callable[[], int]:
        return self.services.clock

    @property
    def requests(self) -> Callable[[int], Requests]:
        return self.services.requests


class OperatorDiagnostics:
    """The part of an operator that diagnostics and failure reports read."""

    # The last late records that were dropped: value, timestamp, and the watermark at that time.
    late_records: Sequence[tuple[Value, int, int]] = ()
    # The method that is firing and its arguments, of which the second is the key. It stays set after a failure, so that
    # a replay can fire it again alone.
    firing: tuple[str, tuple[Value, ...]] | None = None

    def event_time_backlog(self) -> Iterable[tuple[str, int, int]]:
        """Return the windows and timers that wait for event time: kind, count, and earliest time."""
        return ()

    def starved_inputs(self) -> Iterable[tuple[int, int]]:
        """Return each input without records for which rows of the other input wait: its index, and their number."""
        return ()


class Operator(OperatorTraits, OperatorDiagnostics):
    """One step of a chain.

    An operator writes its lines into the chain's loop (`code`). Output outside of the loop (at a watermark, at the end
    of input) goes through `self.setup.emit`.
    """

    # The stable kind of operator: generated operator ids hash it. It never changes.
    identity: ClassVar[str]

    setup: OperatorSetup
    # The current watermark.
    watermark = MIN_WATERMARK

    # --- life cycle

    def prepare(self, setup: OperatorSetup) -> None:
        """Set the context; called once, before the loop is written."""
        self.setup = setup

    def open(self) -> None:
        """Open the operator before its first record."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Handle a completed checkpoint."""

    def finish(self) -> None:
        """Emit remaining output at the end of input."""

    def finishing(self) -> Iterator[None]:
        """Finish in steps: output is sent after each, so that it need not fit into memory."""
        self.finish()
        return iter(())

    def close(self) -> None:
        """Release resources."""

    # --- the loop

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        """Write the lines that process one record."""
        raise NotImplementedError(f"{type(self).__name__} writes no code")

    def column_code(self, columns: Columns) -> bool:
        """Write the vectorized form for number columns; return whether there is one."""
        return False

    def set_key(self, w: CodeWriter, key: Key | None) -> None:
        """Write the line that sets the current key, if the loop has one."""
        if key is not None:
            assert self.setup.state is not None
            make_hashable(w, key)
            w.line(f"{w.bind(self.setup.state.cell, 'cell')}.key = {key.name}")

    # --- time

    def on_watermark(self, watermark: int) -> int | None:
        """Advance event time; return the watermark to emit, or None."""
        self.watermark = watermark
        return watermark

    def on_idle(self) -> bool:
        """Handle idle input; return whether to notify downstream."""
        return True

    def on_processing_time(self) -> None:
        """Handle the advance of processing time."""

    def next_wake(self) -> int | None:
        """Return the wall-clock time at which `on_processing_time` must be called next."""
        return None

    def on_end_of_key(self) -> None:
        """Handle the end of a key's input in BATCH."""

    # --- the end of an epoch, and snapshots

    def flush(self) -> None:
        """Emit buffered output at the end of an epoch; called if `buffers_output`."""

    def write_cached(self) -> None:
        """Write values that are cached during the epoch to the state."""

    def snapshot(self, epoch: int) -> None:
        """Snapshot the operator state at the end of an epoch."""

    def runtime_snapshot(self) -> OperatorSnapshot:
        """Return the operator's part of the runtime snapshot; None for nothing."""
        return None

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Restore what `runtime_snapshot` returned, perhaps in another process."""

    def redistribute(
        self, snapshots: list[OperatorSnapshot], subtask: int, reads: Callable[[Split], bool] | None
    ) -> OperatorSnapshot:
        """Return a subtask's part of the snapshots of all subtasks after a change of parallelism.

        Args:
            snapshots: the snapshots, by subtask.
            subtask: the subtask to restore.
            reads: returns whether that subtask reads a split of the chain's source; None without a source.
        """
        return None


def make_hashable(w: CodeWriter, key: Key) -> None:
    """Write the lines that make a key hashable."""
    if not key.hashable:
        with w.block(f"if {key.name}.__class__ not in {w.bind(PLAIN_KEYS, 'plain')}:"):
            w.line(f"{key.name} = {w.bind(hashable, 'hashable')}({key.name})")
