"""Middleware for all requests: authentication, and a response cache.

Many pages of the same job request the same at the same time. Responses are cached for a moment, as Flink caches its
execution graph, so that fifty open pages cost a job almost nothing.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millstream.service.http import error_response, has_token, is_page

# Maximum number of cached responses, and maximum bytes of each.
_MAX_CACHED, _MAX_CACHED_BYTES = 2000, 1 << 20
# Paths that are never cached: results of operations, and restricted responses.
_NEVER_CACHED = re.compile(
    r"/(savepoints|checkpoints|rescaling|savepoint-disposal)/[0-9a-fA-F]{32}$|^(/v1)?/(programs|jars)|^(/v\d)?/sessions/"
)

# GET paths that change a job or show its state.
_PRIVILEGED = re.compile(r"^(/v1)?/jobs/[^/]+/(yarn-cancel|yarn-stop|state(/.*)?)$")


@dataclass
class _CachedResponse:
    """A cached response; concurrent requests for it wait until it is complete."""

    is_ready: asyncio.Event = field(default_factory=asyncio.Event)
    until: float = math.inf
    start: Message = field(default_factory=dict)
    body: list[bytes] = field(default_factory=list)
    is_complete: bool = False

    async def send(self, send: Send) -> None:
        await send(self.start)
        await send({"type": "http.response.body", "body": b"".join(self.body)})


class Front:
    """The middleware."""

    def __init__(
        self,
        app: ASGIApp,
        token: str | None,
        cache_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        change_token: str | None = None,
    ) -> None:
        """Wrap an application.

        Args:
            app: the application.
            token: required of all clients; None for no authentication.
            cache_seconds: how long responses are cached.
            clock: a monotonic clock.
            change_token: required to change something or to read state; None for none.
        """
        self._app = app
        self._change_token = change_token
        self._token = token
        self._cache_seconds = cache_seconds
        self._clock = clock
        self._cache: dict[tuple[str, bytes], _CachedResponse] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        reason = self._denial(scope, path)
        if reason is not None:
            await error_response(401, reason)(scope, receive, send)
        elif scope["method"] != "GET":
            await self._app(scope, receive, send)
            # Clients see their own changes.
            self._cache.clear()
        elif self._cache_seconds <= 0 or _NEVER_CACHED.search(path):
            await self._app(scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    def _denial(self, scope: Scope, path: str) -> str | None:
        """Return why a request is rejected; None if it is allowed."""
        authorization = _header(scope)
        if self._token is not None and not is_page(path) and not has_token(authorization, self._token):
            return "Send the token of this service: Authorization: Bearer <token>."
        changes = scope["method"] not in ("GET", "HEAD") or _PRIVILEGED.search(path) is not None
        if self._change_token is not None and changes and not has_token(authorization, self._change_token):
            return (
                "Changing a job or reading its state needs the token of this service (Authorization: Bearer <token>): "
                "commands of the service's user find it themselves; other clients get it from the file "
                "rest-<port>.token beside the run files, or from millstream.rest.token."
            )
        return None

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = (scope["path"], scope["query_string"])
        while (cached := self._cache.get(key)) is not None and cached.until > self._clock():
            await cached.is_ready.wait()
            if cached.is_complete:
                await cached.send(send)
                return
            # The first client has disconnected, and its response is incomplete: request it again.
        await self._make(key, scope, receive, send)

    async def _make(self, key: tuple[str, bytes], scope: Scope, receive: Receive, send: Send) -> None:
        """Request a response for this client, and for others that request the same meanwhile or soon after."""
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        new = self._cache[key] = _CachedResponse()

        async def record(message: Message) -> None:
            if message["type"] == "http.response.start":
                new.start = message
            elif message["type"] == "http.response.body":
                new.body.append(message.get("body", b""))
                new.is_complete = not message.get("more_body", False)
            await send(message)

        try:
            await self._app(scope, receive, record)
        finally:
            new.is_ready.set()
            # From its completion: a slow response would expire before it is complete.
            new.until = self._clock() + self._cache_seconds
            is_cacheable = (
                new.is_complete and new.start["status"] == 200 and sum(map(len, new.body)) <= _MAX_CACHED_BYTES
            )
            if not is_cacheable and self._cache.get(key) is new:
                del self._cache[key]


def _header(scope: Scope) -> str:
    return next((v.decode("latin-1") for k, v in scope["headers"] if k == b"authorization"), "")
