"""Redis: a sink, and lookups for `AsyncDataStream`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from millstream.common.aliases import Value
from millstream.connectors.redis import RedisSink, connect_async, fetch_hash, fetch_text, library
from millstream.datastream.connectors.lookup import CachedLookup

__all__ = ["RedisLookup", "RedisSink"]


class RedisLookup(CachedLookup):
    """Looks up a key in Redis for each record, for `AsyncDataStream`.

    Args:
        url: the server, such as `redis://host:6379/0`.
        key: returns the key of a record.
        join: returns the result for a record and its value, None if missing; by default the pair of both.
        hashes: whether keys are hashes, whose values are dicts; by default they are text.
        ttl: seconds until a cached value expires, by default 60; 0 disables the cache.
        max_entries: the maximum number of cached values, by default 10,000.

    Example:
        >>> lookup = RedisLookup(
        ...     "redis://localhost:6379/0",
        ...     key=lambda order: f"customer:{order['customer']}",
        ...     join=lambda order, customer: {**order, **(customer or {})},
        ...     hashes=True,
        ...     ttl=10,
        ... )
    """

    def __init__(
        self,
        url: str,
        key: Callable[[Value], str],
        join: Callable[[Value, Value], Value] | None = None,
        hashes: bool = False,
        ttl: float = 60.0,
        max_entries: int = 10_000,
    ) -> None:
        library()
        super().__init__(partial(connect_async, url), fetch_hash if hashes else fetch_text, key, join, ttl, max_entries)
