"""Redis: a sink that sets keys, and the client for lookups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from types import ModuleType
from typing import TypeAlias

from millstream.common.aliases import LibraryObject, Value
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.connectors.base import CommitContext, Committer, Sink, SinkWriter
from millstream.connectors.retries import Retries, exponential
from millstream.operators.diagnostics.failures import shorten
from millstream.operators.functions.context import RuntimeContext

__all__ = ["RedisSink", "connect_async", "fetch_hash", "fetch_text", "library"]

# The package has no complete type annotations.
Redis: TypeAlias = LibraryObject

_BATCH = 1000
_TIMEOUT = 10.0
_BACKOFF = exponential(0.2)


def library() -> ModuleType:
    """Return the client library, an optional package."""
    try:
        import redis
    except ImportError:
        raise InvalidProgramError(
            "The Redis connector needs the package redis: run  pip install redis  (or install millstream[redis])."
        ) from None
    return redis


class RedisSink(Sink):
    """Sets a key per record, at least once.

    Replayed records set the same values again, so the final value of a key is the same as with exactly once.

    Args:
        url: the server, such as `redis://host:6379/0`.
        key: returns the key of a record.
        value: returns text, bytes, a number, or a dict for a hash; None deletes the key.
        ttl: seconds until the key expires; None, the default, for never.
        max_retries: retries of a batch after connection failures, by default 5.

    Example:
        >>> sink = RedisSink("redis://localhost:6379/0", key=lambda w: f"count:{w[0]}", value=lambda w: w[1], ttl=3600)
        >>> sink.name
        'Redis Sink'
    """

    name = "Redis Sink"

    def __init__(
        self,
        url: str,
        key: Callable[[Value], str | bytes],
        value: Callable[[Value], Value],
        ttl: float | None = None,
        max_retries: int = 5,
    ) -> None:
        library()
        self._arguments = url, key, value, ttl, max_retries

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return _Writer(*self._arguments)

    def create_committer(self, context: CommitContext) -> Committer | None:
        return None


class _Writer(SinkWriter):
    """Writes full batches, and the rest at the end of an epoch."""

    def __init__(
        self,
        url: str,
        key: Callable[[Value], str | bytes],
        value: Callable[[Value], Value],
        ttl: float | None,
        max_retries: int,
    ) -> None:
        self._url, self._key, self._value, self._ttl, self._max_retries = url, key, value, ttl, max_retries
        self._pending: dict[str | bytes, Value] = {}
        self._client: Redis | None = None

    def begin(self, transaction: str) -> None:
        # Discards the records of a failed epoch.
        self._pending.clear()

    def write(self, value: Value) -> None:
        # Only the last value of a key is written.
        self._pending[self._key(value)] = self._value(value)
        if len(self._pending) >= _BATCH:
            self._flush()

    def prepare_commit(self, flush: bool) -> None:
        self._flush()

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                client.close()

    def _flush(self) -> None:
        if not self._pending:
            return
        errors = library().exceptions
        retries = Retries(_BACKOFF, self._max_retries)
        while True:
            try:
                self._write_batch()
                break
            except (errors.ConnectionError, errors.TimeoutError, errors.BusyLoadingError) as e:
                self.close()
                if isinstance(e, errors.AuthenticationError) or not retries.wait():
                    raise MillstreamError(f"RedisSink: Redis at {_address(self._url)} does not answer: {e}.") from e
            except errors.RedisError as e:
                first = shorten(next(iter(self._pending.items())))
                raise MillstreamError(
                    f"RedisSink: {len(self._pending)} keys, the first of them {first}, could not be set: {e}."
                ) from e
        self._pending.clear()

    def _write_batch(self) -> None:
        if self._client is None:
            self._client = library().Redis.from_url(self._url, socket_timeout=_TIMEOUT, socket_connect_timeout=_TIMEOUT)
        # A transaction makes the batch atomic.
        with self._client.pipeline(transaction=True) as pipeline:
            for key, value in self._pending.items():
                if value is None or isinstance(value, Mapping):
                    # Replaces the previous hash.
                    pipeline.delete(key)
                if isinstance(value, Mapping):
                    pipeline.hset(key, mapping={k: v for k, v in value.items() if v is not None})
                    if self._ttl is not None:
                        pipeline.pexpire(key, int(self._ttl * 1000))
                elif value is not None:
                    pipeline.set(key, value, px=None if self._ttl is None else int(self._ttl * 1000))
            pipeline.execute()


def _address(url: str) -> str:
    """Return a URL without its password."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def connect_async(url: str) -> Redis:
    """Return an asyncio client."""
    library()
    # Deferred: the package is optional.
    from redis import asyncio as client

    return client.Redis.from_url(url, socket_timeout=_TIMEOUT, decode_responses=True)


async def fetch_text(client: Redis, key: str) -> str | None:
    """Return the text of a key, or None."""
    text: str | None = await client.get(key)
    return text


async def fetch_hash(client: Redis, key: str) -> dict[str, str] | None:
    """Return the fields of a hash, or None."""
    fields: dict[str, str] = await client.hgetall(key)
    return fields or None
