"""Requests to Elasticsearch's REST service, which OpenSearch has too."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult

from millstream.common.errors import MillstreamError

# Answers that may be others the next time: too many requests, and servers that are busy or starting.
PASSING = {429, 502, 503, 504}
_REFUSED = {401, 403}
_PORT = 9200


@dataclass(frozen=True)
class Access:
    """Where the servers are, and how they are spoken to; times are in seconds."""

    hosts: tuple[SplitResult, ...] = ()
    user: str | None = None
    password: str = field(default="", repr=False)
    prefix: str = ""
    connect_timeout: float = 10.0
    read_timeout: float = 30.0

    @property
    def place(self) -> str:
        return ", ".join(host.netloc.rpartition("@")[2] for host in self.hosts)

    def headers(self) -> dict[str, str]:
        if self.user is None:
            return {"Content-Type": "application/x-ndjson"}
        who = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return {"Content-Type": "application/x-ndjson", "Authorization": f"Basic {who}"}


class Unavailable(Exception):
    """No server answers, or it is too busy: what may be otherwise the next time."""


class Client:
    """Speaks to one server at a time, to the next one when that is gone."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._connection: HTTPConnection | None = None
        self._at = 0

    def ask(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        """Return an answer; raise Unavailable where there is none for now."""
        status, text = self._answer(method, path, body)
        place = self._access.place
        if status in PASSING:
            raise Unavailable(f"it says {status}: {reason(text)}")
        if status in _REFUSED:
            raise MillstreamError(
                f"ElasticsearchSink: {place} does not let this user in ({status}): check set_connection_username(...) "
                "and set_connection_password(...)."
            )
        if status >= 400:
            raise MillstreamError(f"ElasticsearchSink: {place} refuses a request ({status}): {reason(text)}.")
        try:
            return dict(json.loads(text))
        except ValueError:
            raise MillstreamError(
                f"ElasticsearchSink: {place} is no Elasticsearch, its answer begins with {text[:60]!r}: check "
                "set_hosts(...)."
            ) from None

    def _answer(self, method: str, path: str, body: bytes | None) -> tuple[int, str]:
        # A connection that was not used for a while may have been given up at the other end.
        if self._connection is not None:
            try:
                return self._sent(self._connection, method, path, body)
            except (OSError, HTTPException):
                self.close()
        try:
            self._connection = self._connected()
            return self._sent(self._connection, method, path, body)
        except (OSError, HTTPException) as e:
            self.close()
            self._at += 1
            raise Unavailable(str(e) or repr(e)) from e

    def _connected(self) -> HTTPConnection:
        access = self._access
        host = access.hosts[self._at % len(access.hosts)]
        make = HTTPSConnection if host.scheme == "https" else HTTPConnection
        connection = make(str(host.hostname), host.port or _PORT, timeout=access.connect_timeout)
        connection.connect()
        connection.sock.settimeout(access.read_timeout)
        return connection

    def _sent(self, connection: HTTPConnection, method: str, path: str, body: bytes | None) -> tuple[int, str]:
        connection.request(method, f"{self._access.prefix}{path}", body, self._access.headers())
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")

    def close(self) -> None:
        """Hang up; the next question connects anew."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def bulk_body(actions: Sequence[tuple[str, ...]]) -> bytes:
    """Return the body of a bulk request: every action is one or two lines."""
    return "".join(f"{line}\n" for action in actions for line in action).encode()


def reason(text: str) -> str:
    """Return why, from an answer that says so, or the beginning of one that does not.

    Example:
        >>> reason('{"error": {"type": "x", "reason": "no such index", "caused_by": {"reason": "it is closed"}}}')
        'no such index (it is closed)'
    """
    try:
        error = json.loads(text)["error"]
        if not isinstance(error, dict):
            return str(error)
        cause = (error.get("caused_by") or {}).get("reason")
        return f"{error['reason']} ({cause})" if cause else str(error["reason"])
    except (ValueError, KeyError, TypeError):
        return text[:200]
