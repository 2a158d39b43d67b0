"""Lookups in external systems for the records of a stream: one client per subtask, and a cache."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from millstream.common.aliases import Key, Value
from millstream.common.errors import InvalidProgramError
from millstream.datastream.functions import AsyncFunction
from millstream.operators.functions.context import RuntimeContext

__all__ = ["CachedLookup", "TtlCache"]

# A client of any library.
Client: TypeAlias = Value

_MISSING = object()
_CLOSE_SECONDS = 5.0


class TtlCache:
    """A cache whose entries expire; if it is full, the least recently used entry is evicted.

    Args:
        seconds: the time until an entry expires.
        size: the maximum number of entries.
        clock: the monotonic clock.

    Example:
        >>> now = 0.0
        >>> cache = TtlCache(10, 2, lambda: now)
        >>> cache.put("a", 1)
        >>> cache.get("a", None), cache.get("b", None)
        (1, None)
    """

    def __init__(self, seconds: float, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._size, self._clock = seconds, size, clock
        self._entries: OrderedDict[Key, tuple[float, Value]] = OrderedDict()

    def get(self, key: Key, default: Value) -> Value:
        """Return the value of a key, or the default if it is missing or has expired."""
        entry = self._entries.get(key)
        if entry is None:
            return default
        expiry, value = entry
        if expiry <= self._clock():
            del self._entries[key]
            return default
        self._entries.move_to_end(key)
        return value

    def put(self, key: Key, value: Value) -> None:
        """Add a value."""
        self._entries[key] = (self._clock() + self._seconds, value)
        self._entries.move_to_end(key)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)


class CachedLookup(AsyncFunction[Value, Value]):
    """Looks up a value for each record, for `AsyncDataStream`.

    Each subtask has one client, created on the worker. Concurrent lookups of a key share one request.

    Args:
        connect: returns a client, or a coroutine that does; called once per subtask. A client with `aclose()` is closed
            at the end.
        fetch: a coroutine function of the client and a key; it may return None.
        key: returns the key of a record.
        join: returns the result for a record and its value; by default the pair of both.
        ttl: seconds until a cached value expires, by default 60; 0 disables the cache.
        max_entries: the maximum number of cached values, by default 10,000.

    Example:
        >>> from millstream.common import Time
        >>> from millstream.datastream import AsyncDataStream
        >>> async def fetch(client, key): return client[key]
        >>> lookup = CachedLookup(connect=lambda: {1: "ann"}, fetch=fetch, key=lambda order: order["customer"])
        >>> orders = env.from_collection([{"customer": 1}])
        >>> list(AsyncDataStream.ordered_wait(orders, lookup, Time.seconds(5), 100).execute_and_collect())
        [({'customer': 1}, 'ann')]
    """

    def __init__(
        self,
        connect: Callable[[], Client],
        fetch: Callable[[Client, Key], Awaitable[Value]],
        key: Callable[[Value], Key],
        join: Callable[[Value, Value], Value] | None = None,
        ttl: float = 60.0,
        max_entries: int = 10_000,
    ) -> None:
        if not callable(fetch):
            raise InvalidProgramError("CachedLookup: fetch is a coroutine function of a client and a key.")
        if ttl < 0 or max_entries < 1:
            raise InvalidProgramError("CachedLookup: ttl must not be negative, and max_entries must be at least 1.")
        self._connect, self._fetch, self._key, self._join = connect, fetch, key, join
        self._ttl, self._max_entries = ttl, max_entries

    def open(self, runtime_context: RuntimeContext) -> None:
        self._client: Client = _MISSING
        self._connecting: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cache = TtlCache(self._ttl, self._max_entries)
        self._requests: dict[Key, asyncio.Task[Value]] = {}

    async def async_invoke(self, value: Value) -> list[Value]:
        key = self._key(value)
        result = self._cache.get(key, _MISSING)
        if result is _MISSING:
            result = await self._request(key)
        return [(value, result) if self._join is None else self._join(value, result)]

    async def _request(self, key: Key) -> Value:
        """Request a key, or wait for the pending request of another record."""
        task = self._requests.get(key)
        if task is None:
            task = self._requests[key] = asyncio.ensure_future(self._get(key))
            task.add_done_callback(lambda _: self._requests.pop(key, None))
        # A record's timeout must not cancel the request for the others.
        return await asyncio.shield(task)

    async def _get(self, key: Key) -> Value:
        result = await self._fetch(await self._connected(), key)
        if self._ttl:
            self._cache.put(key, result)
        return result

    async def _connected(self) -> Client:
        if self._connecting is None:
            self._connecting = asyncio.Lock()
        async with self._connecting:
            if self._client is _MISSING:
                client = self._connect()
                self._client = await client if inspect.iscoroutine(client) else client
                self._loop = asyncio.get_running_loop()
        return self._client

    def close(self) -> None:
        # Closed on the loop that opened it, which no longer runs.
        close_client = getattr(self._client, "aclose", None)
        if close_client is not None and self._loop is not None and not self._loop.is_running():
            self._loop.run_until_complete(asyncio.wait_for(close_client(), _CLOSE_SECONDS))
