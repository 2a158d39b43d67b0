"""REST: jobs that are not of this process. Who has them is asked, or what was kept of them is told."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millstream.service.http import Answer, Refused, an_id, answer, names_of, read_body
from millstream.service.responses.jobs import application_of
from millstream.service.responses.metrics import aggregated_metrics

_METHODS = ["GET", "POST", "PATCH", "PUT", "DELETE"]


class Elsewhere(Protocol):
    """Who has the jobs, or what was kept of them."""

    async def lines(self) -> list[dict[str, Any]]:
        """Return the lines of all jobs in the list of jobs."""
        ...

    async def ask(self, job_id: str, method: str, rest: str, query: str, body: bytes) -> Answer:
        """Return what is answered about a job; raise Refused when it is not known."""
        ...


class ElsewhereApi:
    """Answers for what is under /jobs."""

    def __init__(self, elsewhere: Elsewhere) -> None:
        self._elsewhere = elsewhere

    def routes(self) -> list[Route]:
        """Return the routes and their handlers."""
        return [
            Route("/jobs", self.ids),
            Route("/jobs/overview", self.overview),
            Route("/jobs/metrics", self.metrics),
            Route("/applications/overview", self.applications),
            Route("/jobs/{jobid}", self.pass_on, methods=_METHODS),
            Route("/jobs/{jobid}/{rest:path}", self.pass_on, methods=_METHODS),
        ]

    async def ids(self, _: Request) -> Response:
        listed = [{"id": line["jid"], "status": line["state"]} for line in await self._elsewhere.lines()]
        return answer({"jobs": listed})

    async def overview(self, _: Request) -> Response:
        return answer({"jobs": await self._elsewhere.lines()})

    async def applications(self, _: Request) -> Response:
        return answer({"applications": [application_of(line) for line in await self._elsewhere.lines()]})

    async def metrics(self, request: Request) -> Response:
        chosen = names_of(request, "jobs")
        ids = [line["jid"] for line in await self._elsewhere.lines() if not chosen or line["jid"] in chosen]
        told = await asyncio.gather(*(self._elsewhere.ask(i, "GET", "/metrics", "all=true", b"") for i in ids))
        listed = [answer.json() if answer.status == 200 else [] for answer in told]
        found = [{m["id"]: _number(m.get("value", "")) for m in metrics} for metrics in listed]
        return answer(aggregated_metrics(found, names_of(request, "get"), names_of(request, "agg")))

    async def pass_on(self, request: Request) -> Response:
        job_id = an_id(request, "jobid", "job id")
        rest = request.path_params.get("rest")
        told = await self._elsewhere.ask(
            job_id, request.method, "" if rest is None else f"/{rest}", request.url.query, await read_body(request)
        )
        return Response(told.body, told.status, media_type=told.media_type)


def unknown(job_id: str) -> Refused:
    """Return the refusal for a job that is not known."""
    return Refused(404, f"Job {job_id} not found")


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text
