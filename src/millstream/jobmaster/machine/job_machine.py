"""The job machine decides everything a job does next, from its start to its end.

Pure: events in, instructions out. No clock, thread, file or engine. `JobMaster` carries out the instructions, on Spark,
in this process, or in a simulation, and reports their results as events.

    OPENING -> DEPLOYING -> READY -> POLLING -+-> EPOCH -> EPOCH_ENDED -> AWAITING_MANIFEST -> GATHERING -+-> READY
                                              '-> WAITING ------------------------------------------------'

    from READY, for a request:     EPOCH -> EPOCH_ENDED -> SERVING (-> EXPORTING) -> READY
    from READY, to rescale:        REPLANNING -> EPOCH -> EPOCH_ENDED -> DEPLOYING -> READY
    before DEPLOYING, adaptive:    WAITING_FOR_SLOTS
    from READY, at the end:        WRITING (-> DELAYING -> SNAPSHOTTING -> WRITING ...) -> FINISHED -> ENDING
    before EPOCH, at most once:    SNAPSHOTTING -> WRITING (-> DELAYING -> SNAPSHOTTING ...)
    from anywhere, at a failure:   BACKING_OFF -> ABANDONING -> DEPLOYING -> READY, or ENDING
    from anywhere, cancelled:      ENDING -> ENDED
    from anywhere, deposed:        ENDING -> ENDED, with nothing written or deleted that others could see

`JobMachine` is one class in three files: `epoch_cycle.py` polls sources, runs epochs and takes checkpoints,
`request_server.py` serves requests, and this file handles the start, written manifests, commits, failures and the end.
The tables `_HANDLERS` (by event) and `_CONTINUATIONS` (by phase) at the end of the class say which method is called.
The state of the job is in `job_state.py`, the rules of checkpoints and output are in `coordinator.py`, the end of a job
in `shutdown.py`, adaptive scaling in `scheduler.py`.

The job master guarantees: it carries out instructions one at a time, and delivers external events (a request, a
cancellation, a written manifest) only when no instruction is left. If an instruction fails, it drops the ones after it
and reports the failure. If there is neither an instruction nor an event, it reports the time at the machine's deadline.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

from millstream.checkpoint.restore import InitialState, restore
from millstream.common.dispatch import MethodDispatch
from millstream.common.display_text import printable
from millstream.common.errors import (
    DeposedError,
    InvalidProgramError,
    JobCancelledError,
    JobExecutionError,
    JobSuspendedError,
    MillstreamError,
    UnrecoverableError,
)
from millstream.common.job_status import JobStatus
from millstream.jobmaster.engine import EpochFailed, EpochOverdue
from millstream.jobmaster.machine import events as e
from millstream.jobmaster.machine import instructions as i
from millstream.jobmaster.machine import scheduler as s
from millstream.jobmaster.machine.epoch_cycle import EpochCycle, storage_timeout
from millstream.jobmaster.machine.job_phases import JobPhase
from millstream.jobmaster.machine.job_state import Instructions
from millstream.jobmaster.machine.options import JobOptions, JobOutcome
from millstream.jobmaster.machine.request_server import RESCALES, RequestServer
from millstream.jobmaster.machine.requests import (
    RequestFailedError,
    SavepointRequest,
)
from millstream.jobmaster.machine.shutdown import MANIFEST_TIMEOUT, Shutdown, ShutdownStep
from millstream.jobmaster.machine.status_recorder import StatusRecorder
from millstream.jobmaster.machine.view import STUCK_AFTER_FAILURES, JobView
from millstream.operators.runtime.messages import JobPlan


class JobMachine(RequestServer):
    """Decides everything a job does, from its start to its end."""

    def __init__(self, plan: JobPlan, options: JobOptions, now: float) -> None:
        super().__init__(plan, options, now)
        # What the first execution starts from.
        self._start = InitialState()
        # The last failure, or the error the job ends with.
        self._error: Exception | None = None
        self._shutdown: Shutdown | None = None

    # --- what the job master sees

    @property
    def view(self) -> JobView:
        """The job after the last event."""
        return self._job.recorder.view

    @property
    def has_ended(self) -> bool:
        return self._phase is JobPhase.ENDED

    @property
    def deadline(self) -> float:
        """When to report the time, unless an event occurs before."""
        return min(self._own_deadline, self._coordinator.next_expiry())

    def handle(self, event: e.Event, now: float, ahead: float = 0.0) -> Instructions:
        """Handle an event and return the instructions.

        Args:
            event: the event.
            now: the time by the job's monotonic clock.
            ahead: how far the wall clock is ahead of it.
        """
        self._job.now, self._job.ahead = now, ahead
        instructions = self._HANDLERS[event](self, event)
        self._job.recorder.update_view()
        return instructions

    # --- external events

    def _cancel_requested(self, event: e.CancelRequested) -> Instructions:
        return [] if self._shutdown is not None else self._end(JobStatus.CANCELED, None)

    def _suspend_requested(self, event: e.SuspendRequested) -> Instructions:
        return [] if self._shutdown is not None else self._suspend(event.reason)

    def _suspend(self, reason: str) -> Instructions:
        """Stop the job without changing anything on storage, so that the new leader can continue it."""
        job = self._job.plan.settings
        text = f"Job '{job.job_name}' ({job.job_id}) is suspended: {reason}"
        return [i.Warn(text=text), *self._end(JobStatus.SUSPENDED, JobSuspendedError(text))]

    def _time_passed(self, event: e.TimePassed) -> Instructions:
        only_expiry = self._coordinator.next_expiry() < self._own_deadline
        instructions: Instructions = []
        if self._coordinator.next_expiry() <= self._now:
            reason = self._coordinator.expire(self._now)
            self._notify_scheduler(s.CheckpointFailed())
            self._job.has_changed = True
            self._job.update_checkpoints()
            instructions = self._coordinator.clean_up()
            if failed := self._fail_by_checkpoints(reason):
                return failed + instructions
        return instructions if only_expiry else self._CONTINUATIONS[self._phase](self) + instructions

    def _fail_by_checkpoints(self, reason: str | None) -> Instructions:
        """Fail if too many checkpoints have failed, unless the job is ending or rolling back."""
        rolling_back = (JobPhase.BACKING_OFF, JobPhase.ABANDONING, JobPhase.WAITING_FOR_SLOTS, JobPhase.DEPLOYING)
        busy = self._shutdown is not None or self._phase in rolling_back
        return [] if reason is None or busy else self._fail(JobExecutionError(reason))

    def _instruction_failed(self, event: e.InstructionFailed) -> Instructions:
        suspends = self._shutdown is not None and self._shutdown.outcome is JobStatus.SUSPENDED
        if isinstance(event.error, DeposedError) and not suspends:
            return self._suspend(str(event.error))
        if isinstance(event.error, EpochOverdue) and self._shutdown is None:
            return self._fail(self._overdue(event.error))
        # A job that ends reports its outcome; an error on the way is only logged.
        return self._fail(event.error) if self._shutdown is None else [self._cleanup_failed(event.error)]

    def _overdue(self, error: EpochOverdue) -> JobExecutionError:
        options = self._options.checkpoints
        self._coordinator.expire(self._now)
        self._job.update_checkpoints()
        return JobExecutionError(
            f"{error}, so checkpoints exceed execution.checkpointing.timeout ({options.timeout:g} s), and no more than "
            f"{options.tolerable_failures} in a row may fail (execution.checkpointing.tolerable-failed-checkpoints). A "
            "function blocks, or a slot hangs; where a single record may take so long, set a longer timeout."
        )

    # --- opening

    def _job_started(self, event: e.JobStarted) -> Instructions:
        job, origin = self._job, self._options.origin
        job.recorder.become(JobStatus.CREATED, self._now)
        if self._options.ended is not None:
            return self._repeat_outcome(self._options.ended)
        instructions: Instructions = [i.ClaimDirectory(), i.OpenOutput(plan=job.plan, from_scratch=origin is None)]
        if origin is not None:
            snapshot = origin.manifest.snapshot
            try:
                self._start = restore(snapshot, job.plan, origin.state_url, origin.allow_non_restored)
            except MillstreamError as error:
                return self._fail(error)
            instructions.append(i.RecoverOutput(named=snapshot.committables, former_job_id=snapshot.job_id))
        self._enter(JobPhase.OPENING)
        return instructions

    def _repeat_outcome(self, ended: JobOutcome) -> Instructions:
        """End a job that an earlier leader has completed, with the recorded outcome."""
        job = self._job
        if ended.outcome is JobStatus.FINISHED:
            job.recorder.become(JobStatus.RUNNING, self._now)
        return self._end(ended.outcome, JobExecutionError(ended.message) if ended.message else None)

    def _deploy(self) -> Instructions:
        return self._start_with(self._job.plan) if self._scaling is None else self._await_slots()

    def _start_with(self, plan: JobPlan) -> Instructions:
        """Start or restart the job: slots are available."""
        if self._job.has_run:
            return self._roll_back_with(plan)
        self._enter(JobPhase.DEPLOYING)
        if plan is not self._job.plan and (origin := self._options.origin) is not None:
            self._start = restore(origin.manifest.snapshot, plan, origin.state_url, origin.allow_non_restored)
        return self._job.begin(plan, self._start)

    def _slots_opened(self, event: e.SlotsOpened) -> Instructions:
        self._job.resident_slots = event.resident
        self._fit_slices(event.slices)
        self._slots_are_new = True
        return []

    def _deployed(self) -> Instructions:
        self._job.recorder.running(self._now)
        self._job.remember_snapshot()
        if self._scaling is not None:
            self._scaling.deployed(self._job.plan, self._now)
        return self._answer(None) if isinstance(self._served, RESCALES) else self.resume_reading()

    # --- changes of the available slots

    def _slots_awaited(self) -> Instructions:
        assert self._scaling is not None
        decided = self._scaling.start(self._now)
        if isinstance(decided, s.GiveUp):
            return self._end(JobStatus.FAILED, JobExecutionError(decided.reason))
        if decided is not None:
            return self._start_with(decided)
        # Wait until the scheduler's deadline.
        self._enter(JobPhase.WAITING_FOR_SLOTS, math.inf)
        return []

    # --- output and checkpoints

    def _output_opened(self, event: e.OutputOpened) -> Instructions:
        self._job.transactional, self._job.is_open = event.transactional, True
        return []

    def _manifest_written(self, event: e.ManifestWritten) -> Instructions:
        """Complete a checkpoint: its staged output is committed next, which `_output_committed` then records."""
        self._notify_scheduler(s.CheckpointCompleted())
        return self._checkpoint_ended(self._coordinator.written(event.checkpoint, event.location, self._now))

    def _manifest_failed(self, event: e.ManifestFailed) -> Instructions:
        reason = self._coordinator.lost(event.checkpoint, event.reason, self._now)
        self._notify_scheduler(s.CheckpointFailed())
        self._job.has_changed = True
        if event.deposed and self._shutdown is None:
            return self._suspend(event.reason)
        warning = i.Warn(text=f"checkpoint {event.checkpoint} failed: {event.reason}")
        # The manifest may be on storage although the write failed.
        instructions = self._checkpoint_ended([warning, *self._coordinator.clean_up()])
        return self._fail_by_checkpoints(reason) + instructions

    def _checkpoint_ended(self, instructions: Instructions) -> Instructions:
        self._job.update_checkpoints()
        if self._phase is JobPhase.WAITING:
            # Another checkpoint may be due.
            self._enter(JobPhase.READY)
        return instructions if self._shutdown is None or self._shutdown.output_is_open else []

    def _output_committed(self, event: e.OutputCommitted) -> Instructions:
        self._coordinator.set_unfinished_output(event.unfinished)
        self._job.wants_checkpoints = event.wants_checkpoints
        if event.checkpoint is None:
            return []
        instructions = self._coordinator.committed(event.checkpoint)
        self._job.update_checkpoints()
        return instructions

    def _checkpoints_discarded(self, event: e.CheckpointsDiscarded) -> Instructions:
        self._coordinator.discarded(event.checkpoints)
        self._job.update_checkpoints()
        return self._coordinator.delete_unneeded(self._job.execution.live_files())

    def _origin_deleted(self, event: e.OriginDeleted) -> Instructions:
        self._coordinator.origin_deleted()
        return []

    # --- failure

    def _fail(self, error: Exception) -> Instructions:
        """Fail the execution; the restart strategy decides whether the job rolls back to its last checkpoint."""
        instructions: Instructions = []
        if isinstance(self._served, RESCALES) and self._phase is JobPhase.DEPLOYING:
            return self._rescale_back(error)
        if self._served is not None:
            step, drained = self._phase, isinstance(self._served, SavepointRequest) and self._served.drain
            instructions = self._refuse(error)
            if drained and step in (JobPhase.SERVING, JobPhase.EXPORTING):
                # Its input has ended and its last output is committed: nothing is left to restart.
                return instructions + self._end(JobStatus.FAILED, error)
            if step in _REQUEST_ALONE and isinstance(error, (InvalidProgramError, RequestFailedError)):
                return instructions
        recorder, delay = self._job.recorder, None
        if recorder.status is not JobStatus.CREATED and not _is_unrecoverable(error):
            delay = self._options.restart.failed(self._now)
        number = recorder.failed(error, delay, self._now)
        if isinstance(error, EpochFailed) and error.failure is not None and error.failure.replay_input is not None:
            instructions.append(i.WriteFailureReport(plan=self._job.plan, number=number, failure=error.failure))
        if delay is None:
            return instructions + self._end(JobStatus.FAILED, error)
        self._error = error
        self._notify_scheduler(s.ExecutionFailed())
        self._enter(JobPhase.BACKING_OFF, self._now + delay)
        name = printable(self._job.plan.settings.job_name, 200)
        instructions += [*_printed(error), i.Warn(text=_restarts(name, error, delay, recorder))]
        if recorder.repeated_failures == STUCK_AFTER_FAILURES:
            instructions.append(i.Warn(text=_stuck(name, error)))
        return [*instructions, i.ReleaseSlots(must=False)]

    def _abandon(self) -> Instructions:
        """Wait for manifests being written: they may still complete a checkpoint to roll back to."""
        self._job.recorder.released(self._now)
        self._await_manifests(JobPhase.ABANDONING)
        return []

    def _roll_back(self) -> Instructions:
        if self._coordinator.is_writing:
            return self._fail(storage_timeout(self._options.checkpoints.timeout))
        return self._roll_back_with(self._job.plan) if self._scaling is None else self._await_slots()

    def _roll_back_with(self, plan: JobPlan) -> Instructions:
        assert self._error is not None
        self._enter(JobPhase.DEPLOYING)
        try:
            return self._job.roll_back(self._error, plan)
        except MillstreamError as error:
            # Another attempt would fail in the same way.
            return self._end(JobStatus.FAILED, error)

    # --- the end

    def _finished(self) -> Instructions:
        return self._end(JobStatus.FINISHED, None)

    def _end(self, outcome: JobStatus, error: Exception | None) -> Instructions:
        """Begin the shutdown with an outcome."""
        self._error = error
        self._notify_scheduler(s.JobEnded())
        self._job.recorder.ends(outcome, self._now)
        self._shutdown = Shutdown(self._job, outcome, "" if error is None else str(error))
        self._enter(JobPhase.ENDING)
        return []

    def _continue_shutdown(self) -> Instructions:
        assert self._shutdown is not None
        if self._awaits_manifests and self._coordinator.is_writing:
            # The checkpoint may still become visible: leave its output to the job that restores it.
            self._shutdown.skip()
            self._enter(JobPhase.ENDING)
            return [self._cleanup_failed(storage_timeout(MANIFEST_TIMEOUT))]
        self._enter(JobPhase.ENDING)
        step = self._shutdown.next()
        if step is ShutdownStep.AWAIT_MANIFESTS:
            self._await_manifests(JobPhase.ENDING, MANIFEST_TIMEOUT)
        return self._finish() if step is None else self._shutdown.instructions(step)

    def _cleanup_failed(self, error: Exception) -> i.Warn:
        return i.Warn(text=f"while ending job '{self._job.plan.settings.job_name}': {error}")

    def _finish(self) -> Instructions:
        recorder, settings, error = self._job.recorder, self._job.plan.settings, self._error
        outcome = recorder.finish(self._now)
        self._enter(JobPhase.ENDED, math.inf)
        printed, result = _printed(error), None
        if outcome is JobStatus.FINISHED:
            result = recorder.result(self._now)
        elif outcome is JobStatus.CANCELED:
            error = JobCancelledError(f"Job '{settings.job_name}' ({settings.job_id}) was cancelled.")
        refused = [self._refusal(request) for request in self.unanswered()]
        return [*printed, i.Finish(result=result, error=error), *refused]

    # --- steps

    # The handler of each event.
    _HANDLERS = (
        MethodDispatch["JobMachine", [], Instructions]()
        .on(e.JobStarted, _job_started)
        .on(e.TimePassed, _time_passed)
        .on(e.InstructionFailed, _instruction_failed)
        .on(e.CancelRequested, _cancel_requested)
        .on(e.SuspendRequested, _suspend_requested)
        .on(e.Requested, RequestServer.requested)
        .on(e.SlotsOpened, _slots_opened)
        .on(e.SourcesPolled, EpochCycle.sources_polled)
        .on(e.InputArrived, EpochCycle.input_arrived)
        .on(e.SlotsLost, EpochCycle.slots_lost)
        .on(e.SlotsCounted, RequestServer.slots_counted)
        .on(e.PositionsRead, EpochCycle.positions_read)
        .on(e.EpochFinished, EpochCycle.epoch_finished)
        .on(e.ManifestWritten, _manifest_written)
        .on(e.ManifestFailed, _manifest_failed)
        .on(e.OutputOpened, _output_opened)
        .on(e.OutputCommitted, _output_committed)
        .on(e.CheckpointsDiscarded, _checkpoints_discarded)
        .on(e.OriginDeleted, _origin_deleted)
        .on(e.Replanned, RequestServer.replanned)
        .on(e.SavepointWritten, RequestServer.savepoint_written)
    )

    # What follows each phase when its instructions are done and its deadline has passed. Other phases wait for events.
    _CONTINUATIONS: ClassVar[dict[JobPhase, Callable[[JobMachine], Instructions]]] = {
        JobPhase.OPENING: _deploy,
        JobPhase.WAITING_FOR_SLOTS: _slots_awaited,
        JobPhase.DEPLOYING: _deployed,
        JobPhase.READY: EpochCycle.next_step,
        JobPhase.WAITING: EpochCycle.resume_reading,
        JobPhase.EPOCH_ENDED: EpochCycle.epoch_ended,
        JobPhase.AWAITING_MANIFEST: EpochCycle.gather,
        JobPhase.GATHERING: EpochCycle.resume_reading,
        JobPhase.DELAYING: EpochCycle.start_checkpoint,
        JobPhase.SNAPSHOTTING: EpochCycle.take_checkpoint,
        JobPhase.WRITING: EpochCycle.checkpoint_written,
        JobPhase.SERVING: RequestServer.served_checkpoint,
        JobPhase.EXPORTING: RequestServer.export,
        JobPhase.BACKING_OFF: _abandon,
        JobPhase.ABANDONING: _roll_back,
        JobPhase.FINISHED: _finished,
        JobPhase.ENDING: _continue_shutdown,
    }


# In these phases an error may concern only the request.
_REQUEST_ALONE = (JobPhase.REPLANNING, JobPhase.SERVING, JobPhase.EXPORTING)


def _restarts(name: str, error: Exception, delay: float, recorder: StatusRecorder) -> str:
    when = f"restarts in {delay:.3g} s (restart {recorder.restarts})"
    if recorder.repeated_failures > 1:
        # The error was logged when it first happened.
        times = recorder.repeated_failures
        return f"job '{name}' has failed again with the same error, {times} times in a row, and {when}"
    return f"job '{name}' has failed and {when}:\n{error}"


def _stuck(name: str, error: Exception) -> str:
    # The line with the message, before the line with the operator.
    message = str(error).partition("\nin operator '")[0].strip()
    last_line = message.splitlines()[-1:] or [type(error).__name__]
    return (
        f"job '{name}' has failed {STUCK_AFTER_FAILURES} times in a row with the same error ({last_line[0]}) and "
        "completed no epoch in between: restarts do not seem to help. Its restart strategy keeps restarting it."
    )


def _is_unrecoverable(error: Exception) -> bool:
    return isinstance(error, (InvalidProgramError, UnrecoverableError)) or (
        isinstance(error, EpochFailed) and error.unrecoverable
    )


def _printed(error: Exception | None) -> Instructions:
    """Print and log the output of user code before the failure."""
    if not isinstance(error, EpochFailed):
        return []
    printed: Instructions = [i.Print(text=error.printed)] if error.printed else []
    return [*printed, i.Log(lines=error.logged)] if error.logged else printed
