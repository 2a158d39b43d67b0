"""Operator state: state of a subtask rather than of a key.

Broadcast state is the same map in every subtask. List state is what a CheckpointedFunction writes at the end of every
epoch and reads when it is restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import GenericAlias
from typing import ClassVar

from millstream.common.aliases import Key, Value
from millstream.common.immutability import detach
from millstream.state.descriptors import ListStateDescriptor, MapStateDescriptor, StateDescriptor, renamed
from millstream.state.handles import ListState, MapState
from millstream.state.keyed import KeyedState
from millstream.state.table import BY_NAME, KeyCell

# The one row of every table of operator state.
_ROW = "operator"


class ReadOnlyBroadcastState:
    """A broadcast state as the non-broadcast side sees it."""

    # Annotations may be parameterized, as in `BroadcastState[str, int]`.
    __class_getitem__: ClassVar[object] = classmethod(GenericAlias)

    def __init__(self, state: MapState) -> None:
        self._state = state

    def get(self, key: Key) -> Value:
        """Return the value of a key, or None."""
        return self._state.get(key)

    def contains(self, key: Key) -> bool:
        """Return whether a key has a value."""
        return self._state.contains(key)

    def items(self) -> Iterable[tuple[Key, Value]]:
        """Return keys and values."""
        return self._state.items()

    def keys(self) -> Iterable[Value]:
        """Return the keys."""
        return self._state.keys()

    def values(self) -> Iterable[Value]:
        """Return the values."""
        return self._state.values()

    def is_empty(self) -> bool:
        """Return whether the state is empty."""
        return self._state.is_empty()

    def __getitem__(self, key: Key) -> Value:
        return self._state.get(key)

    def __contains__(self, key: Key) -> bool:
        return self._state.contains(key)

    def __iter__(self) -> Iterator[Value]:
        return iter(self._state)


class BroadcastState(ReadOnlyBroadcastState):
    """A broadcast state as the broadcast side sees it, which alone may update it."""

    def read_only(self) -> ReadOnlyBroadcastState:
        """Return the read-only view of the other side."""
        return ReadOnlyBroadcastState(self._state)

    def put(self, key: Key, value: Value) -> None:
        """Set the value of a key."""
        self._state.put(key, value)

    def put_all(self, dict_value: dict[Key, Value]) -> None:
        """Set the values of several keys."""
        self._state.put_all(dict_value)

    def remove(self, key: Key) -> None:
        """Remove a key."""
        self._state.remove(key)

    def clear(self) -> None:
        """Remove all keys."""
        self._state.clear()

    def __setitem__(self, key: Key, value: Value) -> None:
        self._state.put(key, value)

    def __delitem__(self, key: Key) -> None:
        self._state.remove(key)


class OperatorStateStore:
    """Provides functions with operator state."""

    def __init__(self, state: KeyedState) -> None:
        self._state = state
        self._cell = KeyCell(BY_NAME)
        self._cell.key = _ROW

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState:
        """Return the broadcast state of that name."""
        return BroadcastState(self._state.handle(state_descriptor, self._cell))

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState:
        """Return list state that is split between the subtasks."""
        state: ListState = self._handle(state_descriptor, "split")
        return state

    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState:
        """Return list state of which each subtask gets all elements when it is restored."""
        state: ListState = self._handle(state_descriptor, "union")
        return state

    def _handle(self, descriptor: StateDescriptor, how: str) -> Value:
        return self._state.handle(renamed(descriptor, f"{how}.{descriptor.name}"), self._cell)

    @property
    def is_empty(self) -> bool:
        """Return whether there is no state."""
        return not self._state.has_rows()


class FunctionInitializationContext:
    """The argument of `initialize_state`."""

    def __init__(self, store: OperatorStateStore) -> None:
        self._store = store
        self._restored = not store.is_empty

    def is_restored(self) -> bool:
        """Return whether the state was restored."""
        return self._restored

    def get_operator_state_store(self) -> OperatorStateStore:
        return self._store


class FunctionSnapshotContext:
    """The argument of `snapshot_state`."""

    def __init__(self, checkpoint_id: int, timestamp: int) -> None:
        self._checkpoint_id = checkpoint_id
        self._timestamp = timestamp

    def get_checkpoint_id(self) -> int:
        return self._checkpoint_id

    def get_checkpoint_timestamp(self) -> int:
        return self._timestamp


def each_keyed_state(
    state: KeyedState,
    descriptor: StateDescriptor,
    function: Callable[[Key, Value], None],
    thaw: Callable[[Value], Value],
) -> None:
    """Call a function with every key that has a state, and the state."""
    handle = state.handle(descriptor)
    before = state.cell.key
    for row, _ in list(state.rows(descriptor.name)):
        state.cell.key = row
        function(thaw(detach(row)), handle)
    state.cell.key = before
