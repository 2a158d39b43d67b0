"""A schema registry with the part of the documented HTTP API that clients use."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class RegistryServer:
    """Stores schemas by number and by subject.

    Attributes:
        user: `name:password` that clients must give, None for none.
        requested_paths: the paths of all requests.
    """

    def __init__(self) -> None:
        self.schemas: list[str] = []
        self.subjects: dict[str, list[int]] = {}
        self.user: str | None = None
        self.requested_paths: list[str] = []
        self.url = ""

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        self.requested_paths.append(path)
        parts = path.strip("/").split("/")
        if method == "GET" and parts[:2] == ["schemas", "ids"]:
            number = int(parts[2])
            if not 1 <= number <= len(self.schemas):
                return 404, {"error_code": 40403, "message": "Schema not found"}
            return 200, {"schema": self.schemas[number - 1]}
        if method == "POST" and parts[0] == "subjects" and parts[2:] == ["versions"]:
            try:
                parsed = json.loads(body["schema"])
            except ValueError:
                return 422, {"error_code": 42201, "message": "Invalid schema"}
            return 200, {"id": self._register(parts[1], parsed)}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _register(self, subject: str, schema: Any) -> int:
        text = json.dumps(schema)
        if text not in self.schemas:
            self.schemas.append(text)
        number = self.schemas.index(text) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number


@contextmanager
def registry_server() -> Iterator[RegistryServer]:
    """Run a registry on loopback."""
    registry = RegistryServer()

    class Handler(BaseHTTPRequestHandler):
        def _handle(self, method: str) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            credentials = registry.user and f"Basic {base64.b64encode(registry.user.encode()).decode()}"
            if credentials and self.headers.get("Authorization") != credentials:
                status, answer = 401, {"error_code": 401, "message": "Unauthorized"}
            else:
                status, answer = registry.answer(method, self.path, body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self._handle("GET")

        def do_POST(self) -> None:
            self._handle("POST")

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield registry
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
