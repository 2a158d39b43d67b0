"""Answers of the REST interface: JSON, and errors as Flink's clients expect them."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

# A body larger than this is not read.
MOST_BODY = 1 << 20

_ID = re.compile("[0-9a-f]{32}")


class Refused(Exception):
    """A request that cannot be answered as it was meant: its status code and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


def json_bytes(body: Any) -> bytes:
    """Return a body as it is sent."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def answer(body: Any, status: int = 200) -> Response:
    """Return a body as JSON."""
    return JSONResponse(body, status)


def refusal(status: int, why: str) -> Response:
    """Return an error, in the one shape that clients read."""
    return JSONResponse({"errors": [why]}, status)


def shows(authorization: str, token: str) -> bool:
    """Tell whether a request with this header `Authorization` shows a token."""
    shown = authorization.removeprefix("Bearer ")
    return hmac.compare_digest(shown.encode(), token.encode())


def is_id(text: str) -> bool:
    """Tell whether a text is an id: 32 hexadecimal digits."""
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
    parts, size = [], 0
    async for chunk in request.stream():
        parts.append(chunk)
        size += len(chunk)
        if size > most:
            raise too_long
    return b"".join(parts)


async def body_of(request: Request) -> dict[str, Any]:
    """Return a request's body; an empty one is an empty object."""
    read = await read_body(request)
    if not read.strip():
        return {}
    try:
        found = json.loads(read)
    except ValueError as e:
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
