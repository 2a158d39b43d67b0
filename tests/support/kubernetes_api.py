"""A simulation of Kubernetes' API server: leases, with optimistic concurrency."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_PATH = "/apis/coordination.k8s.io/v1/namespaces/"


class LeaseServer(ThreadingHTTPServer):
    """Implements leases like the API server.

    Every write makes a new resourceVersion: an opaque text from one counter for all objects. A POST of an existing
    object is refused with 409 AlreadyExists; a PUT whose resourceVersion is not the current one, with 409 Conflict. A
    PUT without one is unconditional; no code here may rely on that. metadata.name must equal that of the path.
    """

    daemon_threads = True

    def __init__(self, token: str | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.token = token
        self.leases: dict[tuple[str, str], dict[str, Any]] = {}
        self.lock = threading.Lock()
        self.version = 1000
        self.is_cut_off = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: LeaseServer

    def log_message(self, *_: object) -> None:
        """Suppress the log."""

    def _answer(self, code: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError):  # the client was killed
            self.wfile.write(data)

    def _status(self, code: int, reason: str) -> None:
        self._answer(code, {"kind": "Status", "status": "Failure", "reason": reason, "code": code})

    def _handle(self) -> None:
        server = self.server
        length = int(self.headers.get("Content-Length") or 0)
        sent = json.loads(self.rfile.read(length)) if length else None
        if server.is_cut_off:
            self.close_connection = True
            self.connection.close()
            return
        if server.token is not None and self.headers.get("Authorization") != f"Bearer {server.token}":
            self._status(401, "Unauthorized")
            return
        if not self.path.startswith(_PATH):
            self._status(404, "NotFound")
            return
        namespace, _, name = self.path.removeprefix(_PATH).partition("/leases")
        with server.lock:
            self._do(namespace, name.lstrip("/"), sent)

    do_GET = do_POST = do_PUT = _handle

    def _do(self, namespace: str, name: str, sent: dict[str, Any] | None) -> None:
        leases = self.server.leases
        if self.command == "GET":
            lease = leases.get((namespace, name))
            self._answer(200, lease) if lease is not None else self._status(404, "NotFound")
            return
        assert sent is not None
        if sent.get("apiVersion") != "coordination.k8s.io/v1" or sent.get("kind") != "Lease":
            self._status(400, "BadRequest")
            return
        key = namespace, sent["metadata"]["name"]
        if self.command == "POST":
            if sent["metadata"].get("resourceVersion"):
                self._status(400, "resourceVersion should not be set on objects to be created")
            elif key in leases:
                self._status(409, "AlreadyExists")
            else:
                self._store(201, key, sent)
            return
        if name != sent["metadata"]["name"]:
            self._status(400, "BadRequest")
        elif key not in leases:
            self._status(404, "NotFound")
        elif sent["metadata"].get("resourceVersion") not in (None, leases[key]["metadata"]["resourceVersion"]):
            self._status(409, "Conflict")
        else:
            self._store(200, key, sent)

    def _store(self, code: int, key: tuple[str, str], sent: dict[str, Any]) -> None:
        self.server.version += 1
        stored = {**sent, "metadata": {**sent["metadata"], "resourceVersion": str(self.server.version)}}
        self.server.leases[key] = stored
        self._answer(code, stored)


@contextmanager
def lease_server(token: str | None = None) -> Iterator[LeaseServer]:
    """Serve leases."""
    with LeaseServer(token) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
