"""The REST interface as one ASGI application: all paths with and without /v1, uniform errors, authentication."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from mimetypes import guess_type

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from millstream.common.aliases import Json
from millstream.service.auth_and_cache import Front
from millstream.service.cluster_api import ClusterApi, ClusterInfo
from millstream.service.http import RequestError, error_response
from millstream.service.jobs_api import JobsApi
from millstream.service.logs import JobOutput, RecentLines
from millstream.service.prometheus import prometheus_routes
from millstream.service.registry import Operations, Registry
from millstream.service.responses.cluster import Slots, slots_without_cluster
from millstream.service.responses.jobs import overview_of
from millstream.service.state_api import StateApi
from millstream.service.vertices_api import VerticesApi
from millstream.service.workers import OwnWorkers

log = logging.getLogger("millstream")


@dataclass(frozen=True)
class Service:
    """The parts of the REST interface.

    Attributes:
        registry: the jobs.
        settings: the configuration of this process.
        slots: the number of slots.
        token: required of all clients; None for no authentication.
        change_token: required of clients that change something; None for none.
        refresh_ms: the refresh interval of pages.
        lines: recent log lines.
        output: logs and output of user functions.
        operations: asynchronous operations.
        cache_seconds: how long responses are cached.
    """

    registry: Registry
    settings: Mapping[str, str] = field(default_factory=dict)
    slots: int = 1
    token: str | None = None
    refresh_ms: int = 3000
    lines: RecentLines = field(default_factory=RecentLines)
    output: JobOutput = field(default_factory=JobOutput)
    operations: Operations = field(default_factory=Operations)
    cache_seconds: float = 0.0
    clock: Callable[[], float] = time.time
    change_token: str | None = None


def make_app(service: Service, extra_routes: Sequence[BaseRoute] = ()) -> Starlette:
    """Return the application for the jobs of this process.

    Args:
        service: its parts.
        extra_routes: further routes, with versioned paths.
    """
    jobs = JobsApi(service.registry, service.operations, service.clock, service.lines, service.output)

    async def lines() -> list[dict[str, Json]]:
        now = service.clock()
        return [overview_of(e.view, now) for e in service.registry.entries()]

    def slots() -> Slots:
        return slots_without_cluster([e.view for e in service.registry.entries()], service.slots)

    info = ClusterInfo(
        settings=service.settings,
        refresh_ms=service.refresh_ms,
        log=service.lines,
        lines=lines,
        slots=slots,
        workers=OwnWorkers(service.registry, slots, service.lines, service.output),
        function_log=service.output.logged,
        token=service.token or service.change_token,
    )
    routes = [
        *jobs.routes(),
        *StateApi(jobs).routes(),
        *VerticesApi(jobs, service.clock).routes(),
        *ClusterApi(info).routes(),
    ]
    unversioned = prometheus_routes(service.registry, service.clock)
    return assembled(routes, service.token, unversioned, service.cache_seconds, extra_routes, service.change_token)


def assembled(
    routes: Sequence[BaseRoute],
    token: str | None,
    unversioned: Sequence[BaseRoute] = (),
    cache_seconds: float = 0.0,
    first: Sequence[BaseRoute] = (),
    change_token: str | None = None,
) -> Starlette:
    """Return an application with the dashboard.

    Args:
        routes: routes with and without /v1.
        token: required of all clients; None for no authentication.
        unversioned: further routes.
        cache_seconds: how long responses are cached.
        first: routes that take precedence, also under /v1.
        change_token: required of clients that change something; None for none.
    """
    return Starlette(
        routes=[*first, *routes, Mount("/v1", routes=_copies(routes)), *page_routes(), *unversioned],
        middleware=[Middleware(Front, token=token, cache_seconds=cache_seconds, change_token=change_token)],
        exception_handlers={RequestError: _refused, HTTPException: _not_served, Exception: _broken},
    )


def _copies(routes: Sequence[BaseRoute]) -> list[BaseRoute]:
    return [Route(r.path, r.endpoint, methods=r.methods) for r in routes if isinstance(r, Route)]


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return error_response(error.status, error.reason)


async def _not_served(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return error_response(404, f"Not found: {request.url.path}")
    return error_response(error.status_code, error.detail)


async def _broken(request: Request, error: Exception) -> Response:
    log.error("REST: %s %s could not be answered.", request.method, request.url.path, exc_info=error)
    return error_response(500, "Internal server error.")


# The only files that are read.
_NAMES = (
    "index.html", "style.css", "api.js", "app.js", "cluster.js", "dom.js", "drawer.js", "flame.js", "format.js",
    "graph.js", "job.js", "jobs.js", "layout.js", "logs.js", "metrics.js", "plot.js", "state.js", "tabs.js",
)  # fmt: skip
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def page_routes() -> list[BaseRoute]:
    """Return the routes of the dashboard's files, which hold nothing of any job."""
    directory = files("millstream.service") / "page"
    files_by_name = {name: (directory / name).read_bytes() for name in _NAMES}

    def serve(name: str) -> Route:
        async def answer(_: Request) -> Response:
            return Response(files_by_name[name], media_type=guess_type(name)[0] or "text/plain", headers=_HEADERS)

        return Route(f"/ui/{name}", answer, name=name)

    async def to_page(_: Request) -> Response:
        return RedirectResponse("/ui/index.html")

    return [*map(serve, _NAMES), Route("/", to_page), Route("/ui", to_page), Route("/ui/", to_page)]
