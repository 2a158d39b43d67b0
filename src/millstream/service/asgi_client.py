"""Asks an application of this process what it would answer over the network."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp


@dataclass(frozen=True)
class Answer:
    """What was answered: the status code, the body, and what kind of text that is."""

    status: int
    body: bytes
    media_type: str = "application/json"

    def json(self) -> Any:
        return json.loads(self.body)


async def ask_app(app: ASGIApp, path: str, query: str = "") -> Answer:
    """Return what an application answers to a GET."""
    status, body = 0, b""
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [],
        "client": None,
        "server": None,
    }

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status, body
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            body += message.get("body", b"")

    await app(scope, receive, send)
    return Answer(status, body)
