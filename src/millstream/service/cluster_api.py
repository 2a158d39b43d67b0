"""REST: the process, its workers, its settings and its log."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from millstream.checkpoint.dispose import dispose_savepoint
from millstream.checkpoint.inspect import Inspection
from millstream.checkpoint.storage import storage_options
from millstream.common.configuration import Configuration
from millstream.service.http import Refused, an_id, answer, body_of, names_of
from millstream.service.listing import aggregated_metrics, listed_metrics
from millstream.service.logs import RecentLines
from millstream.service.operations import Operations
from millstream.service.pictures import cluster
from millstream.service.pictures.metrics import Value
from millstream.service.pictures.tasks import TASK_MANAGER, milliseconds

# What the log is called.
LOG = "jobmanager.log"
# What is begun for no job.
_NO_JOB = ""


async def _no_jobs() -> list[dict[str, Any]]:
    return []


@dataclass(frozen=True, kw_only=True)
class Household:
    """What there is beside the jobs.

    Attributes:
        settings: the configuration of this process.
        refresh_ms: how often pages ask again.
        log: the last lines of the log.
        lines: returns the lines of the list of jobs.
        slots: returns how many slots there are.
        submits: whether programs can be submitted.
        is_history: whether all jobs have ended.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    refresh_ms: int = 3000
    log: RecentLines = field(default_factory=RecentLines)
    lines: Callable[[], Awaitable[list[dict[str, Any]]]] = _no_jobs
    slots: Callable[[], cluster.Slots] = lambda: cluster.Slots(0, 0)
    submits: bool = False
    is_history: bool = False


class ClusterApi:
    """Answers for what is not under /jobs."""

    def __init__(self, home: Household) -> None:
        self._home = home
        self._operations = Operations()
        self._started = time.monotonic()

    def routes(self) -> list[Route]:
        """Return the paths and who answers them."""
        worker = "/taskmanagers/{taskmanagerid}"
        routes = [
            Route("/config", self.configuration),
            Route("/overview", self.overview),
            Route("/taskmanagers", self.task_managers),
            Route("/taskmanagers/metrics", self.task_managers_metrics),
            Route(worker, self.task_manager),
            Route(f"{worker}/metrics", self.task_manager_metrics),
            Route("/jobmanager/config", self.settings),
            Route("/jobs/{jobid}/jobmanager/config", self.settings),
            Route("/jobmanager/environment", self.environment),
            Route("/jobs/{jobid}/jobmanager/environment", self.environment),
            Route("/jobmanager/metrics", self.metrics),
            Route("/savepoint-disposal", self.dispose, methods=["POST"]),
            Route("/savepoint-disposal/{triggerid}", self.disposed),
            Route("/datasets", self.datasets),
        ]
        for owner, of_worker in (("/jobmanager", False), (worker, True)):
            for what, who in (
                ("logs", self.logs),
                ("logs/{name}", self.log),
                ("log", self.log),
                ("stdout", self.log),
                ("thread-dump", self.threads),
            ):
                routes.append(Route(f"{owner}/{what}", _of_worker(who) if of_worker else who))
        return routes

    async def configuration(self, _: Request) -> Response:
        home = self._home
        steers = not home.is_history
        return answer(cluster.dashboard(home.refresh_ms, home.submits, cancels=steers, history=home.is_history))

    async def overview(self, _: Request) -> Response:
        return answer(cluster.overview(await self._home.lines(), self._home.slots()))

    async def settings(self, _: Request) -> Response:
        return answer(cluster.settings(self._home.settings))

    async def environment(self, _: Request) -> Response:
        return answer(cluster.environment())

    async def _worker(self) -> dict[str, Any]:
        return cluster.task_manager(await self._home.lines(), self._home.slots(), int(time.time() * 1000))

    async def task_managers(self, _: Request) -> Response:
        return answer({"taskmanagers": [] if self._home.is_history else [await self._worker()]})

    async def task_manager(self, request: Request) -> Response:
        _check_worker(request)
        return answer({**await self._worker(), "metrics": {}, "allocatedSlots": []})

    async def task_manager_metrics(self, request: Request) -> Response:
        _check_worker(request)
        return await self.metrics(request)

    async def task_managers_metrics(self, request: Request) -> Response:
        return answer(aggregated_metrics([await self._metrics()], names_of(request, "get"), names_of(request, "agg")))

    async def _metrics(self) -> dict[str, Value]:
        shown = cluster.overview(await self._home.lines(), self._home.slots())
        return {
            "numRunningJobs": shown["jobs-running"],
            "taskSlotsTotal": shown["slots-total"],
            "taskSlotsAvailable": shown["slots-available"],
            "numRegisteredTaskManagers": shown["taskmanagers"],
            "uptime": milliseconds(time.monotonic() - self._started),
            "Status.Threads": threading.active_count(),
        }

    async def metrics(self, request: Request) -> Response:
        return answer(listed_metrics(await self._metrics(), names_of(request, "get")))

    async def logs(self, _: Request) -> Response:
        size = len(self._home.log.text())
        return answer({"logs": [{"name": LOG, "size": size, "mtime": int(time.time() * 1000)}]})

    async def log(self, request: Request) -> Response:
        if request.path_params.get("name", LOG) != LOG:
            raise Refused(404, "There is no log of that name.")
        is_output = request.url.path.endswith("/stdout")
        return PlainTextResponse("" if is_output else self._home.log.text())

    async def threads(self, _: Request) -> Response:
        names = {t.ident: t.name for t in threading.enumerate()}
        dump = []
        for ident, frame in sys._current_frames().items():
            stack = "".join(traceback.format_stack(frame))
            dump.append({"threadName": names.get(ident, str(ident)), "stringifiedThreadInfo": stack})
        return answer({"threadInfos": dump})

    async def datasets(self, _: Request) -> Response:
        return answer({"dataSets": []})

    async def dispose(self, request: Request) -> Response:
        path = (await body_of(request)).get("savepoint-path")
        if not isinstance(path, str) or not path:
            raise Refused(400, "savepoint-path must be given.")
        done: Future[None] = Future()
        asyncio.get_running_loop().run_in_executor(None, self._dispose, path, done)
        return answer({"request-id": self._operations.start(_NO_JOB, "savepoint-disposal", done)})

    def _dispose(self, path: str, done: Future[None]) -> None:
        try:
            options = storage_options(Configuration.from_dict(dict(self._home.settings)))
            dispose_savepoint(Inspection.open(path, options))
            done.set_result(None)
        except Exception as e:
            done.set_exception(e)

    async def disposed(self, request: Request) -> Response:
        trigger = an_id(request, "triggerid", "trigger id")
        done = self._operations.find(_NO_JOB, trigger)
        if done is None:
            raise Refused(404, f"There is no operation {trigger}.")
        if not done.done():
            return answer({"status": {"id": "IN_PROGRESS"}})
        error = done.exception()
        if error is None:
            return answer({"status": {"id": "COMPLETED"}, "operation": {}})
        failure = {"class": type(error).__name__, "stack-trace": str(error), "serialized-throwable": ""}
        return answer({"status": {"id": "COMPLETED"}, "operation": {"failure-cause": failure}})


def _check_worker(request: Request) -> None:
    asked = request.path_params["taskmanagerid"]
    if asked != TASK_MANAGER:
        raise Refused(404, f"Could not find TaskExecutor with id {asked}.")


def _of_worker(who: Any) -> Any:
    """Return what answers for a worker that is there."""

    async def answered(request: Request) -> Any:
        _check_worker(request)
        return await who(request)

    return answered
