"""What a connection may do: come, if there are not too many, and say soon what it wants, in not too many words.

The service lives in the process that runs jobs. A client that opens connections and says nothing, or says a request
byte by byte, or does not take its answer, must not use up what those need.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

# So many connections at once, and so long and so large may the head of a request be.
MOST_CONNECTIONS = 500
HEAD_SECONDS = 20.0
# So long may it take until an answer has been taken: longer than any that is waited for.
ANSWER_SECONDS = 400.0
MOST_HEAD = 1 << 16


class GuardedProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """HTTP as uvicorn speaks it, with an eye on the clock, on sizes and on how many there are."""

    _head_bytes = 0
    _waited = 0.0
    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        if len(self.connections) >= MOST_CONNECTIONS:
            transport.abort()
            return
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._clock is not None:
            self._clock.cancel()
        if self.transport is not None:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        super().data_received(data)
        if self._is_between_requests():
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD:
                self.transport.abort()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect_head()

    def _expect_head(self) -> None:
        self._head_bytes = 0
        self._waited = 0.0
        if self._clock is not None:
            self._clock.cancel()
        self._clock = self.loop.call_later(HEAD_SECONDS, self._look)

    def _look(self) -> None:
        self._waited += HEAD_SECONDS
        # An answer has not been taken while some of it waits to be sent.
        is_silent = self._is_between_requests() and not self.transport.get_write_buffer_size()
        if is_silent or self._waited >= ANSWER_SECONDS:
            self.transport.abort()
        else:
            self._clock = self.loop.call_later(HEAD_SECONDS, self._look)

    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete
