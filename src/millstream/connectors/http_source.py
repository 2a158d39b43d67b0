"""HttpSource: what others post, such as webhooks."""

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
    """What is posted to an address of the driver: the body of a request is a record.

    With the content type `application/x-ndjson` every line of the body is one. The answer is 200 when the records are
    taken: they are kept on the driver until they are processed for good, so that workers may fail. What the driver had
    when it died is lost, unless the sender is answered only then and asks again: see `acknowledge_processed`.

    Args:
        port: where to listen; 0 for any that is free, which `address` tells when the job runs.
        path: the path of the address.
        schema: how a record is read from the bytes of the body; as text if not said.
        host: which network to listen on; only this machine if not said.
        token: what senders must give as `Authorization: Bearer ...`, None for nothing.
        acknowledge_processed: whether to answer only when the checkpoint with the records is complete. A sender that
            asks again when it had no answer makes that at least once.
        capacity: how many records may wait; others are answered with 503.
        max_body_bytes: how long a body may be; others are answered with 413.

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
        """Where to post to, when the job runs."""
        inlet = self.inlet()
        assert isinstance(inlet, _Server)
        return inlet.address

    def make_inlet(self) -> Inlet:
        return _Server(self._where, self._token, self._acknowledges_processed, self._capacity, self._limit)


class _Server(Inlet):
    """Listens on a thread of its own."""

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
        # Who waits until all before a number is processed for good.
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
        found = socket.socket()
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((self._host, self._port))
            found.listen(128)
        except OSError as e:
            found.close()
            raise InvalidProgramError(f"HttpSource: {self._host}:{self._port} cannot be listened on: {e}.") from None
        return found

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
        behind = self.arrivals.put(records, wait=False)
        if behind is None:
            return _answer(503, "too many records wait to be processed: try again later")
        if self._waits:
            await self._until_done(behind)
        return _answer(200, None, len(records))

    async def _until_done(self, behind: int) -> None:
        self._loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((behind, future))
        # It may have been processed meanwhile.
        self._answer_waiting(self._done)
        await future

    def done(self, before: int) -> None:
        super().done(before)
        self._done = before
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._answer_waiting, before)

    def _answer_waiting(self, before: int) -> None:
        """On the server's own thread: let those go whose records are processed."""
        ready = [future for behind, future in self._waiting if behind <= before]
        self._waiting = [one for one in self._waiting if one[0] > before]
        for future in ready:
            if not future.done():
                future.set_result(None)


def _answer(status: int, error: str | None, accepted: int = 0) -> Response:
    from starlette.responses import Response

    told = {"accepted": accepted} if error is None else {"error": error}
    return Response(json.dumps(told), status, media_type="application/json")
