"""Look-ups of other systems for the records of a stream: one client for each subtask, and a cache."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from millstream.common.errors import InvalidProgramError
from millstream.datastream.functions import AsyncFunction

__all__ = ["CachedLookup", "TtlCache"]

_MISSING = object()
_CLOSE_SECONDS = 5.0


class TtlCache:
    """Values that are forgotten some time after they were put in, or when there are too many: the least used first.

    Args:
        seconds: how long a value is remembered.
        size: how many are.
        clock: tells the time.

    Example:
        >>> now = 0.0
        >>> cache = TtlCache(10, 2, lambda: now)
        >>> cache.put("a", 1)
        >>> cache.get("a", None), cache.get("b", None)
        (1, None)
    """

    def __init__(self, seconds: float, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._size, self._clock = seconds, size, clock
        self._values: OrderedDict[Any, tuple[float, Any]] = OrderedDict()

    def get(self, key: Any, default: Any) -> Any:
        """Return the value of a key, the default where it is not known any more."""
        found = self._values.get(key)
        if found is None:
            return default
        if found[0] <= self._clock():
            del self._values[key]
            return default
        self._values.move_to_end(key)
        return found[1]

    def put(self, key: Any, value: Any) -> None:
        """Remember a value."""
        self._values[key] = (self._clock() + self._seconds, value)
        self._values.move_to_end(key)
        while len(self._values) > self._size:
            self._values.popitem(last=False)

    def __len__(self) -> int:
        return len(self._values)


class CachedLookup(AsyncFunction[Any, Any]):
    """Looks something up for each record, for `AsyncDataStream`.

    A subtask has one client, made on the worker, and asks for a key once, however many records wait for it.

    Args:
        connect: returns a client, or a coroutine that does; called once in each subtask. A client that has `aclose()`
            is closed at the end.
        fetch: a coroutine function of the client and a key; what it returns may be None.
        key: the key of a record.
        join: makes a result of a record and what was found; without, it is the pair of both.
        ttl: how many seconds an answer is remembered; 0: not at all.
        max_entries: how many answers are.

    Example:
        >>> lookup = CachedLookup(connect=dict, fetch=None, key=lambda order: order["customer"])
        Traceback (most recent call last):
        millstream.common.errors.InvalidProgramError: CachedLookup: fetch is a coroutine function of a client and a key.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        fetch: Callable[[Any, Any], Awaitable[Any]],
        key: Callable[[Any], Any],
        join: Callable[[Any, Any], Any] | None = None,
        ttl: float = 60.0,
        max_entries: int = 10_000,
    ) -> None:
        if not callable(fetch):
            raise InvalidProgramError("CachedLookup: fetch is a coroutine function of a client and a key.")
        if ttl < 0 or max_entries < 1:
            raise InvalidProgramError("CachedLookup: ttl is not negative, and max_entries is at least 1.")
        self._connect, self._fetch, self._key, self._join = connect, fetch, key, join
        self._ttl, self._max_entries = ttl, max_entries

    def open(self, runtime_context: Any) -> None:
        self._client: Any = _MISSING
        self._connecting: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cache = TtlCache(self._ttl, self._max_entries)
        self._asked: dict[Any, asyncio.Task[Any]] = {}

    async def async_invoke(self, value: Any) -> list[Any]:
        key = self._key(value)
        found = self._cache.get(key, _MISSING)
        if found is _MISSING:
            found = await self._ask(key)
        return [(value, found) if self._join is None else self._join(value, found)]

    async def _ask(self, key: Any) -> Any:
        """Ask for a key, or wait with those who have."""
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.ensure_future(self._get(key))
            task.add_done_callback(lambda _: self._asked.pop(key, None))
        # Who waits may give up without the others.
        return await asyncio.shield(task)

    async def _get(self, key: Any) -> Any:
        found = await self._fetch(await self._connected(), key)
        if self._ttl:
            self._cache.put(key, found)
        return found

    async def _connected(self) -> Any:
        if self._connecting is None:
            self._connecting = asyncio.Lock()
        async with self._connecting:
            if self._client is _MISSING:
                client = self._connect()
                self._client = await client if inspect.iscoroutine(client) else client
                self._loop = asyncio.get_running_loop()
        return self._client

    def close(self) -> None:
        # On the loop that it was made on, which nobody runs any more.
        leave = getattr(self._client, "aclose", None)
        if leave is not None and self._loop is not None and not self._loop.is_running():
            self._loop.run_until_complete(asyncio.wait_for(leave(), _CLOSE_SECONDS))
