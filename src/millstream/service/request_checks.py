"""Checks of requests: their size and origin.

A browser sends requests for any page it shows. A page of another site must not reach this service through it: neither
as itself (it could cancel a job with a form, without reading the response), nor under its own host name resolving to
this machine (DNS rebinding: it could read the response too).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.service.http import error_response, is_page

# Limits of a request.
MAX_PATH, MAX_QUERY, MAX_HEADERS = 4096, 16_384, 1 << 16
_FOREIGN = ("cross-site", "same-site")


def rejection(headers: Iterable[tuple[bytes, bytes]], names: Collection[str] | None) -> str | None:
    """Return why a request is rejected; None if it is allowed.

    Args:
        headers: its headers, names in lower case.
        names: allowed host names besides those of this machine; None allows any.

    Example:
        >>> rejection([(b"host", b"localhost:8081")], ())
        >>> rejection([(b"host", b"evil.example:8081")], ()).split(":")[0]
        "This service is not called 'evil.example'"
        >>> rejection([(b"host", b"localhost:8081"), (b"origin", b"http://evil.example")], ())
        'Pages of http://evil.example may not use this service.'
    """
    values = {name: value.decode("latin-1") for name, value in headers}
    host = values.get(b"host")
    if names is not None and host is not None and not _is_allowed(_name(host), names):
        return (
            f"This service is not called {_name(host)!r}: use localhost, or set rest.address to the host name that "
            "clients use."
        )
    origin = values.get(b"origin")
    if origin is not None and origin.partition("://")[2] != host:
        return f"Pages of {origin} may not use this service."
    if values.get(b"sec-fetch-site") in _FOREIGN:
        return "Pages of other sites may not use this service."
    return None


def _name(host: str) -> str:
    """Return the name in a `Host` header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def _is_allowed(name: str, names: Collection[str]) -> bool:
    lower = name.lower().rstrip(".")
    if lower in names or lower == "localhost" or lower.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(lower).is_loopback
    except ValueError:
        return False


class RequestChecks:
    """Middleware that rejects requests before they reach the application."""

    def __init__(self, app: ASGIApp, names: Collection[str] | None) -> None:
        """Wrap an application.

        Args:
            app: the application.
            names: allowed host names besides those of this machine; None allows any.
        """
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        rejected = self._rejected(scope) if scope["type"] == "http" else None
        await (self._app if rejected is None else rejected)(scope, receive, send)

    def _rejected(self, scope: Scope) -> Response | None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if len(scope["path"]) > MAX_PATH or len(scope["query_string"]) > MAX_QUERY:
            return error_response(414, f"A path has at most {MAX_PATH:,} characters, and a query {MAX_QUERY:,}.")
        if sum(len(name) + len(value) for name, value in headers) > MAX_HEADERS:
            return error_response(431, f"Headers have at most {MAX_HEADERS:,} bytes.")
        if is_page(scope["path"]):
            # Links from other sites may lead there.
            return None
        reason = rejection(headers, self._names)
        return None if reason is None else error_response(403, reason)
