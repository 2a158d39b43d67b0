"""HTTP helpers: JSON responses, errors, request bodies and parameters, and in-process requests to an application."""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Scope

from millstream.common.aliases import Json

# Limits of a request body, and of the time to receive it.
MAX_BODY = 1 << 20
BODY_SECONDS = 60.0
# Limit of all bodies being received. Uploads, which require a token, do not count.
MAX_BODIES = 1 << 25

_ID = re.compile("[0-9a-f]{32}")


class RequestError(Exception):
    """A request that fails with a status code and a reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def json_bytes(body: Json) -> bytes:
    """Return a body encoded as JSON.

    Example:
        >>> json_bytes({"lag": float("nan"), "name": "\\ud800"})
        b'{"lag":"NaN","name":"\\\\ud800"}'
    """
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        # Values of user code or clients: a number that JSON lacks, or half a surrogate pair.
        return json.dumps(_json_numbers(body), separators=(",", ":")).encode()


def _json_numbers(body: Json) -> Json:
    """Return a body with NaN and infinities as text, as in Flink."""
    if isinstance(body, dict):
        return {key: _json_numbers(value) for key, value in body.items()}
    if isinstance(body, (list, tuple)):
        return [_json_numbers(value) for value in body]
    if isinstance(body, float) and not math.isfinite(body):
        return "NaN" if math.isnan(body) else "Infinity" if body > 0 else "-Infinity"
    return body


def answer(body: Json, status: int = 200) -> Response:
    """Return a JSON response."""
    return Response(json_bytes(body), status, media_type="application/json")


def error_response(status: int, reason: str) -> Response:
    """Return an error response in Flink's format."""
    return answer({"errors": [reason]}, status)


def has_token(authorization: str, token: str) -> bool:
    """Return whether an `Authorization` header contains a token."""
    sent = authorization.removeprefix("Bearer ")
    return hmac.compare_digest(sent.encode(), token.encode())


def is_page(path: str) -> bool:
    """Return whether a path belongs to the web page, which itself contains no data of jobs."""
    return path in ("/", "/ui") or path.startswith("/ui/")


def is_id(text: str) -> bool:
    """Return whether a text is an id: 32 hexadecimal digits."""
    return _ID.fullmatch(text) is not None


def id_parameter(request: Request, name: str, label: str) -> str:
    """Return an id in the path: 32 hexadecimal digits."""
    value: str = request.path_params[name]
    if not is_id(value.lower()):
        reason = f'Cannot resolve path parameter ({name}) from value "{value}"'
        raise RequestError(400, f"{reason}: a {label} has 32 hexadecimal digits.")
    return value.lower()


def number_parameter(request: Request, name: str) -> int:
    """Return a number in the path."""
    value: str = request.path_params[name]
    if not value.isdecimal() or len(value) > 18:
        raise RequestError(400, f'Cannot resolve path parameter ({name}) from value "{value}": it is not a number.')
    return int(value)


async def read_body(request: Request, max_bytes: int = MAX_BODY) -> bytes:
    """Return a request's body, at most `max_bytes` long."""
    length = request.headers.get("content-length", "0")
    too_long = RequestError(413, f"The request body exceeds {max_bytes:,} bytes.")
    if not length.isdecimal() or int(length) > max_bytes:
        raise too_long
    body = _Body(max_bytes, too_long)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body.take(chunk)
    except TimeoutError:
        raise RequestError(408, f"The request body did not arrive within {BODY_SECONDS:g} s.") from None
    finally:
        body.release()
    return b"".join(body.parts)


class _Body:
    """A body being received. Used on the server's thread only."""

    _all_bytes = 0

    def __init__(self, max_bytes: int, too_long: RequestError) -> None:
        self.parts: list[bytes] = []
        self._max_bytes = max_bytes
        self._too_long = too_long
        self._bytes = 0

    def take(self, chunk: bytes) -> None:
        self.parts.append(chunk)
        self._count(len(chunk))
        if self._bytes > self._max_bytes:
            raise self._too_long
        if _Body._all_bytes > MAX_BODIES and not self._is_upload:
            raise RequestError(503, "Too many requests at once: try again later.")

    def release(self) -> None:
        self._count(-self._bytes)

    def _count(self, size: int) -> None:
        self._bytes += size
        if not self._is_upload:
            _Body._all_bytes += size

    @property
    def _is_upload(self) -> bool:
        return self._max_bytes > MAX_BODY


async def body_of(request: Request) -> dict[str, Json]:
    """Return a request's JSON object; an empty body is an empty object."""
    text = await read_body(request)
    if not text.strip():
        return {}
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise RequestError(400, f"The request is not JSON: {e}") from None
    if not isinstance(body, dict):
        raise RequestError(400, "The request must be a JSON object.")
    return body


def names_of(request: Request, parameter: str) -> list[str] | None:
    """Return the comma-separated names of a query parameter; None if it is absent."""
    value = request.query_params.get(parameter)
    return None if value is None else [name for name in value.split(",") if name]


def requested_metrics(request: Request, names: Iterable[str]) -> list[str] | None:
    """Return the metrics requested with `get`, or with `all=true` (for archives); None to list names only."""
    return list(names) if request.query_params.get("all") == "true" else names_of(request, "get")


@dataclass(frozen=True)
class Answer:
    """A response: status code, body and media type."""

    status: int
    body: bytes
    media_type: str = "application/json"

    def json(self) -> Json:
        return json.loads(self.body)


async def get_from_app(app: ASGIApp, path: str, query: str = "") -> Answer:
    """Return an application's response to a GET request."""
    status, body = 0, b""
    scope: Scope = {
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

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, body
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            body += message.get("body", b"")

    await app(scope, receive, send)
    return Answer(status, body)
