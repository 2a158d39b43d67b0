"""What a job manager answers that does not lead: where the leader is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.leader.cas_cells import Cells
from millstream.leader.election_runner import find_leader


class Standby:
    """Sends clients to the leader, until this process is it."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._app: ASGIApp | None = None
        # Whether this process leads at this moment.
        self._leads: Callable[[], bool] = lambda: False

    def lead(self, app: ASGIApp, leads: Callable[[], bool]) -> None:
        """Answer by an application from now on, for as long as this process leads."""
        self._app, self._leads = app, leads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is not None and self._leads():
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._point(scope, send)

    async def _point(self, scope: Scope, send: Send) -> None:
        try:
            lease = await asyncio.to_thread(find_leader, self._cells)
        except Exception as e:
            await _answer(send, 503, f"This job manager does not lead, and cannot find out who does: {e}")
            return
        if lease is None or not lease.address:
            await _answer(send, 503, "This job manager does not lead, and at the moment none does: try again soon.")
            return
        query = scope.get("query_string", b"").decode("latin-1")
        where = f"{lease.address}{scope.get('raw_path', b'/').decode('latin-1')}{'?' if query else ''}{query}"
        await _answer(send, 307, f"This job manager does not lead: the leader is at {lease.address}.", where)


async def _answer(send: Send, status: int, text: str, location: str | None = None) -> None:
    headers: list[tuple[bytes, bytes]] = [(b"content-type", b"application/json")]
    if location is not None:
        headers.append((b"location", location.encode("latin-1")))
    start: dict[str, Any] = {"type": "http.response.start", "status": status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": json.dumps({"errors": [text]}).encode()})
