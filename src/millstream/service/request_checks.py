"""Whether a request is small enough, and comes from whom it seems to come from.

A browser sends requests for any page it shows. A page of another site must not reach this service through it: neither
as itself (it could cancel a job with a form, without seeing the answer), nor under a name of its own that it lets
point to this machine (DNS rebinding: it would see the answer too).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.service.http import is_page, refusal

# A longer path, or query, is not looked at; nor are more bytes of headers.
MOST_PATH, MOST_QUERY, MOST_HEADERS = 4096, 16_384, 1 << 16
_FOREIGN = ("cross-site", "same-site")


def why_not(headers: Iterable[tuple[bytes, bytes]], names: Collection[str] | None) -> str | None:
    """Return why a request is not answered; None if it may be.

    Args:
        headers: its headers, their names in small letters.
        names: what the service is called, besides the names of this machine; None where any name will do.

    Example:
        >>> why_not([(b"host", b"localhost:8081")], ())
        >>> why_not([(b"host", b"evil.example:8081")], ()).split(":")[0]
        "This service is not called 'evil.example'"
        >>> why_not([(b"host", b"localhost:8081"), (b"origin", b"http://evil.example")], ())
        'Pages of http://evil.example may not use this service.'
    """
    found = {name: value.decode("latin-1") for name, value in headers}
    host = found.get(b"host")
    if names is not None and host is not None and not _is_called(_name(host), names):
        return (
            f"This service is not called {_name(host)!r}: ask for localhost, or set rest.address to the name under "
            "which clients find it."
        )
    origin = found.get(b"origin")
    if origin is not None and origin.partition("://")[2] != host:
        return f"Pages of {origin} may not use this service."
    if found.get(b"sec-fetch-site") in _FOREIGN:
        return "Pages of other sites may not use this service."
    return None


def _name(host: str) -> str:
    """Return the name in a header `Host`, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def _is_called(name: str, names: Collection[str]) -> bool:
    lower = name.lower().rstrip(".")
    if lower in names or lower == "localhost" or lower.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(lower).is_loopback
    except ValueError:
        return False


class Gate:
    """Stands before all that is served at an address."""

    def __init__(self, app: ASGIApp, names: Collection[str] | None) -> None:
        """Stand before an application.

        Args:
            app: the application.
            names: what the service is called besides this machine's own names; None where any name will do.
        """
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refused(scope) if scope["type"] == "http" else None
        await (self._app if refused is None else refused)(scope, receive, send)

    def _refused(self, scope: Scope) -> Response | None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if len(scope["path"]) > MOST_PATH or len(scope["query_string"]) > MOST_QUERY:
            return refusal(414, f"A path has at most {MOST_PATH:,} characters, and a query {MOST_QUERY:,}.")
        if sum(len(name) + len(value) for name, value in headers) > MOST_HEADERS:
            return refusal(431, f"Headers have at most {MOST_HEADERS:,} bytes.")
        if is_page(scope["path"]):
            # A link may lead there from anywhere.
            return None
        why = why_not(headers, self._names)
        return None if why is None else refusal(403, why)
