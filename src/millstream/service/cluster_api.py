"""REST: the process, its workers, settings and logs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from millstream.checkpoint.inspect import Inspection
from millstream.checkpoint.savepoint_editor import dispose_savepoint
from millstream.checkpoint.storage import storage_options
from millstream.common.aliases import Json
from millstream.common.configuration import Configuration
from millstream.service.http import RequestError, answer, body_of, has_token, id_parameter, names_of
from millstream.service.logs import Line, RecentLines, text_of
from millstream.service.registry import Operations
from millstream.service.responses import cluster
from millstream.service.responses.metrics import Value, aggregated_metrics, listed_metrics
from millstream.service.responses.tasks import milliseconds
from millstream.service.workers import LOG, NoWorkers, Workers, python_threads

# Name of this process's log.
OWN_LOG = "jobmanager.log"
# Job id of operations without a job.
_NO_JOB = ""


async def _no_jobs() -> list[dict[str, Json]]:
    return []


@dataclass(frozen=True, kw_only=True)
class ClusterInfo:
    """The parts of the interface besides jobs.

    Attributes:
        settings: the configuration of this process.
        refresh_ms: the refresh interval of pages.
        log: recent log lines.
        lines: returns the entries of the list of jobs.
        slots: returns the number of slots.
        workers: provides the workers.
        function_log: returns the log lines of all jobs' functions.
        submits: whether programs can be submitted.
        is_history: whether this is a history server.
        token: required of clients that name paths; None if no client may.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    refresh_ms: int = 3000
    log: RecentLines = field(default_factory=RecentLines)
    lines: Callable[[], Awaitable[list[dict[str, Json]]]] = _no_jobs
    slots: Callable[[], cluster.Slots] = lambda: cluster.Slots(0, 0)
    workers: Workers = field(default_factory=NoWorkers)
    function_log: Callable[[], list[Line]] = list
    submits: bool = False
    is_history: bool = False
    token: str | None = None


class ClusterApi:
    """Handles paths outside /jobs."""

    def __init__(self, home: ClusterInfo) -> None:
        self._home = home
        self._operations = Operations()
        self._started = time.monotonic()

    def routes(self) -> list[Route]:
        """Return the routes and their handlers."""
        worker = "/taskmanagers/{taskmanagerid}"
        return [
            Route("/config", self.configuration),
            Route("/overview", self.overview),
            Route("/taskmanagers", self.task_managers),
            Route("/taskmanagers/metrics", self.task_managers_metrics),
            Route(worker, self.task_manager),
            Route(f"{worker}/metrics", self.task_manager_metrics),
            Route(f"{worker}/logs", self.worker_logs),
            Route(f"{worker}/logs/{{name}}", self.worker_log),
            Route(f"{worker}/log", self.worker_log),
            Route(f"{worker}/stdout", self.worker_output),
            Route(f"{worker}/thread-dump", self.worker_threads),
            Route("/jobmanager/config", self.settings),
            Route("/jobs/{jobid}/jobmanager/config", self.settings),
            Route("/jobmanager/environment", self.environment),
            Route("/jobs/{jobid}/jobmanager/environment", self.environment),
            Route("/jobmanager/metrics", self.metrics),
            Route("/jobmanager/logs", self.logs),
            Route("/jobmanager/logs/{name}", self.log),
            Route("/jobmanager/log", self.log),
            Route("/jobmanager/stdout", self.output),
            Route("/jobmanager/thread-dump", self.threads),
            Route("/savepoint-disposal", self.dispose, methods=["POST"]),
            Route("/savepoint-disposal/{triggerid}", self.disposed),
            Route("/datasets", self.datasets),
        ]

    async def configuration(self, _: Request) -> Response:
        info = self._home
        cancels = not info.is_history
        return answer(cluster.dashboard(info.refresh_ms, info.submits, cancels=cancels, history=info.is_history))

    async def overview(self, _: Request) -> Response:
        return answer(await self._overview())

    async def _overview(self) -> dict[str, Json]:
        workers = len(await self._home.workers.all())
        return cluster.overview(await self._home.lines(), self._home.slots(), workers)

    async def settings(self, _: Request) -> Response:
        return answer(cluster.settings(self._home.settings))

    async def environment(self, _: Request) -> Response:
        return answer(cluster.environment())

    async def task_managers(self, _: Request) -> Response:
        now = _now()
        return answer({"taskmanagers": [cluster.task_manager(w, now) for w in await self._home.workers.all()]})

    async def _worker(self, request: Request) -> cluster.Worker:
        worker_id = request.path_params["taskmanagerid"]
        worker = next((w for w in await self._home.workers.all() if w.id == worker_id), None)
        if worker is None:
            raise RequestError(404, f"Could not find TaskExecutor with id {worker_id}.")
        return worker

    async def task_manager(self, request: Request) -> Response:
        response = cluster.task_manager(await self._worker(request), _now())
        return answer({**response, "metrics": {}, "allocatedSlots": []})

    async def task_manager_metrics(self, request: Request) -> Response:
        return answer(listed_metrics((await self._worker(request)).metrics, names_of(request, "get")))

    async def worker_logs(self, request: Request) -> Response:
        worker = await self._worker(request)
        # The sizes of remote logs are not requested.
        names = {LOG: len(await self._home.workers.log(worker, LOG)), **dict.fromkeys(worker.logs, 0)}
        return answer({"logs": [{"name": n, "size": size, "mtime": _now()} for n, size in names.items()]})

    async def worker_log(self, request: Request) -> Response:
        worker, name = await self._worker(request), request.path_params.get("name", LOG)
        return PlainTextResponse(await self._home.workers.log(worker, name))

    async def worker_output(self, request: Request) -> Response:
        return PlainTextResponse(await self._home.workers.printed(await self._worker(request)))

    async def worker_threads(self, request: Request) -> Response:
        return _threads(await self._home.workers.threads(await self._worker(request)))

    async def task_managers_metrics(self, request: Request) -> Response:
        chosen = names_of(request, "taskmanagers")
        metrics_by_worker = [w.metrics for w in await self._home.workers.all() if not chosen or w.id in chosen]
        return answer(aggregated_metrics(metrics_by_worker, names_of(request, "get"), names_of(request, "agg")))

    async def _metrics(self) -> dict[str, Value]:
        response = await self._overview()
        return {
            "numRunningJobs": response["jobs-running"],
            "taskSlotsTotal": response["slots-total"],
            "taskSlotsAvailable": response["slots-available"],
            "numRegisteredTaskManagers": response["taskmanagers"],
            "uptime": milliseconds(time.monotonic() - self._started),
            "Status.Threads": threading.active_count(),
        }

    async def metrics(self, request: Request) -> Response:
        return answer(listed_metrics(await self._metrics(), names_of(request, "get")))

    def _log(self) -> str:
        return text_of(self._home.log.lines(), self._home.function_log())

    async def logs(self, _: Request) -> Response:
        return answer({"logs": [{"name": OWN_LOG, "size": len(self._log()), "mtime": _now()}]})

    async def log(self, request: Request) -> Response:
        if request.path_params.get("name", OWN_LOG) != OWN_LOG:
            raise RequestError(404, "There is no log of that name.")
        return PlainTextResponse(self._log())

    async def output(self, _: Request) -> Response:
        # Output goes to the terminal of this process.
        return PlainTextResponse("")

    async def threads(self, _: Request) -> Response:
        return _threads(python_threads())

    async def datasets(self, _: Request) -> Response:
        return answer({"dataSets": []})

    async def dispose(self, request: Request) -> Response:
        self._check_may_name_paths(request)
        path = (await body_of(request)).get("savepoint-path")
        if not isinstance(path, str) or not path:
            raise RequestError(400, "savepoint-path must be given.")
        done: Future[None] = Future()
        asyncio.get_running_loop().run_in_executor(None, self._dispose, path, done)
        return answer({"request-id": self._operations.start(_NO_JOB, "savepoint-disposal", done)})

    def _check_may_name_paths(self, request: Request) -> None:
        """Check the token: a path is read, and here deleted, as the user of this process."""
        token = self._home.token
        if token is None:
            raise RequestError(
                403,
                "Deleting a savepoint needs a token, and this service has none: set millstream.rest.token-file, or "
                "delete the savepoint with `millstream savepoint dispose`.",
            )
        if not has_token(request.headers.get("authorization", ""), token):
            raise RequestError(
                401, "Deleting a savepoint needs the token of this service: send Authorization: Bearer <token>."
            )

    def _dispose(self, path: str, done: Future[None]) -> None:
        try:
            options = storage_options(Configuration.from_dict(dict(self._home.settings)))
            dispose_savepoint(Inspection.open(path, options))
            done.set_result(None)
        except Exception as e:
            done.set_exception(e)

    async def disposed(self, request: Request) -> Response:
        trigger = id_parameter(request, "triggerid", "trigger id")
        done = self._operations.find(_NO_JOB, trigger)
        if done is None:
            raise RequestError(404, f"There is no operation {trigger}.")
        if not done.done():
            return answer({"status": {"id": "IN_PROGRESS"}})
        error = done.exception()
        if error is None:
            return answer({"status": {"id": "COMPLETED"}, "operation": {}})
        failure = {"class": type(error).__name__, "stack-trace": str(error), "serialized-throwable": ""}
        return answer({"status": {"id": "COMPLETED"}, "operation": {"failure-cause": failure}})


def _now() -> int:
    return int(time.time() * 1000)


def _threads(dumps: list[tuple[str, str]]) -> Response:
    return answer({"threadInfos": [{"threadName": name, "stringifiedThreadInfo": text} for name, text in dumps]})
