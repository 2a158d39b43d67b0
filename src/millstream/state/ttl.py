"""State with a time to live: the handles of handles.py over contents with the time of their last use.

A value, an accumulator, each element of a list and each entry of a map is stored as (content, stamp).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from millstream.common.aliases import Value
from millstream.common.immutability import detach
from millstream.state.descriptors import Aggregator
from millstream.state.handles import MapState, ValueState
from millstream.state.merging_handles import AggregatingState, ListState, ReducingState
from millstream.state.table import KeyCell, StateTable
from millstream.state.ttl_config import StateTtlConfig, StateVisibility, UpdateType

Clock = Callable[[], int]
Stamped = tuple[Value, int]


class Lifetime:
    """A time to live: assigns stamps and decides when they expire."""

    def __init__(self, config: StateTtlConfig, clock: Clock) -> None:
        self.now = clock
        self.config = config
        self.returns_expired = config.visibility is StateVisibility.ReturnExpiredIfNotCleanedUp
        self.renews_on_read = config.update_type is UpdateType.OnReadAndWrite

    def has_expired(self, stamp: int) -> bool:
        return stamp + self.config.ttl_ms <= self.now()

    def stamp(self, value: Value) -> Stamped:
        return detach(value), self.now()


class _One:
    """Reading and writing of a row that is one stamped value."""

    _table: StateTable
    _cell: KeyCell
    _lifetime: Lifetime

    _coerced: Callable[[Value], Value]

    def _read(self) -> Value:
        row = self._cell.key
        content = self._table.get(row)
        if content is None:
            return None
        value, stamp = content
        if self._lifetime.has_expired(stamp):
            self._table.remove(row)
            return detach(value) if self._lifetime.returns_expired else None
        if self._lifetime.renews_on_read:
            self._table.put(row, (value, self._lifetime.now()))
        return detach(value)

    def _write(self, value: Value) -> None:
        self._table.put(self._cell.key, self._lifetime.stamp(self._coerced(value)))

    def _alive(self) -> Value:
        """Return the value for an update, None if it has expired."""
        content = self._table.get(self._cell.key)
        return None if content is None or self._lifetime.has_expired(content[1]) else detach(content[0])


class TtlValueState(_One, ValueState):
    """One value per key, with a time to live."""

    __slots__ = ("_lifetime",)

    def __init__(self, table: StateTable, cell: KeyCell, lifetime: Lifetime) -> None:
        super().__init__(table, cell)
        self._lifetime = lifetime

    def value(self) -> Value:
        return self._read()

    def update(self, value: Value) -> None:
        if value is None:
            self.clear()
        else:
            self._write(value)


class TtlReducingState(_One, ReducingState):
    """One reduced value per key, with a time to live."""

    __slots__ = ("_lifetime",)

    def __init__(
        self, table: StateTable, cell: KeyCell, reduce: Callable[[Value, Value], Value], lifetime: Lifetime
    ) -> None:
        super().__init__(table, cell, reduce)
        self._lifetime = lifetime

    def add(self, value: Value) -> None:
        before = self._alive()
        self._write(value if before is None else self._reduce(before, value))

    def get(self) -> Value:
        return self._read()


class TtlAggregatingState(_One, AggregatingState):
    """One accumulator per key, with a time to live."""

    __slots__ = ("_lifetime",)

    def __init__(self, table: StateTable, cell: KeyCell, function: Aggregator, lifetime: Lifetime) -> None:
        super().__init__(table, cell, function)
        self._lifetime = lifetime

    def add(self, value: Value) -> None:
        accumulator = self._alive()
        if accumulator is None:
            accumulator = self._function.create_accumulator()
        self._write(self._function.add(value, accumulator))

    def get(self) -> Value:
        accumulator = self._read()
        return None if accumulator is None else self._function.get_result(accumulator)


class TtlListState(ListState):
    """A list per key, whose elements expire individually."""

    __slots__ = ("_lifetime",)

    def __init__(self, table: StateTable, cell: KeyCell, lifetime: Lifetime) -> None:
        super().__init__(table, cell)
        self._lifetime = lifetime

    def add(self, value: Value) -> None:
        self._table.append(self._cell.key, self._lifetime.stamp(self._coerced(value)))

    def get(self) -> list[Value]:
        row, lifetime = self._cell.key, self._lifetime
        content = self._table.get(row) or []
        alive = [e for e in content if not lifetime.has_expired(e[1])]
        if len(alive) < len(content) or (lifetime.renews_on_read and alive):
            now = lifetime.now()
            remaining = [(v, now) for v, _ in alive] if lifetime.renews_on_read else alive
            if remaining:
                self._table.put(row, remaining)
            else:
                self._table.remove(row)
        return [detach(v) for v, _ in (content if lifetime.returns_expired else alive)]

    def update(self, values: Iterable[Value]) -> None:
        content = [self._lifetime.stamp(self._coerced(v)) for v in values]
        if content:
            self._table.put(self._cell.key, content)
        else:
            self.clear()

    def __iter__(self) -> Iterator[Value]:
        return iter(self.get())


class TtlMapState(MapState):
    """A map per key, whose entries expire individually."""

    __slots__ = ("_lifetime",)

    def __init__(self, table: StateTable, cell: KeyCell, lifetime: Lifetime) -> None:
        super().__init__(table, cell)
        self._lifetime = lifetime

    def get(self, key: Value) -> Value:
        entry = super().get(key)
        if entry is None:
            return None
        value, stamp = entry
        if self._lifetime.has_expired(stamp):
            self.remove(key)
            return value if self._lifetime.returns_expired else None
        if self._lifetime.renews_on_read:
            self.put(key, value)
        return value

    def put(self, key: Value, value: Value) -> None:
        self._put(key, self._lifetime.stamp(self._coerced(value)))

    def contains(self, key: Value) -> bool:
        return self.get(key) is not None

    def _entries(self) -> dict[Value, Value]:
        entries = {}
        for key, (value, stamp) in super()._entries().items():
            if self._lifetime.has_expired(stamp):
                self.remove(key)
                if not self._lifetime.returns_expired:
                    continue
            elif self._lifetime.renews_on_read:
                self.put(key, value)
            entries[key] = value
        return entries

    def is_empty(self) -> bool:
        return not self._entries()
