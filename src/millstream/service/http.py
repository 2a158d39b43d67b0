"""In-process requests to an ASGI application."""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import re
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

# A body larger than this, or one that takes longer to come, is not read.
MOST_BODY = 1 << 20
BODY_SECONDS = 60.0
# Bodies that are coming have so many bytes together; uploads, whose sender has shown a token, do not count.
MOST_BODIES = 1 << 25

_ID = re.compile("[0-9a-f]{32}")


class Refused(Exception):
    """A request that cannot be answered as it was meant: its status code and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


def json_bytes(body: Any) -> bytes:
    """Return a body as it is sent.

    Example:
        >>> json_bytes({"lag": float("nan"), "name": "\\ud800"})
        b'{"lag":"NaN","name":"\\\\ud800"}'
    """
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        # A number that JSON has no word for, or half a character: what user code has measured, or a client has sent.
        return json.dumps(_sayable(body), separators=(",", ":")).encode()


def _sayable(body: Any) -> Any:
    """Return a body with numbers that JSON has no word for as Flink tells them: as text."""
    if isinstance(body, dict):
        return {key: _sayable(value) for key, value in body.items()}
    if isinstance(body, (list, tuple)):
        return [_sayable(value) for value in body]
    if isinstance(body, float) and not math.isfinite(body):
        return "NaN" if math.isnan(body) else "Infinity" if body > 0 else "-Infinity"
    return body


def answer(body: Any, status: int = 200) -> Response:
    """Return a body as JSON."""
    return Response(json_bytes(body), status, media_type="application/json")


def refusal(status: int, why: str) -> Response:
    """Return an error, in the one shape that clients read."""
    return answer({"errors": [why]}, status)


def shows(authorization: str, token: str) -> bool:
    """Return whether a request with this header `Authorization` shows a token."""
    shown = authorization.removeprefix("Bearer ")
    return hmac.compare_digest(shown.encode(), token.encode())


def is_page(path: str) -> bool:
    """Return whether a path is of the page, which itself says nothing of any job."""
    return path in ("/", "/ui") or path.startswith("/ui/")


def is_id(text: str) -> bool:
    """Return whether a text is an id: 32 hexadecimal digits."""
    return _ID.fullmatch(text) is not None


def an_id(request: Request, name: str, what: str) -> str:
    """Return an id of the path: 32 hexadecimal digits."""
    asked: str = request.path_params[name]
    if not is_id(asked.lower()):
        why = f'Cannot resolve path parameter ({name}) from value "{asked}"'
        raise Refused(400, f"{why}: a {what} has 32 hexadecimal digits.")
    return asked.lower()


def a_number(request: Request, name: str) -> int:
    """Return a number of the path."""
    asked: str = request.path_params[name]
    if not asked.isdecimal() or len(asked) > 18:
        raise Refused(400, f'Cannot resolve path parameter ({name}) from value "{asked}": it is not a number.')
    return int(asked)


async def read_body(request: Request, most: int = MOST_BODY) -> bytes:
    """Return the bytes of a request's body, if they are not too many."""
    length = request.headers.get("content-length", "0")
    too_long = Refused(413, f"A request has at most {most:,} bytes here.")
    if not length.isdecimal() or int(length) > most:
        raise too_long
    body = _Body(most, too_long)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body.take(chunk)
    except TimeoutError:
        raise Refused(408, f"The request has not come within {BODY_SECONDS:g} s.") from None
    finally:
        body.release()
    return b"".join(body.parts)


class _Body:
    """A body that is coming. Only the server's own thread has any."""

    _all_bytes = 0

    def __init__(self, most: int, too_long: Refused) -> None:
        self.parts: list[bytes] = []
        self._most = most
        self._too_long = too_long
        self._bytes = 0

    def take(self, chunk: bytes) -> None:
        self.parts.append(chunk)
        self._count(len(chunk))
        if self._bytes > self._most:
            raise self._too_long
        if _Body._all_bytes > MOST_BODIES and not self._is_upload:
            raise Refused(503, "Too many requests are coming at once: ask again.")

    def release(self) -> None:
        self._count(-self._bytes)

    def _count(self, size: int) -> None:
        self._bytes += size
        if not self._is_upload:
            _Body._all_bytes += size

    @property
    def _is_upload(self) -> bool:
        return self._most > MOST_BODY


async def body_of(request: Request) -> dict[str, Any]:
    """Return a request's body; an empty one is an empty object."""
    read = await read_body(request)
    if not read.strip():
        return {}
    try:
        found = json.loads(read)
    except (ValueError, RecursionError) as e:
        raise Refused(400, f"The request is not JSON: {e}") from None
    if not isinstance(found, dict):
        raise Refused(400, "The request must be a JSON object.")
    return found


def names_of(request: Request, parameter: str) -> list[str] | None:
    """Return the names of a query parameter that lists them with commas; None when it is not given."""
    given = request.query_params.get(parameter)
    return None if given is None else [name for name in given.split(",") if name]


def asked_metrics(request: Request, found: Iterable[str]) -> list[str] | None:
    """Return the metrics that are asked for by `get`, or by `all=true`, which archives use; None for only names."""
    return list(found) if request.query_params.get("all") == "true" else names_of(request, "get")


@dataclass(frozen=True)
class Answer:
    """A response: status code, body and media type."""

    status: int
    body: bytes
    media_type: str = "application/json"

    def json(self) -> Any:
        return json.loads(self.body)


async def ask_app(app: ASGIApp, path: str, query: str = "") -> Answer:
    """Return an application's response to a GET request."""
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
