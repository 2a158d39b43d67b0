"""Caches of lookup joins: none, of recent keys, or of the whole table."""

from __future__ import annotations

import datetime as dt
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from millstream.common.aliases import Key
from millstream.formats.options import Options
from millstream.sql.columns.batch import Batch
from millstream.sql.connector_contract import LookupResult, LookupSource
from millstream.sql.errors import ValidationException

LOOKUP_OPTIONS = frozenset(
    [
        "lookup.cache",
        "lookup.cache.max-rows",
        "lookup.cache.ttl",
        "lookup.cache.caching-missing-key",
        "lookup.partial-cache.max-rows",
        "lookup.partial-cache.expire-after-write",
        "lookup.partial-cache.expire-after-access",
        "lookup.partial-cache.cache-missing-key",
        "lookup.full-cache.reload-strategy",
        "lookup.full-cache.periodic-reload.interval",
        "lookup.full-cache.periodic-reload.schedule-mode",
        "lookup.full-cache.timed-reload.iso-time",
        "lookup.full-cache.timed-reload.interval-in-days",
    ]
)
# Adds a cache to a lookup.
Wrap: TypeAlias = Callable[[LookupSource], LookupSource]


def cached_lookup(options: Options) -> Wrap:
    """Return a function that adds the configured cache to a lookup."""
    kind = options.one_of("lookup.cache", "NONE", {k: k for k in ("NONE", "PARTIAL", "FULL")})
    if kind == "FULL":
        return partial(FullCache, schedule=_schedule(options))
    old = options.integer_or_none("lookup.cache.max-rows")
    if kind == "NONE" and (old is None or "lookup.cache.ttl" not in options):
        if (old is None) != ("lookup.cache.ttl" not in options):
            raise ValidationException(
                "Either all or none of the following options should be provided:\nlookup.cache.max-rows\n"
                "lookup.cache.ttl"
            )
        return _plain
    rows = options.integer_or_none("lookup.partial-cache.max-rows")
    written = options.duration("lookup.partial-cache.expire-after-write", options.duration("lookup.cache.ttl", 0))
    read = options.duration("lookup.partial-cache.expire-after-access", 0)
    missing = options.flag(
        "lookup.partial-cache.cache-missing-key", options.flag("lookup.cache.caching-missing-key", True)
    )
    return partial(
        PartialCache,
        size=old if rows is None else rows,
        after_write=written / 1000 or None,
        after_read=read / 1000 or None,
        keeps_missing=missing,
    )


def _plain(inner: LookupSource) -> LookupSource:
    return inner


class PartialCache(LookupSource):
    """Caches the rows of recent keys; the least recently used are evicted first.

    Args:
        inner: looks up keys that are not cached.
        size: the maximum number of rows; None for no limit.
        after_write: seconds until rows expire after they were looked up; None for never.
        after_read: seconds until rows expire after their last use; None for never.
        keeps_missing: whether keys without rows are cached, too.
        clock: the monotonic clock.
    """

    def __init__(
        self,
        inner: LookupSource,
        size: int | None,
        after_write: float | None,
        after_read: float | None,
        keeps_missing: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner = inner
        self._size, self._after_write, self._after_read = size, after_write, after_read
        self._keeps_missing = keeps_missing
        self._clock = clock
        # By key: the times of the lookup and of the last use, and the rows.
        self._entries: OrderedDict[tuple[Key, ...], tuple[float, float, Batch]] = OrderedDict()
        self._rows = 0

    def find(self, keys: Sequence[tuple[Key, ...]]) -> LookupResult:
        now = self._clock()
        rows_by_key = {key: rows for key in keys if (rows := self._cached(key, now)) is not None}
        missing = [key for key in keys if key not in rows_by_key]
        empty: Batch | None = None
        if missing:
            result = self._inner.find(missing)
            empty = result.batch.slice(0, 0)
            start = 0
            for key, count in zip(missing, result.counts.tolist(), strict=True):
                rows_by_key[key] = result.batch.slice(start, start + count)
                start += count
                if count or self._keeps_missing:
                    self._add(key, rows_by_key[key], now)
        parts = [rows_by_key[key] for key in keys]
        batch = Batch.concatenated(parts) if parts else empty
        assert batch is not None
        return LookupResult(batch, np.array([len(p) for p in parts], np.int64))

    def _cached(self, key: tuple[Key, ...], now: float) -> Batch | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        written, read, rows = entry
        has_expired = self._after_write is not None and now - written >= self._after_write
        if has_expired or (self._after_read is not None and now - read >= self._after_read):
            self._evict(key)
            return None
        self._entries[key] = (written, now, rows)
        self._entries.move_to_end(key)
        return rows

    def _add(self, key: tuple[Key, ...], rows: Batch, now: float) -> None:
        self._evict(key)
        self._entries[key] = (now, now, rows)
        self._rows += max(len(rows), 1)
        while self._size is not None and self._rows > self._size and self._entries:
            self._evict(next(iter(self._entries)))

    def _evict(self, key: tuple[Key, ...]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._rows -= max(len(entry[2]), 1)

    def all_rows(self) -> tuple[list[tuple[Key, ...]], Batch]:
        return self._inner.all_rows()

    def close(self) -> None:
        self._inner.close()


class Periodic:
    """Reloads the whole table at an interval.

    Args:
        seconds: the interval.
        fixed_rate: whether the interval starts at the beginning of a load instead of its end.
    """

    def __init__(self, seconds: float, fixed_rate: bool = False) -> None:
        self._seconds, self._fixed_rate = seconds, fixed_rate

    def next(self, begun: float, ended: float) -> float:
        """Return the time of the next load."""
        return (begun if self._fixed_rate else ended) + self._seconds


class Timed:
    """Reloads the whole table at a time of day.

    Args:
        time_of_day: the time, in its own or the machine's zone.
        days: the interval in days.
        now: returns the current time in a zone.
    """

    def __init__(
        self, time_of_day: dt.time, days: int, now: Callable[[dt.tzinfo | None], dt.datetime] = dt.datetime.now
    ) -> None:
        self._time_of_day, self._days, self._now = time_of_day, days, now

    def next(self, begun: float, ended: float) -> float:
        """Return the time of the next load."""
        now = self._now(self._time_of_day.tzinfo)
        then = dt.datetime.combine(now.date(), self._time_of_day)
        if then <= now:
            then += dt.timedelta(days=self._days)
        return ended + (then - now).total_seconds()


def _schedule(options: Options) -> Periodic | Timed:
    strategy = options.one_of("lookup.full-cache.reload-strategy", "PERIODIC", {k: k for k in ("PERIODIC", "TIMED")})
    if strategy == "TIMED":
        text = options.text("lookup.full-cache.timed-reload.iso-time", "")
        days = options.integer("lookup.full-cache.timed-reload.interval-in-days", 1)
        try:
            return Timed(dt.time.fromisoformat(text), days)
        except ValueError:
            raise ValidationException(
                "'lookup.full-cache.timed-reload.iso-time' is required with the reload strategy TIMED, and a time such "
                f"as '10:15' or '10:15Z', not {text!r}."
            ) from None
    interval = options.duration("lookup.full-cache.periodic-reload.interval", 0)
    if not interval:
        raise ValidationException(
            "Missing 'lookup.full-cache.periodic-reload.interval' in options for PERIODIC full cache: set the interval "
            "between loads."
        )
    modes = {"FIXED_DELAY": False, "FIXED_RATE": True}
    rate = options.one_of("lookup.full-cache.periodic-reload.schedule-mode", "FIXED_DELAY", modes)
    return Periodic(interval / 1000, rate)


class FullCache(LookupSource):
    """Loads the whole table before the first lookup, and again on a schedule.

    Args:
        inner: reads the table.
        schedule: the times of reloads.
        clock: the monotonic clock.
    """

    def __init__(
        self, inner: LookupSource, schedule: Periodic | Timed, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._inner, self._schedule, self._clock = inner, schedule, clock
        self._rows: Batch | None = None
        self._rows_by_key: dict[tuple[Key, ...], list[int]] = {}
        self._next_load = 0.0

    def find(self, keys: Sequence[tuple[Key, ...]]) -> LookupResult:
        if self._rows is None or self._clock() >= self._next_load:
            self._load()
        assert self._rows is not None
        rows_of_keys = [self._rows_by_key.get(key, ()) for key in keys]
        indexes = np.array([row for rows in rows_of_keys for row in rows], np.int64)
        return LookupResult(self._rows.take(indexes), np.array([len(rows) for rows in rows_of_keys], np.int64))

    def _load(self) -> None:
        begun = self._clock()
        keys, self._rows = self._inner.all_rows()
        self._rows_by_key = {}
        for row, key in enumerate(keys):
            self._rows_by_key.setdefault(key, []).append(row)
        self._next_load = self._schedule.next(begun, self._clock())

    def all_rows(self) -> tuple[list[tuple[Key, ...]], Batch]:
        return self._inner.all_rows()

    def close(self) -> None:
        self._inner.close()
