"""The REST interface as one ASGI application: every path with and without /v1, errors in one shape, who may ask."""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from millstream.service.cluster_api import ClusterApi
from millstream.service.http import Refused, refusal
from millstream.service.jobs_api import JobsApi
from millstream.service.logs import RecentLines
from millstream.service.pages import page_routes
from millstream.service.prometheus import prometheus_routes
from millstream.service.registry import Registry
from millstream.service.vertices_api import VerticesApi

log = logging.getLogger("millstream")

# A longer path is not looked at.
MOST_PATH = 4096


@dataclass(frozen=True)
class Service:
    """What the interface is about.

    Attributes:
        registry: the jobs.
        settings: the configuration of this process.
        slots: how many slots there are.
        token: what a client must show; None for nothing.
        refresh_ms: how often pages ask again.
        lines: the log.
        extra: further routes.
    """

    registry: Registry
    settings: Mapping[str, str] = field(default_factory=dict)
    slots: int = 1
    token: str | None = None
    refresh_ms: int = 3000
    lines: RecentLines = field(default_factory=RecentLines)
    extra: tuple[BaseRoute, ...] = ()
    clock: Callable[[], float] = time.time


def make_app(service: Service) -> Starlette:
    """Return the application."""
    jobs = JobsApi(service.registry, service.clock)
    routes: list[BaseRoute] = [
        *jobs.routes(),
        *VerticesApi(jobs, service.clock).routes(),
        *ClusterApi(service.registry, service.settings, service.slots, service.refresh_ms, service.lines).routes(),
    ]
    prometheus = prometheus_routes(service.registry, service.clock)
    return Starlette(
        routes=[*routes, Mount("/v1", routes=_again(routes)), *page_routes(), *prometheus, *service.extra],
        middleware=[Middleware(_Guard, token=service.token)],
        exception_handlers={Refused: _refused, HTTPException: _not_served, Exception: _broken},
    )


def _again(routes: list[BaseRoute]) -> list[BaseRoute]:
    return [Route(r.path, r.endpoint, methods=r.methods) for r in routes if isinstance(r, Route)]


class _Guard(BaseHTTPMiddleware):
    """Lets in who may ask."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        super().__init__(app)
        self._token = token

    async def dispatch(self, request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        if len(request.url.path) > MOST_PATH:
            return refusal(414, f"A path has at most {MOST_PATH} characters.")
        # The page itself says nothing of any job.
        is_page = request.url.path in ("/", "/ui") or request.url.path.startswith("/ui/")
        if self._token is not None and not is_page and not self._is_known(request):
            return refusal(401, "Show the token of this service: Authorization: Bearer <token>.")
        return await call_next(request)

    def _is_known(self, request: Request) -> bool:
        assert self._token is not None
        shown = request.headers.get("authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(shown.encode(), self._token.encode())


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return refusal(error.status, error.why)


async def _not_served(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return refusal(404, f"Not found: {request.url.path}")
    return refusal(error.status_code, error.detail)


async def _broken(request: Request, error: Exception) -> Response:
    log.error("REST: %s %s could not be answered.", request.method, request.url.path, exc_info=error)
    return refusal(500, "Internal server error.")
