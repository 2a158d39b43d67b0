"""The state objects of user code, each bound to a table and to the cell with the current key: values and maps.

State holds values, not references: mutable objects are copied when they are stored and when they are returned, so that
a function changes state only through these methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import GenericAlias
from typing import ClassVar

from millstream.common.aliases import Value
from millstream.common.coercion import QUICK, Converter, coercer_of, plain_class
from millstream.common.immutability import ATOMS, detach
from millstream.state.descriptors import MapStateDescriptor, StateDescriptor
from millstream.state.table import MISSING, REMOVED, KeyCell, Patch, StateTable


class State:
    """State of the current key: the base of all kinds of keyed state.

    A function gets it in `open()` from its RuntimeContext. Values are copied when they are stored and when they are
    read: changing an object does not change the state.
    """

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
        """Return the state itself: unlike in Flink, it has no internal form."""
        return self

    def clear(self) -> None:
        """Clear the state of the current key; other keys keep theirs.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> from millstream.datastream.state import ValueStateDescriptor
            >>> class IsNew(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))
            ...     def map(self, event):
            ...         is_new = self.seen.value() is None
            ...         self.seen.clear() if event == "reset" else self.seen.update(True)
            ...         return event, is_new
            >>> events = env.from_collection(["click", "click", "reset", "click"])
            >>> list(events.key_by(lambda event: 0).map(IsNew()).execute_and_collect())
            [('click', True), ('click', False), ('reset', False), ('click', True)]
        """
        self._table.remove(self._cell.key)


class ValueState(State):
    """One value per key.

    Example:
        >>> from millstream.datastream import MapFunction
        >>> from millstream.datastream.state import ValueStateDescriptor
        >>> class Count(MapFunction):
        ...     def open(self, runtime_context):
        ...         self.count = runtime_context.get_state(ValueStateDescriptor("count"))
        ...     def map(self, word):
        ...         self.count.update((self.count.value() or 0) + 1)
        ...         return word, self.count.value()
        >>> list(env.from_collection(["a", "b", "a"]).key_by(lambda word: word).map(Count()).execute_and_collect())
        [('a', 1), ('b', 1), ('a', 2)]
    """

    __slots__ = ("_plain",)

    def __init__(self, table: StateTable, cell: KeyCell) -> None:
        super().__init__(table, cell)
        self._plain: type | None = None

    def declared(self, descriptor: StateDescriptor) -> None:
        super().declared(descriptor)
        self._plain = plain_class(descriptor.element_type)

    def value(self) -> Value:
        """Return the value of the current key, None if it has none.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> from millstream.datastream.state import ValueStateDescriptor
            >>> class Previous(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.previous = runtime_context.get_state(ValueStateDescriptor("previous"))
            ...     def map(self, price):
            ...         before = self.previous.value()
            ...         self.previous.update(price)
            ...         return before, price
            >>> list(env.from_collection([3, 4, 9]).key_by(lambda price: "tea").map(Previous()).execute_and_collect())
            [(None, 3), (3, 4), (4, 9)]
        """
        key = self._cell.key
        value = self._overlay.get(key, MISSING)
        if value is MISSING:
            value = self._base.get(key)
        return value if value.__class__ in ATOMS else detach(value)

    def update(self, value: Value) -> None:
        """Set the value of the current key; None clears it.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> from millstream.datastream.state import ValueStateDescriptor
            >>> class Highest(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.highest = runtime_context.get_state(ValueStateDescriptor("highest"))
            ...     def map(self, price):
            ...         self.highest.update(max(price, self.highest.value() or 0))
            ...         return self.highest.value()
            >>> list(env.from_collection([3, 9, 4]).key_by(lambda price: "tea").map(Highest()).execute_and_collect())
            [3, 9, 9]
        """
        kind = value.__class__
        if kind is self._plain and (kind is not int or -QUICK <= value <= QUICK):
            self._overlay[self._cell.key] = value
        elif value is None:
            self.clear()
        else:
            if self._coerce is not None:
                value = self._coerce(value)
            self._overlay[self._cell.key] = value if value.__class__ in ATOMS else detach(value)


class MapState(State):
    """A map per key; checkpoints contain the entries that have changed.

    It can also be used like a dict: `state[key]`, `state[key] = value`, `del state[key]`, `key in state`.

    Example:
        >>> from millstream.datastream import MapFunction
        >>> from millstream.datastream.state import MapStateDescriptor
        >>> class Clicks(MapFunction):
        ...     def open(self, runtime_context):
        ...         self.clicks = runtime_context.get_map_state(MapStateDescriptor("clicks"))
        ...     def map(self, page):
        ...         self.clicks[page] = (self.clicks[page] or 0) + 1
        ...         return dict(self.clicks.items())
        >>> pages = env.from_collection(["home", "cart", "home"])
        >>> list(pages.key_by(lambda page: 0).map(Clicks()).execute_and_collect())
        [{'home': 1}, {'home': 1, 'cart': 1}, {'home': 2, 'cart': 1}]
    """

    __slots__ = ("_coerce_key",)

    def __init__(self, table: StateTable, cell: KeyCell) -> None:
        super().__init__(table, cell)
        self._coerce_key: Converter | None = None

    def declared(self, descriptor: StateDescriptor) -> None:
        super().declared(descriptor)
        assert isinstance(descriptor, MapStateDescriptor)
        self._coerce_key = coercer_of(descriptor.key_type_info, f"A key of state {descriptor.name!r}")

    def get(self, key: Value) -> Value:
        """Return the value of an entry, None if there is none.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> from millstream.datastream.state import MapStateDescriptor
            >>> class Price(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.prices = runtime_context.get_map_state(MapStateDescriptor("prices"))
            ...     def map(self, sale):
            ...         before = self.prices.get(sale[0])
            ...         self.prices.put(*sale)
            ...         return *sale, before
            >>> sales = env.from_collection([("tea", 3), ("pie", 5), ("tea", 4)])
            >>> list(sales.key_by(lambda sale: "shop").map(Price()).execute_and_collect())
            [('tea', 3, None), ('pie', 5, None), ('tea', 4, 3)]
        """
        value = self._find(key)
        return None if value is MISSING else detach(value)

    def put(self, key: Value, value: Value) -> None:
        """Set the value of an entry.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> from millstream.datastream.state import MapStateDescriptor
            >>> class Latest(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.latest = runtime_context.get_map_state(MapStateDescriptor("latest"))
            ...     def map(self, sale):
            ...         self.latest.put(sale[0], sale[1])
            ...         return sorted(self.latest.items())
            >>> sales = env.from_collection([("tea", 3), ("pie", 5), ("tea", 4)])
            >>> list(sales.key_by(lambda sale: "shop").map(Latest()).execute_and_collect())[-1]
            [('pie', 5), ('tea', 4)]
        """
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
        """Set the values of several entries: of a dict, or of pairs of key and value.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> from millstream.datastream.state import MapStateDescriptor
            >>> class Merge(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.fields = runtime_context.get_map_state(MapStateDescriptor("fields"))
            ...     def map(self, update):
            ...         self.fields.put_all(update)
            ...         return dict(self.fields.items())
            >>> updates = env.from_collection([{"name": "ann", "age": 30}, {"age": 31}])
            >>> list(updates.key_by(lambda update: 0).map(Merge()).execute_and_collect())[-1]
            {'name': 'ann', 'age': 31}
        """
        for key, value in dict_value.items() if isinstance(dict_value, dict) else dict_value:
            self.put(key, value)

    def remove(self, key: Value) -> None:
        """Remove an entry, if there is one.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> from millstream.datastream.state import MapStateDescriptor
            >>> class Present(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.present = runtime_context.get_map_state(MapStateDescriptor("present"))
            ...     def map(self, event):
            ...         self.present.put(event[1], True) if event[0] == "in" else self.present.remove(event[1])
            ...         return list(self.present.keys())
            >>> events = env.from_collection([("in", "ann"), ("in", "bob"), ("out", "ann")])
            >>> list(events.key_by(lambda event: "room").map(Present()).execute_and_collect())[-1]
            ['bob']
        """
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
        """Return whether there is a value other than None; `keys()` includes entries of None, as in PyFlink.

        Example:
            >>> from millstream.datastream import FilterFunction
            >>> from millstream.datastream.state import MapStateDescriptor
            >>> class New(FilterFunction):
            ...     def open(self, runtime_context):
            ...         self.seen = runtime_context.get_map_state(MapStateDescriptor("seen"))
            ...     def filter(self, page):
            ...         is_new = not self.seen.contains(page)
            ...         self.seen.put(page, True)
            ...         return is_new
            >>> pages = env.from_collection(["home", "cart", "home"])
            >>> list(pages.key_by(lambda page: 0).filter(New()).execute_and_collect())
            ['home', 'cart']
        """
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
        """Return the keys and values of all entries.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> from millstream.datastream.state import MapStateDescriptor
            >>> class Basket(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.basket = runtime_context.get_map_state(MapStateDescriptor("basket"))
            ...     def map(self, item):
            ...         self.basket.put(*item)
            ...         return sum(price * count for price, count in self.basket.items())
            >>> items = env.from_collection([(3, 2), (5, 1)])
            >>> list(items.key_by(lambda item: "ann").map(Basket()).execute_and_collect())
            [6, 11]
        """
        return self._entries().items()

    def keys(self) -> Iterable[Value]:
        """Return the keys of all entries.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> from millstream.datastream.state import MapStateDescriptor
            >>> class Pages(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.pages = runtime_context.get_map_state(MapStateDescriptor("pages"))
            ...     def map(self, page):
            ...         self.pages.put(page, True)
            ...         return list(self.pages.keys())
            >>> pages = env.from_collection(["home", "cart", "home"])
            >>> list(pages.key_by(lambda page: 0).map(Pages()).execute_and_collect())[-1]
            ['home', 'cart']
        """
        return self._entries().keys()

    def values(self) -> Iterable[Value]:
        """Return the values of all entries.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> from millstream.datastream.state import MapStateDescriptor
            >>> class Total(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.latest = runtime_context.get_map_state(MapStateDescriptor("latest"))
            ...     def map(self, reading):
            ...         self.latest.put(*reading)
            ...         return sum(self.latest.values())
            >>> readings = env.from_collection([("kitchen", 20), ("hall", 18), ("kitchen", 21)])
            >>> list(readings.key_by(lambda reading: "house").map(Total()).execute_and_collect())
            [20, 38, 39]
        """
        return self._entries().values()

    def is_empty(self) -> bool:
        """Return whether there are no entries.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> from millstream.datastream.state import MapStateDescriptor
            >>> class IsFirst(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.seen = runtime_context.get_map_state(MapStateDescriptor("seen"))
            ...     def map(self, page):
            ...         is_first = self.seen.is_empty()
            ...         self.seen.put(page, True)
            ...         return page, is_first
            >>> list(env.from_collection(["home", "cart"]).key_by(lambda page: 0).map(IsFirst()).execute_and_collect())
            [('home', True), ('cart', False)]
        """
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
