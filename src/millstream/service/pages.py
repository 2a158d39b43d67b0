"""The dashboard: files of this package, served beside the REST interface."""

from __future__ import annotations

from importlib.resources import files
from mimetypes import guess_type

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

# Only what is in this list is ever read.
_NAMES = (
    "index.html", "style.css", "api.js", "app.js", "cluster.js", "dom.js", "drawer.js", "flame.js", "graph.js",
    "job.js", "jobs.js", "layout.js", "logs.js", "metrics.js", "plot.js", "state.js", "tabs.js", "words.js",
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
    home = files("millstream.service") / "page"
    found = {name: (home / name).read_bytes() for name in _NAMES}

    def serve(name: str) -> Route:
        async def answer(_: Request) -> Response:
            return Response(found[name], media_type=guess_type(name)[0] or "text/plain", headers=_HEADERS)

        return Route(f"/ui/{name}", answer, name=name)

    async def to_page(_: Request) -> Response:
        return RedirectResponse("/ui/index.html")

    return [*map(serve, _NAMES), Route("/", to_page), Route("/ui", to_page), Route("/ui/", to_page)]
