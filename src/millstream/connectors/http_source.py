"""HttpSource: receives HTTP requests, such as webhooks."""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
import threading
from typing import TYPE_CHECKING, Any

from millstream.common.errors import InvalidProgramError
from millstream.common.serialization import DeserializationSchema, SimpleStringSchema
from millstream.connectors.push_source import CAPACITY, ArrivalsSource, Inlet

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["HttpSource"]

_MANY = "application/x-ndjson"


class HttpSource(ArrivalsSource):
    """Receives POST requests on the driver; the body of a request is a record.

    With the content type `application/x-ndjson` each line of the body is a record. The response is 200 when the driver
    has buffered the records, until a checkpoint contains them. They survive a failure of workers. A failure of the
    driver loses them, unless `acknowledge_processed` delays the response and senders retry.

    Args:
        port: the port; 0 for a free one, which `address` returns while the job runs.
        path: the URL path.
        schema: deserializes a record; text by default.
        host: the interface to listen on; loopback by default.
        token: the required `Authorization: Bearer ...` token, or None.
        acknowledge_processed: whether to respond only when the checkpoint with the records is complete. With senders
            that retry, this is at least once.
        capacity: maximum buffered records; the response is 503 if exceeded.
        max_body_bytes: maximum size of a body; the response is 413 if exceeded.

    Example:
        >>> HttpSource(8099, "/orders").name
        'HTTP 127.0.0.1:8099/orders'
    """

    def __init__(
        self,
        port: int,
        path: str = "/",
        schema: DeserializationSchema | None = None,
        *,
        host: str = "127.0.0.1",
        token: str | None = None,
        acknowledge_processed: bool = False,
        capacity: int = CAPACITY,
        max_body_bytes: int = 1 << 20,
    ) -> None:
        if not path.startswith("/"):
            raise InvalidProgramError(f"HttpSource: the path must begin with /, it is {path!r}.")
        super().__init__(schema or SimpleStringSchema(), capacity)
        self.name = f"HTTP {host}:{port}{path}"
        self._where = host, port, path
        self._token = token
        self._limit = max_body_bytes
        self._acknowledges_processed = acknowledge_processed

    @property
    def address(self) -> str:
        """The URL while the job runs."""
        inlet = self.inlet()
        assert isinstance(inlet, _Server)
        return inlet.address

    def make_inlet(self) -> Inlet:
        return _Server(self._where, self._token, self._acknowledges_processed, self._capacity, self._limit)


class _Server(Inlet):
    """An HTTP server on its own thread."""

    def __init__(
        self, where: tuple[str, int, str], token: str | None, waits: bool, capacity: int, max_body_bytes: int
    ) -> None:
        super().__init__(capacity)
        self._host, self._port, self._path = where
        self._token = token
        self._waits = waits
        self._limit = max_body_bytes
        self._server: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Requests that wait for a checkpoint with all records before a number.
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._done = 0
        self.address = ""

    def open(self) -> None:
        import uvicorn
        from starlette.applications import Starlette
        from starlette.routing import Route

        app = Starlette(routes=[Route(self._path, self._posted, methods=["POST"])])
        config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        listening = self._bound()
        host, port = listening.getsockname()[:2]
        self.address = f"http://{host}:{port}{self._path}"
        serve = threading.Thread(target=self._serve, args=(listening,), name=f"http-source-{port}", daemon=True)
        serve.start()

    def _bound(self) -> socket.socket:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((self._host, self._port))
            listening.listen(128)
        except OSError as e:
            listening.close()
            raise InvalidProgramError(f"HttpSource: {self._host}:{self._port} cannot be listened on: {e}.") from None
        return listening

    def _serve(self, listening: socket.socket) -> None:
        with listening:
            self._server.run(sockets=[listening])

    def close(self) -> None:
        self._server.should_exit = True

    async def _posted(self, request: Request) -> Response:
        if self._token is not None:
            given = request.headers.get("authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
                return _answer(401, "the token is missing or wrong")
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > self._limit:
                return _answer(413, f"a body may have {self._limit} bytes")
        records = [bytes(body)]
        if request.headers.get("content-type", "").partition(";")[0].strip() == _MANY:
            records = [line for line in bytes(body).splitlines() if line]
        end = self.arrivals.put(records, wait=False)
        if end is None:
            return _answer(503, "too many records wait to be processed: try again later")
        if self._waits:
            await self._until_done(end)
        return _answer(200, None, len(records))

    async def _until_done(self, end: int) -> None:
        self._loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((end, future))
        # The checkpoint may be complete already.
        self._answer_waiting(self._done)
        await future

    def done(self, before: int) -> None:
        super().done(before)
        self._done = before
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._answer_waiting, before)

    def _answer_waiting(self, before: int) -> None:
        """Respond to requests whose records are in a checkpoint; runs on the server's thread."""
        ready = [future for end, future in self._waiting if end <= before]
        self._waiting = [one for one in self._waiting if one[0] > before]
        for future in ready:
            if not future.done():
                future.set_result(None)


def _answer(status: int, error: str | None, accepted: int = 0) -> Response:
    from starlette.responses import Response

    content = {"accepted": accepted} if error is None else {"error": error}
    return Response(json.dumps(content), status, media_type="application/json")
