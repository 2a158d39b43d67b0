"""Faulty variants of the protocol. The simulation is valid only if it detects all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial, partialmethod
from typing import Any
from unittest.mock import patch

from millstream.checkpoint import restore, store
from millstream.checkpoint.manifest import Origin
from millstream.checkpoint.options import CheckpointOptions
from millstream.checkpoint.restore import InitialState
from millstream.checkpoint.snapshot import Snapshot, unpack
from millstream.checkpoint.store import CheckpointStore
from millstream.exchange import exchange_machine as p
from millstream.exchange.exchange_machine import ExchangeMachine
from millstream.exchange.frames import Frame, Kind
from millstream.exchange.slot_connections import ReceiveBuffer, _Level
from millstream.jobmaster.job import JobMaster
from millstream.jobmaster.machine import events as e
from millstream.jobmaster.machine import instructions as i
from millstream.jobmaster.machine.coordinator import Checkpoint, CheckpointCoordinator
from millstream.jobmaster.machine.execution import Execution, Positions
from millstream.jobmaster.machine.job_machine import JobMachine
from millstream.jobmaster.machine.job_phases import EpochPlan, JobPhase, SnapshotPurpose
from millstream.jobmaster.machine.job_state import JobState
from millstream.jobmaster.machine.shutdown import Shutdown, ShutdownStep
from millstream.jobmaster.sink_committers import SinkCommitters
from millstream.leader.election import Election, Instruction, Lease, LeaseWritten, Role
from millstream.leader.fence import Fence, JobRecord
from millstream.operators.runtime.blocks import Block, Control, Layout
from millstream.operators.runtime.input_gate import Queue
from millstream.operators.runtime.messages import JobPlan, SubtaskReport
from millstream.operators.runtime.recovered_input import RecoveredInput
from millstream.operators.runtime.runtime_snapshot import PendingBlocks, PendingRange, decode, encode
from millstream.state import restored
from millstream.state.keyed import KeyedState, Version

from .external import SimulatedCommitter
from .leaders import run_leaders
from .outcome import Outcome
from .schedule import run_schedule
from .transport import run_transport

# Runs the schedule of a seed, and logs its events on request.
Simulation = Callable[..., Outcome]


@dataclass(frozen=True)
class Mutant:
    """A fault to inject.

    Attributes:
        replacements: (class, attribute) or (table, entry), and the replacement.
        simulation: the simulation that must detect it.
    """

    name: str
    description: str
    replacements: list[tuple[Any, Any, Any]]
    simulation: Simulation = run_schedule

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Apply the replacements inside the `with` block."""
        with ExitStack() as stack:
            for owner, name, replacement in self.replacements:
                if isinstance(owner, dict):
                    stack.enter_context(patch.dict(owner, {name: replacement}))
                else:
                    stack.enter_context(patch.object(owner, name, replacement))
            yield


MUTANTS: dict[str, Mutant] = {}


def _instead_of(owner: Any, *names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as a mutant: it replaces methods, and receives the real method as its first argument."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__.replace("_", "-")
        replacements = [(owner, n, partialmethod(_swapped, function, getattr(owner, n))) for n in names]
        simulation = _SIMULATIONS.get(owner, run_schedule)
        MUTANTS[name] = Mutant(name, str(function.__doc__), replacements, simulation)
        return function

    return register


# Classes whose mutants the simulation of a job does not detect.
_SIMULATIONS: dict[Any, Simulation] = {
    ReceiveBuffer: run_transport,
    ExchangeMachine: run_transport,
    Election: run_leaders,
    Fence: run_leaders,
}


def _swapped(self: Any, function: Callable[..., Any], real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(real, self, *args, **kwargs)


Real = Callable[..., Any]


def _instead_of_entry(table: dict[Any, Any], entry: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as a mutant: it replaces the handler of an event or a step."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__.replace("_", "-")
        simulation = run_transport if table is ExchangeMachine._HANDLERS.methods else run_schedule
        replacements = [(table, entry, partial(function, table[entry]))]
        MUTANTS[name] = Mutant(name, str(function.__doc__), replacements, simulation)
        return function

    return register


# --- commits of output


@_instead_of(SinkCommitters, "commit")
def late_commit(real: Real, self: SinkCommitters, staged: dict[str, Any]) -> None:
    """Output is committed one checkpoint later than reported to the coordinator."""
    late = self.__dict__.pop("late", None)
    self.__dict__["late"] = staged
    if late is not None:
        real(self, late)


@_instead_of(JobMachine, "handle")
def commit_before_manifest(real: Real, self: JobMachine, event: e.Event, *time: float) -> list[i.Instruction]:
    """Output is committed before the manifest that names it is written."""
    instructions: list[i.Instruction] = []
    for instruction in real(self, event, *time):
        if isinstance(instruction, i.WriteManifest):
            named = instruction.manifest.snapshot.committables
            instructions.append(i.CommitOutput(staged={o: unpack(s) for o, s in named.items()}))
        instructions.append(instruction)
    return instructions


@_instead_of(CheckpointCoordinator, "committed")
def staged_dropped_early(real: Real, self: CheckpointCoordinator, checkpoint_id: int) -> list[i.Instruction]:
    """A commit discards all staged output, including output staged after the checkpoint's snapshot."""
    self._staged.drop_until(self._staged.end)
    return real(self, checkpoint_id)


@_instead_of(CheckpointCoordinator, "acknowledge")
def declined_output_left_out(real: Real, self: CheckpointCoordinator, *args: Any) -> list[i.Instruction]:
    """A manifest names only output staged since its predecessor, even if that checkpoint failed."""
    instructions = real(self, *args)
    self._staged.drop_until(self._staged.end)
    return instructions


@_instead_of(CheckpointCoordinator, "has_staged")
def last_checkpoint_may_fail(real: Real, self: CheckpointCoordinator) -> bool:
    """The job ends although its last checkpoint has failed."""
    return False


@_instead_of_entry(JobMachine._HANDLERS.methods, e.EpochFinished)
def snapshot_before_commit(real: Real, self: JobMachine, event: e.EpochFinished) -> list[i.Instruction]:
    """A checkpoint's snapshot is taken before output that need not wait for it is committed."""
    instructions: list[i.Instruction] = real(self, event)
    if self._checkpoint is not None:
        instructions += self._job.take_snapshot(self._checkpoint)
    return instructions


# --- output during a recovery


@_instead_of(SinkCommitters, "recover")
def recovery_without_abort(
    real: Real, self: SinkCommitters, staged: dict[str, bytes], job_id: str, operators: Any = None
) -> None:
    """A recovery commits the checkpoint's output, and aborts nothing."""
    self.commit({o: unpack(s) for o, s in staged.items() if operators is None or o in operators})


@_instead_of(SinkCommitters, "recover")
def recovery_without_commit(
    real: Real, self: SinkCommitters, staged: dict[str, bytes], job_id: str, operators: Any = None
) -> None:
    """A recovery assumes that the output named by the checkpoint has been committed."""
    real(self, {}, job_id, operators)


@_instead_of(SinkCommitters, "recover")
def abort_in_wrong_job(
    real: Real, self: SinkCommitters, staged: dict[str, bytes], job_id: str, operators: Any = None
) -> None:
    """A new driver aborts staged output of its own job ID, not of its predecessor's."""
    own = next(iter(self._committers.values()))
    assert isinstance(own, SimulatedCommitter)
    real(self, staged, own.job_id, operators)


@_instead_of(Shutdown, "next")
def final_abort_without_waiting(real: Real, self: Shutdown) -> ShutdownStep | None:
    """A job that fails or is cancelled aborts the output of a checkpoint that is still being written."""
    step: ShutdownStep | None = real(self)
    return real(self) if step is ShutdownStep.AWAIT_MANIFESTS else step


@_instead_of(JobState, "begin")
def reused_attempt(real: Real, self: JobState, plan: JobPlan, start: InitialState) -> list[i.Instruction]:
    """A restart has the attempt number of the failed execution."""
    self.attempt = -1
    instructions: list[i.Instruction] = real(self, plan, start)
    return instructions


# --- output whose commit is delayed


@_instead_of(CheckpointCoordinator, "set_unfinished_output")
def delayed_output_not_named(real: Real, self: CheckpointCoordinator, unfinished: Any) -> None:
    """A manifest names only newly staged output, not earlier output that is still uncommitted."""


@_instead_of(SinkCommitters, "finish")
def delayed_output_at_end(real: Real, self: SinkCommitters) -> None:
    """A job ends without committing delayed output."""


# --- the restored checkpoint


@_instead_of(CheckpointCoordinator, "failed")
def older_checkpoint(real: Real, self: CheckpointCoordinator, now: float, operators: Any = None) -> Checkpoint | None:
    """A restart restores the checkpoint before the last, if that is retained."""
    target: Checkpoint | None = real(self, now, operators)
    return self._completed[-2] if len(self._completed) > 1 else target


@_instead_of(JobState, "start_from")
def state_of_another_checkpoint(real: Real, self: JobState, checkpoint: Checkpoint | None) -> InitialState:
    """A restart restores the offsets of the last checkpoint, and the state of its predecessor."""
    start = real(self, checkpoint)
    retained = self.coordinator.retained()
    if len(retained) > 1:
        older = real(self, retained[-2])
        start = replace(start, state_files=older.state_files, chains=older.chains)
    return start


@_instead_of(CheckpointCoordinator, "__init__")
def origin_ignored(
    real: Real, self: CheckpointCoordinator, options: CheckpointOptions, now: float, origin: Origin | None = None
) -> None:
    """A driver that fails before its first checkpoint restarts from the beginning, not from its initial checkpoint."""
    real(self, options, now, origin)
    self._restored = None


@_instead_of(CheckpointCoordinator, "__init__")
def ids_from_one(
    real: Real, self: CheckpointCoordinator, options: CheckpointOptions, now: float, origin: Origin | None = None
) -> None:
    """A new driver numbers its checkpoints from one."""
    real(self, options, now, origin)
    self._next_id = 1


@_instead_of_entry(JobMachine._CONTINUATIONS, JobPhase.BACKING_OFF)
def not_waiting_for_manifests(real: Real, self: JobMachine) -> list[i.Instruction]:
    """A restart does not wait for manifests in progress."""
    real(self)
    with patch.object(CheckpointCoordinator, "is_writing", False):
        return self._roll_back()


MUTANTS["snapshot-without-state"] = Mutant(
    "snapshot-without-state",
    "A job restores a snapshot without the state inherited from another job.",
    [(Execution, "owns_state", True)],
)


@_instead_of(JobState, "remember_snapshot")
def region_without_state(real: Real, self: JobState) -> None:
    """When a region fails, the others continue without the state inherited from another job."""
    self._last_snapshot = self.execution.snapshot(self.positions) if self.has_regions else None


@_instead_of_entry(JobMachine._CONTINUATIONS, JobPhase.WRITING)
def position_not_recorded(real: Real, self: JobMachine) -> list[i.Instruction]:
    """At most once: records are processed although recording their position has failed."""
    return self._run(self._planned) if self._purpose is SnapshotPurpose.SAVE_POSITION else real(self)


@_instead_of(JobMachine, "_run")
def stale_positions(real: Real, self: JobMachine, epoch: Any) -> list[i.Instruction]:
    """A checkpoint stores the source positions of an earlier epoch."""
    return [x for x in real(self, epoch) if not isinstance(x, i.ReadPositions)]


# --- files on storage


@_instead_of(CheckpointCoordinator, "clean_up")
def failed_checkpoint_left(real: Real, self: CheckpointCoordinator) -> list[i.Instruction]:
    """The manifest of an abandoned checkpoint stays on storage while the job runs."""
    with patch.object(self, "_stored", {n: c for n, c in self._stored.items() if c.completed_at is not None}):
        instructions: list[i.Instruction] = real(self)
        return instructions


@_instead_of(CheckpointStore, "discard_all_but")
def failed_checkpoint_left_in_restart(real: Real, self: CheckpointStore, retained: set[int]) -> None:
    """A restart ignores an abandoned checkpoint that could not be deleted."""


MUTANTS["takeover-not-recorded"] = Mutant(
    "takeover-not-recorded",
    "A new driver does not record which checkpoint it restores, so a late one of the former driver counts.",
    [(store, "_last_that_counts", lambda storage, names: math.inf)],
)


@_instead_of(CheckpointStore, "write")
def timestamp_not_monotonic(real: Real, self: CheckpointStore, manifest: Any) -> str:
    """A manifest has the clock's time, even if the clock was set back."""
    clock: Callable[[], float] = self.storage.clock  # type: ignore[attr-defined]
    return real(self, replace(manifest, timestamp=int(clock() * 1000)))


@_instead_of(CheckpointStore, "remove")
def removed_in_any_order(real: Real, self: CheckpointStore) -> None:
    """A finished job's checkpoints are deleted in any order."""
    self.storage.delete("")


@_instead_of(CheckpointCoordinator, "needed")
def state_deleted_early(real: Real, self: CheckpointCoordinator, live: set[str]) -> frozenset[str]:
    """State files that only an older checkpoint needs are deleted."""
    return frozenset(live)


@_instead_of(CheckpointCoordinator, "stored_files")
def unconfirmed_state_deleted(real: Real, self: CheckpointCoordinator) -> set[str]:
    """State files of a checkpoint whose manifest may still reach storage are deleted."""
    return {name for checkpoint in self.retained() for name in checkpoint.taken_snapshot.files()}


# --- state held in the slots' memory


def _without_delta(name: str, description: str, needed: Callable[[JobMachine, EpochPlan], bool]) -> None:
    """Register a mutant in which slots write their state only if `needed`, and snapshots are taken anyway."""
    real = Execution.snapshot

    def snapshot(self: Execution, positions: Positions) -> Snapshot:
        with patch.object(self, "_in_memory", None), patch.object(self, "_held_since", {}):
            return real(self, positions)

    def writes_state(self: JobMachine, epoch: EpochPlan) -> bool:
        ends = self._job.execution.running_sources() <= epoch.ending
        return not self._job.resident_slots or ends or needed(self, epoch)

    MUTANTS[name] = Mutant(
        name, description, [(JobMachine, "_writes_state", writes_state), (Execution, "snapshot", snapshot)]
    )


_without_delta(
    "checkpoint-without-delta",
    "Slots do not write their state for a checkpoint.",
    lambda machine, epoch: machine._job.has_regions or epoch.snapshot or machine._options.at_most_once,
)
_without_delta(
    "request-without-delta",
    "Slots do not write their state for a rescale or a requested checkpoint.",
    lambda machine, epoch: (epoch.checkpoint or machine._job.has_regions) and not epoch.snapshot,
)
_without_delta(
    "region-without-delta",
    "Other regions restore state that slots hold in memory and have not written.",
    lambda machine, epoch: epoch.checkpoint or epoch.snapshot or machine._options.at_most_once,
)


@_instead_of(KeyedState, "hold")
def held_changes_lost(real: Real, self: KeyedState, epoch: int) -> Version:
    """The next file has only the changes of its own epoch."""
    version: Version = real(self, epoch)
    self._advance()
    return version


@_instead_of_entry(JobMachine._HANDLERS.methods, e.SlotsOpened)
def slots_assumed_resident(real: Real, self: JobMachine, event: e.SlotsOpened) -> list[i.Instruction]:
    """State is held in processes that may end before the next epoch."""
    instructions: list[i.Instruction] = real(self, replace(event, resident=True))
    return instructions


# --- pending split ranges: assigned input that has not been read


def _change_ranges(report: SubtaskReport, change: Callable[[list[PendingRange]], list[PendingRange]]) -> SubtaskReport:
    if not report.has_pending_input:
        return report
    snapshot = decode(report.runtime_snapshot)
    fields_of = {f.name: getattr(snapshot, f.name) for f in fields(snapshot)}
    return replace(
        report, runtime_snapshot=encode(**{**fields_of, "pending_ranges": change(list(snapshot.pending_ranges))})
    )


@_instead_of(Execution, "_acknowledge_subtask")
def pending_ranges_lost(real: Real, self: Execution, report: SubtaskReport, *args: Any) -> bool:
    """A subtask's pending split ranges are lost."""
    return real(self, _change_ranges(report, lambda pending: []), *args)


@_instead_of(Execution, "_acknowledge_subtask")
def pending_ranges_read_twice(real: Real, self: Execution, report: SubtaskReport, *args: Any) -> bool:
    """A partially read split range is read again from its beginning."""
    return real(self, _change_ranges(report, lambda pending: [(s, records, 0) for s, records, _ in pending]), *args)


MUTANTS["pending-ranges-lost-in-rescale"] = Mutant(
    "pending-ranges-lost-in-rescale",
    "After a rescale no subtask reads the pending split ranges.",
    [(restore, "_pending_ranges", lambda *args: [])],
)


MUTANTS["pending-ranges-duplicated-in-rescale"] = Mutant(
    "pending-ranges-duplicated-in-rescale",
    "After a rescale every subtask reads the pending split ranges.",
    [(restore, "_reads", lambda *args: True)],
)


# --- blocks and reports between slots and the driver


@_instead_of(ReceiveBuffer, "_check")
def missing_end_undetected(real: Real, self: ReceiveBuffer, sender: int, state: Any, frame: Frame) -> None:
    """A sender may begin another level although the END of its previous level has not arrived."""
    if frame.level in state.levels and frame.epoch >= state.epoch:
        state.epoch, state.index = frame.epoch, state.levels.index(frame.level)


@_instead_of(ReceiveBuffer, "is_complete")
def level_without_an_end(real: Real, self: ReceiveBuffer, epoch: int, level: int) -> bool:
    """A level begins when all ENDs but one have arrived."""
    arrived = self._levels.get((epoch, level))
    return arrived is not None and arrived.ended >= max(1, self._widths[level - 1] - 1)


@_instead_of(ReceiveBuffer, "take")
def block_of_an_older_epoch(real: Real, self: ReceiveBuffer, sender: int, frame: Frame) -> None:
    """A block of an older epoch is accepted in the current one."""
    state = self._senders[sender]
    has_ended = frame.epoch == state.epoch and state.index == len(state.levels)
    if frame.kind is Kind.DATA and (frame.epoch < state.epoch or has_ended):
        self._levels.setdefault((frame.epoch + 1, frame.level), _Level()).messages.append(frame.payload)
        return
    real(self, sender, frame)


@_instead_of(ReceiveBuffer, "collect")
def blocks_delivered_twice(real: Real, self: ReceiveBuffer, epoch: int, level: int) -> list[bytes]:
    """The blocks of a level are delivered again with the next epoch."""
    delivered = self.__dict__.setdefault("delivered", {})
    messages = real(self, epoch, level)
    former, delivered[level] = delivered.get(level, []), messages
    return [*messages, *former]


@_instead_of_entry(ExchangeMachine._HANDLERS.methods, p.SlotReported)
def report_counted_twice(real: Real, self: ExchangeMachine, event: p.SlotReported) -> list[p.Instruction]:
    """Reports are counted without checking which slot sent them."""
    if event.slot in self._reports:
        event = replace(event, slot=next(s for s in range(self._reporters) if s not in self._reports))
    return real(self, event)


@_instead_of(ExchangeMachine, "_handle_late")
def report_after_end(real: Real, self: ExchangeMachine, event: p.Event) -> list[p.Instruction]:
    """A report that arrives after the execution has ended completes the epoch."""
    if not isinstance(event, p.SlotReported) or self._requested is None:
        return real(self, event)
    self.phase = p.Phase.RUNNING
    instructions = ExchangeMachine._slot_reported(self, event)
    self.phase = p.Phase.ENDING
    return [x for x in instructions if isinstance(x, p.FinishEpoch)]


# --- requests in flight


@_instead_of(Execution, "acknowledge")
def ended_with_requests_in_flight(real: Real, self: Execution, reports: Any) -> Any:
    """A source that has read all its input has ended, even with requests in flight."""
    result = real(self, reports)
    self.ended |= self.drained_sources()
    self.ended |= {e.target for v in self.plan.vertices if v.id in self.ended for e in v.out_edges}
    return result


def _without_operator_state(real: Real, start: InitialState, files: dict[str, Any], *args: Any) -> None:
    real(start, files, *args)
    for state_id in [name for name in files if name.endswith(".operator")]:
        del files[state_id]


MUTANTS["requests-lost-in-rescale"] = Mutant(
    "requests-lost-in-rescale",
    "After a rescale, only requests of subtasks that still exist are repeated.",
    [(restored, "SPLIT_LIST", "no such list")],
)


MUTANTS["requests-duplicated-in-rescale"] = Mutant(
    "requests-duplicated-in-rescale",
    "After a rescale, every subtask repeats all requests in flight.",
    [(restored, "UNION_LIST", restored.SPLIT_LIST)],
)


MUTANTS["operator-state-lost"] = Mutant(
    "operator-state-lost",
    "A restore loses operator state: requests in flight never get a response.",
    [(restore, "_take_state", partial(_without_operator_state, restore._take_state))],
)


# --- in-flight data: input that the exchange received and subtasks have not processed


def _change_blocks(
    report: SubtaskReport, change: Callable[[list[PendingBlocks]], list[PendingBlocks]]
) -> SubtaskReport:
    if not report.has_pending_input:
        return report
    snapshot = decode(report.runtime_snapshot)
    fields_of = {f.name: getattr(snapshot, f.name) for f in fields(snapshot)}
    return replace(
        report, runtime_snapshot=encode(**{**fields_of, "pending_blocks": change(list(snapshot.pending_blocks))})
    )


@_instead_of(Execution, "_acknowledge_subtask")
def in_flight_data_lost(real: Real, self: Execution, report: SubtaskReport, *args: Any) -> bool:
    """Received records that were not processed are lost."""
    return real(self, _change_blocks(report, lambda pending: [_without_records(p) for p in pending]), *args)


def _without_records(pending: PendingBlocks) -> PendingBlocks:
    address, number, (has_key, has_timestamp, bodies) = pending
    layout = Layout(has_key, has_timestamp)
    blocks = [layout.decode(body) for body in bodies]
    controls = [Block(layout, [], [(0, kind, value) for _, kind, value in b.controls]) for b in blocks if b.controls]
    return address, number, (has_key, has_timestamp, [b.encode() for b in controls])


@_instead_of(Queue, "take_control")
def watermark_overtakes_records(real: Real, self: Queue) -> Control | None:
    """A watermark is processed before records that arrived before it."""
    controls = self._block.controls
    if self._next_control < len(controls):
        self._next_control += 1
        return controls[self._next_control - 1]
    return None


MUTANTS["in-flight-data-lost-in-rescale"] = Mutant(
    "in-flight-data-lost-in-rescale",
    "After a rescale no subtask processes the in-flight data.",
    [(restore, "_taken_input", lambda *args: [])],
)


MUTANTS["in-flight-data-duplicated-in-rescale"] = Mutant(
    "in-flight-data-duplicated-in-rescale",
    "After a rescale every subtask processes the in-flight data, including keys of other subtasks.",
    [(RecoveredInput, "_is_own", lambda self, key: True)],
)


MUTANTS["ended-with-in-flight-data"] = Mutant(
    "ended-with-in-flight-data",
    "A job ends with its sources, although their output has not been processed.",
    [(Execution, "is_finished", property(lambda self: self.sources <= self.ended))],
)


# --- several job managers


@_instead_of(Fence, "_write")
def no_fencing(real: Real, self: Fence, record: JobRecord) -> None:
    """A deposed leader's writes to the job record are accepted."""
    _, self._version = self.cell.read()
    while self.cell.read()[1] != self._version:
        _, self._version = self.cell.read()
    real(self, record)


@_instead_of(Fence, "claim")
def not_claimed(real: Real, self: Fence) -> JobRecord:
    """A new leader restores the record's checkpoint, but writes its term only with its first own checkpoint."""
    data, self._version = self.cell.read()
    record = JobRecord(self.term, self._run, "job") if data is None else JobRecord.from_bytes(data)
    self._record = replace(record, term=self.term, run=self._run)
    return self._record


@_instead_of(Fence, "end")
def outcome_not_recorded(real: Real, self: Fence, outcome: str, message: str) -> None:
    """A job's checkpoints are deleted at its end, but its outcome is not recorded."""


@_instead_of(Fence, "withdraw")
def deleted_before_withdrawn(real: Real, self: Fence, location: str) -> None:
    """A checkpoint whose publication was not confirmed is deleted, although the record may name it."""
    if location in self._own.checkpoints:
        real(self, location)


MUTANTS["later-runs-aborted"] = Mutant(
    "later-runs-aborted",
    "A committer aborts the staged output of every other driver, including its successor's.",
    [(SimulatedCommitter, "is_stray", lambda self, run: run != self.job_id)],
    run_leaders,
)


MUTANTS["predecessor-cleared-early"] = Mutant(
    "predecessor-cleared-early",
    "A new leader deletes its predecessors' files before its first checkpoint.",
    [(JobMaster._HANDLERS.methods, i.ClaimDirectory, lambda self, request: _claim_and_clear(self))],
    run_leaders,
)


def _claim_and_clear(master: JobMaster) -> None:
    master._take_directory(i.ClaimDirectory())
    master._delete_former(master._store.storage.url)


@_instead_of(Election, "_write")
def term_reused(real: Real, self: Election, lease: Lease, version: Hashable, now: float) -> list[Instruction]:
    """A candidate that takes the lease reuses its predecessor's term."""
    taking = self.role is Role.CANDIDATE and lease.term > 1
    return real(self, replace(lease, term=lease.term - 1) if taking else lease, version, now)


@_instead_of(Election, "_written")
def lease_checked_only_at_start(real: Real, self: Election, event: LeaseWritten, now: float) -> list[Instruction]:
    """A leader never checks its lease again."""
    instructions = real(self, event, now)
    if self.role is Role.LEADER:
        self.valid_until = math.inf
    return instructions


@_instead_of(Election, "_read")
def impatient(real: Real, self: Election, event: Any, now: float) -> list[Instruction]:
    """A candidate waits for half of the lease's duration."""
    if self.role is Role.CANDIDATE and event.lease is not None:
        event = replace(event, lease=replace(event.lease, duration=event.lease.duration / 2))
    return real(self, event, now)
