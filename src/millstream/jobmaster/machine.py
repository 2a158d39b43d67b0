"""The job machine: everything that decides what a job does next, from its start to its end.

Pure: it is told what has happened and says what to do. No clock, thread, file or engine. `JobMaster` carries the
instructions out, on Spark, in this process, or in a simulation, and tells what came of them.

    OPENING -> DEPLOYING -> READY -> POLLING -+-> EPOCH -> EPOCH_ENDED -> LINGERING -> GATHERING -+-> READY
                                              '-> WAITING ----------------------------------------'

    from READY, for a request:     EPOCH -> EPOCH_ENDED -> SERVING (-> EXPORTING) -> READY
    from READY, to rescale:        REPLANNING -> EPOCH -> EPOCH_ENDED -> DEPLOYING -> READY
    from READY, at the end:        STORING (-> PAUSING -> TAKING -> STORING ...) -> FINISHED -> ENDING
    before EPOCH, at most once:    TAKING -> STORING (-> PAUSING -> TAKING ...)
    from anywhere, at a failure:   BACKING_OFF -> ABANDONING -> DEPLOYING -> READY, or ENDING
    from anywhere, cancelled:      ENDING -> OVER

The rules of the protocol are in three places: here, what follows what; in `coordinator.py`, checkpoints and output; in
`execution.py`, what the subtasks have left behind. `chronicle.py` keeps what others want to know.

Three promises of the job master make it simple. Instructions are carried out one after the other, and what comes from
outside (a request, a cancellation, a manifest that was written) is told only when nothing is left to do. When one
fails, those behind it are dropped, and the machine is told. When nothing is left to do and nothing comes from outside,
it is told the time at its deadline.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, ClassVar

from millstream.checkpoint.manifest import Manifest
from millstream.checkpoint.restore import Start, restore
from millstream.checkpoint.snapshot import Snapshot
from millstream.common.errors import (
    DamagedStateError,
    InvalidProgramError,
    JobCancelledError,
    JobExecutionError,
    MillstreamError,
)
from millstream.common.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from millstream.common.job_status import JobStatus
from millstream.jobmaster import events as e
from millstream.jobmaster import instructions as i
from millstream.jobmaster.chronicle import Chronicle
from millstream.jobmaster.coordinator import Checkpoint, Coordinator
from millstream.jobmaster.engine import EpochFailed
from millstream.jobmaster.execution import Execution, Positions, merged
from millstream.jobmaster.options import JobOptions
from millstream.jobmaster.regions import combine, operators_in, region_of
from millstream.jobmaster.requests import (
    Request,
    RequestFailedError,
    RescaleRequest,
    SavepointRequest,
)
from millstream.jobmaster.view import JobView
from millstream.operators.protocol import JobPlan, Shares, SlotReport

Instructions = list[i.Instruction]

# So long an epoch waits for a manifest: most are written by then, and their output counts at once.
_PATIENCE = 0.05

# So long a job that ends before its time waits for the manifests that are being written.
_LAST_PATIENCE = 10.0


class Step(Enum):
    """What the machine is at."""

    # The directory is taken, and the output of the checkpoint that the job goes on from is recovered.
    OPENING = auto()
    # Slots are opened.
    DEPLOYING = auto()
    # Nothing is under way.
    READY = auto()
    POLLING = auto()
    # There is nothing to do before input, a timer or a checkpoint is due.
    WAITING = auto()
    EPOCH = auto()
    EPOCH_ENDED = auto()
    # The manifest of the epoch's checkpoint is usually there in a moment.
    LINGERING = auto()
    # Input gathers for the rest of the buffer timeout.
    GATHERING = auto()
    # A checkpoint without an epoch: until one may be taken, until it is known how far sources are, until it is stored.
    PAUSING = auto()
    TAKING = auto()
    STORING = auto()
    # A request: a plan is made, its checkpoint is stored, its savepoint is written.
    REPLANNING = auto()
    SERVING = auto()
    EXPORTING = auto()
    # A failure: until the restart strategy lets the job start again, until no manifest is being written.
    BACKING_OFF = auto()
    ABANDONING = auto()
    # All input has been processed and all output counts.
    FINISHED = auto()
    ENDING = auto()
    OVER = auto()


class Why(Enum):
    """What a checkpoint without an epoch is for."""

    # At most once: what is about to be processed counts as processed from here on.
    NOTE_POSITION = auto()
    # All input was processed, and the last checkpoint may have failed: all output must count all the same.
    COMMIT_REST = auto()


@dataclass(frozen=True, kw_only=True)
class _Epoch:
    """What an epoch shall do, and what comes behind it."""

    shares: Shares = field(default_factory=dict)
    ending: frozenset[int] = frozenset()
    limited: bool = False
    checkpoint: bool = False
    flush: bool = False
    savepoint: str | None = None
    # Whether a snapshot is wanted at its end, whatever else.
    cut: bool = False
    then: Step = Step.READY


class JobMachine:
    """One job, whatever happens to it."""

    def __init__(self, plan: JobPlan, options: JobOptions, now: float) -> None:
        self._options = options
        self._plan = plan
        self._now = now
        self._coordinator = Coordinator(options.checkpoints, now, options.origin)
        self._chronicle = Chronicle(plan, self._coordinator, now)
        self._step = Step.OPENING
        # When the machine goes on by itself; at once when it awaits manifests and none is being written.
        self._until = math.inf
        self._awaits_manifests = False
        # Numbers the executions, so that no two ever write under the same name.
        self._attempt = -1
        self._execution: Execution | None = None
        # How far sources were when that was last noted.
        self._positions: Positions = {}
        # Where parts of the job can fail alone, what the others go on from.
        self._last_cut: Snapshot | None = None
        self._has_regions = False
        # The epoch that is to be run; the one that was begun last, when, its checkpoint, and what it came to.
        self._wanted = self._epoch = _Epoch()
        self._began = now
        self._taken: Checkpoint | None = None
        self._reports: list[SlotReport] = []
        # Whether anything has happened since the last checkpoint.
        self._changed = False
        self._transactional: frozenset[str] = frozenset()
        self._wants_checkpoints = False
        # What a checkpoint without an epoch is for, and the last complete one before it.
        self._why = Why.NOTE_POSITION
        self._noted: Checkpoint | None = None
        self._requests: deque[Request] = deque()
        # The request that is being served, the last complete checkpoint before it, and the plan it is about.
        self._served: Request | None = None
        self._before: Checkpoint | None = None
        self._new_plan = plan
        self._stopped = False
        # What the first execution starts from.
        self._start = Start()
        # Why the job has failed last, or fails for good.
        self._error: Exception | None = None
        self._endings: deque[Callable[[], Instructions]] = deque()

    # --- what the job master sees

    @property
    def view(self) -> JobView:
        """The job as it is after the last event."""
        return self._chronicle.view

    @property
    def is_over(self) -> bool:
        return self._step is Step.OVER

    @property
    def deadline(self) -> float:
        """When to tell the time, if nothing else happens before."""
        return min(self._own_deadline, self._coordinator.next_expiry())

    @property
    def _own_deadline(self) -> float:
        return -math.inf if self._awaits_manifests and not self._coordinator.is_writing else self._until

    def handle(self, event: e.Event, now: float) -> Instructions:
        """Take note of what has happened; return what to do."""
        self._now = now
        instructions = self._HANDLERS[type(event)](self, event)
        self._chronicle.look()
        return instructions

    # --- what comes from outside

    def _requested(self, event: e.Requested) -> Instructions:
        if self._step is Step.OVER:
            return [self._refusal(event.request)]
        self._requests.append(event.request)
        if self._step in (Step.WAITING, Step.GATHERING):
            self._go(Step.READY)
        return []

    def _cancel_asked(self, event: e.CancelAsked) -> Instructions:
        return [] if self._is_ending else self._end(JobStatus.CANCELED, None)

    def _manifest_written(self, event: e.ManifestWritten) -> Instructions:
        instructions = self._coordinator.written(event.checkpoint, event.location, self._now)
        return self._checkpoint_answered(instructions)

    def _manifest_lost(self, event: e.ManifestLost) -> Instructions:
        why = self._coordinator.lost(event.checkpoint, event.reason, self._now)
        warning = i.Warn(text=f"checkpoint {event.checkpoint} failed: {event.reason}")
        # It may be on storage in spite of what was said.
        instructions = self._checkpoint_answered([warning, *self._coordinator.clean_up()])
        return instructions + self._fail_by_checkpoints(why)

    def _checkpoint_answered(self, instructions: Instructions) -> Instructions:
        self._look_at_checkpoints()
        if self._step is Step.WAITING:
            # Another one may be due.
            self._go(Step.READY)
        # Whose output has been given up has no use for it any more.
        return [] if self._is_ending and self._abort_staged not in self._endings else instructions

    def _time_passed(self, event: e.TimePassed) -> Instructions:
        only_expiry = self._coordinator.next_expiry() < self._own_deadline
        instructions: Instructions = []
        if self._coordinator.next_expiry() <= self._now:
            why = self._coordinator.expire(self._now)
            self._look_at_checkpoints()
            instructions = self._coordinator.clean_up()
            if failed := self._fail_by_checkpoints(why):
                return instructions + failed
        return instructions if only_expiry else instructions + self._CONTINUATIONS[self._step](self)

    def _fail_by_checkpoints(self, why: str | None) -> Instructions:
        """Fail when too many checkpoints have failed; a job that ends or goes back has other cares."""
        busy = self._is_ending or self._step in (Step.BACKING_OFF, Step.ABANDONING, Step.DEPLOYING)
        return [] if why is None or busy else self._fail(JobExecutionError(why))

    def _step_failed(self, event: e.StepFailed) -> Instructions:
        if not self._is_ending:
            return self._fail(event.error)
        # The job's own outcome is what the user must hear; this is only what was left behind.
        return [self._left_behind(event.error)]

    # --- opening

    def _job_started(self, event: e.JobStarted) -> Instructions:
        self._chronicle.become(JobStatus.CREATED, self._now)
        instructions: Instructions = [i.TakeDirectory(), i.OpenOutput(plan=self._plan)]
        self._start, origin = Start(), self._options.origin
        if origin is not None:
            snapshot = origin.manifest.snapshot
            try:
                self._start = restore(snapshot, self._plan, origin.state_url, origin.allow_non_restored)
            except MillstreamError as error:
                return self._fail(error)
            instructions.append(i.RecoverOutput(named=snapshot.committables, former_job_id=snapshot.job_id))
        self._go(Step.OPENING)
        return instructions

    def _deploy(self) -> Instructions:
        return self._execute(self._plan, self._start)

    def _execute(self, plan: JobPlan, start: Start) -> Instructions:
        """Begin a new execution, with slots of its own."""
        self._attempt += 1
        self._plan = plan
        self._execution = Execution(plan, start)
        # A source of which nothing is said begins at its beginning.
        self._positions = start.sources
        self._changed = start.epoch > 0
        self._has_regions = region_of(plan, plan.vertices[0].head.id) is not None
        self._chronicle.deployed(plan, self._attempt, self._now)
        self._go(Step.DEPLOYING)
        return [i.OpenSlots(plan=plan, attempt=self._attempt, positions=start.sources)]

    def _deployed(self) -> Instructions:
        self._chronicle.running(self._now)
        self._remember_cut()
        return self._answer(None) if isinstance(self._served, RescaleRequest) else self._ready()

    # --- between two epochs

    def _next(self) -> Instructions:
        """Decide what is next: nothing is under way."""
        execution = self._running()
        if self._stopped or execution.is_finished:
            return self._store(Why.COMMIT_REST)
        if self._requests:
            return self._serve(self._requests.popleft())
        self._began = self._now
        self._go(Step.POLLING, math.inf)
        return [
            i.PollSources(
                budget=self._options.sizer.budget,
                readable=execution.readable_sources(),
                running=execution.running_sources(),
            )
        ]

    def _sources_polled(self, event: e.SourcesPolled) -> Instructions:
        shares, ending, running = event.shares, event.finished, self._running().running_sources()
        due = self._coordinator.next_due() <= self._now and (self._has_news or bool(shares))
        if not shares and not ending and not due and self._next_wake() > self._now:
            due_at = self._coordinator.next_due() if self._has_news else math.inf
            self._go(Step.WAITING, min(event.poll_again, due_at, self._next_wake()))
            return []
        last = ending == running and self._options.checkpoints.enabled
        return self._begin(_Epoch(shares=shares, ending=ending, limited=event.limited, checkpoint=due or last))

    @property
    def _has_news(self) -> bool:
        """Whether there is a reason to take a checkpoint."""
        return self._changed or self._wants_checkpoints

    def _next_wake(self) -> float:
        wake = self._running().next_wake()
        return math.inf if wake is None else wake / 1000

    def _ready(self) -> Instructions:
        self._go(Step.READY)
        return []

    # --- an epoch

    def _begin(self, epoch: _Epoch) -> Instructions:
        self._wanted = epoch
        if not self._options.at_most_once:
            return self._run(epoch)
        if not self._running().owns_its_state:
            # A snapshot would be without the state: an epoch without input makes it the job's own.
            return self._run(_Epoch(then=Step.TAKING))
        return self._note_position()

    def _note_position(self) -> Instructions:
        """At most once: what is about to be processed counts as processed from here on."""
        self._noted, self._why = self._coordinator.latest(), Why.NOTE_POSITION
        return self._take()

    def _run(self, epoch: _Epoch) -> Instructions:
        options, execution = self._options.checkpoints, self._running()
        wanted = epoch.checkpoint and not self._options.at_most_once
        self._taken = self._trigger() if wanted else None
        latest = self._coordinator.latest()
        number = execution.epoch if epoch.savepoint else None
        tasks = execution.tasks(
            epoch.shares,
            epoch.ending,
            checkpoint=number if self._taken is None else self._taken.id,
            flush=epoch.flush or wanted,
            whole_state=wanted and options.incremental is False,
            savepoint=epoch.savepoint,
            last_checkpoint=0 if latest is None else latest.id,
        )
        self._epoch = epoch
        self._go(Step.EPOCH, math.inf)
        # What a snapshot says of the sources is how far they were when the epoch was sent.
        cut = wanted or epoch.cut or self._has_regions
        return [*([i.NotePositions()] if cut else []), i.RunEpoch(tasks=tasks)]

    def _positions_noted(self, event: e.PositionsNoted) -> Instructions:
        self._positions = event.positions
        return []

    def _epoch_finished(self, event: e.EpochFinished) -> Instructions:
        """Everything the epoch did counts from here on."""
        reports, execution, coordinator = merged(event.reports), self._running(), self._coordinator
        self._reports, self._changed = reports, True
        written, replaced = execution.acknowledge(reports)
        coordinator.wrote(written)
        self._chronicle.epoch_finished(execution.epoch, reports, execution.ended, self._now)
        printed = "".join(r.printed for r in reports)
        instructions: Instructions = [i.Print(text=printed)] if printed else []
        instructions += self._stage(reports)
        if replaced:
            instructions += coordinator.delete_unneeded(execution.live_files())
        self._go(Step.EPOCH_ENDED)
        return instructions

    def _stage(self, reports: list[SlotReport]) -> Instructions:
        """Keep output until a checkpoint names it; what need not wait is committed at once."""
        at_once: dict[str, list[tuple[int, Any]]] = {}
        waiting = self._transactional if self._options.exactly_once else frozenset()
        for report in (r for slot in reports for r in slot.subtasks):
            for operator, committable in report.committables.items():
                if operator in waiting:
                    self._coordinator.stage(operator, report.subtask, committable)
                else:
                    at_once.setdefault(operator, []).append((report.subtask, committable))
        return [i.CommitOutput(staged=at_once)] if at_once else []

    def _acknowledge(self, checkpoint: Checkpoint) -> Instructions:
        execution = self._running()
        snapshot, written = execution.snapshot(self._positions), execution.take_written()
        instructions = self._coordinator.acknowledge(checkpoint.id, snapshot, self._now, written)
        self._look_at_checkpoints()
        return instructions

    def _epoch_ended(self) -> Instructions:
        """The epoch counts, and what need not wait is committed: its checkpoint names what then still waits."""
        epoch, seconds = self._epoch, self._now - self._began
        instructions: Instructions = []
        if self._taken is not None:
            self._changed = False
            instructions = self._acknowledge(self._taken)
        elif not self._options.checkpoints.enabled:
            instructions = [i.ConfirmSources(positions=None)]
        self._remember_cut()
        if epoch.then is not Step.READY:
            return instructions + self._after_own_epoch(epoch.then)
        self._learn(seconds, epoch.limited)
        self._go(Step.LINGERING, self._now + _PATIENCE, awaits_manifests=True)
        return instructions

    def _after_own_epoch(self, then: Step) -> Instructions:
        if then is Step.TAKING:
            return self._note_position()
        if isinstance(self._served, RescaleRequest):
            return self._rescale(self._served)
        self._go(Step.SERVING, self._now + self._options.checkpoints.timeout, awaits_manifests=True)
        return []

    def _remember_cut(self) -> None:
        """Where parts of the job can fail alone, know what the others go on from."""
        execution = self._running()
        whole = self._has_regions and execution.owns_its_state
        self._last_cut = execution.snapshot(self._positions) if whole else None

    def _learn(self, seconds: float, limited: bool) -> None:
        subtasks = [r for slot in self._reports for r in slot.subtasks]
        read = max((r.records_in for r in subtasks if r.vertex in self._running().sources), default=0)
        sent = max((r.bytes_out for r in subtasks), default=0)
        self._options.sizer.finished(seconds, limited, read, sent)
        self._chronicle.epoch_took(seconds)

    def _gather(self) -> Instructions:
        """Nothing waits: let input gather for the rest of the buffer timeout."""
        if self._epoch.limited or self._running().is_finished:
            return self._ready()
        self._go(Step.GATHERING, self._began + self._options.buffer_timeout)
        return []

    # --- output and storage

    def _output_opened(self, event: e.OutputOpened) -> Instructions:
        self._transactional = event.transactional
        return []

    def _output_committed(self, event: e.OutputCommitted) -> Instructions:
        self._coordinator.output_waits(event.waiting)
        self._wants_checkpoints = event.wants_checkpoints
        if event.checkpoint is None:
            return []
        instructions = self._coordinator.committed(event.checkpoint)
        self._look_at_checkpoints()
        return instructions

    def _checkpoints_discarded(self, event: e.CheckpointsDiscarded) -> Instructions:
        self._coordinator.discarded(event.checkpoints)
        self._look_at_checkpoints()
        return self._coordinator.delete_unneeded(self._running().live_files())

    def _origin_deleted(self, event: e.OriginDeleted) -> Instructions:
        self._coordinator.origin_deleted()
        return []

    # --- a checkpoint without an epoch

    def _store(self, why: Why) -> Instructions:
        """Wait until no manifest is being written; then see whether that is enough."""
        self._why = why
        self._go(Step.STORING, self._now + self._options.checkpoints.timeout, awaits_manifests=True)
        return []

    def _take(self) -> Instructions:
        self._go(Step.TAKING)
        return [i.NotePositions()]

    def _taken_at_once(self) -> Instructions:
        instructions = self._acknowledge(self._trigger())
        return instructions + self._store(self._why)

    def _stored(self) -> Instructions:
        if self._coordinator.is_writing:
            return self._fail(self._silence(self._options.checkpoints.timeout))
        if self._why is Why.NOTE_POSITION:
            if self._coordinator.latest() is not self._noted:
                return self._run(self._wanted)
        elif not self._coordinator.has_staged():
            self._go(Step.FINISHED)
            return [i.FinishOutput()]
        # It has failed: another one, as soon as it is due.
        self._go(Step.PAUSING, self._coordinator.next_due())
        return []

    def _silence(self, patience: float) -> JobExecutionError:
        return JobExecutionError(f"The storage of checkpoints has not answered for {patience:g} s.")

    # --- requests

    def _serve(self, request: Request) -> Instructions:
        self._served, self._before = request, self._coordinator.latest()
        enabled = self._options.checkpoints.enabled
        if isinstance(request, RescaleRequest):
            self._go(Step.REPLANNING, math.inf)
            return [i.Replan(parallelism=request.parallelism)]
        if isinstance(request, SavepointRequest):
            ending = self._running().running_sources() if request.drain else frozenset()
            # What was staged counts before the savepoint is complete, so that the savepoint need not name it.
            savepoint = self._location(request)
            return self._begin(self._own_epoch(checkpoint=enabled, ending=ending, savepoint=savepoint))
        if not enabled:
            return self._refuse(
                InvalidProgramError(
                    "The job takes no checkpoints: set execution.checkpointing.interval, or take a savepoint."
                )
            )
        return self._begin(self._own_epoch(checkpoint=True))

    def _own_epoch(self, **about: Any) -> _Epoch:
        """Return an epoch that reads nothing, for a request."""
        self._began = self._now
        return _Epoch(flush=True, cut=True, then=Step.SERVING, **about)

    def _location(self, request: SavepointRequest) -> str:
        job = self._plan.settings.job_id
        return f"{request.directory.rstrip('/')}/savepoint-{job[:6]}-{request.name}"

    def _replanned(self, event: e.Replanned) -> Instructions:
        self._new_plan = event.plan
        return self._begin(self._own_epoch(checkpoint=self._options.checkpoints.enabled))

    def _rescale(self, request: RescaleRequest) -> Instructions:
        try:
            start = restore(self._running().snapshot(self._positions), self._new_plan, None)
        except InvalidProgramError as error:
            return self._refuse(error)
        # The old slots go first: there may be no room for both.
        return [i.ReleaseSlots(), *self._execute(self._new_plan, start)]

    def _served_checkpoint(self) -> Instructions:
        """The epoch of a request has ended, and its manifest is written, if it was to have one."""
        if self._coordinator.is_writing:
            return self._fail(self._silence(self._options.checkpoints.timeout))
        latest = self._coordinator.latest()
        if self._options.checkpoints.enabled and (latest is None or latest is self._before):
            return self._refuse(RequestFailedError(f"The checkpoint failed: {self._coordinator.history[-1].reason}"))
        if isinstance(self._served, SavepointRequest):
            self._go(Step.EXPORTING)
            return [i.FinishOutput()]
        assert latest is not None
        return self._answer(latest.location)

    def _export(self) -> Instructions:
        assert isinstance(self._served, SavepointRequest)
        snapshot = self._running().savepoint(self._positions)
        manifest = Manifest("savepoint", snapshot.epoch, int(self._now * 1000), snapshot, "")
        self._go(Step.EXPORTING, math.inf)
        return [i.WriteSavepoint(location=self._location(self._served), manifest=manifest)]

    def _savepoint_written(self, event: e.SavepointWritten) -> Instructions:
        assert isinstance(self._served, SavepointRequest)
        self._stopped = self._served.stop
        return self._answer(event.location)

    def _answer(self, result: Any) -> Instructions:
        assert self._served is not None
        request, self._served = self._served, None
        self._go(Step.READY)
        return [i.Answer(request=request, result=result)]

    def _refuse(self, error: Exception) -> Instructions:
        """What is asked cannot be done; the job goes on."""
        assert self._served is not None
        request, self._served = self._served, None
        self._go(Step.READY)
        return [i.Refuse(request=request, error=error)]

    def _refusal(self, request: Request) -> i.Refuse:
        text = f"Job '{self._plan.settings.job_name}' is not running: it is {self._chronicle.status.name}."
        return i.Refuse(request=request, error=MillstreamError(text))

    # --- failure

    def _fail(self, error: Exception) -> Instructions:
        """Something went wrong: the restart strategy says whether the job goes back to its last checkpoint."""
        instructions: Instructions = []
        if self._served is not None:
            goes_on = self._step in _REQUEST_ALONE and isinstance(error, (InvalidProgramError, RequestFailedError))
            instructions = self._refuse(error)
            if goes_on:
                return instructions
        delay = None
        if self._chronicle.status is not JobStatus.CREATED and not isinstance(error, InvalidProgramError):
            delay = self._options.restart.failed(self._now)
        self._chronicle.failed(error, delay, self._now)
        if delay is None:
            return instructions + self._end(JobStatus.FAILED, error)
        self._error = error
        self._go(Step.BACKING_OFF, self._now + delay)
        name, number = self._plan.settings.job_name, self._chronicle.restarts
        text = f"job '{name}' has failed and restarts in {delay:g} s (restart {number}):\n{error}"
        return [*instructions, *_printed(error), i.Warn(text=text), i.ReleaseSlots(must=False)]

    def _abandon(self) -> Instructions:
        """What is complete when no manifest is being written any more can be gone back to."""
        self._chronicle.released(self._now)
        self._go(Step.ABANDONING, self._now + self._options.checkpoints.timeout, awaits_manifests=True)
        return []

    def _go_back(self) -> Instructions:
        if self._coordinator.is_writing:
            return self._fail(self._silence(self._options.checkpoints.timeout))
        error, region = self._error, None
        if self._last_cut is not None and isinstance(error, EpochFailed):
            region = region_of(self._plan, error.operator_id)
        operators = None if region is None else operators_in(self._plan, region)
        target = self._coordinator.failed(self._now, operators)
        instructions: Instructions = []
        if target is not None and _is_damaged(error):
            damaged, target = target, self._coordinator.give_up(target)
            instructions.append(_warn_of_damage(damaged, target))
        if self._options.at_most_once and target is not None:
            region = operators = None
        back = self._start_from(target)
        if region is not None and self._last_cut is not None:
            # The others only run the epoch again that failed for all.
            back = combine(self._plan, region, back, restore(self._last_cut, self._plan, None))
        self._look_at_checkpoints()
        # Before any output is aborted that one of them names.
        instructions.append(i.DiscardOthers(kept=self._coordinator.kept()))
        instructions.append(self._recovery(target, operators))
        instructions += self._execute(self._plan, back)
        return instructions + self._coordinator.sweep(self._running().live_files())

    def _recovery(self, checkpoint: Checkpoint | None, operators: set[str] | None) -> i.RecoverOutput:
        """Commit the output that a checkpoint names, and abort all other; of all sinks, or of some."""
        if checkpoint is None:
            return i.RecoverOutput(named={}, former_job_id=self._plan.settings.job_id, operators=operators)
        cut = checkpoint.cut
        return i.RecoverOutput(named=cut.committables, former_job_id=cut.job_id, operators=operators)

    def _start_from(self, checkpoint: Checkpoint | None) -> Start:
        if checkpoint is None:
            return Start(self._running().epoch)
        origin = self._options.origin
        if origin is not None and checkpoint.cut is origin.manifest.snapshot:
            return restore(checkpoint.cut, self._plan, origin.state_url, origin.allow_non_restored)
        return restore(checkpoint.cut, self._plan, None)

    # --- the end

    def _finished(self) -> Instructions:
        return self._end(JobStatus.FINISHED, None)

    @property
    def _is_ending(self) -> bool:
        return self._chronicle.outcome is not None

    def _end(self, outcome: JobStatus, error: Exception | None) -> Instructions:
        """The job ends so. What is left behind is tidied up step by step, each whatever comes of the one before."""
        self._error = error
        self._chronicle.ends(outcome, self._now)
        self._endings.append(lambda: [i.ReleaseSlots()])
        if self._execution is not None:
            if outcome is not JobStatus.FINISHED:
                # What was committed counts, and shall not wait for somebody who may never come.
                self._endings += [lambda: [i.FinishOutput()], self._await_last_manifests, self._abort_staged]
            self._endings += [lambda: [i.CloseSources()], lambda: [i.CloseOutput()], self._leave_checkpoints]
        self._endings += [lambda: [i.CleanUp()], self._finish]
        self._go(Step.ENDING)
        return []

    def _end_on(self) -> Instructions:
        silent = self._awaits_manifests and self._coordinator.is_writing
        self._go(Step.ENDING)
        step = self._endings.popleft()
        # Nobody must start from a checkpoint whose output is aborted. Where that is not sure, the output is left to
        # whoever goes on with the job.
        return [self._left_behind(self._silence(_LAST_PATIENCE))] if silent else step()

    def _left_behind(self, error: Exception) -> i.Warn:
        return i.Warn(text=f"while ending job '{self._plan.settings.job_name}': {error}")

    def _await_last_manifests(self) -> Instructions:
        patience = min(_LAST_PATIENCE, self._options.checkpoints.timeout)
        self._go(Step.ENDING, self._now + patience, awaits_manifests=True)
        return []

    def _abort_staged(self) -> Instructions:
        """The job ends before its time: output that no checkpoint names will never count."""
        target = self._coordinator.failed(self._now)
        self._look_at_checkpoints()
        return [i.DiscardOthers(kept=self._coordinator.kept()), self._recovery(target, None)]

    def _leave_checkpoints(self) -> Instructions:
        """Delete the job's checkpoints, or leave those that are wanted."""
        outcome = self._chronicle.outcome
        instructions = self._coordinator.drop_origin() if outcome is JobStatus.FINISHED else []
        if not _outlive(self._options.checkpoints.retention, outcome):
            return [*instructions, i.RemoveDirectory()]
        instructions += self._coordinator.clean_up()
        return [*instructions, *self._coordinator.sweep(set()), i.ReleaseDirectory()]

    def _finish(self) -> Instructions:
        outcome, error = self._chronicle.outcome, self._error
        assert outcome is not None
        self._chronicle.released(self._now)
        self._chronicle.become(outcome, self._now)
        self._go(Step.OVER, math.inf)
        printed, result = _printed(error), None
        if outcome is JobStatus.FINISHED:
            result = self._chronicle.result(self._now)
        elif outcome is JobStatus.CANCELED:
            settings = self._plan.settings
            error = JobCancelledError(f"Job '{settings.job_name}' ({settings.job_id}) was cancelled.")
        served = [] if self._served is None else [self._served]
        refused = [self._refusal(request) for request in (*served, *self._requests)]
        return [*printed, i.Finish(result=result, error=error), *refused]

    # --- states

    def _go(self, step: Step, until: float = -math.inf, awaits_manifests: bool = False) -> None:
        self._step, self._until, self._awaits_manifests = step, until, awaits_manifests

    def _running(self) -> Execution:
        assert self._execution is not None
        return self._execution

    def _trigger(self) -> Checkpoint:
        checkpoint = self._coordinator.trigger(self._now)
        self._look_at_checkpoints()
        return checkpoint

    def _look_at_checkpoints(self) -> None:
        self._chronicle.look_at_checkpoints(self._coordinator)

    # What follows each event.
    _HANDLERS: ClassVar[dict[type, Callable[[JobMachine, Any], Instructions]]] = {
        e.JobStarted: _job_started,
        e.TimePassed: _time_passed,
        e.StepFailed: _step_failed,
        e.CancelAsked: _cancel_asked,
        e.Requested: _requested,
        e.SourcesPolled: _sources_polled,
        e.PositionsNoted: _positions_noted,
        e.EpochFinished: _epoch_finished,
        e.ManifestWritten: _manifest_written,
        e.ManifestLost: _manifest_lost,
        e.OutputOpened: _output_opened,
        e.OutputCommitted: _output_committed,
        e.CheckpointsDiscarded: _checkpoints_discarded,
        e.OriginDeleted: _origin_deleted,
        e.Replanned: _replanned,
        e.SavepointWritten: _savepoint_written,
    }

    # What follows each step, once all it asked for is done and its time has come. From the others, events lead on.
    _CONTINUATIONS: ClassVar[dict[Step, Callable[[JobMachine], Instructions]]] = {
        Step.OPENING: _deploy,
        Step.DEPLOYING: _deployed,
        Step.READY: _next,
        Step.WAITING: _ready,
        Step.EPOCH_ENDED: _epoch_ended,
        Step.LINGERING: _gather,
        Step.GATHERING: _ready,
        Step.PAUSING: _take,
        Step.TAKING: _taken_at_once,
        Step.STORING: _stored,
        Step.SERVING: _served_checkpoint,
        Step.EXPORTING: _export,
        Step.BACKING_OFF: _abandon,
        Step.ABANDONING: _go_back,
        Step.FINISHED: _finished,
        Step.ENDING: _end_on,
    }


# In these, an error may concern only what was asked for.
_REQUEST_ALONE = (Step.REPLANNING, Step.SERVING, Step.EXPORTING)


def _printed(error: Exception | None) -> Instructions:
    """Show what user code printed before it failed."""
    return [i.Print(text=error.printed)] if isinstance(error, EpochFailed) and error.printed else []


def _is_damaged(error: Exception | None) -> bool:
    return isinstance(error, DamagedStateError) or (isinstance(error, EpochFailed) and error.damaged)


def _warn_of_damage(damaged: Checkpoint, target: Checkpoint | None) -> i.Warn:
    back = f"checkpoint {target.id}" if target else "its beginning"
    return i.Warn(
        text=f"checkpoint {damaged.id} cannot be read; the job goes back to {back}. Output that counted since then "
        "comes again."
    )


def _outlive(retention: ExternalizedCheckpointRetention, outcome: JobStatus | None) -> bool:
    """Tell whether checkpoints stay when a job ends so."""
    if outcome is JobStatus.CANCELED:
        return retention is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    return outcome is JobStatus.FAILED and retention is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
