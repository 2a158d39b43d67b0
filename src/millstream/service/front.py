"""What every request meets first: who may ask, and answers that were given a moment ago to somebody else.

Many who look at the same job ask for the same at the same time. An answer is kept for a moment, as Flink keeps its
picture of a job, so that fifty open pages cost a job as good as nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millstream.service.http import is_page, refusal, shows

# So many answers are kept, of so many bytes each at most.
_MOST_KEPT, _MOST_BYTES = 2000, 1 << 20
# What came of something that was asked for, and what not everybody may see, is told as it is now.
_NEVER_KEPT = re.compile(
    r"/(savepoints|checkpoints|rescaling|savepoint-disposal)/[0-9a-fA-F]{32}$|^(/v1)?/(programs|jars)|^(/v\d)?/sessions/"
)


@dataclass
class _Kept:
    until: float
    start: Message = field(default_factory=dict)
    body: list[bytes] = field(default_factory=list)


class Front:
    """Stands before an application."""

    def __init__(
        self, app: ASGIApp, token: str | None, keep_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Stand before an application.

        Args:
            app: the application.
            token: what a client must show; None for nothing.
            keep_seconds: for how long answers are kept.
            clock: a steady clock.
        """
        self._app = app
        self._token = token
        self._keep_seconds = keep_seconds
        self._clock = clock
        self._kept: dict[tuple[str, bytes], _Kept] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        if self._token is not None and not is_page(path) and not shows(_header(scope), self._token):
            why = "Show the token of this service: Authorization: Bearer <token>."
            await refusal(401, why)(scope, receive, send)
        elif scope["method"] != "GET":
            await self._app(scope, receive, send)
            # Whoever changes something sees it changed.
            self._kept.clear()
        elif self._keep_seconds <= 0 or _NEVER_KEPT.search(path):
            await self._app(scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        key, now = (scope["path"], scope["query_string"]), self._clock()
        found = self._kept.get(key)
        if found is not None and found.until > now:
            await send(found.start)
            await send({"type": "http.response.body", "body": b"".join(found.body)})
            return
        new = _Kept(now + self._keep_seconds)

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                new.start = message
            elif message["type"] == "http.response.body":
                new.body.append(message.get("body", b""))
            await send(message)

        await self._app(scope, receive, noted)
        if new.start.get("status") == 200 and sum(map(len, new.body)) <= _MOST_BYTES:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[key] = new


def _header(scope: Any) -> str:
    return next((v.decode("latin-1") for k, v in scope["headers"] if k == b"authorization"), "")
