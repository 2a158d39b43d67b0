"""State that expires: the handles of handles.py over contents that carry the time of their last use.

A value, an accumulator, each element of a list and each entry of a map is stored as (content, stamp).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from millstream.common.immutability import detach
from millstream.state.handles import AggregatingState, ListState, MapState, ReducingState, ValueState
from millstream.state.table import KeyCell, StateTable
from millstream.state.ttl_config import StateTtlConfig, StateVisibility, UpdateType

Clock = Callable[[], int]
Stamped = tuple[Any, int]


class Lifetime:
    """Decides about stamps."""

    def __init__(self, config: StateTtlConfig, clock: Clock) -> None:
        self.now = clock
        self.config = config
        self.returns_expired = config.visibility is StateVisibility.ReturnExpiredIfNotCleanedUp
        self.renews_on_read = config.update_type is UpdateType.OnReadAndWrite

    def is_over(self, stamp: int) -> bool:
        return stamp + self.config.ttl_ms <= self.now()

    def stamp(self, value: Any) -> Stamped:
        return detach(value), self.now()


class _One:
    """Reading and writing of a row that is one stamped value."""

    _table: StateTable
    _cell: KeyCell
    _life: Lifetime

    _fitted: Callable[[Any], Any]

    def _read(self) -> Any:
        row = self._cell.key
        content = self._table.get(row)
        if content is None:
            return None
        value, stamp = content
        if self._life.is_over(stamp):
            self._table.remove(row)
            return detach(value) if self._life.returns_expired else None
        if self._life.renews_on_read:
            self._table.put(row, (value, self._life.now()))
        return detach(value)

    def _write(self, value: Any) -> None:
        self._table.put(self._cell.key, self._life.stamp(self._fitted(value)))

    def _alive(self) -> Any:
        """Return the value for an update: one that has expired is never built upon."""
        content = self._table.get(self._cell.key)
        return None if content is None or self._life.is_over(content[1]) else detach(content[0])


class TtlValueState(_One, ValueState):
    """One value a key, that expires."""

    __slots__ = ("_life",)

    def __init__(self, table: StateTable, cell: KeyCell, life: Lifetime) -> None:
        super().__init__(table, cell)
        self._life = life

    def value(self) -> Any:
        return self._read()

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            self._write(value)


class TtlReducingState(_One, ReducingState):
    """A reduced value a key, that expires."""

    __slots__ = ("_life",)

    def __init__(self, table: StateTable, cell: KeyCell, reduce: Callable[[Any, Any], Any], life: Lifetime) -> None:
        super().__init__(table, cell, reduce)
        self._life = life

    def add(self, value: Any) -> None:
        before = self._alive()
        self._write(value if before is None else self._reduce(before, value))

    def get(self) -> Any:
        return self._read()


class TtlAggregatingState(_One, AggregatingState):
    """An accumulator a key, that expires."""

    __slots__ = ("_life",)

    def __init__(self, table: StateTable, cell: KeyCell, function: Any, life: Lifetime) -> None:
        super().__init__(table, cell, function)
        self._life = life

    def add(self, value: Any) -> None:
        accumulator = self._alive()
        if accumulator is None:
            accumulator = self._function.create_accumulator()
        self._write(self._function.add(value, accumulator))

    def get(self) -> Any:
        accumulator = self._read()
        return None if accumulator is None else self._function.get_result(accumulator)


class TtlListState(ListState):
    """A list a key, whose elements expire one by one."""

    __slots__ = ("_life",)

    def __init__(self, table: StateTable, cell: KeyCell, life: Lifetime) -> None:
        super().__init__(table, cell)
        self._life = life

    def add(self, value: Any) -> None:
        self._table.append(self._cell.key, self._life.stamp(self._fitted(value)))

    def get(self) -> list[Any]:
        row, life = self._cell.key, self._life
        content = self._table.get(row) or []
        alive = [e for e in content if not life.is_over(e[1])]
        if len(alive) < len(content) or (life.renews_on_read and alive):
            now = life.now()
            kept = [(v, now) for v, _ in alive] if life.renews_on_read else alive
            if kept:
                self._table.put(row, kept)
            else:
                self._table.remove(row)
        return [detach(v) for v, _ in (content if life.returns_expired else alive)]

    def update(self, values: Iterable[Any]) -> None:
        content = [self._life.stamp(self._fitted(v)) for v in values]
        if content:
            self._table.put(self._cell.key, content)
        else:
            self.clear()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())


class TtlMapState(MapState):
    """A map a key, whose entries expire one by one."""

    __slots__ = ("_life",)

    def __init__(self, table: StateTable, cell: KeyCell, life: Lifetime) -> None:
        super().__init__(table, cell)
        self._life = life

    def get(self, key: Any) -> Any:
        entry = super().get(key)
        if entry is None:
            return None
        value, stamp = entry
        if self._life.is_over(stamp):
            self.remove(key)
            return value if self._life.returns_expired else None
        if self._life.renews_on_read:
            self.put(key, value)
        return value

    def put(self, key: Any, value: Any) -> None:
        self._put(key, self._life.stamp(self._fitted(value)))

    def contains(self, key: Any) -> bool:
        return self.get(key) is not None

    def _entries(self) -> dict[Any, Any]:
        found = {}
        for key, (value, stamp) in super()._entries().items():
            if self._life.is_over(stamp):
                self.remove(key)
                if not self._life.returns_expired:
                    continue
            elif self._life.renews_on_read:
                self.put(key, value)
            found[key] = value
        return found

    def is_empty(self) -> bool:
        return not self._entries()
