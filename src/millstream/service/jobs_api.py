"""REST: jobs, and operations on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from millstream.checkpoint.options import CheckpointOptions
from millstream.common.aliases import Json
from millstream.common.configuration import Configuration
from millstream.common.errors import MillstreamError
from millstream.common.job_status import JobStatus
from millstream.common.masking import masked_text
from millstream.graph.transformations import check_parallelism
from millstream.jobmaster.machine.parallelism_bounds import Bounds
from millstream.jobmaster.machine.requests import (
    CheckpointRequest,
    RequirementsRequest,
    RescaleRequest,
    SavepointRequest,
)
from millstream.service.http import (
    RequestError,
    answer,
    body_of,
    id_parameter,
    names_of,
    number_parameter,
    requested_metrics,
)
from millstream.service.logs import JobOutput, RecentLines, text_of
from millstream.service.registry import Entry, Operations, Registry
from millstream.service.responses import checkpoints, jobs, metrics
from millstream.service.responses.metrics import aggregated_metrics, listed_metrics
from millstream.service.responses.tasks import milliseconds

_MAX_EXCEPTIONS = 20


class JobsApi:
    """Handles requests under /jobs."""

    def __init__(
        self,
        registry: Registry,
        operations: Operations,
        clock: Callable[[], float],
        lines: RecentLines,
        output: JobOutput,
    ) -> None:
        """Serve the jobs of a registry.

        Args:
            registry: the jobs.
            operations: asynchronous operations of clients.
            clock: the time in seconds since 1970.
            lines: log lines of this process.
            output: log lines and printed text of user functions.
        """
        self._lines = lines
        self._output = output
        self._registry = registry
        self._clock = clock
        self._operations = operations

    def entry(self, request: Request) -> Entry:
        """Return the job of a request."""
        job_id = id_parameter(request, "jobid", "job id")
        entry = self._registry.find(job_id)
        if entry is None:
            raise RequestError(404, f"Job {job_id} not found")
        return entry

    def routes(self) -> list[Route]:
        """Return the routes and their handlers."""
        get, job = ["GET"], "/jobs/{jobid}"
        return [
            Route("/jobs", self.ids, methods=get),
            Route("/jobs/overview", self.overview, methods=get),
            Route("/applications/overview", self.applications, methods=get),
            Route("/jobs/metrics", self.all_metrics, methods=get),
            Route(job, self.details, methods=get),
            Route(job, self.cancel, methods=["PATCH"]),
            Route(f"{job}/yarn-cancel", self.cancel, methods=get),
            Route(f"{job}/yarn-stop", self.cancel, methods=get),
            Route(f"{job}/status", self.status, methods=get),
            Route(f"{job}/plan", self.plan, methods=get),
            Route(f"{job}/log", self.log, methods=get),
            Route(f"{job}/stdout", self.output, methods=get),
            Route(f"{job}/config", self.configuration, methods=get),
            Route(f"{job}/exceptions", self.exceptions, methods=get),
            Route(f"{job}/accumulators", self.accumulators, methods=get),
            Route(f"{job}/metrics", self.metrics, methods=get),
            Route(f"{job}/execution-result", self.result, methods=get),
            Route(f"{job}/checkpoints", self.checkpoints, methods=get),
            Route(f"{job}/checkpoints", self.take_checkpoint, methods=["POST"]),
            Route(f"{job}/checkpoints/config", self.checkpoint_configuration, methods=get),
            Route(f"{job}/checkpoints/details/{{checkpointid}}", self.checkpoint, methods=get),
            Route(f"{job}/checkpoints/{{triggerid}}", self.taken_checkpoint, methods=get),
            Route(f"{job}/savepoints", self.take_savepoint, methods=["POST"]),
            Route(f"{job}/savepoints/{{triggerid}}", self.taken_savepoint, methods=get),
            Route(f"{job}/stop", self.stop, methods=["POST"]),
            Route(f"{job}/rescaling", self.rescale, methods=["PATCH"]),
            Route(f"{job}/rescaling/{{triggerid}}", self.rescaled, methods=get),
            Route(f"{job}/resource-requirements", self.requirements, methods=get),
            Route(f"{job}/resource-requirements", self.require, methods=["PUT"]),
        ]

    # --- reading

    async def ids(self, _: Request) -> Response:
        listed = [{"id": e.view.job_id, "status": e.view.status.name} for e in self._registry.entries()]
        return answer({"jobs": listed})

    async def overview(self, _: Request) -> Response:
        now = self._clock()
        return answer({"jobs": [jobs.overview_of(e.view, now) for e in self._registry.entries()]})

    async def applications(self, _: Request) -> Response:
        now = self._clock()
        applications = [jobs.application_of(jobs.overview_of(e.view, now)) for e in self._registry.entries()]
        return answer({"applications": applications})

    async def details(self, request: Request) -> Response:
        return answer(jobs.details(self.entry(request).view, self._clock()))

    async def status(self, request: Request) -> Response:
        return answer({"status": self.entry(request).view.status.name})

    async def plan(self, request: Request) -> Response:
        return answer({"plan": jobs.plan(self.entry(request).view)})

    async def log(self, request: Request) -> Response:
        """Return the log lines of a job's functions and of its process."""
        entry = self.entry(request)
        since = min(entry.view.times.values())
        own = [line for line in self._lines.lines() if line[0] >= since]
        return PlainTextResponse(text_of(own, self._output.logged(job=entry.view.job_id)))

    async def output(self, request: Request) -> Response:
        """Return the text printed by a job's functions."""
        return PlainTextResponse(self._output.printed(job=self.entry(request).view.job_id))

    async def configuration(self, request: Request) -> Response:
        entry = self.entry(request)
        return answer(jobs.configuration(entry.view, entry.configuration))

    async def exceptions(self, request: Request) -> Response:
        limit = request.query_params.get("maxExceptions", str(_MAX_EXCEPTIONS))
        if not limit.isdecimal():
            raise RequestError(400, f"maxExceptions must be a number, not {limit!r}.")
        return answer(jobs.exceptions(self.entry(request).view, int(limit)))

    async def accumulators(self, request: Request) -> Response:
        values = self.entry(request).view.progress.metrics()
        accumulators = [{"name": n, "type": type(v).__name__, "value": str(v)} for n, v in values.items()]
        empty: dict[str, Json] = {"job-accumulators": [], "serialized-user-task-accumulators": {}}
        return answer({**empty, "user-task-accumulators": accumulators})

    async def metrics(self, request: Request) -> Response:
        values = metrics.of_job(self.entry(request).view, self._clock())
        return answer(listed_metrics(values, requested_metrics(request, values)))

    async def all_metrics(self, request: Request) -> Response:
        now = self._clock()
        ids = names_of(request, "jobs")
        values = [metrics.of_job(e.view, now) for e in self._registry.entries() if not ids or e.view.job_id in ids]
        return answer(aggregated_metrics(values, names_of(request, "get"), names_of(request, "agg")))

    async def result(self, request: Request) -> Response:
        view = self.entry(request).view
        if not jobs.has_ended(view):
            return answer({"status": {"id": "IN_PROGRESS"}})
        start, end = min(view.times.values()), view.times[view.status]
        result: dict[str, Json] = {
            "id": view.job_id,
            "application-status": {JobStatus.FINISHED: "SUCCEEDED"}.get(view.status, view.status.name),
            "accumulator-results": {},
            "net-runtime": milliseconds(end - start),
        }
        if view.failures and view.status is JobStatus.FAILED:
            failure = view.failures[-1].message
            result["failure-cause"] = {
                "class": "millstream.JobExecutionError",
                "stack-trace": failure,
                "serialized-throwable": "",
            }
        return answer({"status": {"id": "COMPLETED"}, "job-execution-result": result})

    async def checkpoints(self, request: Request) -> Response:
        return answer(checkpoints.statistics(self.entry(request).view))

    async def checkpoint(self, request: Request) -> Response:
        view, number = self.entry(request).view, number_parameter(request, "checkpointid")
        checkpoint = next((c for c in view.checkpoints.history if c.id == number), None)
        if checkpoint is None:
            raise RequestError(404, f"Could not find checkpointing statistics for checkpoint {number}.")
        return answer(checkpoints.details(view, checkpoint))

    async def checkpoint_configuration(self, request: Request) -> Response:
        entry = self.entry(request)
        return answer(checkpoints.configuration(entry.view, entry.configuration))

    # --- operations

    async def cancel(self, request: Request) -> Response:
        mode = request.query_params.get("mode", "cancel")
        if mode != "cancel":
            raise RequestError(
                400, f"The termination mode {mode!r} is not supported: use mode=cancel, or POST to /stop."
            )
        entry = self.entry(request)
        if jobs.has_ended(entry.view) and entry.view.status is not JobStatus.CANCELED:
            raise RequestError(409, f"Job {entry.view.job_id} has ended already: it is {entry.view.status.name}.")
        entry.job.cancel()
        return answer({}, 202)

    async def take_checkpoint(self, request: Request) -> Response:
        entry, body = self._running(request), await body_of(request)
        checkpoint = CheckpointRequest()
        entry.job.ask(checkpoint)
        return self._started(entry, "checkpoints", checkpoint.done, body)

    async def take_savepoint(self, request: Request) -> Response:
        entry, body = self._running(request), await body_of(request)
        savepoint = SavepointRequest(_directory(entry, body.get("target-directory")))
        if body.get("cancel-job"):
            savepoint.done.add_done_callback(lambda done: entry.job.cancel() if done.exception() is None else None)
        entry.job.ask(savepoint)
        return self._started(entry, "savepoints", savepoint.done, body)

    async def stop(self, request: Request) -> Response:
        entry, body = self._running(request), await body_of(request)
        savepoint = SavepointRequest(
            _directory(entry, body.get("targetDirectory")), stop=True, drain=bool(body.get("drain", False))
        )
        entry.job.ask(savepoint)
        return self._started(entry, "savepoints", savepoint.done, body)

    async def rescale(self, request: Request) -> Response:
        entry = self._running(request)
        value = request.query_params.get("parallelism", "")
        done = self._rescale(entry, int(value) if value.isdecimal() else 0)
        return self._started(entry, "rescaling", done, {}, status=200)

    def _rescale(self, entry: Entry, parallelism: int) -> Future[None]:
        try:
            check_parallelism(parallelism, "the job")
        except MillstreamError as e:
            raise RequestError(400, str(e)) from None
        rescale = RescaleRequest(parallelism)
        entry.job.ask(rescale)
        return rescale.done

    async def requirements(self, request: Request) -> Response:
        view = self.entry(request).view
        bounds = view.bounds or {v.id: Bounds(1, v.parallelism) for v in view.plan.vertices}
        return answer({v.head.id: _shown_bounds(bounds[v.id]) for v in view.plan.vertices})

    async def require(self, request: Request) -> Response:
        entry, body = self._running(request), await body_of(request)
        try:
            bounds = {vertex: _read_bounds(value["parallelism"]) for vertex, value in body.items()}
        except (KeyError, TypeError, ValueError):
            raise RequestError(400, "Each vertex needs a parallelism with lowerBound and upperBound.") from None
        if not bounds:
            raise RequestError(400, "The request names no vertex.")
        if entry.view.bounds is None:
            self._rescale(entry, max(b.upper for b in bounds.values()))
            return answer({})
        requirements = RequirementsRequest(bounds)
        entry.job.ask(requirements)
        try:
            await asyncio.wrap_future(requirements.done)
        except MillstreamError as e:
            raise RequestError(400, str(e)) from None
        return answer({})

    def _running(self, request: Request) -> Entry:
        entry = self.entry(request)
        if jobs.has_ended(entry.view):
            raise RequestError(404, f"Job {entry.view.job_id} not found: it has ended and is {entry.view.status.name}.")
        return entry

    def _started(
        self, entry: Entry, kind: str, done: Future[Json], body: dict[str, Json], status: int = 202
    ) -> Response:
        own = body.get("triggerId")
        trigger = self._operations.start(entry.view.job_id, kind, done, own if isinstance(own, str) else None)
        return answer({"request-id": trigger}, status)

    async def taken_savepoint(self, request: Request) -> Response:
        return self._polled(request, lambda location: {"location": location})

    async def taken_checkpoint(self, request: Request) -> Response:
        return self._polled(request, lambda location: {"checkpointId": _number_of(location)})

    async def rescaled(self, request: Request) -> Response:
        return self._polled(request, lambda _: {})

    def _polled(self, request: Request, render: Callable[[Json], dict[str, Json]]) -> Response:
        job_id, trigger = id_parameter(request, "jobid", "job id"), id_parameter(request, "triggerid", "trigger id")
        done = self._operations.find(job_id, trigger)
        if done is None:
            raise RequestError(404, f"There is no operation {trigger} of job {job_id}.")
        if not done.done():
            return answer({"status": {"id": "IN_PROGRESS"}})
        response = self._completed(done, render)
        # Runs after the response is sent.
        response.background = BackgroundTask(self._operations.mark_read, job_id, trigger)
        return response

    def _completed(self, done: Future[Json], render: Callable[[Json], dict[str, Json]]) -> Response:
        error = done.exception()
        if error is not None:
            failure = {
                "class": type(error).__name__,
                "stack-trace": masked_text(str(error)),
                "serialized-throwable": "",
            }
            return answer({"status": {"id": "COMPLETED"}, "operation": {"failure-cause": failure}})
        return answer({"status": {"id": "COMPLETED"}, "operation": render(done.result())})


def _shown_bounds(bounds: Bounds) -> dict[str, Json]:
    return {"parallelism": {"lowerBound": bounds.lower, "upperBound": bounds.upper}}


def _read_bounds(value: dict[str, Json]) -> Bounds:
    return Bounds(int(value["lowerBound"]), int(value["upperBound"]))


def _directory(entry: Entry, requested: Json) -> str:
    """Return the directory for a savepoint."""
    default = CheckpointOptions.read(Configuration.from_dict(dict(entry.configuration))).savepoint_directory
    directory = requested or default
    if not isinstance(directory, str):
        raise RequestError(
            400,
            "Config key [execution.checkpointing.savepoint-dir] is not set. Property [target-directory] must be "
            "provided.",
        )
    return directory


def _number_of(location: str) -> int:
    """Return the number of a checkpoint at a location: .../chk-7."""
    tail = location.rstrip("/").rsplit("chk-", 1)[-1]
    return int(tail) if tail.isdecimal() else -1
