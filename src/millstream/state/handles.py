"""The state objects of user code, each bound to a table and to the cell with the current key.

State holds values, not references: mutable objects are copied when they are stored and when they are returned, so that
a function changes state only through these methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import GenericAlias
from typing import ClassVar

from millstream.common.aliases import Value
from millstream.common.coercion import QUICK, Converter, coercer_of, plain_class
from millstream.common.immutability import ATOMS, detach
from millstream.state.descriptors import Aggregator, MapStateDescriptor, StateDescriptor
from millstream.state.table import MISSING, REMOVED, KeyCell, Patch, StateTable


class State:
    """State of the current key."""

    __slots__ = ("_base", "_cell", "_coerce", "_overlay", "_table")

    # Annotations may have the type of the values, as in `ValueState[int]`.
    __class_getitem__: ClassVar[object] = classmethod(GenericAlias)

    def __init__(self, table: StateTable, cell: KeyCell) -> None:
        self._table = table
        self._base = table.base
        self._overlay = table.overlay
        self._cell = cell
        self._coerce: Converter | None = None

    def declared(self, descriptor: StateDescriptor) -> None:
        """Coerce added values to the declared type."""
        self._coerce = coercer_of(descriptor.element_type, f"State {descriptor.name!r}")

    def _coerced(self, value: Value) -> Value:
        return value if self._coerce is None else self._coerce(value)

    def get_internal_state(self) -> State:
        """Return the state itself: it has no internal form."""
        return self

    def clear(self) -> None:
        """Clear the state of the current key."""
        self._table.remove(self._cell.key)


class ValueState(State):
    """One value per key."""

    __slots__ = ("_plain",)

    def __init__(self, table: StateTable, cell: KeyCell) -> None:
        super().__init__(table, cell)
        self._plain: type | None = None

    def declared(self, descriptor: StateDescriptor) -> None:
        super().declared(descriptor)
        self._plain = plain_class(descriptor.element_type)

    def value(self) -> Value:
        """Return the value of the current key, None if it has none."""
        key = self._cell.key
        value = self._overlay.get(key, MISSING)
        if value is MISSING:
            value = self._base.get(key)
        return value if value.__class__ in ATOMS else detach(value)

    def update(self, value: Value) -> None:
        """Set the value of the current key; None clears it."""
        kind = value.__class__
        if kind is self._plain and (kind is not int or -QUICK <= value <= QUICK):
            self._overlay[self._cell.key] = value
        elif value is None:
            self.clear()
        else:
            if self._coerce is not None:
                value = self._coerce(value)
            self._overlay[self._cell.key] = value if value.__class__ in ATOMS else detach(value)


class AppendingState(State):
    """State to which values are added."""

    __slots__ = ()

    def get(self) -> Value:
        """Return the contents, None if there are none."""
        raise NotImplementedError(f"{type(self).__name__} must implement get()")

    def add(self, value: Value) -> None:
        """Add a value."""
        raise NotImplementedError(f"{type(self).__name__} must implement add()")


class MergingState(AppendingState):
    """State that is merged when windows merge."""

    __slots__ = ()


class ListState(MergingState):
    """A list per key."""

    __slots__ = ()

    def add(self, value: Value) -> None:
        """Append a value."""
        self._table.append(self._cell.key, detach(self._coerced(value)))

    def add_all(self, values: Iterable[Value]) -> None:
        """Append several values."""
        for value in values:
            self.add(value)

    def get(self) -> list[Value]:
        """Return the elements of the current key in the order of their addition; an empty list if there are none."""
        elements: list[Value] = detach(self._table.get(self._cell.key)) or []
        return elements

    def update(self, values: Iterable[Value]) -> None:
        """Replace the list."""
        content = [detach(self._coerced(v)) for v in values]
        if content:
            self._overlay[self._cell.key] = content
        else:
            self.clear()

    def __iter__(self) -> Iterator[Value]:
        return iter(self.get())


class MapState(State):
    """A map per key."""

    __slots__ = ("_coerce_key",)

    def __init__(self, table: StateTable, cell: KeyCell) -> None:
        super().__init__(table, cell)
        self._coerce_key: Converter | None = None

    def declared(self, descriptor: StateDescriptor) -> None:
        super().declared(descriptor)
        assert isinstance(descriptor, MapStateDescriptor)
        self._coerce_key = coercer_of(descriptor.key_type_info, f"A key of state {descriptor.name!r}")

    def get(self, key: Value) -> Value:
        """Return the value of an entry, None if there is none."""
        value = self._find(key)
        return None if value is MISSING else detach(value)

    def put(self, key: Value, value: Value) -> None:
        """Set the value of a key."""
        self._put(key, detach(self._coerced(value)))

    def _put(self, key: Value, content: Value) -> None:
        if self._coerce_key is not None:
            key = self._coerce_key(key)
        row = self._cell.key
        change = self._overlay.get(row)
        if change is None:
            change = self._overlay[row] = {} if row in self._overlay else Patch()
        change[key] = content

    def put_all(self, dict_value: dict[Value, Value] | Iterable[tuple[Value, Value]]) -> None:
        """Set the values of several keys."""
        for key, value in dict_value.items() if isinstance(dict_value, dict) else dict_value:
            self.put(key, value)

    def remove(self, key: Value) -> None:
        """Remove a key."""
        row = self._cell.key
        change = self._overlay.get(row, MISSING)
        if change is None:
            return
        if change is MISSING:
            if row in self._base:
                self._overlay[row] = Patch({key: REMOVED})
        elif change.__class__ is Patch:
            change[key] = REMOVED
        else:
            change.pop(key, None)

    def contains(self, key: Value) -> bool:
        """Return whether there is a value other than None; `keys()` includes entries of None, as in PyFlink."""
        value = self._find(key)
        return value is not MISSING and value is not None

    def _find(self, key: Value) -> Value:
        row = self._cell.key
        change = self._overlay.get(row, MISSING)
        if change is not MISSING:
            if change is None:
                return MISSING
            if key in change:
                return MISSING if change[key] is REMOVED else change[key]
            if change.__class__ is not Patch:
                return MISSING
        content = self._base.get(row)
        return MISSING if content is None else content.get(key, MISSING)

    def _entries(self) -> dict[Value, Value]:
        entries: dict[Value, Value] = detach(self._table.get(self._cell.key)) or {}
        return entries

    def items(self) -> Iterable[tuple[Value, Value]]:
        """Return keys and values."""
        return self._entries().items()

    def keys(self) -> Iterable[Value]:
        """Return the keys."""
        return self._entries().keys()

    def values(self) -> Iterable[Value]:
        """Return the values."""
        return self._entries().values()

    def is_empty(self) -> bool:
        """Return whether there are no entries."""
        return not self._table.get(self._cell.key)

    def __getitem__(self, key: Value) -> Value:
        return self.get(key)

    def __setitem__(self, key: Value, value: Value) -> None:
        self.put(key, value)

    def __delitem__(self, key: Value) -> None:
        self.remove(key)

    def __contains__(self, key: Value) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[Value]:
        return iter(self._entries())


class ReducingState(MergingState):
    """One value per key, to which added values are reduced."""

    __slots__ = ("_reduce",)

    def __init__(self, table: StateTable, cell: KeyCell, reduce: Callable[[Value, Value], Value]) -> None:
        super().__init__(table, cell)
        self._reduce = reduce

    def add(self, value: Value) -> None:
        """Combine a value with the state."""
        row = self._cell.key
        before = self._table.get(row)
        combined = value if before is None else self._reduce(detach(before), value)
        self._overlay[row] = detach(self._coerced(combined))

    def get(self) -> Value:
        """Return the reduced value, None if nothing was added."""
        return detach(self._table.get(self._cell.key))


class AggregatingState(MergingState):
    """One accumulator per key, to which values are added."""

    __slots__ = ("_function",)

    def __init__(self, table: StateTable, cell: KeyCell, function: Aggregator) -> None:
        super().__init__(table, cell)
        self._function = function

    def add(self, value: Value) -> None:
        """Add a value to the accumulator."""
        row = self._cell.key
        before = self._table.get(row)
        accumulator = self._function.create_accumulator() if before is None else detach(before)
        self._overlay[row] = detach(self._coerced(self._function.add(value, accumulator)))

    def get(self) -> Value:
        """Return the function's result over the added values, None if there are none."""
        accumulator = self._table.get(self._cell.key)
        return None if accumulator is None else self._function.get_result(detach(accumulator))
