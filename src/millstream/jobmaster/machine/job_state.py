"""The state of a job: its execution, checkpoints and staged output, and what it can roll back to. Pure.

Each transition is one method: `acknowledge_epoch`, `trigger` and `take_snapshot` of a checkpoint, `roll_back` after a
failure. They call `execution.py`, which merges the reports of an epoch and builds tasks and snapshots, and
`coordinator.py`, which decides about checkpoints and staged output. `job_machine.py` and `epoch_cycle.py` decide when a
transition happens.
"""

from __future__ import annotations

import math

from millstream.checkpoint.restore import InitialState, restore
from millstream.checkpoint.snapshot import Snapshot
from millstream.common.aliases import Value
from millstream.common.errors import DamagedStateError
from millstream.jobmaster.engine import EpochFailed
from millstream.jobmaster.machine import instructions as i
from millstream.jobmaster.machine.coordinator import Checkpoint, CheckpointCoordinator
from millstream.jobmaster.machine.execution import Execution, Positions
from millstream.jobmaster.machine.options import JobOptions
from millstream.jobmaster.machine.status_recorder import StatusRecorder
from millstream.operators.runtime.messages import JobPlan, SlotReport

Instructions = list[i.Instruction]


class JobState:
    """The state of one job, apart from its phase.

    Attributes:
        now: the time of the current event, by the job's clock.
        ahead: how far the wall clock is ahead of the job's clock.
        positions: the positions of the sources when last read; a source without one is at its beginning.
        resident_slots: whether each epoch of the execution runs in the same processes.
        attempt: the number of the execution, so that no two executions write under the same name.
    """

    def __init__(self, plan: JobPlan, options: JobOptions, now: float) -> None:
        self.now = now
        self.ahead = 0.0
        self.plan = plan
        self.options = options
        self.coordinator = CheckpointCoordinator(options.checkpoints, now, options.origin)
        self.recorder = StatusRecorder(plan, self.coordinator, now)
        self.positions: Positions = {}
        self.resident_slots = False
        # The last positions up to which each source is processed.
        self._processed: Positions = {}
        # The sinks whose output waits for a checkpoint.
        self.transactional: frozenset[str] = frozenset()
        self.wants_checkpoints = False
        self._execution: Execution | None = None
        self.attempt = -1
        # Whether anything has happened since the last snapshot, or that snapshot's checkpoint failed.
        self.has_changed = False
        # Whether the directory is claimed and the committers are open.
        self.is_open = False
        # When to poll async requests in flight.
        self._poll_at = math.inf
        # Where regions can fail alone, the snapshot that the other regions continue from.
        self._last_snapshot: Snapshot | None = None
        self.has_regions = False

    @property
    def has_run(self) -> bool:
        """Whether there is or was an execution."""
        return self._execution is not None

    @property
    def execution(self) -> Execution:
        assert self._execution is not None
        return self._execution

    @property
    def has_changes(self) -> bool:
        """Whether there is anything to checkpoint."""
        return self.has_changed or self.wants_checkpoints

    def next_wake(self) -> float:
        """Return when there is work without input."""
        # Subtasks use the wall clock.
        wake = self.execution.next_wake()
        return self._poll_at if wake is None else min(wake / 1000 - self.ahead, self._poll_at)

    # --- an execution

    def begin(self, plan: JobPlan, start: InitialState) -> Instructions:
        """Begin a new execution with new slots."""
        self.attempt += 1
        self.plan = plan
        self._execution = Execution(plan, start)
        self.positions, self._processed = start.sources, {}
        # The first epoch repeats async requests that were in flight, with or without input.
        self._poll_at = self.now if self._execution.has_requests else math.inf
        self.has_changed = start.epoch > 0
        restart_all = self.options.full_failover or region_of(plan, plan.vertices[0].head.id) is None
        self.has_regions = not restart_all
        self.recorder.deployed(plan, self.attempt, self.now)
        return [i.OpenSlots(plan=plan, attempt=self.attempt, positions=start.sources)]

    def acknowledge_epoch(self, reports: list[SlotReport]) -> Instructions:
        """Acknowledge an epoch: state files, runtime snapshots and output of its reports become the job's own."""
        execution = self.execution
        self.has_changed = True
        written, replaced = execution.acknowledge(reports)
        delays = [r.poll_after_seconds for slot in reports for r in slot.subtasks if r.poll_after_seconds is not None]
        self._poll_at = self.now + min(delays, default=math.inf)
        self._note_processed()
        self.coordinator.wrote(written)
        self.recorder.epoch_finished(execution.epoch, reports, execution.ended, self.now)
        printed = "".join(r.printed for r in reports)
        instructions: Instructions = [i.Print(text=printed)] if printed else []
        logged = [line for r in reports for line in r.logged]
        instructions += [i.Log(lines=logged)] if logged else []
        instructions += self._stage(reports)
        if replaced:
            instructions += self.coordinator.delete_unneeded(execution.live_files())
        return instructions

    def _note_processed(self) -> None:
        """Advance the processed position of sources without pending input to the last position read."""
        pending = self.execution.sources_with_pending_input()
        pending_ids = {v.head.id for v in self.plan.vertices if v.id in pending}
        read = {operator: position for operator, position in self.positions.items() if operator not in pending_ids}
        self._processed = {**self._processed, **read}

    def _stage(self, reports: list[SlotReport]) -> Instructions:
        """Hold output until a checkpoint names it; commit other output at once."""
        at_once: dict[str, list[tuple[int, Value]]] = {}
        staging = self.transactional if self.options.exactly_once else frozenset()
        for report in (r for slot in reports for r in slot.subtasks):
            for operator, committable in report.committables.items():
                if operator in staging:
                    self.coordinator.stage(operator, report.subtask, committable)
                else:
                    at_once.setdefault(operator, []).append((report.subtask, committable))
        return [i.CommitOutput(staged=at_once)] if at_once else []

    def remember_snapshot(self) -> None:
        """Take the snapshot that other regions continue from, where regions can fail alone."""
        is_complete = self.has_regions and self.execution.owns_state
        self._last_snapshot = self.execution.snapshot(self.positions) if is_complete else None

    # --- checkpoints

    def trigger(self) -> Checkpoint:
        """Trigger a checkpoint."""
        checkpoint = self.coordinator.trigger(self.now)
        self.update_checkpoints()
        return checkpoint

    def take_snapshot(self, checkpoint: Checkpoint) -> Instructions:
        """Take the snapshot of a checkpoint: its epoch has ended and other output is committed."""
        self.has_changed = False
        execution = self.execution
        self._note_processed()
        snapshot, written = execution.snapshot(self.positions), execution.take_written()
        instructions = self.coordinator.acknowledge(checkpoint.id, snapshot, self.now, written, self._processed)
        self.update_checkpoints()
        return instructions

    def update_checkpoints(self) -> None:
        """Update the recorded view of the checkpoints."""
        self.recorder.update_checkpoints(self.coordinator)

    # --- recovery

    def roll_back(self, error: Exception, plan: JobPlan) -> Instructions:
        """Roll back to the last checkpoint after a failure: the whole job, or the failed region."""
        region, self.plan = None, plan
        if self._last_snapshot is not None and isinstance(error, EpochFailed):
            region = region_of(self.plan, error.operator_id)
        operators = None if region is None else operators_in(self.plan, region)
        target = self.coordinator.failed(self.now, operators)
        instructions: Instructions = []
        if target is not None and _is_damaged(error):
            if not self.coordinator.has_before(target):
                raise DamagedStateError(
                    f"Checkpoint {target.id} cannot be read and no earlier one is retained, so the job fails: "
                    "a restart from the beginning would repeat its output. Start it from a savepoint, and retain more "
                    f"checkpoints (execution.checkpointing.num-retained). Cause: {error}"
                )
            damaged, target = target, self.coordinator.give_up(target)
            instructions.append(_warn_of_damage(damaged, target))
        if self.options.at_most_once and target is not None:
            region = operators = None
        state = self.start_from(target)
        if region is not None and self._last_snapshot is not None:
            # Other regions only repeat the failed epoch.
            state = combine(self.plan, region, state, restore(self._last_snapshot, self.plan, None))
        self.update_checkpoints()
        # Before output is aborted that one of these checkpoints names.
        instructions.append(i.DiscardOthers(retained=self.coordinator.retained_ids()))
        instructions.append(self._recover_output(target, operators))
        instructions += self.begin(self.plan, state)
        return instructions + self.coordinator.sweep(self.execution.live_files())

    def start_from(self, checkpoint: Checkpoint | None) -> InitialState:
        """Return the initial state of an execution that restores a checkpoint, or starts from scratch."""
        if checkpoint is None:
            return InitialState(self.execution.epoch)
        origin = self.options.origin
        if origin is not None and checkpoint.taken_snapshot is origin.manifest.snapshot:
            return restore(checkpoint.taken_snapshot, self.plan, origin.state_url, origin.allow_non_restored)
        return restore(checkpoint.taken_snapshot, self.plan, None)

    def give_up_output(self) -> Instructions:
        """Abort output that no checkpoint names: the job ends early."""
        target = self.coordinator.failed(self.now)
        self.update_checkpoints()
        return [i.DiscardOthers(retained=self.coordinator.retained_ids()), self._recover_output(target, None)]

    def _recover_output(self, checkpoint: Checkpoint | None, operators: set[str] | None) -> i.RecoverOutput:
        """Commit the output that a checkpoint names and abort all other output of these sinks."""
        if checkpoint is None:
            return i.RecoverOutput(named={}, former_job_id=self.plan.settings.writes_as, operators=operators)
        snapshot = checkpoint.taken_snapshot
        return i.RecoverOutput(named=snapshot.committables, former_job_id=snapshot.job_id, operators=operators)


def _is_damaged(error: Exception) -> bool:
    return isinstance(error, DamagedStateError) or (isinstance(error, EpochFailed) and error.damaged)


def _warn_of_damage(damaged: Checkpoint, target: Checkpoint) -> i.Warn:
    return i.Warn(
        text=f"checkpoint {damaged.id} cannot be read; the job rolls back to checkpoint {target.id}. Output "
        "since then is repeated."
    )


def region_of(plan: JobPlan, operator_id: str | None) -> frozenset[int] | None:
    """Return the vertices connected with an operator; None if that is the whole job, or the operator is unknown."""
    start = next((v.id for v in plan.vertices if any(n.id == operator_id for n in v.nodes)), None)
    if start is None:
        return None
    neighbours: dict[int, set[int]] = {v.id: set() for v in plan.vertices}
    for edge in (e for v in plan.vertices for e in v.out_edges):
        neighbours[edge.source].add(edge.target)
        neighbours[edge.target].add(edge.source)
    region, todo = {start}, [start]
    while todo:
        for other in neighbours[todo.pop()] - region:
            region.add(other)
            todo.append(other)
    return None if len(region) == len(plan.vertices) else frozenset(region)


def operators_in(plan: JobPlan, region: frozenset[int]) -> set[str]:
    return {n.id for v in plan.vertices if v.id in region for n in v.nodes}


def combine(plan: JobPlan, region: frozenset[int], failed: InitialState, running: InitialState) -> InitialState:
    """Return an initial state that rolls back one region and continues the others."""
    heads = {v.head.id for v in plan.vertices if v.id in region}

    def choose(failed_values: dict, running_values: dict) -> dict:  # type: ignore[type-arg]
        return {
            **{a: x for a, x in running_values.items() if a[0] not in region},
            **{a: x for a, x in failed_values.items() if a[0] in region},
        }

    return InitialState(
        running.epoch,
        choose(failed.state_files, running.state_files),
        choose(failed.chains, running.chains),
        choose(failed.checksums, running.checksums),
        choose(failed.runtime_snapshots, running.runtime_snapshots),
        {
            **{o: s for o, s in running.sources.items() if o not in heads},
            **{o: s for o, s in failed.sources.items() if o in heads},
        },
        frozenset((failed.ended & region) | (running.ended - region)),
        failed.restored_files | running.restored_files,
        {**failed.tables, **running.tables},
    )
