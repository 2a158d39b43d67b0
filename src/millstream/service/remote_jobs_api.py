"""REST: jobs that are not in this process, forwarded to the process that runs them or read from archives."""

from __future__ import annotations

import asyncio
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millstream.common.aliases import Json
from millstream.service.http import Answer, RequestError, answer, id_parameter, names_of, read_body
from millstream.service.responses.jobs import application_of
from millstream.service.responses.metrics import aggregated_metrics

_METHODS = ["GET", "POST", "PATCH", "PUT", "DELETE"]


class RemoteJobs(Protocol):
    """Provides jobs of other processes, or their archives."""

    async def lines(self) -> list[dict[str, Json]]:
        """Return the overview entries of all jobs."""
        ...

    async def ask(self, job_id: str, method: str, rest: str, query: str, body: bytes) -> Answer:
        """Return the response to a request about a job; raise RequestError if the job is unknown."""
        ...


class RemoteJobsApi:
    """Handles requests under /jobs."""

    def __init__(self, remote: RemoteJobs) -> None:
        self._remote = remote

    def routes(self) -> list[Route]:
        """Return the routes and their handlers."""
        return [
            Route("/jobs", self.ids),
            Route("/jobs/overview", self.overview),
            Route("/jobs/metrics", self.metrics),
            Route("/applications/overview", self.applications),
            Route("/jobs/{jobid}", self.forward, methods=_METHODS),
            Route("/jobs/{jobid}/{rest:path}", self.forward, methods=_METHODS),
        ]

    async def ids(self, _: Request) -> Response:
        listed = [{"id": line["jid"], "status": line["state"]} for line in await self._remote.lines()]
        return answer({"jobs": listed})

    async def overview(self, _: Request) -> Response:
        return answer({"jobs": await self._remote.lines()})

    async def applications(self, _: Request) -> Response:
        return answer({"applications": [application_of(line) for line in await self._remote.lines()]})

    async def metrics(self, request: Request) -> Response:
        chosen = names_of(request, "jobs")
        ids = [line["jid"] for line in await self._remote.lines() if not chosen or line["jid"] in chosen]
        responses = await asyncio.gather(*(self._remote.ask(i, "GET", "/metrics", "all=true", b"") for i in ids))
        listed = [response.json() if response.status == 200 else [] for response in responses]
        values = [{m["id"]: _number(m.get("value", "")) for m in metrics} for metrics in listed]
        return answer(aggregated_metrics(values, names_of(request, "get"), names_of(request, "agg")))

    async def forward(self, request: Request) -> Response:
        job_id = id_parameter(request, "jobid", "job id")
        rest = request.path_params.get("rest")
        response = await self._remote.ask(
            job_id, request.method, "" if rest is None else f"/{rest}", request.url.query, await read_body(request)
        )
        return Response(response.body, response.status, media_type=response.media_type)


def unknown(job_id: str) -> RequestError:
    """Return the error for an unknown job."""
    return RequestError(404, f"Job {job_id} not found")


def _number(text: str) -> Json:
    try:
        return float(text)
    except ValueError:
        return text
