"""REST: jobs, and what can be asked of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from millstream.checkpoint.options import CheckpointOptions
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
from millstream.service.http import Refused, a_number, an_id, answer, asked_metrics, body_of, names_of
from millstream.service.logs import Heard, RecentLines, text_of
from millstream.service.registry import Entry, Operations, Registry
from millstream.service.responses import checkpoints, jobs, metrics
from millstream.service.responses.metrics import aggregated_metrics, listed_metrics
from millstream.service.responses.tasks import milliseconds

_MOST_EXCEPTIONS = 20


class JobsApi:
    """Answers for what is under /jobs."""

    def __init__(
        self,
        registry: Registry,
        operations: Operations,
        clock: Callable[[], float],
        lines: RecentLines,
        heard: Heard,
    ) -> None:
        """Take what is known of jobs.

        Args:
            registry: the jobs.
            operations: what was asked for and takes its time.
            clock: the time in seconds since 1970.
            lines: what this process has logged.
            heard: what functions have logged and printed.
        """
        self._lines = lines
        self._heard = heard
        self._registry = registry
        self._clock = clock
        self._operations = operations

    def entry(self, request: Request) -> Entry:
        """Return the job that a request is about."""
        job_id = an_id(request, "jobid", "job id")
        found = self._registry.find(job_id)
        if found is None:
            raise Refused(404, f"Job {job_id} not found")
        return found

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

    # --- looking

    async def ids(self, _: Request) -> Response:
        listed = [{"id": e.view.job_id, "status": e.view.status.name} for e in self._registry.entries()]
        return answer({"jobs": listed})

    async def overview(self, _: Request) -> Response:
        now = self._clock()
        return answer({"jobs": [jobs.overview_of(e.view, now) for e in self._registry.entries()]})

    async def applications(self, _: Request) -> Response:
        now = self._clock()
        shown = [jobs.application_of(jobs.overview_of(e.view, now)) for e in self._registry.entries()]
        return answer({"applications": shown})

    async def details(self, request: Request) -> Response:
        return answer(jobs.details(self.entry(request).view, self._clock()))

    async def status(self, request: Request) -> Response:
        return answer({"status": self.entry(request).view.status.name})

    async def plan(self, request: Request) -> Response:
        return answer({"plan": jobs.plan(self.entry(request).view)})

    async def log(self, request: Request) -> Response:
        """Answer with what the functions of a job have logged, and its process."""
        entry = self.entry(request)
        since = min(entry.view.times.values())
        own = [line for line in self._lines.lines() if line[0] >= since]
        return PlainTextResponse(text_of(own, self._heard.logged(job=entry.view.job_id)))

    async def output(self, request: Request) -> Response:
        """Answer with what the functions of a job have printed."""
        return PlainTextResponse(self._heard.printed(job=self.entry(request).view.job_id))

    async def configuration(self, request: Request) -> Response:
        entry = self.entry(request)
        return answer(jobs.configuration(entry.view, entry.configuration))

    async def exceptions(self, request: Request) -> Response:
        most = request.query_params.get("maxExceptions", str(_MOST_EXCEPTIONS))
        if not most.isdecimal():
            raise Refused(400, f"maxExceptions must be a number, not {most!r}.")
        return answer(jobs.exceptions(self.entry(request).view, int(most)))

    async def accumulators(self, request: Request) -> Response:
        found = self.entry(request).view.progress.metrics()
        shown = [{"name": n, "type": type(v).__name__, "value": str(v)} for n, v in found.items()]
        empty: dict[str, Any] = {"job-accumulators": [], "serialized-user-task-accumulators": {}}
        return answer({**empty, "user-task-accumulators": shown})

    async def metrics(self, request: Request) -> Response:
        found = metrics.of_job(self.entry(request).view, self._clock())
        return answer(listed_metrics(found, asked_metrics(request, found)))

    async def all_metrics(self, request: Request) -> Response:
        now = self._clock()
        wanted = names_of(request, "jobs")
        found = [metrics.of_job(e.view, now) for e in self._registry.entries() if not wanted or e.view.job_id in wanted]
        return answer(aggregated_metrics(found, names_of(request, "get"), names_of(request, "agg")))

    async def result(self, request: Request) -> Response:
        view = self.entry(request).view
        if not jobs.is_over(view):
            return answer({"status": {"id": "IN_PROGRESS"}})
        start, end = min(view.times.values()), view.times[view.status]
        result: dict[str, Any] = {
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
        view, number = self.entry(request).view, a_number(request, "checkpointid")
        found = next((c for c in view.checkpoints.history if c.id == number), None)
        if found is None:
            raise Refused(404, f"Could not find checkpointing statistics for checkpoint {number}.")
        return answer(checkpoints.details(view, found))

    async def checkpoint_configuration(self, request: Request) -> Response:
        entry = self.entry(request)
        return answer(checkpoints.configuration(entry.view, entry.configuration))

    # --- steering

    async def cancel(self, request: Request) -> Response:
        mode = request.query_params.get("mode", "cancel")
        if mode != "cancel":
            raise Refused(
                400, f"The termination mode {mode!r} is not known: a job can be cancelled, or stopped at /stop."
            )
        entry = self.entry(request)
        if jobs.is_over(entry.view) and entry.view.status is not JobStatus.CANCELED:
            raise Refused(409, f"Job {entry.view.job_id} has ended already: it is {entry.view.status.name}.")
        entry.job.cancel()
        return answer({}, 202)

    async def take_checkpoint(self, request: Request) -> Response:
        entry, body = self._running(request), await body_of(request)
        asked = CheckpointRequest()
        entry.job.ask(asked)
        return self._begun(entry, "checkpoints", asked.done, body)

    async def take_savepoint(self, request: Request) -> Response:
        entry, body = self._running(request), await body_of(request)
        asked = SavepointRequest(_directory(entry, body.get("target-directory")))
        if body.get("cancel-job"):
            asked.done.add_done_callback(lambda done: entry.job.cancel() if done.exception() is None else None)
        entry.job.ask(asked)
        return self._begun(entry, "savepoints", asked.done, body)

    async def stop(self, request: Request) -> Response:
        entry, body = self._running(request), await body_of(request)
        asked = SavepointRequest(
            _directory(entry, body.get("targetDirectory")), stop=True, drain=bool(body.get("drain", False))
        )
        entry.job.ask(asked)
        return self._begun(entry, "savepoints", asked.done, body)

    async def rescale(self, request: Request) -> Response:
        entry = self._running(request)
        given = request.query_params.get("parallelism", "")
        done = self._rescale(entry, int(given) if given.isdecimal() else 0)
        return self._begun(entry, "rescaling", done, {}, status=200)

    def _rescale(self, entry: Entry, parallelism: int) -> Future[None]:
        try:
            check_parallelism(parallelism, "the job")
        except MillstreamError as e:
            raise Refused(400, str(e)) from None
        asked = RescaleRequest(parallelism)
        entry.job.ask(asked)
        return asked.done

    async def requirements(self, request: Request) -> Response:
        view = self.entry(request).view
        bounds = view.bounds or {v.id: Bounds(1, v.parallelism) for v in view.plan.vertices}
        return answer({v.head.id: _shown_bounds(bounds[v.id]) for v in view.plan.vertices})

    async def require(self, request: Request) -> Response:
        entry, body = self._running(request), await body_of(request)
        try:
            wanted = {vertex: _read_bounds(given["parallelism"]) for vertex, given in body.items()}
        except (KeyError, TypeError, ValueError):
            raise Refused(400, "Each vertex must say its parallelism's lowerBound and upperBound.") from None
        if not wanted:
            raise Refused(400, "There is no vertex in the request.")
        if entry.view.bounds is None:
            self._rescale(entry, max(bounds.upper for bounds in wanted.values()))
            return answer({})
        asked = RequirementsRequest(wanted)
        entry.job.ask(asked)
        try:
            await asyncio.wrap_future(asked.done)
        except MillstreamError as e:
            raise Refused(400, str(e)) from None
        return answer({})

    def _running(self, request: Request) -> Entry:
        entry = self.entry(request)
        if jobs.is_over(entry.view):
            raise Refused(404, f"Job {entry.view.job_id} not found: it has ended and is {entry.view.status.name}.")
        return entry

    def _begun(self, entry: Entry, kind: str, done: Future[Any], body: dict[str, Any], status: int = 202) -> Response:
        asked = body.get("triggerId")
        trigger = self._operations.start(entry.view.job_id, kind, done, asked if isinstance(asked, str) else None)
        return answer({"request-id": trigger}, status)

    async def taken_savepoint(self, request: Request) -> Response:
        return self._polled(request, lambda location: {"location": location})

    async def taken_checkpoint(self, request: Request) -> Response:
        return self._polled(request, lambda location: {"checkpointId": _number_of(location)})

    async def rescaled(self, request: Request) -> Response:
        return self._polled(request, lambda _: {})

    def _polled(self, request: Request, shown: Callable[[Any], dict[str, Any]]) -> Response:
        job_id, trigger = an_id(request, "jobid", "job id"), an_id(request, "triggerid", "trigger id")
        done = self._operations.find(job_id, trigger)
        if done is None:
            raise Refused(404, f"There is no operation {trigger} of job {job_id}.")
        if not done.done():
            return answer({"status": {"id": "IN_PROGRESS"}})
        response = self._completed(done, shown)
        # Runs when the response was sent.
        response.background = BackgroundTask(self._operations.mark_read, job_id, trigger)
        return response

    def _completed(self, done: Future[Any], shown: Callable[[Any], dict[str, Any]]) -> Response:
        error = done.exception()
        if error is not None:
            failure = {
                "class": type(error).__name__,
                "stack-trace": masked_text(str(error)),
                "serialized-throwable": "",
            }
            return answer({"status": {"id": "COMPLETED"}, "operation": {"failure-cause": failure}})
        return answer({"status": {"id": "COMPLETED"}, "operation": shown(done.result())})


def _shown_bounds(bounds: Bounds) -> dict[str, Any]:
    return {"parallelism": {"lowerBound": bounds.lower, "upperBound": bounds.upper}}


def _read_bounds(given: dict[str, Any]) -> Bounds:
    return Bounds(int(given["lowerBound"]), int(given["upperBound"]))


def _directory(entry: Entry, given: Any) -> str:
    """Return where a savepoint goes."""
    default = CheckpointOptions.read(Configuration.from_dict(dict(entry.configuration))).savepoint_directory
    directory = given or default
    if not isinstance(directory, str):
        raise Refused(
            400,
            "Config key [execution.checkpointing.savepoint-dir] is not set. Property [target-directory] must be "
            "provided.",
        )
    return directory


def _number_of(location: str) -> int:
    """Return the number of a checkpoint from where it is: .../chk-7."""
    tail = location.rstrip("/").rsplit("chk-", 1)[-1]
    return int(tail) if tail.isdecimal() else -1
