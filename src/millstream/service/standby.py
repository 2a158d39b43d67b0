"""Responses of a job manager that is not the leader: redirects to the leader."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.common.aliases import Json
from millstream.leader.cas_cells import Cells
from millstream.leader.election_runner import find_leader


class Standby:
    """Redirects clients to the leader until this process is the leader."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._app: ASGIApp | None = None
        # Whether this process is the leader now.
        self._leads: Callable[[], bool] = lambda: False

    def lead(self, app: ASGIApp, leads: Callable[[], bool]) -> None:
        """Serve an application while this process is the leader."""
        self._app, self._leads = app, leads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is not None and self._leads():
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._redirect(scope, send)

    async def _redirect(self, scope: Scope, send: Send) -> None:
        try:
            lease = await asyncio.to_thread(find_leader, self._cells)
        except Exception as e:
            await _answer(send, 503, f"This job manager is not the leader, and finding the leader failed: {e}")
            return
        if lease is None or not lease.address:
            await _answer(send, 503, "This job manager is not the leader, and there is none now: try again soon.")
            return
        query = scope.get("query_string", b"").decode("latin-1")
        url = f"{lease.address}{scope.get('raw_path', b'/').decode('latin-1')}{'?' if query else ''}{query}"
        await _answer(send, 307, f"This job manager is not the leader: the leader is at {lease.address}.", url)


async def _answer(send: Send, status: int, text: str, location: str | None = None) -> None:
    headers: list[tuple[bytes, bytes]] = [(b"content-type", b"application/json")]
    if location is not None:
        headers.append((b"location", location.encode("latin-1")))
    start: dict[str, Json] = {"type": "http.response.start", "status": status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": json.dumps({"errors": [text]}).encode()})
