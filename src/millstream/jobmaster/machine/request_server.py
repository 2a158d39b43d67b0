"""Serves requests between two epochs: savepoints, checkpoints, rescaling by a user or by the scheduler. Pure."""

from __future__ import annotations

import math

from millstream.checkpoint.manifest import Manifest
from millstream.checkpoint.restore import restore
from millstream.checkpoint.snapshot import Snapshot
from millstream.common.display_text import printable
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.jobmaster.machine import events as e
from millstream.jobmaster.machine import instructions as i
from millstream.jobmaster.machine import scheduler as s
from millstream.jobmaster.machine.coordinator import Checkpoint
from millstream.jobmaster.machine.epoch_cycle import EpochCycle, storage_timeout
from millstream.jobmaster.machine.job_phases import EpochPlan, JobPhase
from millstream.jobmaster.machine.job_state import Instructions
from millstream.jobmaster.machine.options import JobOptions
from millstream.jobmaster.machine.requests import (
    AdaptiveRescaleRequest,
    CheckpointRequest,
    Request,
    RequestFailedError,
    RequirementsRequest,
    RescaleRequest,
    SavepointRequest,
)
from millstream.operators.runtime.messages import JobPlan

# Requests after which the job continues with another plan.
RESCALES = (RescaleRequest, AdaptiveRescaleRequest)

_ADAPTIVE = (
    "The job's parallelism follows the available slots (jobmanager.scheduler: adaptive): change its bounds with PUT "
    "/jobs/:jobid/resource-requirements, or add slots."
)
_NOT_ADAPTIVE = "The job has a fixed parallelism, and only jobmanager.scheduler: adaptive has bounds: use rescale."


class RequestServer(EpochCycle):
    """The part of the job machine that serves requests and follows the number of slots."""

    def __init__(self, plan: JobPlan, options: JobOptions, now: float) -> None:
        super().__init__(plan, options, now)
        self._show_bounds()
        # The request being served, the last complete checkpoint before it, and the plans it is about.
        self._served: Request | None = None
        self._before: Checkpoint | None = None
        self._new_plan = self._old_plan = plan
        # The snapshot that a rescaled job starts from.
        self._rescale_snapshot: Snapshot | None = None

    # --- slots of an adaptive job

    def _await_slots(self) -> Instructions:
        """Wait for slots: as many as the job can use, or those available at the deadline."""
        assert self._scaling is not None
        self._enter(JobPhase.WAITING_FOR_SLOTS)
        return [i.CountSlots(desired=self._scaling.desired)]

    def _notify_scheduler(self, event: s.Event) -> None:
        if self._scaling is not None:
            self._scaling.handle(event, self._now)

    def _require(self, request: RequirementsRequest) -> Instructions:
        """Change the bounds of an adaptive job's parallelism."""
        if self._scaling is None:
            return [i.Refuse(request=request, error=InvalidProgramError(_NOT_ADAPTIVE))]
        try:
            self._scaling.require(request.bounds, self._now)
        except InvalidProgramError as error:
            return [i.Refuse(request=request, error=error)]
        self._show_bounds()
        return [i.CountSlots(desired=self._scaling.desired), i.Answer(request=request, result=None)]

    def _show_bounds(self) -> None:
        if self._scaling is not None:
            self._job.recorder.bounds = self._scaling.bounds

    def slots_counted(self, event: e.SlotsCounted) -> Instructions:
        self._notify_scheduler(s.SlotsChanged(slots=event.slots))
        return []

    def requested(self, event: e.Requested) -> Instructions:
        if self._phase is JobPhase.ENDED:
            return [self._refusal(event.request)]
        if isinstance(event.request, RequirementsRequest):
            return self._require(event.request)
        self._requests.append(event.request)
        if self._phase in (JobPhase.WAITING, JobPhase.GATHERING):
            self._enter(JobPhase.READY)
        return []

    def _serve(self, request: Request) -> Instructions:
        self._served, self._before = request, self._coordinator.latest()
        self._began = self._now
        enabled = self._options.checkpoints.enabled
        match request:
            case RescaleRequest() if self._scaling is not None:
                return self._refuse(InvalidProgramError(_ADAPTIVE))
            case RescaleRequest():
                self._enter(JobPhase.REPLANNING, math.inf)
                return [i.Replan(parallelism=request.parallelism)]
            case SavepointRequest():
                ending = self._job.execution.running_sources() if request.drain else frozenset()
                # Staged output is committed before the savepoint completes, so the savepoint need not name it.
                plan = self._plan_for_request(
                    checkpoint=enabled, ending=ending, savepoint=self._location(request), drain=request.drain
                )
                return self._begin(plan)
            case CheckpointRequest():
                return (
                    self._begin(self._plan_for_request(checkpoint=True)) if enabled else self._refuse(_no_checkpoints())
                )
            case AdaptiveRescaleRequest():
                assert self._scaling is not None
                return self._rescale_to(self._scaling.plan_for(request.parallelisms))
            case RequirementsRequest():
                raise AssertionError("requirements are handled at once")

    def _plan_for_request(
        self,
        *,
        checkpoint: bool,
        ending: frozenset[int] = frozenset(),
        savepoint: str | None = None,
        drain: bool = False,
    ) -> EpochPlan:
        """Return an epoch plan for a request.

        Sources read nothing in it, not even pending input. With `drain` they read all assigned input before they end.
        """
        return EpochPlan(
            ending=ending,
            slice=math.inf if drain else self._slice,
            reads=drain,
            checkpoint=checkpoint,
            flush=True,
            savepoint=savepoint,
            snapshot=True,
            then=JobPhase.SERVING,
        )

    def _location(self, request: SavepointRequest) -> str:
        job = self._job.plan.settings.job_id
        return f"{request.directory.rstrip('/')}/savepoint-{job[:6]}-{request.name}"

    def replanned(self, event: e.Replanned) -> Instructions:
        return self._rescale_to(event.plan)

    def _rescale_to(self, plan: JobPlan) -> Instructions:
        """Take a snapshot from which the job continues with another plan."""
        self._new_plan = plan
        return self._begin(self._plan_for_request(checkpoint=self._options.checkpoints.enabled))

    def _rescale(self) -> Instructions:
        job = self._job
        self._rescale_snapshot = job.execution.snapshot(job.positions)
        try:
            start = restore(self._rescale_snapshot, self._new_plan, None)
        except MillstreamError as error:
            return self._refuse(error)
        self._enter(JobPhase.DEPLOYING)
        self._old_plan = job.plan
        # Release the old slots first: there may not be enough for both.
        return [i.ReleaseSlots(), *job.begin(self._new_plan, start)]

    def _rescale_back(self, error: Exception) -> Instructions:
        """Restore the old plan from the same snapshot: there are no slots for the new one."""
        refused, job = self._refuse(error), self._job
        assert self._rescale_snapshot is not None
        start = restore(self._rescale_snapshot, self._old_plan, None)
        self._enter(JobPhase.DEPLOYING)
        return [*refused, i.ReleaseSlots(must=False), *job.begin(self._old_plan, start)]

    def served_checkpoint(self) -> Instructions:
        """Answer the request: its epoch has ended and its manifest is written, if it has one."""
        if self._coordinator.is_writing:
            return self._fail(storage_timeout(self._options.checkpoints.timeout))
        # Only the request's own checkpoint counts: another would not name the output of its epoch.
        stored = self._newly_saved() if self._options.at_most_once else self._checkpoint
        if self._options.checkpoints.enabled and (stored is None or not stored.is_complete):
            reason = self._coordinator.history[-1].reason if stored is None else stored.reason
            return self._fail(RequestFailedError(f"The checkpoint failed: {reason}"))
        if isinstance(self._served, SavepointRequest):
            self._enter(JobPhase.EXPORTING)
            return [i.FinishOutput()]
        assert stored is not None
        return self._answer(stored.location)

    def _newly_saved(self) -> Checkpoint | None:
        latest = self._coordinator.latest()
        return None if latest is self._before else latest

    def export(self) -> Instructions:
        assert isinstance(self._served, SavepointRequest)
        snapshot = self._job.execution.savepoint(self._job.positions)
        manifest = Manifest("savepoint", snapshot.epoch, int(self._now * 1000), snapshot, "")
        self._enter(JobPhase.EXPORTING, math.inf)
        return [i.WriteSavepoint(location=self._location(self._served), manifest=manifest)]

    def savepoint_written(self, event: e.SavepointWritten) -> Instructions:
        assert isinstance(self._served, SavepointRequest)
        self._is_stopped = self._served.stop
        return self._answer(event.location)

    def _answer(self, result: str | None) -> Instructions:
        request = self._done_with_request()
        return [i.Answer(request=request, result=result)]

    def _refuse(self, error: Exception) -> Instructions:
        """Refuse the request; the job continues."""
        request = self._done_with_request()
        if isinstance(request, AdaptiveRescaleRequest) and self._scaling is not None:
            # The scheduler requested it, and expects no answer.
            self._scaling.deployed(self._job.plan, self._now)
            name = printable(self._job.plan.settings.job_name, 200)
            return [i.Warn(text=f"job '{name}' could not be rescaled: {error}")]
        return [i.Refuse(request=request, error=error)]

    def _done_with_request(self) -> Request:
        assert self._served is not None
        request, self._served = self._served, None
        self._enter(JobPhase.READY)
        return request

    def _refusal(self, request: Request) -> i.Refuse:
        job = self._job
        text = f"Job '{job.plan.settings.job_name}' is not running: it is {job.recorder.status.name}."
        return i.Refuse(request=request, error=MillstreamError(text))

    def unanswered(self) -> list[Request]:
        """Return the requests that have no answer yet."""
        return [*([] if self._served is None else [self._served]), *self._requests]

    def _continue_request(self) -> Instructions:
        if isinstance(self._served, RESCALES):
            return self._rescale()
        self._await_manifests(JobPhase.SERVING)
        return []


def _no_checkpoints() -> InvalidProgramError:
    return InvalidProgramError(
        "The job takes no checkpoints: set execution.checkpointing.interval, or take a savepoint."
    )
