"""The epoch cycle of the job machine: poll sources, run an epoch, take its checkpoint, let input gather. Pure.

    next_step -PollSources-> sources_polled -RunEpoch-> epoch_finished -> epoch_ended -> gather -> next_step

At an arrow with an instruction, the job master carries it out and reports its result as an event. The other arrows are
`_CONTINUATIONS` of `job_machine.py`, which also has the diagram of all phases.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque

from millstream.common.errors import JobExecutionError
from millstream.jobmaster.engine import QUICK, SliceBounds
from millstream.jobmaster.machine import events as e
from millstream.jobmaster.machine import instructions as i
from millstream.jobmaster.machine.coordinator import Checkpoint
from millstream.jobmaster.machine.execution import merged
from millstream.jobmaster.machine.flow import GatherDelay
from millstream.jobmaster.machine.job_phases import EpochPlan, JobPhase, SnapshotPurpose
from millstream.jobmaster.machine.job_state import Instructions, JobState
from millstream.jobmaster.machine.options import JobOptions
from millstream.jobmaster.machine.requests import AdaptiveRescaleRequest, Request
from millstream.jobmaster.machine.scheduler import Scaling
from millstream.operators.runtime.messages import JobPlan, SlotReport

# How long the next epoch waits for a manifest: most are written by then, and their output is committed at once.
_MANIFEST_WAIT_SECONDS = 0.05

# How long slots may take to start, with the first epoch.
_SLOT_START_SECONDS = 60.0


class EpochCycle(ABC):
    """The part of the job machine that runs epochs and takes checkpoints."""

    def __init__(self, plan: JobPlan, options: JobOptions, now: float) -> None:
        self._options = options
        self._job = JobState(plan, options, now)
        self._coordinator = self._job.coordinator
        self._fit_slices(QUICK)
        self._phase = JobPhase.OPENING
        # When the machine continues by itself; at once if it awaits manifests and none is being written.
        self._until = math.inf
        self._awaits_manifests = False
        # Decides the parallelism of a job that adapts to the available slots.
        self._scaling = None if options.scaling is None else Scaling(plan, options.scaling)
        self._gathering = GatherDelay(options.buffer_timeout, options.always_gathers)
        # The epoch to run next; the last one begun, its start time, its checkpoint and its reports.
        self._planned = self._epoch = EpochPlan()
        self._began = now
        self._checkpoint: Checkpoint | None = None
        self._reports: list[SlotReport] = []
        # The purpose of a checkpoint without an epoch, and the last complete checkpoint before it.
        self._purpose = SnapshotPurpose.SAVE_POSITION
        self._checkpoint_before: Checkpoint | None = None
        # Whether a slot was reported lost.
        self._slot_lost = False
        # Whether the slots have not run an epoch yet.
        self._slots_are_new = True
        self._requests: deque[Request] = deque()
        self._is_stopped = False

    @abstractmethod
    def _fail(self, error: Exception) -> Instructions:
        """Fail the execution; the restart strategy decides whether the job restarts."""

    @abstractmethod
    def _serve(self, request: Request) -> Instructions:
        """Start to serve a request."""

    @abstractmethod
    def _continue_request(self) -> Instructions:
        """Continue to serve a request: its epoch has ended."""

    # --- phases

    @property
    def _now(self) -> float:
        return self._job.now

    def _enter(self, phase: JobPhase, until: float = -math.inf, awaits_manifests: bool = False) -> None:
        self._phase, self._until, self._awaits_manifests = phase, until, awaits_manifests

    def _await_manifests(self, phase: JobPhase, timeout: float = math.inf) -> None:
        """Enter a phase until no manifest is being written, or until the timeout."""
        self._enter(phase, self._now + min(timeout, self._options.checkpoints.timeout), awaits_manifests=True)

    @property
    def _own_deadline(self) -> float:
        until = -math.inf if self._awaits_manifests and not self._coordinator.is_writing else self._until
        if self._scaling is None or self._phase not in _IDLE_PHASES:
            return until
        return min(until, self._scaling.deadline)

    def _fit_slices(self, slices: SliceBounds) -> None:
        self._slice = self._options.slice_within(slices)
        self._options.sizer.aim_at(self._slice)

    def next_step(self) -> Instructions:
        """Decide what comes next when nothing is in progress."""
        execution = self._job.execution
        if self._is_stopped or execution.is_finished:
            return self._await_checkpoint(SnapshotPurpose.COMMIT_REMAINING)
        if self._scaling is not None and (plan := self._scaling.rescale(self._now)) is not None:
            return self._serve(AdaptiveRescaleRequest(plan))
        if self._requests:
            return self._serve(self._requests.popleft())
        self._began = self._now
        if self._slot_lost:
            return self._begin(EpochPlan(slice=self._slice, reads=False))
        self._enter(JobPhase.POLLING, math.inf)
        return [
            i.PollSources(
                budgets={v: self._options.sizer.budget_of(v) for v in execution.readable_sources()},
                running=execution.running_sources(),
                ahead=execution.splits_ahead(),
            )
        ]

    def sources_polled(self, event: e.SourcesPolled) -> Instructions:
        job, split_ranges, ending = self._job, event.split_ranges, event.finished
        job.recorder.sources_polled(event.lags)
        backpressured = job.execution.backpressured_sources()
        pending = job.execution.sources_with_pending_input() - backpressured
        # Sources whose end is not announced yet. Backpressured sources cannot end now.
        newly_ended = ending - backpressured - job.execution.drained_sources()
        due = self._coordinator.next_due() <= self._now and (job.has_changes or bool(split_ranges) or bool(pending))
        if not split_ranges and not pending and not newly_ended and not due and job.next_wake() > self._now:
            due_at = self._coordinator.next_due() if job.has_changes else math.inf
            self._enter(JobPhase.WAITING, min(event.poll_again, due_at, job.next_wake()))
            return []
        # If input exceeds a slice, or async requests are in flight, it is unknown which epoch is the last.
        last = (
            bool(newly_ended)
            and ending == job.execution.running_sources()
            and not job.execution.sources_with_pending_input()
        )
        return self._begin(
            EpochPlan(
                split_ranges=split_ranges,
                ending=ending,
                limited=event.limited,
                has_pending_input=bool(pending),
                is_backpressured=bool(backpressured),
                slice=self._slice,
                checkpoint=due or (last and self._options.checkpoints.enabled),
            )
        )

    def input_arrived(self, event: e.InputArrived) -> Instructions:
        # Other phases poll sources soon anyway, or must not poll.
        if self._phase is JobPhase.WAITING:
            self._enter(JobPhase.READY)
        return []

    def resume_reading(self) -> Instructions:
        self._enter(JobPhase.READY)
        return []

    def _begin(self, epoch: EpochPlan) -> Instructions:
        self._planned = epoch
        if not self._options.at_most_once:
            return self._run(epoch)
        if not self._job.execution.owns_state:
            # Restored state is not in the job's own files yet: an epoch without input writes it there.
            return self._run(EpochPlan(reads=False, then=JobPhase.SNAPSHOTTING))
        return self._save_position()

    def _save_position(self) -> Instructions:
        """AT_MOST_ONCE: save the position before the epoch, so that its input is never read again."""
        self._checkpoint_before, self._purpose = self._coordinator.latest(), SnapshotPurpose.SAVE_POSITION
        return self.start_checkpoint()

    def _run(self, epoch: EpochPlan) -> Instructions:
        job, execution = self._job, self._job.execution
        checkpoint = epoch.checkpoint and not self._options.at_most_once
        self._epoch, self._checkpoint = epoch, job.trigger() if checkpoint else None
        self._slot_lost = False
        number = execution.epoch if epoch.savepoint else None
        latest = self._coordinator.latest()
        tasks = execution.tasks(
            epoch.split_ranges,
            epoch.ending,
            slice=epoch.slice,
            writes_state=self._writes_state(epoch),
            reads=epoch.reads,
            checkpoint=number if self._checkpoint is None else self._checkpoint.id,
            # AT_MOST_ONCE saves the position before the epoch: no later checkpoint could name output left open.
            flush=epoch.flush or checkpoint or self._options.at_most_once,
            whole_state=checkpoint and self._options.checkpoints.incremental is False,
            savepoint=epoch.savepoint,
            last_checkpoint=0 if latest is None else latest.id,
        )
        self._enter(JobPhase.EPOCH, math.inf)
        job.recorder.epoch_begins(self._now)
        # A snapshot holds the positions at the start of the epoch. Sources are also notified when all their pending
        # input can be processed.
        aligned = checkpoint or epoch.snapshot or job.has_regions or epoch.has_pending_input
        return [*([i.ReadPositions()] if aligned else []), i.RunEpoch(tasks=tasks, timeout=self._epoch_timeout(epoch))]

    def _epoch_timeout(self, epoch: EpochPlan) -> float:
        """Return the seconds an epoch may run: an epoch that does not end fails its checkpoints."""
        if self._options.at_most_once or epoch.savepoint is not None:
            return math.inf
        return self._coordinator.timeout(self._now) + (_SLOT_START_SECONDS if self._slots_are_new else 0.0)

    def _writes_state(self, epoch: EpochPlan) -> bool:
        """Return whether the epoch must write state to files because something may be restored from its end.

        A restart rolls back to a checkpoint or to the beginning. Regions that have not failed continue from the
        previous epoch, and so does every epoch where slots are not resident.
        """
        job = self._job
        return (
            not job.resident_slots
            or job.has_regions
            or self._options.at_most_once
            or epoch.checkpoint
            or epoch.snapshot
            # It may be the last epoch, which the final checkpoint names.
            or (self._options.checkpoints.enabled and job.execution.running_sources() <= epoch.ending)
        )

    def slots_lost(self, event: e.SlotsLost) -> Instructions:
        """Run an epoch at once, with or without input: it reports what happened to the slot."""
        if event.attempt == self._job.attempt:
            self._slot_lost = True
            if self._phase in (JobPhase.WAITING, JobPhase.GATHERING):
                self._enter(JobPhase.READY)
        return []

    def positions_read(self, event: e.PositionsRead) -> Instructions:
        self._job.positions = event.positions
        return []

    def epoch_finished(self, event: e.EpochFinished) -> Instructions:
        self._reports = merged(event.reports)
        if self._slots_are_new and self._checkpoint is not None:
            self._coordinator.delayed(self._checkpoint, self._now)
        self._slots_are_new = False
        self._enter(JobPhase.EPOCH_ENDED)
        return self._job.acknowledge_epoch(self._reports)

    def epoch_ended(self) -> Instructions:
        """Take the checkpoint of the acknowledged epoch, or confirm its input, and continue."""
        epoch, seconds = self._epoch, self._now - self._began
        instructions: Instructions = []
        if self._checkpoint is not None:
            instructions = self._job.take_snapshot(self._checkpoint)
        elif not self._options.checkpoints.enabled:
            instructions = [i.ConfirmSources(positions=None, pending=self._job.execution.sources_with_pending_input())]
        self._job.remember_snapshot()
        if epoch.then is JobPhase.SNAPSHOTTING:
            return instructions + self._save_position()
        if epoch.then is not JobPhase.READY:
            return instructions + self._continue_request()
        self._learn(seconds, epoch)
        timeout = min(_MANIFEST_WAIT_SECONDS, self._options.buffer_timeout)
        self._enter(JobPhase.AWAITING_MANIFEST, self._now + timeout, awaits_manifests=True)
        return instructions

    def _learn(self, seconds: float, epoch: EpochPlan) -> None:
        sizer, subtasks = self._options.sizer, [r for slot in self._reports for r in slot.subtasks]
        execution = self._job.execution
        # Input that backpressure holds back is not processed either.
        pending = execution.sources_with_pending_input() | execution.backpressured_sources()
        of_sources = sorted((r.records_in, r.vertex) for r in subtasks if r.vertex in execution.sources)
        read = {source: records for records, source in of_sources}
        sizer.epoch_processed(epoch.split_ranges.keys(), pending, read, self._began, self._now)
        # An epoch that was ended by its slice lasts as long as the slice, regardless of the number of records.
        if not pending or seconds > 2 * self._slice:
            sent = max((r.bytes_out for r in subtasks), default=0)
            sizer.finished(seconds, epoch.limited, max(read.values(), default=0), sent)
        self._gathering.epoch_took(seconds)
        self._job.recorder.epoch_took(seconds)

    def gather(self) -> Instructions:
        """Let input gather for the rest of the buffer timeout if nothing is pending."""
        execution = self._job.execution
        if (
            self._epoch.limited
            or self._epoch.has_pending_input
            or execution.sources_with_pending_input()
            or execution.is_finished
        ):
            return self.resume_reading()
        if self._epoch.is_backpressured or execution.backpressured_sources():
            # Backpressured input may continue at any moment.
            return self.resume_reading()
        self._enter(JobPhase.GATHERING, self._began + self._gathering.seconds())
        return []

    # --- a checkpoint without an epoch: AT_MOST_ONCE before its input is read, and at the end of the job

    def _await_checkpoint(self, purpose: SnapshotPurpose) -> Instructions:
        """Wait until no manifest is being written, then check the result."""
        self._purpose = purpose
        self._await_manifests(JobPhase.WRITING)
        return []

    def start_checkpoint(self) -> Instructions:
        """Read the positions; `take_checkpoint` follows."""
        self._enter(JobPhase.SNAPSHOTTING)
        return [i.ReadPositions()]

    def take_checkpoint(self) -> Instructions:
        """Trigger a checkpoint and take its snapshot at once; `checkpoint_written` follows."""
        self._checkpoint = self._job.trigger()
        return self._job.take_snapshot(self._checkpoint) + self._await_checkpoint(self._purpose)

    def checkpoint_written(self) -> Instructions:
        """Continue if the checkpoint is complete, else take another one."""
        if self._coordinator.is_writing:
            return self._fail(storage_timeout(self._options.checkpoints.timeout))
        if self._purpose is SnapshotPurpose.SAVE_POSITION:
            if self._coordinator.latest() is not self._checkpoint_before:
                return self._run(self._planned)
        elif not self._coordinator.has_staged():
            self._enter(JobPhase.FINISHED)
            return [i.FinishOutput()]
        elif self._checkpoint is None:
            # The last epoch was not known to be the last.
            return self.start_checkpoint()
        # The checkpoint failed: take another one as soon as it is due.
        self._enter(JobPhase.DELAYING, self._coordinator.next_due())
        return []


# In these phases the job may be rescaled or started as soon as the scheduler decides so.
_IDLE_PHASES = (JobPhase.WAITING, JobPhase.GATHERING, JobPhase.WAITING_FOR_SLOTS)


def storage_timeout(seconds: float) -> JobExecutionError:
    """Return the error for checkpoint storage that does not answer."""
    return JobExecutionError(f"The storage of checkpoints has not answered for {seconds:g} s.")
