"""The job machine: everything that decides what a job does next, from its start to its end.

Pure: it is told what has happened and says what to do. No clock, thread, file or engine. `JobMaster` carries the
instructions out, on Spark, in this process, or in a simulation, and tells what came of them.

    OPENING -> DEPLOYING -> READY -> POLLING -+-> EPOCH -> EPOCH_ENDED -> LINGERING -> GATHERING -+-> READY
                                              '-> WAITING ----------------------------------------'

    from READY, for a request:     EPOCH -> EPOCH_ENDED -> SERVING (-> EXPORTING) -> READY
    from READY, to rescale:        REPLANNING -> EPOCH -> EPOCH_ENDED -> DEPLOYING -> READY
    before DEPLOYING, where the number of subtasks follows the slots there are: WAITING_FOR_SLOTS
    from READY, at the end:        STORING (-> PAUSING -> TAKING -> STORING ...) -> FINISHED -> ENDING
    before EPOCH, at most once:    TAKING -> STORING (-> PAUSING -> TAKING ...)
    from anywhere, at a failure:   BACKING_OFF -> ABANDONING -> DEPLOYING -> READY, or ENDING
    from anywhere, cancelled:      ENDING -> OVER
    from anywhere, deposed:        ENDING -> OVER, with nothing written or deleted that others could see

Here is what follows what. What the machine knows is in its `RecoveryState`: there, the rules of checkpoints and output are in
`coordinator.py`, what the subtasks have left behind in `execution.py`, what others want to know in
`status_recorder.py`. How a job ends is in `shutdown.py`; when it is rescaled because slots come and go, in
`scheduler.py`.

Three promises of the job master make it simple. Instructions are carried out one after the other, and what comes from
outside (a request, a cancellation, a manifest that was written) is told only when nothing is left to do. When one
fails, those behind it are dropped, and the machine is told. When nothing is left to do and nothing comes from outside,
it is told the time at its deadline.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from millstream.checkpoint.manifest import Manifest
from millstream.checkpoint.restore import InitialState, restore
from millstream.checkpoint.snapshot import Snapshot
from millstream.common.display_text import printable
from millstream.common.errors import (
    DeposedError,
    IncurableError,
    InvalidProgramError,
    JobCancelledError,
    JobExecutionError,
    JobSuspendedError,
    MillstreamError,
)
from millstream.common.job_status import JobStatus
from millstream.jobmaster.engine import QUICK, EpochFailed, EpochOverdue, SliceBounds
from millstream.jobmaster.machine import events as e
from millstream.jobmaster.machine import instructions as i
from millstream.jobmaster.machine import scheduler as s
from millstream.jobmaster.machine.coordinator import Checkpoint
from millstream.jobmaster.machine.execution import merged
from millstream.jobmaster.machine.flow import GatherDelay
from millstream.jobmaster.machine.job_phases import EpochPlan, JobPhase, SnapshotPurpose
from millstream.jobmaster.machine.options import JobOptions, JobOutcome
from millstream.jobmaster.machine.recovery_state import Instructions, RecoveryState
from millstream.jobmaster.machine.requests import (
    AdaptiveRescaleRequest,
    CheckpointRequest,
    Request,
    RequestFailedError,
    RequirementsRequest,
    RescaleRequest,
    SavepointRequest,
)
from millstream.jobmaster.machine.scheduler import Scaling
from millstream.jobmaster.machine.shutdown import LAST_PATIENCE, Shutdown, ShutdownStep
from millstream.jobmaster.machine.status_recorder import StatusRecorder
from millstream.jobmaster.machine.view import STUCK_AFTER_FAILURES, JobView
from millstream.operators.runtime.messages import JobPlan, SlotReport

# So long the next epoch waits for a manifest, if it may: most are written by then, and their output counts at once.
_PATIENCE = 0.05

# So long slots may take to come, with the first epoch.
_SLOT_SECONDS = 60.0


class JobMachine:
    """One job, whatever happens to it."""

    def __init__(self, plan: JobPlan, options: JobOptions, now: float) -> None:
        self._options = options
        self._recovery = RecoveryState(plan, options, now)
        self._coordinator = self._recovery.coordinator
        self._fit_slices(QUICK)
        self._step = JobPhase.OPENING
        # When the machine goes on by itself; at once when it awaits manifests and none is being written.
        self._until = math.inf
        self._awaits_manifests = False
        # Decides with how many subtasks the job runs, where that follows the slots there are.
        self._scaling = None if options.scaling is None else Scaling(plan, options.scaling)
        self._show_bounds()
        self._gathering = GatherDelay(options.buffer_timeout, options.gathers_always)
        # What the first execution starts from.
        self._start = InitialState()
        # The epoch that is to be run; the one that was begun last, when, its checkpoint, and what it came to.
        self._wanted = self._epoch = EpochPlan()
        self._began = now
        self._taken: Checkpoint | None = None
        self._reports: list[SlotReport] = []
        # What a checkpoint without an epoch is for, and the last complete one before it.
        self._why = SnapshotPurpose.NOTE_POSITION
        self._noted: Checkpoint | None = None
        # Whether a slot seems to be gone.
        self._must_look = False
        # Whether slots are still to come, with the first epoch.
        self._slots_are_new = True
        self._requests: deque[Request] = deque()
        # The request that is being served, the last complete checkpoint before it, and the plan it is about.
        self._served: Request | None = None
        self._before: Checkpoint | None = None
        self._new_plan = self._old_plan = plan
        # What a job that is given another parallelism goes on from.
        self._cut: Snapshot | None = None
        self._is_stopped = False
        # SnapshotPurpose the job has failed last, or fails for good.
        self._error: Exception | None = None
        self._ending: Shutdown | None = None

    # --- what the job master sees

    @property
    def view(self) -> JobView:
        """The job as it is after the last event."""
        return self._recovery.recorder.view

    @property
    def is_over(self) -> bool:
        return self._step is JobPhase.OVER

    @property
    def deadline(self) -> float:
        """When to tell the time, if nothing else happens before."""
        return min(self._own_deadline, self._coordinator.next_expiry())

    @property
    def _own_deadline(self) -> float:
        until = -math.inf if self._awaits_manifests and not self._coordinator.is_writing else self._until
        if self._scaling is None or self._step not in _WAITS:
            return until
        return min(until, self._scaling.deadline)

    def handle(self, event: e.Event, now: float, ahead: float = 0.0) -> Instructions:
        """Take note of what has happened; return what to do.

        Args:
            event: what has happened.
            now: the time by the job's clock, which never goes back.
            ahead: by how much the wall clock is ahead of that.
        """
        self._recovery.now, self._recovery.ahead = now, ahead
        instructions = self._HANDLERS[type(event)](self, event)
        self._recovery.recorder.look()
        return instructions

    def unanswered(self) -> list[Request]:
        """Return the requests that have no answer yet."""
        return [*([] if self._served is None else [self._served]), *self._requests]

    # --- what comes from outside

    def _requested(self, event: e.Requested) -> Instructions:
        if self._step is JobPhase.OVER:
            return [self._refusal(event.request)]
        if isinstance(event.request, RequirementsRequest):
            return self._require(event.request)
        self._requests.append(event.request)
        if self._step in (JobPhase.WAITING, JobPhase.GATHERING):
            self._go(JobPhase.READY)
        return []

    def _cancel_asked(self, event: e.CancelRequested) -> Instructions:
        return [] if self._ending is not None else self._end(JobStatus.CANCELED, None)

    def _suspend_asked(self, event: e.SuspendRequested) -> Instructions:
        return [] if self._ending is not None else self._suspend(event.reason)

    def _suspend(self, reason: str) -> Instructions:
        """Leave the job as it is to whoever leads."""
        job = self._recovery.plan.settings
        text = f"Job '{job.job_name}' ({job.job_id}) is suspended: {reason}"
        return [i.Warn(text=text), *self._end(JobStatus.SUSPENDED, JobSuspendedError(text))]

    def _manifest_written(self, event: e.ManifestWritten) -> Instructions:
        self._tell_scheduler(s.CheckpointCompleted())
        return self._checkpoint_answered(self._coordinator.written(event.checkpoint, event.location, self._now))

    def _manifest_lost(self, event: e.ManifestFailed) -> Instructions:
        why = self._coordinator.lost(event.checkpoint, event.reason, self._now)
        self._tell_scheduler(s.CheckpointFailed())
        self._recovery.has_changed = True
        if event.deposed and self._ending is None:
            return self._suspend(event.reason)
        warning = i.Warn(text=f"checkpoint {event.checkpoint} failed: {event.reason}")
        # It may be on storage in spite of what was said.
        instructions = self._checkpoint_answered([warning, *self._coordinator.clean_up()])
        return self._fail_by_checkpoints(why) + instructions

    def _checkpoint_answered(self, instructions: Instructions) -> Instructions:
        self._recovery.look_at_checkpoints()
        if self._step is JobPhase.WAITING:
            # Another one may be due.
            self._go(JobPhase.READY)
        return instructions if self._ending is None or self._ending.output_is_open else []

    def _time_passed(self, event: e.TimePassed) -> Instructions:
        only_expiry = self._coordinator.next_expiry() < self._own_deadline
        instructions: Instructions = []
        if self._coordinator.next_expiry() <= self._now:
            why = self._coordinator.expire(self._now)
            self._tell_scheduler(s.CheckpointFailed())
            self._recovery.has_changed = True
            self._recovery.look_at_checkpoints()
            instructions = self._coordinator.clean_up()
            if failed := self._fail_by_checkpoints(why):
                return failed + instructions
        return instructions if only_expiry else self._CONTINUATIONS[self._step](self) + instructions

    def _fail_by_checkpoints(self, why: str | None) -> Instructions:
        """Fail when too many checkpoints have failed; a job that ends or goes back has other cares."""
        goes_back = (JobPhase.BACKING_OFF, JobPhase.ABANDONING, JobPhase.WAITING_FOR_SLOTS, JobPhase.DEPLOYING)
        busy = self._ending is not None or self._step in goes_back
        return [] if why is None or busy else self._fail(JobExecutionError(why))

    def _step_failed(self, event: e.InstructionFailed) -> Instructions:
        suspends = self._ending is not None and self._ending.outcome is JobStatus.SUSPENDED
        if isinstance(event.error, DeposedError) and not suspends:
            return self._suspend(str(event.error))
        if isinstance(event.error, EpochOverdue) and self._ending is None:
            return self._fail(self._overdue(event.error))
        # The outcome of a job that ends is what the user must hear; this is only what was left behind.
        return self._fail(event.error) if self._ending is None else [self._left_behind(event.error)]

    def _overdue(self, error: EpochOverdue) -> JobExecutionError:
        options = self._options.checkpoints
        self._coordinator.expire(self._now)
        self._recovery.look_at_checkpoints()
        return JobExecutionError(
            f"{error}, so checkpoints exceed execution.checkpointing.timeout ({options.timeout:g} s), and no more than "
            f"{options.tolerable_failures} in a row may fail (execution.checkpointing.tolerable-failed-checkpoints). A "
            "function blocks, or a slot hangs; where a single record may take so long, set a longer timeout."
        )

    # --- opening

    def _job_started(self, event: e.JobStarted) -> Instructions:
        job, origin = self._recovery, self._options.origin
        job.recorder.become(JobStatus.CREATED, self._now)
        if self._options.ended is not None:
            return self._end_as_before(self._options.ended)
        instructions: Instructions = [i.ClaimDirectory(), i.OpenOutput(plan=job.plan, afresh=origin is None)]
        if origin is not None:
            snapshot = origin.manifest.snapshot
            try:
                self._start = restore(snapshot, job.plan, origin.state_url, origin.allow_non_restored)
            except MillstreamError as error:
                return self._fail(error)
            instructions.append(i.RecoverOutput(named=snapshot.committables, former_job_id=snapshot.job_id))
        self._go(JobPhase.OPENING)
        return instructions

    def _end_as_before(self, ended: JobOutcome) -> Instructions:
        """The job has ended under an earlier leader, and its program is run again: it hears what came of it."""
        job = self._recovery
        if ended.outcome is JobStatus.FINISHED:
            job.recorder.become(JobStatus.RUNNING, self._now)
        return self._end(ended.outcome, JobExecutionError(ended.message) if ended.message else None)

    def _deploy(self) -> Instructions:
        return self._start_with(self._recovery.plan) if self._scaling is None else self._want_slots()

    def _start_with(self, plan: JobPlan) -> Instructions:
        """There are slots: start the job, or start it again."""
        if self._recovery.has_run:
            return self._go_back_with(plan)
        self._go(JobPhase.DEPLOYING)
        if plan is not self._recovery.plan and (origin := self._options.origin) is not None:
            self._start = restore(origin.manifest.snapshot, plan, origin.state_url, origin.allow_non_restored)
        return self._recovery.begin(plan, self._start)

    def _slots_opened(self, event: e.SlotsOpened) -> Instructions:
        self._recovery.resident_slots = event.stay
        self._fit_slices(event.slices)
        self._slots_are_new = True
        return []

    def _fit_slices(self, slices: SliceBounds) -> None:
        self._slice = self._options.slice_within(slices)
        self._options.sizer.aim_at(self._slice)

    def _deployed(self) -> Instructions:
        self._recovery.recorder.running(self._now)
        self._recovery.remember_snapshot()
        if self._scaling is not None:
            self._scaling.deployed(self._recovery.plan, self._now)
        return self._answer(None) if isinstance(self._served, _RESCALES) else self._ready()

    # --- slots that come and go

    def _want_slots(self) -> Instructions:
        """Wait until there are slots: as many as the job wants, or those that there are by then."""
        assert self._scaling is not None
        self._go(JobPhase.WAITING_FOR_SLOTS)
        return [i.CountSlots(wanted=self._scaling.wanted)]

    def _slots_awaited(self) -> Instructions:
        assert self._scaling is not None
        decided = self._scaling.start(self._now)
        if isinstance(decided, s.GiveUp):
            return self._end(JobStatus.FAILED, JobExecutionError(decided.reason))
        if decided is not None:
            return self._start_with(decided)
        # Until the scheduler's deadline.
        self._go(JobPhase.WAITING_FOR_SLOTS, math.inf)
        return []

    def _slots_counted(self, event: e.SlotsCounted) -> Instructions:
        self._tell_scheduler(s.SlotsChanged(slots=event.slots))
        return []

    def _tell_scheduler(self, event: s.Event) -> None:
        if self._scaling is not None:
            self._scaling.tell(event, self._now)

    def _require(self, request: RequirementsRequest) -> Instructions:
        """Run within other bounds, as soon as there are slots for them."""
        if self._scaling is None:
            return [i.Refuse(request=request, error=InvalidProgramError(_NOT_ADAPTIVE))]
        try:
            self._scaling.require(request.bounds, self._now)
        except InvalidProgramError as error:
            return [i.Refuse(request=request, error=error)]
        self._show_bounds()
        return [i.CountSlots(wanted=self._scaling.wanted), i.Answer(request=request, result=None)]

    def _show_bounds(self) -> None:
        if self._scaling is not None:
            self._recovery.recorder.bounds = self._scaling.bounds

    # --- between two epochs

    def _next(self) -> Instructions:
        """Decide what is next: nothing is under way."""
        execution = self._recovery.execution
        if self._is_stopped or execution.is_finished:
            return self._store(SnapshotPurpose.COMMIT_REST)
        if self._scaling is not None and (wanted := self._scaling.rescale(self._now)) is not None:
            return self._serve(AdaptiveRescaleRequest(wanted))
        if self._requests:
            return self._serve(self._requests.popleft())
        self._began = self._now
        if self._must_look:
            return self._begin(EpochPlan(slice=self._slice, reads=False))
        self._go(JobPhase.POLLING, math.inf)
        return [
            i.PollSources(
                budgets={v: self._options.sizer.budget_of(v) for v in execution.readable_sources()},
                running=execution.running_sources(),
                ahead=execution.splits_ahead(),
            )
        ]

    def _sources_polled(self, event: e.SourcesPolled) -> Instructions:
        job, shares, ending = self._recovery, event.shares, event.finished
        job.recorder.sources_polled(event.pending)
        held = job.execution.held_sources()
        unread = job.execution.sources_with_pending_input() - held
        # What is to be told: others know already that they end, or cannot before somebody has room.
        news = ending - held - job.execution.lingering_sources()
        due = self._coordinator.next_due() <= self._now and (job.has_news or bool(shares) or bool(unread))
        if not shares and not unread and not news and not due and job.next_wake() > self._now:
            due_at = self._coordinator.next_due() if job.has_news else math.inf
            self._go(JobPhase.WAITING, min(event.poll_again, due_at, job.next_wake()))
            return []
        # Where there is more to read than fits into a slice, or requests are in flight, nobody knows which epoch is the
        # last.
        last = (
            bool(news) and ending == job.execution.running_sources() and not job.execution.sources_with_pending_input()
        )
        return self._begin(
            EpochPlan(
                shares=shares,
                ending=ending,
                limited=event.limited,
                goes_on=bool(unread),
                holds=bool(held),
                slice=self._slice,
                checkpoint=due or (last and self._options.checkpoints.enabled),
            )
        )

    def _input_came(self, event: e.InputArrived) -> Instructions:
        # In every other step sources are asked soon anyway, or shall not be asked.
        if self._step is JobPhase.WAITING:
            self._go(JobPhase.READY)
        return []

    def _ready(self) -> Instructions:
        self._go(JobPhase.READY)
        return []

    # --- an epoch

    def _begin(self, epoch: EpochPlan) -> Instructions:
        self._wanted = epoch
        if not self._options.at_most_once:
            return self._run(epoch)
        if not self._recovery.execution.owns_state:
            # A snapshot would be without the state: an epoch without input makes it the job's own.
            return self._run(EpochPlan(reads=False, then=JobPhase.TAKING))
        return self._note_position()

    def _note_position(self) -> Instructions:
        """At most once: what is about to be processed counts as processed from here on."""
        self._noted, self._why = self._coordinator.latest(), SnapshotPurpose.NOTE_POSITION
        return self._take()

    def _run(self, epoch: EpochPlan) -> Instructions:
        job, execution = self._recovery, self._recovery.execution
        wanted = epoch.checkpoint and not self._options.at_most_once
        self._epoch, self._taken = epoch, job.trigger() if wanted else None
        self._must_look = False
        number = execution.epoch if epoch.savepoint else None
        latest = self._coordinator.latest()
        tasks = execution.tasks(
            epoch.shares,
            epoch.ending,
            slice=epoch.slice,
            keep=self._keeps_state(epoch),
            reads=epoch.reads,
            checkpoint=number if self._taken is None else self._taken.id,
            # At most once, the position is saved before the epoch: no later checkpoint could name what sinks keep open.
            flush=epoch.flush or wanted or self._options.at_most_once,
            whole_state=wanted and self._options.checkpoints.incremental is False,
            savepoint=epoch.savepoint,
            last_checkpoint=0 if latest is None else latest.id,
        )
        self._go(JobPhase.EPOCH, math.inf)
        job.recorder.epoch_begins(self._now)
        # What a snapshot says of the sources is how far they were when the epoch was sent.
        # Also when all of that may be read now, which sources want to know.
        cut = wanted or epoch.cut or job.has_regions or epoch.goes_on
        return [*([i.ReadPositions()] if cut else []), i.RunEpoch(tasks=tasks, patience=self._patience(epoch))]

    def _patience(self, epoch: EpochPlan) -> float:
        """Return for how long an epoch may run: one that does not end fails checkpoints, as they are not complete."""
        if self._options.at_most_once or epoch.savepoint is not None:
            return math.inf
        return self._coordinator.patience(self._now) + (_SLOT_SECONDS if self._slots_are_new else 0.0)

    def _keeps_state(self, epoch: EpochPlan) -> bool:
        """Tell whether somebody may go on from the end of an epoch: then files must have the state.

        A restart goes back to a checkpoint, or to the beginning. But regions that have not failed go on from the epoch
        before; and where slots do not stay, so does every epoch.
        """
        job = self._recovery
        return (
            not job.resident_slots
            or job.has_regions
            or self._options.at_most_once
            or epoch.checkpoint
            or epoch.cut
            # It may be the last one, which a last checkpoint names.
            or (self._options.checkpoints.enabled and job.execution.running_sources() <= epoch.ending)
        )

    def _slots_lost(self, event: e.SlotsLost) -> Instructions:
        """An epoch shall say at once what has happened, whether or not there is input."""
        if event.attempt == self._recovery.attempt:
            self._must_look = True
            if self._step in (JobPhase.WAITING, JobPhase.GATHERING):
                self._go(JobPhase.READY)
        return []

    def _positions_noted(self, event: e.PositionsRead) -> Instructions:
        self._recovery.positions = event.positions
        return []

    def _epoch_finished(self, event: e.EpochFinished) -> Instructions:
        self._reports = merged(event.reports)
        if self._slots_are_new and self._taken is not None:
            self._coordinator.delayed(self._taken, self._now)
        self._slots_are_new = False
        self._go(JobPhase.EPOCH_ENDED)
        return self._recovery.count(self._reports)

    def _epoch_ended(self) -> Instructions:
        """The epoch counts, and what need not wait is committed: its checkpoint names what then still waits."""
        epoch, seconds = self._epoch, self._now - self._began
        instructions: Instructions = []
        if self._taken is not None:
            instructions = self._recovery.cut(self._taken)
        elif not self._options.checkpoints.enabled:
            instructions = [
                i.ConfirmSources(positions=None, unread=self._recovery.execution.sources_with_pending_input())
            ]
        self._recovery.remember_snapshot()
        if epoch.then is not JobPhase.READY:
            return instructions + self._after_own_epoch(epoch.then)
        self._learn(seconds, epoch)
        patience = min(_PATIENCE, self._options.buffer_timeout)
        self._go(JobPhase.LINGERING, self._now + patience, awaits_manifests=True)
        return instructions

    def _after_own_epoch(self, then: JobPhase) -> Instructions:
        if then is JobPhase.TAKING:
            return self._note_position()
        if isinstance(self._served, _RESCALES):
            return self._rescale()
        self._await_manifests(JobPhase.SERVING)
        return []

    def _learn(self, seconds: float, epoch: EpochPlan) -> None:
        sizer, subtasks = self._options.sizer, [r for slot in self._reports for r in slot.subtasks]
        execution = self._recovery.execution
        # What somebody has no room for is not processed either.
        left = execution.sources_with_pending_input() | execution.held_sources()
        of_sources = sorted((r.records_in, r.vertex) for r in subtasks if r.vertex in execution.sources)
        read = {source: records for records, source in of_sources}
        sizer.epoch_processed(epoch.shares.keys(), left, read, self._began, self._now)
        # One that was cut has lasted as long as its slice: that says something only of what could not be cut.
        if not left or seconds > 2 * self._slice:
            sent = max((r.bytes_out for r in subtasks), default=0)
            sizer.finished(seconds, epoch.limited, max(read.values(), default=0), sent)
        self._gathering.epoch_took(seconds)
        self._recovery.recorder.epoch_took(seconds)

    def _gather(self) -> Instructions:
        """Nothing waits: let input gather for the rest of the buffer timeout."""
        execution = self._recovery.execution
        if (
            self._epoch.limited
            or self._epoch.goes_on
            or execution.sources_with_pending_input()
            or execution.is_finished
        ):
            return self._ready()
        if self._epoch.holds or execution.held_sources():
            # Input waits for room, which there is, or may be in a moment.
            return self._ready()
        self._go(JobPhase.GATHERING, self._began + self._gathering.seconds())
        return []

    # --- output and storage

    def _output_opened(self, event: e.OutputOpened) -> Instructions:
        self._recovery.transactional, self._recovery.is_open = event.transactional, True
        return []

    def _output_committed(self, event: e.OutputCommitted) -> Instructions:
        self._coordinator.output_waits(event.waiting)
        self._recovery.wants_checkpoints = event.wants_checkpoints
        if event.checkpoint is None:
            return []
        instructions = self._coordinator.committed(event.checkpoint)
        self._recovery.look_at_checkpoints()
        return instructions

    def _checkpoints_discarded(self, event: e.CheckpointsDiscarded) -> Instructions:
        self._coordinator.discarded(event.checkpoints)
        self._recovery.look_at_checkpoints()
        return self._coordinator.delete_unneeded(self._recovery.execution.live_files())

    def _origin_deleted(self, event: e.OriginDeleted) -> Instructions:
        self._coordinator.origin_deleted()
        return []

    # --- a checkpoint without an epoch

    def _store(self, why: SnapshotPurpose) -> Instructions:
        """Wait until no manifest is being written; then see whether that is enough."""
        self._why = why
        self._await_manifests(JobPhase.STORING)
        return []

    def _take(self) -> Instructions:
        self._go(JobPhase.TAKING)
        return [i.ReadPositions()]

    def _taken_at_once(self) -> Instructions:
        self._taken = self._recovery.trigger()
        return self._recovery.cut(self._taken) + self._store(self._why)

    def _stored(self) -> Instructions:
        if self._coordinator.is_writing:
            return self._fail(_silence(self._options.checkpoints.timeout))
        if self._why is SnapshotPurpose.NOTE_POSITION:
            if self._coordinator.latest() is not self._noted:
                return self._run(self._wanted)
        elif not self._coordinator.has_staged():
            self._go(JobPhase.FINISHED)
            return [i.FinishOutput()]
        elif self._taken is None:
            # Nobody knew that the last epoch was the last.
            return self._take()
        # It has failed: another one, as soon as it is due.
        self._go(JobPhase.PAUSING, self._coordinator.next_due())
        return []

    # --- requests

    def _serve(self, request: Request) -> Instructions:
        self._served, self._before = request, self._coordinator.latest()
        self._began = self._now
        enabled = self._options.checkpoints.enabled
        match request:
            case RescaleRequest() if self._scaling is not None:
                return self._refuse(InvalidProgramError(_ADAPTIVE))
            case RescaleRequest():
                self._go(JobPhase.REPLANNING, math.inf)
                return [i.Replan(parallelism=request.parallelism)]
            case SavepointRequest():
                ending = self._recovery.execution.running_sources() if request.drain else frozenset()
                # What was staged counts before the savepoint is complete, so that the savepoint need not name it.
                about: dict[str, Any] = {"ending": ending, "savepoint": self._location(request)}
                if request.drain:
                    # Before sources end, all that they have dealt out is read.
                    about |= {"slice": math.inf, "reads": True}
                return self._begin(self._own_epoch(checkpoint=enabled, **about))
            case CheckpointRequest():
                return self._begin(self._own_epoch(checkpoint=True)) if enabled else self._refuse(_no_checkpoints())
            case AdaptiveRescaleRequest():
                assert self._scaling is not None
                return self._go_on_with(self._scaling.plan_for(request.parallelisms))
            case RequirementsRequest():
                raise AssertionError("bounds are taken note of at once")

    def _own_epoch(self, **about: Any) -> EpochPlan:
        """Return an epoch for a request: sources read nothing in it, not even what was left."""
        own = {"flush": True, "cut": True, "then": JobPhase.SERVING, "slice": self._slice, "reads": False}
        return EpochPlan(**{**own, **about})

    def _location(self, request: SavepointRequest) -> str:
        job = self._recovery.plan.settings.job_id
        return f"{request.directory.rstrip('/')}/savepoint-{job[:6]}-{request.name}"

    def _replanned(self, event: e.Replanned) -> Instructions:
        return self._go_on_with(event.plan)

    def _go_on_with(self, plan: JobPlan) -> Instructions:
        """Take a cut, behind which the job has another plan."""
        self._new_plan = plan
        return self._begin(self._own_epoch(checkpoint=self._options.checkpoints.enabled))

    def _rescale(self) -> Instructions:
        job = self._recovery
        self._cut = job.execution.snapshot(job.positions)
        try:
            start = restore(self._cut, self._new_plan, None)
        except MillstreamError as error:
            return self._refuse(error)
        self._go(JobPhase.DEPLOYING)
        self._old_plan = job.plan
        # The old slots go first: there may be no room for both.
        return [i.ReleaseSlots(), *job.begin(self._new_plan, start)]

    def _rescale_back(self, error: Exception) -> Instructions:
        """There are no slots for the new plan: go on with the old one, from the same cut."""
        refused, job = self._refuse(error), self._recovery
        assert self._cut is not None
        start = restore(self._cut, self._old_plan, None)
        self._go(JobPhase.DEPLOYING)
        return [*refused, i.ReleaseSlots(must=False), *job.begin(self._old_plan, start)]

    def _served_checkpoint(self) -> Instructions:
        """The epoch of a request has ended, and its manifest is written, if it was to have one."""
        if self._coordinator.is_writing:
            return self._fail(_silence(self._options.checkpoints.timeout))
        # Its own, not just any that was completed meanwhile: that would not name what its epoch has staged.
        stored = self._noted_anew() if self._options.at_most_once else self._taken
        if self._options.checkpoints.enabled and (stored is None or not stored.is_complete):
            reason = self._coordinator.history[-1].reason if stored is None else stored.reason
            return self._fail(RequestFailedError(f"The checkpoint failed: {reason}"))
        if isinstance(self._served, SavepointRequest):
            self._go(JobPhase.EXPORTING)
            return [i.FinishOutput()]
        assert stored is not None
        return self._answer(stored.location)

    def _noted_anew(self) -> Checkpoint | None:
        latest = self._coordinator.latest()
        return None if latest is self._before else latest

    def _export(self) -> Instructions:
        assert isinstance(self._served, SavepointRequest)
        snapshot = self._recovery.execution.savepoint(self._recovery.positions)
        manifest = Manifest("savepoint", snapshot.epoch, int(self._now * 1000), snapshot, "")
        self._go(JobPhase.EXPORTING, math.inf)
        return [i.WriteSavepoint(location=self._location(self._served), manifest=manifest)]

    def _savepoint_written(self, event: e.SavepointWritten) -> Instructions:
        assert isinstance(self._served, SavepointRequest)
        self._is_stopped = self._served.stop
        return self._answer(event.location)

    def _answer(self, result: Any) -> Instructions:
        request = self._done_with_request()
        return [i.Answer(request=request, result=result)]

    def _refuse(self, error: Exception) -> Instructions:
        """What is asked cannot be done; the job goes on."""
        request = self._done_with_request()
        if isinstance(request, AdaptiveRescaleRequest) and self._scaling is not None:
            # Nobody else has asked for it.
            self._scaling.deployed(self._recovery.plan, self._now)
            name = printable(self._recovery.plan.settings.job_name, 200)
            return [i.Warn(text=f"job '{name}' could not be rescaled: {error}")]
        return [i.Refuse(request=request, error=error)]

    def _done_with_request(self) -> Request:
        assert self._served is not None
        request, self._served = self._served, None
        self._go(JobPhase.READY)
        return request

    def _refusal(self, request: Request) -> i.Refuse:
        job = self._recovery
        text = f"Job '{job.plan.settings.job_name}' is not running: it is {job.recorder.status.name}."
        return i.Refuse(request=request, error=MillstreamError(text))

    # --- failure

    def _fail(self, error: Exception) -> Instructions:
        """Something went wrong: the restart strategy says whether the job goes back to its last checkpoint."""
        instructions: Instructions = []
        if isinstance(self._served, _RESCALES) and self._step is JobPhase.DEPLOYING:
            return self._rescale_back(error)
        if self._served is not None:
            step, drained = self._step, isinstance(self._served, SavepointRequest) and self._served.drain
            instructions = self._refuse(error)
            if drained and step in (JobPhase.SERVING, JobPhase.EXPORTING):
                # Its input has ended and its last output counts: there is nothing to go on with.
                return instructions + self._end(JobStatus.FAILED, error)
            if step in _REQUEST_ALONE and isinstance(error, (InvalidProgramError, RequestFailedError)):
                return instructions
        recorder, delay = self._recovery.recorder, None
        if recorder.status is not JobStatus.CREATED and not _is_incurable(error):
            delay = self._options.restart.failed(self._now)
        number = recorder.failed(error, delay, self._now)
        if isinstance(error, EpochFailed) and error.failure is not None and error.failure.kept is not None:
            instructions.append(i.WriteFailureReport(plan=self._recovery.plan, number=number, failure=error.failure))
        if delay is None:
            return instructions + self._end(JobStatus.FAILED, error)
        self._error = error
        self._tell_scheduler(s.ExecutionFailed())
        self._go(JobPhase.BACKING_OFF, self._now + delay)
        name = printable(self._recovery.plan.settings.job_name, 200)
        instructions += [*_printed(error), i.Warn(text=_restarts(name, error, delay, recorder))]
        if recorder.alike == STUCK_AFTER_FAILURES:
            instructions.append(i.Warn(text=_stuck(name, error)))
        return [*instructions, i.ReleaseSlots(must=False)]

    def _abandon(self) -> Instructions:
        """What is complete when no manifest is being written any more can be gone back to."""
        self._recovery.recorder.released(self._now)
        self._await_manifests(JobPhase.ABANDONING)
        return []

    def _go_back(self) -> Instructions:
        if self._coordinator.is_writing:
            return self._fail(_silence(self._options.checkpoints.timeout))
        return self._go_back_with(self._recovery.plan) if self._scaling is None else self._want_slots()

    def _go_back_with(self, plan: JobPlan) -> Instructions:
        assert self._error is not None
        self._go(JobPhase.DEPLOYING)
        try:
            return self._recovery.go_back(self._error, plan)
        except MillstreamError as error:
            # What cannot be restored now cannot be restored the next time either.
            return self._end(JobStatus.FAILED, error)

    # --- the end

    def _finished(self) -> Instructions:
        return self._end(JobStatus.FINISHED, None)

    def _end(self, outcome: JobStatus, error: Exception | None) -> Instructions:
        """It is decided how the job ends."""
        self._error = error
        self._tell_scheduler(s.JobEnded())
        self._recovery.recorder.ends(outcome, self._now)
        self._ending = Shutdown(self._recovery, outcome, "" if error is None else str(error))
        self._go(JobPhase.ENDING)
        return []

    def _end_on(self) -> Instructions:
        assert self._ending is not None
        if self._awaits_manifests and self._coordinator.is_writing:
            # Where it is not sure that nobody starts from a checkpoint, its output is left to whoever does.
            self._ending.skip()
            self._go(JobPhase.ENDING)
            return [self._left_behind(_silence(LAST_PATIENCE))]
        self._go(JobPhase.ENDING)
        step = self._ending.next()
        if step is ShutdownStep.AWAIT_MANIFESTS:
            self._await_manifests(JobPhase.ENDING, LAST_PATIENCE)
        return self._finish() if step is None else self._ending.instructions(step)

    def _left_behind(self, error: Exception) -> i.Warn:
        return i.Warn(text=f"while ending job '{self._recovery.plan.settings.job_name}': {error}")

    def _finish(self) -> Instructions:
        recorder, settings, error = self._recovery.recorder, self._recovery.plan.settings, self._error
        outcome = recorder.finish(self._now)
        self._go(JobPhase.OVER, math.inf)
        printed, result = _printed(error), None
        if outcome is JobStatus.FINISHED:
            result = recorder.result(self._now)
        elif outcome is JobStatus.CANCELED:
            error = JobCancelledError(f"Job '{settings.job_name}' ({settings.job_id}) was cancelled.")
        refused = [self._refusal(request) for request in self.unanswered()]
        return [*printed, i.Finish(result=result, error=error), *refused]

    # --- steps

    @property
    def _now(self) -> float:
        return self._recovery.now

    def _go(self, step: JobPhase, until: float = -math.inf, awaits_manifests: bool = False) -> None:
        self._step, self._until, self._awaits_manifests = step, until, awaits_manifests

    def _await_manifests(self, step: JobPhase, patience: float = math.inf) -> None:
        """Go on when no manifest is being written any more, or when that takes too long."""
        self._go(step, self._now + min(patience, self._options.checkpoints.timeout), awaits_manifests=True)

    # What follows each event.
    _HANDLERS: ClassVar[dict[type, Callable[[JobMachine, Any], Instructions]]] = {
        e.JobStarted: _job_started,
        e.TimePassed: _time_passed,
        e.InstructionFailed: _step_failed,
        e.CancelRequested: _cancel_asked,
        e.SuspendRequested: _suspend_asked,
        e.Requested: _requested,
        e.SlotsOpened: _slots_opened,
        e.SourcesPolled: _sources_polled,
        e.InputArrived: _input_came,
        e.SlotsLost: _slots_lost,
        e.SlotsCounted: _slots_counted,
        e.PositionsRead: _positions_noted,
        e.EpochFinished: _epoch_finished,
        e.ManifestWritten: _manifest_written,
        e.ManifestFailed: _manifest_lost,
        e.OutputOpened: _output_opened,
        e.OutputCommitted: _output_committed,
        e.CheckpointsDiscarded: _checkpoints_discarded,
        e.OriginDeleted: _origin_deleted,
        e.Replanned: _replanned,
        e.SavepointWritten: _savepoint_written,
    }

    # What follows each step, once all it asked for is done and its time has come. From the others, events lead on.
    _CONTINUATIONS: ClassVar[dict[JobPhase, Callable[[JobMachine], Instructions]]] = {
        JobPhase.OPENING: _deploy,
        JobPhase.WAITING_FOR_SLOTS: _slots_awaited,
        JobPhase.DEPLOYING: _deployed,
        JobPhase.READY: _next,
        JobPhase.WAITING: _ready,
        JobPhase.EPOCH_ENDED: _epoch_ended,
        JobPhase.LINGERING: _gather,
        JobPhase.GATHERING: _ready,
        JobPhase.PAUSING: _take,
        JobPhase.TAKING: _taken_at_once,
        JobPhase.STORING: _stored,
        JobPhase.SERVING: _served_checkpoint,
        JobPhase.EXPORTING: _export,
        JobPhase.BACKING_OFF: _abandon,
        JobPhase.ABANDONING: _go_back,
        JobPhase.FINISHED: _finished,
        JobPhase.ENDING: _end_on,
    }


# In these the job may be rescaled, or started, as soon as the scheduler says so.
_WAITS = (JobPhase.WAITING, JobPhase.GATHERING, JobPhase.WAITING_FOR_SLOTS)

# After these the job goes on with another plan.
_RESCALES = (RescaleRequest, AdaptiveRescaleRequest)

_ADAPTIVE = (
    "The job's parallelism follows the slots there are (jobmanager.scheduler: adaptive): change its bounds with PUT "
    "/jobs/:jobid/resource-requirements, or add slots."
)
_NOT_ADAPTIVE = "The job keeps its parallelism: bounds are for jobmanager.scheduler: adaptive. Use rescale."

# In these, an error may concern only what was asked for.
_REQUEST_ALONE = (JobPhase.REPLANNING, JobPhase.SERVING, JobPhase.EXPORTING)


def _no_checkpoints() -> InvalidProgramError:
    return InvalidProgramError(
        "The job takes no checkpoints: set execution.checkpointing.interval, or take a savepoint."
    )


def _restarts(name: str, error: Exception, delay: float, recorder: StatusRecorder) -> str:
    when = f"restarts in {delay:.3g} s (restart {recorder.restarts})"
    if recorder.alike > 1:
        # The error was shown when it happened first.
        return f"job '{name}' has failed again in the same way, {recorder.alike} times in a row, and {when}"
    return f"job '{name}' has failed and {when}:\n{error}"


def _stuck(name: str, error: Exception) -> str:
    # The line that says what happened: before the one that says where.
    before_place = str(error).partition("\nin operator '")[0].strip()
    said = before_place.splitlines()[-1:] or [type(error).__name__]
    return (
        f"job '{name}' has failed {STUCK_AFTER_FAILURES} times in a row in the same way ({said[0]}), and no epoch has "
        "ended between: starting again does not seem to help. It goes on trying, as its restart strategy says."
    )


def _is_incurable(error: Exception) -> bool:
    return isinstance(error, (InvalidProgramError, IncurableError)) or (
        isinstance(error, EpochFailed) and error.incurable
    )


def _silence(patience: float) -> JobExecutionError:
    return JobExecutionError(f"The storage of checkpoints has not answered for {patience:g} s.")


def _printed(error: Exception | None) -> Instructions:
    """Show what user code printed and logged before it failed."""
    if not isinstance(error, EpochFailed):
        return []
    printed: Instructions = [i.Print(text=error.printed)] if error.printed else []
    return [*printed, i.Log(lines=error.logged)] if error.logged else printed
