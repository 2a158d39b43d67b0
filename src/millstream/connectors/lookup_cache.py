"""Caches of look-ups: none, of what was asked for, or of the whole table."""

from __future__ import annotations

import datetime as dt
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from millstream.formats.options import Options
from millstream.sql.columns.batch import Batch
from millstream.sql.connectors import Found, LookupSource
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
_DAY = 86_400.0

Wrap = Callable[[LookupSource], LookupSource]


def cached_lookup(options: Options) -> Wrap:
    """Return what puts a cache before a look-up, as options say."""
    kind = options.one_of("lookup.cache", "NONE", {k: k for k in ("NONE", "PARTIAL", "FULL")})
    if kind == "FULL":
        return partial(FullCache, schedule=_schedule(options))
    old = options.whole_or_none("lookup.cache.max-rows")
    if kind == "NONE" and (old is None or "lookup.cache.ttl" not in options):
        if (old is None) != ("lookup.cache.ttl" not in options):
            raise ValidationException(
                "Either all or none of the following options should be provided:\nlookup.cache.max-rows\n"
                "lookup.cache.ttl"
            )
        return _plain
    rows = options.whole_or_none("lookup.partial-cache.max-rows")
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
    """Remembers rows of keys that were asked for; the least used are forgotten first.

    Args:
        inner: is asked for what is not remembered.
        size: of so many rows at most; None for any number.
        after_write: so many seconds after they were found; None for ever.
        after_read: so many seconds after they were last asked for; None for ever.
        keeps_missing: whether it is remembered that a key has no rows.
        clock: tells the time.
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
        # By key: when it was found, when it was last asked for, its rows.
        self._known: OrderedDict[tuple[Any, ...], tuple[float, float, Batch]] = OrderedDict()
        self._rows = 0

    def find(self, keys: Sequence[tuple[Any, ...]]) -> Found:
        now = self._clock()
        found = {key: rows for key in keys if (rows := self._remembered(key, now)) is not None}
        asked = [key for key in keys if key not in found]
        empty: Batch | None = None
        if asked:
            answer = self._inner.find(asked)
            empty = answer.batch.slice(0, 0)
            start = 0
            for key, count in zip(asked, answer.counts.tolist(), strict=True):
                found[key] = answer.batch.slice(start, start + count)
                start += count
                if count or self._keeps_missing:
                    self._remember(key, found[key], now)
        parts = [found[key] for key in keys]
        batch = Batch.concatenated(parts) if parts else empty
        assert batch is not None
        return Found(batch, np.array([len(p) for p in parts], np.int64))

    def _remembered(self, key: tuple[Any, ...], now: float) -> Batch | None:
        known = self._known.get(key)
        if known is None:
            return None
        written, read, rows = known
        late = self._after_write is not None and now - written >= self._after_write
        if late or (self._after_read is not None and now - read >= self._after_read):
            self._forget(key)
            return None
        self._known[key] = (written, now, rows)
        self._known.move_to_end(key)
        return rows

    def _remember(self, key: tuple[Any, ...], rows: Batch, now: float) -> None:
        self._forget(key)
        self._known[key] = (now, now, rows)
        self._rows += max(len(rows), 1)
        while self._size is not None and self._rows > self._size and self._known:
            self._forget(next(iter(self._known)))

    def _forget(self, key: tuple[Any, ...]) -> None:
        known = self._known.pop(key, None)
        if known is not None:
            self._rows -= max(len(known[2]), 1)

    def all_rows(self) -> tuple[list[tuple[Any, ...]], Batch]:
        return self._inner.all_rows()

    def close(self) -> None:
        self._inner.close()


class Periodic:
    """The whole table is read again some seconds after it was read, or after that was begun.

    Args:
        seconds: how many.
        fixed_rate: whether they are counted from the beginning of a reading.
    """

    def __init__(self, seconds: float, fixed_rate: bool = False) -> None:
        self._seconds, self._fixed_rate = seconds, fixed_rate

    def next(self, begun: float, ended: float) -> float:
        """Return when it is read again."""
        return (begun if self._fixed_rate else ended) + self._seconds


class Timed:
    """The whole table is read again at a time of day, every so many days.

    Args:
        at: the time, with its zone or in the machine's.
        days: how many.
        wall: tells the time of day.
    """

    def __init__(
        self, at: dt.time, days: int, wall: Callable[[dt.tzinfo | None], dt.datetime] = dt.datetime.now
    ) -> None:
        self._at, self._days, self._wall = at, days, wall

    def next(self, begun: float, ended: float) -> float:
        now = self._wall(self._at.tzinfo)
        then = dt.datetime.combine(now.date(), self._at)
        if then <= now:
            then += dt.timedelta(days=self._days)
        return ended + (then - now).total_seconds()


def _schedule(options: Options) -> Periodic | Timed:
    strategy = options.one_of("lookup.full-cache.reload-strategy", "PERIODIC", {k: k for k in ("PERIODIC", "TIMED")})
    if strategy == "TIMED":
        text = options.text("lookup.full-cache.timed-reload.iso-time", "")
        days = options.whole("lookup.full-cache.timed-reload.interval-in-days", 1)
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
            "Missing 'lookup.full-cache.periodic-reload.interval' in options for PERIODIC full cache: say how often "
            "the table is read again."
        )
    modes = {"FIXED_DELAY": False, "FIXED_RATE": True}
    rate = options.one_of("lookup.full-cache.periodic-reload.schedule-mode", "FIXED_DELAY", modes)
    return Periodic(interval / 1000, rate)


class FullCache(LookupSource):
    """Reads the whole table before the first look-up, and again when its schedule says.

    Args:
        inner: reads the table.
        schedule: when it is read again.
        clock: tells the time.
    """

    def __init__(
        self, inner: LookupSource, schedule: Periodic | Timed, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._inner, self._schedule, self._clock = inner, schedule, clock
        self._rows: Batch | None = None
        self._places: dict[tuple[Any, ...], list[int]] = {}
        self._again_at = 0.0

    def find(self, keys: Sequence[tuple[Any, ...]]) -> Found:
        if self._rows is None or self._clock() >= self._again_at:
            self._load()
        assert self._rows is not None
        places = [self._places.get(key, ()) for key in keys]
        at = np.array([row for found in places for row in found], np.int64)
        return Found(self._rows.take(at), np.array([len(p) for p in places], np.int64))

    def _load(self) -> None:
        begun = self._clock()
        keys, self._rows = self._inner.all_rows()
        self._places = {}
        for row, key in enumerate(keys):
            self._places.setdefault(key, []).append(row)
        self._again_at = self._schedule.next(begun, self._clock())

    def all_rows(self) -> tuple[list[tuple[Any, ...]], Batch]:
        return self._inner.all_rows()

    def close(self) -> None:
        self._inner.close()
