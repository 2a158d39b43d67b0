"""Redis: a sink, and lookups for `AsyncDataStream`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from millstream.connectors.redis import RedisSink, connect_async, fetch_hash, fetch_text, library
from millstream.datastream.connectors.lookup import CachedLookup

__all__ = ["RedisLookup", "RedisSink"]


class RedisLookup(CachedLookup):
    """Looks a key of Redis up for each record, for `AsyncDataStream`.

    Args:
        url: where Redis is, as in `redis://host:6379/0`.
        key: the key of a record.
        join: makes a result of a record and what was found (None where there is nothing); without, it is the pair.
        hashes: whether keys are hashes, which are found as dicts.
        ttl: how many seconds an answer is remembered.
        max_entries: how many answers are.

    Example:
        >>> lookup = RedisLookup("redis://localhost:6379/0", key=lambda order: f"customer:{order['customer']}")
    """

    def __init__(
        self,
        url: str,
        key: Callable[[Any], str],
        join: Callable[[Any, Any], Any] | None = None,
        hashes: bool = False,
        ttl: float = 60.0,
        max_entries: int = 10_000,
    ) -> None:
        library()
        super().__init__(partial(connect_async, url), fetch_hash if hashes else fetch_text, key, join, ttl, max_entries)
