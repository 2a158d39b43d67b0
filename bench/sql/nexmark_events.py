"""Nexmark's events as the connector `nexmark`: 1 person, 3 auctions and 46 bids in 50; and the side table of q13.

Every value depends only on the number of its event. `Nexmark.java` generates the same events for Flink: the same random
draws, the same texts from the same pools. A second of event time has 10,000 events. As in Nexmark's own generator half
of the bids are for a hot auction and three quarters by a hot bidder, the others for and by some of the latest; prices
are spread over six orders of magnitude; half of the channels are one of four, the others one of 10,000; an event has
about 100 (bid), 200 (person) or 500 (auction) bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.connectors.datagen.table import Block, DataGenSource, Generator
from millstream.connectors.registry import register_connector
from millstream.operators.source import Source
from millstream.sql.columns.batch import Batch
from millstream.sql.connector_contract import Connector, LookupResult, LookupSource, TableContext, TableSource
from millstream.sql.expressions import Expression

Longs = NDArray[np.int64]
START = 1_704_067_200_000  # 2024-01-01
_FIRST = 1000  # the first id of persons and auctions
_RATE = 2_000_000_000
_ACTIVE_PEOPLE, _AUCTIONS_IN_FLIGHT, _LEAD = 1000, 100, 10
_LONGEST = 333  # milliseconds that an auction is open
_POOL = 1024
_TENS = np.array([100, 1000, 10_000, 100_000, 1_000_000, 10_000_000], np.int64)


class _Texts:
    """Letters in a fixed order, the same in Java."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def number(self, below: int) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        return (self._state >> 33) % below

    def letters(self, count: int) -> str:
        return "".join(chr(97 + self.number(26)) for _ in range(count))

    def digits(self, count: int) -> str:
        return "".join(chr(48 + self.number(10)) for _ in range(count))

    def around(self, size: int) -> str:
        """Return a text whose length is within a fifth of a size."""
        return self.letters(size - size // 5 + self.number(2 * (size // 5)))


def _pool(seed: int, make: Callable[[_Texts], str], count: int = _POOL) -> pa.Array:
    texts = _Texts(seed)
    return pa.array([make(texts) for _ in range(count)])


def _url(texts: _Texts) -> str:
    return "https://www.nexmark.com/" + "/".join(texts.letters(4) for _ in range(3)) + "/item.htm?query=1"


@lru_cache(1)
def _channels() -> tuple[pa.Array, pa.Array]:
    """Return channels and the URL of each: four hot ones, and 10,000, of which nine in ten have an id."""
    texts = _Texts(1)
    names = ["Google", "Facebook", "Baidu", "Apple"]
    urls = [_url(texts) for _ in names]
    for i in range(10_000):
        names.append(f"channel-{i}")
        url = _url(texts)
        urls.append(f"{url}&channel_id={texts.number(1 << 30)}" if texts.number(10) else url)
    return pa.array(names), pa.array(urls)


@lru_cache(1)
def _pools() -> dict[str, pa.Array]:
    first = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
    last = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
    cities = ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent"]
    return {
        "bid": _pool(2, lambda t: t.around(68)),
        "item": _pool(3, lambda t: t.around(20)),
        "description": _pool(4, lambda t: t.around(100)),
        "auction": _pool(5, lambda t: t.around(332)),
        "name": pa.array([f"{f} {k}" for f in first for k in last]),
        "email": _pool(6, lambda t: f"{t.letters(7)}@{t.letters(5)}.com"),
        "card": _pool(7, lambda t: " ".join(t.digits(4) for _ in range(4))),
        "city": pa.array([*cities, "Cheyenne"]),
        "state": pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"]),
        "person": _pool(8, lambda t: t.around(132)),
    }


def _mixed(numbers: Longs, which: int) -> NDArray[np.uint64]:
    """Return 64 random bits for each event: splitmix64."""
    z = (numbers.astype(np.uint64) * np.uint64(2) + np.uint64(which)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _bits(z: NDArray[np.uint64], shift: int, count: int) -> Longs:
    return ((z >> np.uint64(shift)) & np.uint64((1 << count) - 1)).astype(np.int64)


def _price(z: NDArray[np.uint64]) -> Longs:
    ten = _TENS[_bits(z, 0, 16) % 6]
    return ten + _bits(z, 16, 32) % (ten * 9)


def _person(z: NDArray[np.uint64], newest: Longs) -> Longs:
    """Return one of the latest people, or of the next ones."""
    active = np.minimum(newest + 1, _ACTIVE_PEOPLE)
    people: Longs = newest + 1 - active + _bits(z, 24, 24) % (active + _LEAD)
    return people


def _time(numbers: Longs) -> Longs:
    return START + numbers // 10


class _Layout:
    """The positions of one kind of event in a block that begins at some position of the 50, and how to spread values.

    Attributes:
        positions: the rows of this kind.
        missing: whether a row is of another kind.
    """

    def __init__(self, is_ours: NDArray[np.bool_]) -> None:
        self.positions = np.flatnonzero(is_ours)
        self.missing = pa.array(~is_ours)
        self._rows = len(is_ours)
        self._before = np.concatenate([[0], np.cumsum(is_ours)])

    def longs(self, values: Longs) -> pa.Array:
        spread = np.zeros(self._rows, np.int64)
        spread[self.positions] = values
        return pa.array(spread)

    def times(self, values: Longs) -> pa.Array:
        return self.longs(values).view(pa.timestamp("ms"))

    def texts(self, pool: pa.Array, which: Longs) -> pa.Array:
        selected = pool.take(pa.array(which))
        _, offsets, letters = selected.buffers()
        spread = np.frombuffer(offsets, np.int32)[selected.offset :][self._before]
        return pa.StringArray.from_buffers(self._rows, pa.py_buffer(spread), letters)

    def struct(self, columns: dict[str, pa.Array]) -> pa.Array:
        return pa.StructArray.from_arrays(list(columns.values()), list(columns), mask=self.missing)


@lru_cache(256)
def _layout(kind: int, phase: int, rows: int) -> _Layout:
    return _Layout(_kinds(phase, rows) == kind)


@lru_cache(64)
def _kinds(phase: int, rows: int) -> NDArray[np.int32]:
    position = (np.arange(rows) + phase) % 50
    return np.where(position == 0, 0, np.where(position < 4, 1, 2)).astype(np.int32)


class _Kinds(Generator):
    def column(self, block: Block) -> pa.Array:
        return pa.array(_kinds(block.start % 50, block.rows))


class _Rows(Generator):
    """The column of one kind of event: null where the event is of another kind."""

    kind: int

    def column(self, block: Block) -> pa.Array:
        layout = _layout(self.kind, block.start % 50, block.rows)
        numbers = layout.positions + block.start
        columns = self.columns(layout, numbers, _mixed(numbers, 1), _mixed(numbers, 2))
        return layout.struct(columns)

    def columns(
        self, layout: _Layout, numbers: Longs, z: NDArray[np.uint64], w: NDArray[np.uint64]
    ) -> dict[str, pa.Array]:
        raise NotImplementedError


class _Persons(_Rows):
    kind = 0

    def columns(
        self, layout: _Layout, numbers: Longs, z: NDArray[np.uint64], w: NDArray[np.uint64]
    ) -> dict[str, pa.Array]:
        pools = _pools()
        return {
            "id": layout.longs(_FIRST + numbers // 50),
            "name": layout.texts(pools["name"], _bits(z, 0, 16) % 99),
            "emailAddress": layout.texts(pools["email"], _bits(z, 16, 10)),
            "creditCard": layout.texts(pools["card"], _bits(z, 26, 10)),
            "city": layout.texts(pools["city"], _bits(z, 36, 8) % 10),
            "state": layout.texts(pools["state"], _bits(z, 44, 8) % 6),
            "dateTime": layout.times(_time(numbers)),
            "extra": layout.texts(pools["person"], _bits(z, 52, 10)),
        }


class _Auctions(_Rows):
    kind = 1

    def columns(
        self, layout: _Layout, numbers: Longs, z: NDArray[np.uint64], w: NDArray[np.uint64]
    ) -> dict[str, pa.Array]:
        pools = _pools()
        newest = numbers // 50
        seller = np.where(_bits(z, 0, 2) > 0, newest // 100 * 100, _person(z, newest))
        price = _price(w)
        return {
            "id": layout.longs(_FIRST + newest * 3 + numbers % 50 - 1),
            "itemName": layout.texts(pools["item"], _bits(w, 48, 8)),
            "description": layout.texts(pools["description"], _bits(w, 54, 10)),
            "initialBid": layout.longs(price),
            "reserve": layout.longs(price + _price(z)),
            "dateTime": layout.times(_time(numbers)),
            "expires": layout.times(_time(numbers) + 1 + _bits(z, 4, 16) % _LONGEST),
            "seller": layout.longs(_FIRST + seller),
            "category": layout.longs(10 + _bits(z, 48, 8) % 5),
            "extra": layout.texts(pools["auction"], _bits(z, 54, 10)),
        }


class _Bids(_Rows):
    kind = 2

    def columns(
        self, layout: _Layout, numbers: Longs, z: NDArray[np.uint64], w: NDArray[np.uint64]
    ) -> dict[str, pa.Array]:
        channels, urls = _channels()
        person = numbers // 50
        auction = person * 3 + 2
        oldest = np.maximum(auction - _AUCTIONS_IN_FLIGHT, 0)
        recent = oldest + _bits(z, 1, 16) % (auction - oldest + 1 + _LEAD)
        bidder = np.where(_bits(z, 20, 2) > 0, person // 100 * 100 + 1, _person(z, person))
        more = _bits(w, 49, 15)
        channel = np.where(_bits(w, 48, 1) > 0, 4 + more % 10_000, more & 3)
        return {
            "auction": layout.longs(_FIRST + np.where(_bits(z, 0, 1) > 0, auction // 100 * 100, recent)),
            "bidder": layout.longs(_FIRST + bidder),
            "price": layout.longs(_price(w)),
            "channel": layout.texts(channels, channel),
            "url": layout.texts(urls, channel),
            "dateTime": layout.times(_time(numbers)),
            "extra": layout.texts(_pools()["bid"], _bits(z, 48, 10)),
        }


COLUMNS: dict[str, Generator] = {"event_type": _Kinds(), "person": _Persons(), "auction": _Auctions(), "bid": _Bids()}


class _Events(TableSource):
    def __init__(self, count: int) -> None:
        self._count = count

    def source(
        self, columns: Sequence[str], filters: Sequence[Expression] = (), limit: int | None = None
    ) -> Source[Batch]:
        return DataGenSource([COLUMNS[c] for c in columns], self._count, _RATE)


@register_connector
class NexmarkConnector(Connector):
    """Generates a number of events."""

    identifier = "nexmark"
    required = frozenset(["events"])

    def table_source(self, context: TableContext) -> TableSource:
        return _Events(int(context.table.options["events"]))


class _Side(LookupSource):
    """A row for each of 10,000 keys."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = list(columns)

    def find(self, keys: Sequence[tuple[Any, ...]]) -> LookupResult:
        requested = pa.array([k for (k,) in keys], pa.int64())
        return LookupResult(self._rows(requested), np.ones(len(keys), np.int64))

    def all_rows(self) -> tuple[list[tuple[Any, ...]], Batch]:
        keys = pa.array(np.arange(10_000))
        return [(k,) for k in range(10_000)], self._rows(keys)

    def _rows(self, keys: pa.Array) -> Batch:
        columns = {"key": keys, "value": pa.array([f"side-{k}" for k in keys.to_pylist()])}
        return Batch([columns[c] for c in self._columns], None, len(keys))


class _SideTable(TableSource):
    def source(
        self, columns: Sequence[str], filters: Sequence[Expression] = (), limit: int | None = None
    ) -> Source[Batch]:
        raise NotImplementedError

    def lookup(self, keys: Sequence[str], columns: Sequence[str], at_once: int = 1) -> LookupSource | None:
        return _Side(columns)


@register_connector
class SideConnector(Connector):
    """A side table for lookups."""

    identifier = "nexmark-side"

    def table_source(self, context: TableContext) -> TableSource:
        return _SideTable()
