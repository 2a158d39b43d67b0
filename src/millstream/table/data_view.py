"""Views of an aggregate function's accumulator: lists and maps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Generic, TypeVar

from millstream.common.aliases import Value
from millstream.common.tags import tagged

__all__ = ["DataView", "ListView", "MapView"]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class DataView(ABC):
    """A collection in an accumulator."""

    @abstractmethod
    def clear(self) -> None:
        """Remove all elements."""


def _read_list(elements: list[Value]) -> ListView[Value]:
    view: ListView[Value] = ListView()
    view.add_all(elements)
    return view


@tagged("list-view", write=lambda view: (view._list,), read=_read_list)
class ListView(DataView, Generic[T]):
    """Holds a list in an accumulator; the result of `create_accumulator` contains it.

    Example:
        >>> view = ListView()
        >>> view.add("to")
        >>> view.add_all(["be", "or"])
        >>> list(view.get())
        ['to', 'be', 'or']
    """

    def __init__(self) -> None:
        self._list: list[T] = []

    def get(self) -> Iterable[T]:
        """Return the elements."""
        return self._list

    def add(self, value: T) -> None:
        """Add an element."""
        self._list.append(value)

    def add_all(self, values: list[T]) -> None:
        """Add elements."""
        self._list.extend(values)

    def clear(self) -> None:
        """Remove all elements."""
        self._list = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ListView) and list(self.get()) == list(other.get())

    def __hash__(self) -> int:
        return hash(tuple(self.get()))

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    def __repr__(self) -> str:
        return f"ListView({self._list!r})"


class RemovingIterator(Iterator[T]):
    """Iterates over a map; remove() deletes the entry returned last.

    Example:
        >>> view = MapView()
        >>> view.put_all({"a": 1, "b": 2})
        >>> keys = iter(view.keys())
        >>> next(keys)
        'a'
        >>> keys.remove()
        >>> view
        MapView({'b': 2})
    """

    def __init__(self, entries: dict[Value, Value], project: Callable[[Value], T]) -> None:
        self._entries = entries
        self._project = project
        self._keys = iter(list(entries))
        self._size = len(entries)
        self._last: list[Value] = []

    def __next__(self) -> T:
        self._check()
        key = next(self._keys)
        self._last = [key]
        return self._project(key)

    def remove(self) -> None:
        """Remove the entry that was returned last."""
        if not self._last:
            raise RuntimeError("remove() of a MapView's iterator needs an entry: call next() first.")
        self._check()
        del self._entries[self._last.pop()]
        self._size -= 1

    def _check(self) -> None:
        if len(self._entries) != self._size:
            raise RuntimeError("The MapView was changed during iteration: use remove() of the iterator.")


class _Entries(Collection[T]):
    """The keys or values of a map, or both."""

    def __init__(self, entries: dict[Value, Value], project: Callable[[Value], T]) -> None:
        self._entries = entries
        self._project = project

    def __iter__(self) -> RemovingIterator[T]:
        return RemovingIterator(self._entries, self._project)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, value: object) -> bool:
        return any(member == value for member in self)


def _read_map(entries: dict[Value, Value]) -> MapView[Value, Value]:
    view: MapView[Value, Value] = MapView()
    view.put_all(entries)
    return view


@tagged("map-view", write=lambda view: (view._dict,), read=_read_map)
class MapView(Generic[K, V]):
    """Holds a map in an accumulator; the result of `create_accumulator` contains it.

    Example:
        >>> view = MapView()
        >>> view.put("to", 1)
        >>> view["be"] = 2
        >>> view.remove("to")
        >>> list(view.items()), view.contains("to"), view.is_empty()
        ([('be', 2)], False, False)
    """

    def __init__(self) -> None:
        self._dict: dict[K, V] = {}

    def get(self, key: K) -> V:
        """Return the value of a key."""
        return self._dict[key]

    def put(self, key: K, value: V) -> None:
        """Set the value of a key."""
        self._dict[key] = value

    def put_all(self, dict_value: dict[K, V]) -> None:
        """Set the values of many keys."""
        self._dict.update(dict_value)

    def remove(self, key: K) -> None:
        """Remove a key."""
        del self._dict[key]

    def contains(self, key: K) -> bool:
        """Return whether a key exists."""
        return key in self._dict

    def items(self) -> Iterable[tuple[K, V]]:
        """Return keys and values."""
        return _Entries(self._dict, lambda key: (key, self._dict[key]))

    def keys(self) -> Iterable[K]:
        """Return the keys."""
        return _Entries(self._dict, lambda key: key)

    def values(self) -> Iterable[V]:
        """Return the values."""
        return _Entries(self._dict, self._dict.__getitem__)

    def is_empty(self) -> bool:
        """Return whether the map is empty."""
        return not self._dict

    def clear(self) -> None:
        """Remove all entries."""
        self._dict.clear()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MapView) and self._dict == other._dict

    def __hash__(self) -> int:
        return hash(tuple(self._dict))

    def __getitem__(self, key: K) -> V:
        return self.get(key)

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())

    def __repr__(self) -> str:
        return f"MapView({self._dict!r})"
