"""HttpSource: receives HTTP requests, such as webhooks."""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
import threading
from typing import TYPE_CHECKING

from millstream.common.errors import InvalidProgramError
from millstream.common.serialization import DeserializationSchema, SimpleStringSchema
from millstream.connectors.push_source import CAPACITY, PushSource, Receiver

if TYPE_CHECKING:
    import uvicorn
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["HttpSource"]

_NDJSON = "application/x-ndjson"


class HttpSource(PushSource):
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
        >>> HttpSource(8099, "/orders", token="secret", acknowledge_processed=True).name
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
        self._endpoint = host, port, path
        self._token = token
        self._limit = max_body_bytes
        self._acknowledges_processed = acknowledge_processed

    @property
    def address(self) -> str:
        """The URL while the job runs."""
        receiver = self.receiver()
        assert isinstance(receiver, _Server)
        return receiver.address

    def create_receiver(self) -> Receiver:
        return _Server(self._endpoint, self._token, self._acknowledges_processed, self._capacity, self._limit)


class _Server(Receiver):
    """An HTTP server on its own thread."""

    def __init__(
        self,
        endpoint: tuple[str, int, str],
        token: str | None,
        acknowledges_processed: bool,
        capacity: int,
        max_body_bytes: int,
    ) -> None:
        super().__init__(capacity)
        self._host, self._port, self._path = endpoint
        self._token = token
        self._acknowledges_processed = acknowledges_processed
        self._limit = max_body_bytes
        self._server: uvicorn.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Requests without a response yet, which need a checkpoint with all records before a number.
        self._open_requests: list[tuple[int, asyncio.Future[None]]] = []
        # The end of the records in the last checkpoint.
        self._processed = 0
        self.address = ""

    def open(self) -> None:
        # Only jobs with this source need the server.
        import uvicorn
        from starlette.applications import Starlette
        from starlette.routing import Route

        app = Starlette(routes=[Route(self._path, self._handle_post, methods=["POST"])])
        config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        listener = self._listen()
        host, port = listener.getsockname()[:2]
        self.address = f"http://{host}:{port}{self._path}"
        serve = threading.Thread(target=self._serve, args=(listener,), name=f"http-source-{port}", daemon=True)
        serve.start()

    def _listen(self) -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self._host, self._port))
            listener.listen(128)
        except OSError as e:
            listener.close()
            raise InvalidProgramError(
                f"HttpSource: cannot listen on {self._host}:{self._port}: {e}. Use another port."
            ) from None
        return listener

    def _serve(self, listener: socket.socket) -> None:
        assert self._server is not None
        with listener:
            self._server.run(sockets=[listener])

    def close(self) -> None:
        assert self._server is not None
        self._server.should_exit = True

    async def _handle_post(self, request: Request) -> Response:
        if self._token is not None:
            header = request.headers.get("authorization", "")
            if not hmac.compare_digest(header.encode(), f"Bearer {self._token}".encode()):
                return _respond(401, "the token is missing or wrong")
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > self._limit:
                return _respond(413, f"the body is larger than {self._limit} bytes")
        records = [bytes(body)]
        if request.headers.get("content-type", "").partition(";")[0].strip() == _NDJSON:
            records = [line for line in bytes(body).splitlines() if line]
        end = self.buffer.put(records, wait=False)
        if end is None:
            return _respond(503, "the buffer is full: retry later")
        if self._acknowledges_processed:
            await self._wait_for_checkpoint(end)
        return _respond(200, None, len(records))

    async def _wait_for_checkpoint(self, end: int) -> None:
        self._loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = self._loop.create_future()
        self._open_requests.append((end, future))
        # The checkpoint may be complete already.
        self._respond_processed(self._processed)
        await future

    def discard(self, before: int) -> None:
        super().discard(before)
        self._processed = before
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._respond_processed, before)

    def _respond_processed(self, before: int) -> None:
        """Respond to requests whose records are in a checkpoint; runs on the server's thread."""
        ready = [future for end, future in self._open_requests if end <= before]
        self._open_requests = [request for request in self._open_requests if request[0] > before]
        for future in ready:
            if not future.done():
                future.set_result(None)


def _respond(status: int, error: str | None, accepted: int = 0) -> Response:
    # Only jobs with this source need the server.
    from starlette.responses import Response

    content = {"accepted": accepted} if error is None else {"error": error}
    return Response(json.dumps(content), status, media_type="application/json")
