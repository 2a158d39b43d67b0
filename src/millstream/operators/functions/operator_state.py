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
from millstream.state.handles import MapState
from millstream.state.keyed import KeyedState
from millstream.state.merging_handles import ListState
from millstream.state.table import BY_NAME, KeyCell

# The one row of every table of operator state.
_ROW = "operator"


class ReadOnlyBroadcastState:
    """A broadcast state as the non-broadcast side sees it: the same map in every subtask, which it can only read.

    Example:
        >>> from millstream.datastream import BroadcastProcessFunction
        >>> from millstream.datastream.state import MapStateDescriptor
        >>> from millstream.testing import BroadcastHarness
        >>> rates = MapStateDescriptor("rates")
        >>> class Convert(BroadcastProcessFunction):
        ...     def process_broadcast_element(self, value, ctx):
        ...         ctx.get_broadcast_state(rates).put(*value)
        ...     def process_element(self, value, ctx):
        ...         yield value[1] * ctx.get_broadcast_state(rates)[value[0]]
        >>> with BroadcastHarness(Convert(), [rates]) as harness:
        ...     harness.process_broadcast_element(("eur", 2))
        ...     harness.process_element(("eur", 10))
        ...     harness.output()
        [20]
    """

    # Annotations may be parameterized, as in `BroadcastState[str, int]`.
    __class_getitem__: ClassVar[object] = classmethod(GenericAlias)

    def __init__(self, state: MapState) -> None:
        self._state = state

    def get(self, key: Key) -> Value:
        """Return the value of a key, None if it has none.

        Example:
            >>> from millstream.datastream import BroadcastProcessFunction
            >>> from millstream.datastream.state import MapStateDescriptor
            >>> from millstream.testing import BroadcastHarness
            >>> rates = MapStateDescriptor("rates")
            >>> class Convert(BroadcastProcessFunction):
            ...     def process_broadcast_element(self, value, ctx):
            ...         ctx.get_broadcast_state(rates).put(*value)
            ...     def process_element(self, value, ctx):
            ...         yield value[1] * ctx.get_broadcast_state(rates).get(value[0])
            >>> with BroadcastHarness(Convert(), [rates]) as harness:
            ...     harness.process_broadcast_element(("eur", 2))
            ...     harness.process_element(("eur", 10))
            ...     harness.output()
            [20]
        """
        return self._state.get(key)

    def contains(self, key: Key) -> bool:
        """Return whether a key has a value.

        Example:
            >>> from millstream.datastream import BroadcastProcessFunction
            >>> from millstream.datastream.state import MapStateDescriptor
            >>> from millstream.testing import BroadcastHarness
            >>> rates = MapStateDescriptor("rates")
            >>> class Convert(BroadcastProcessFunction):
            ...     def process_broadcast_element(self, value, ctx):
            ...         ctx.get_broadcast_state(rates).put(*value)
            ...     def process_element(self, value, ctx):
            ...         yield value[0], ctx.get_broadcast_state(rates).contains(value[0])
            >>> with BroadcastHarness(Convert(), [rates]) as harness:
            ...     harness.process_broadcast_element(("eur", 2))
            ...     harness.process_element(("eur", 10))
            ...     harness.output()
            [('eur', True)]
        """
        return self._state.contains(key)

    def items(self) -> Iterable[tuple[Key, Value]]:
        """Return keys and values.

        Example:
            >>> from millstream.datastream import BroadcastProcessFunction
            >>> from millstream.datastream.state import MapStateDescriptor
            >>> from millstream.testing import BroadcastHarness
            >>> rates = MapStateDescriptor("rates")
            >>> class Convert(BroadcastProcessFunction):
            ...     def process_broadcast_element(self, value, ctx):
            ...         ctx.get_broadcast_state(rates).put(*value)
            ...     def process_element(self, value, ctx):
            ...         yield list(ctx.get_broadcast_state(rates).items())
            >>> with BroadcastHarness(Convert(), [rates]) as harness:
            ...     harness.process_broadcast_element(("eur", 2))
            ...     harness.process_element(("eur", 10))
            ...     harness.output()
            [[('eur', 2)]]
        """
        return self._state.items()

    def keys(self) -> Iterable[Value]:
        """Return the keys.

        Example:
            >>> from millstream.datastream import BroadcastProcessFunction
            >>> from millstream.datastream.state import MapStateDescriptor
            >>> from millstream.testing import BroadcastHarness
            >>> rates = MapStateDescriptor("rates")
            >>> class Convert(BroadcastProcessFunction):
            ...     def process_broadcast_element(self, value, ctx):
            ...         ctx.get_broadcast_state(rates).put(*value)
            ...     def process_element(self, value, ctx):
            ...         yield list(ctx.get_broadcast_state(rates).keys())
            >>> with BroadcastHarness(Convert(), [rates]) as harness:
            ...     harness.process_broadcast_element(("eur", 2))
            ...     harness.process_element(("eur", 10))
            ...     harness.output()
            [['eur']]
        """
        return self._state.keys()

    def values(self) -> Iterable[Value]:
        """Return the values.

        Example:
            >>> from millstream.datastream import BroadcastProcessFunction
            >>> from millstream.datastream.state import MapStateDescriptor
            >>> from millstream.testing import BroadcastHarness
            >>> rates = MapStateDescriptor("rates")
            >>> class Convert(BroadcastProcessFunction):
            ...     def process_broadcast_element(self, value, ctx):
            ...         ctx.get_broadcast_state(rates).put(*value)
            ...     def process_element(self, value, ctx):
            ...         yield list(ctx.get_broadcast_state(rates).values())
            >>> with BroadcastHarness(Convert(), [rates]) as harness:
            ...     harness.process_broadcast_element(("eur", 2))
            ...     harness.process_element(("eur", 10))
            ...     harness.output()
            [[2]]
        """
        return self._state.values()

    def is_empty(self) -> bool:
        """Return whether the state is empty.

        Example:
            >>> from millstream.datastream import BroadcastProcessFunction
            >>> from millstream.datastream.state import MapStateDescriptor
            >>> from millstream.testing import BroadcastHarness
            >>> rates = MapStateDescriptor("rates")
            >>> class Convert(BroadcastProcessFunction):
            ...     def process_broadcast_element(self, value, ctx):
            ...         ctx.get_broadcast_state(rates).put(*value)
            ...     def process_element(self, value, ctx):
            ...         yield ctx.get_broadcast_state(rates).is_empty()
            >>> with BroadcastHarness(Convert(), [rates]) as harness:
            ...     harness.process_broadcast_element(("eur", 2))
            ...     harness.process_element(("eur", 10))
            ...     harness.output()
            [False]
        """
        return self._state.is_empty()

    def __getitem__(self, key: Key) -> Value:
        return self._state.get(key)

    def __contains__(self, key: Key) -> bool:
        return self._state.contains(key)

    def __iter__(self) -> Iterator[Value]:
        return iter(self._state)


class BroadcastState(ReadOnlyBroadcastState):
    """A broadcast state as the broadcast side sees it, which alone may update it.

    Every subtask must make the same updates, from the broadcast records alone: nothing compares the copies.
    """

    def read_only(self) -> ReadOnlyBroadcastState:
        """Return the view of the other side.

        Example:
            >>> from millstream.datastream import BroadcastProcessFunction
            >>> from millstream.datastream.state import MapStateDescriptor
            >>> from millstream.testing import BroadcastHarness
            >>> rates = MapStateDescriptor("rates")
            >>> class Convert(BroadcastProcessFunction):
            ...     def process_broadcast_element(self, value, ctx):
            ...         rate = ctx.get_broadcast_state(rates).read_only().get(value[0])
            ...         ctx.get_broadcast_state(rates).put(value[0], value[1] if rate is None else max(rate, value[1]))
            ...     def process_element(self, value, ctx):
            ...         yield value
            >>> with BroadcastHarness(Convert(), [rates]) as harness:
            ...     harness.process_broadcast_element(("eur", 2))
            ...     harness.process_broadcast_element(("eur", 1))
            ...     harness.broadcast_state("rates")
            {'eur': 2}
        """
        return ReadOnlyBroadcastState(self._state)

    def put(self, key: Key, value: Value) -> None:
        """Set the value of a key.

        Example:
            >>> from millstream.datastream import BroadcastProcessFunction
            >>> from millstream.datastream.state import MapStateDescriptor
            >>> from millstream.testing import BroadcastHarness
            >>> rates = MapStateDescriptor("rates")
            >>> class Convert(BroadcastProcessFunction):
            ...     def process_broadcast_element(self, value, ctx):
            ...         ctx.get_broadcast_state(rates).put(*value)
            ...     def process_element(self, value, ctx):
            ...         yield value
            >>> with BroadcastHarness(Convert(), [rates]) as harness:
            ...     harness.process_broadcast_element(("eur", 2))
            ...     harness.process_broadcast_element(("usd", 3))
            ...     harness.broadcast_state("rates")
            {'eur': 2, 'usd': 3}
        """
        self._state.put(key, value)

    def put_all(self, dict_value: dict[Key, Value]) -> None:
        """Set the values of several keys.

        Example:
            >>> from millstream.datastream import BroadcastProcessFunction
            >>> from millstream.datastream.state import MapStateDescriptor
            >>> from millstream.testing import BroadcastHarness
            >>> rates = MapStateDescriptor("rates")
            >>> class Convert(BroadcastProcessFunction):
            ...     def process_broadcast_element(self, value, ctx):
            ...         ctx.get_broadcast_state(rates).put_all(value)
            ...     def process_element(self, value, ctx):
            ...         yield value
            >>> with BroadcastHarness(Convert(), [rates]) as harness:
            ...     harness.process_broadcast_element({"eur": 2, "usd": 3})
            ...     harness.broadcast_state("rates")
            {'eur': 2, 'usd': 3}
        """
        self._state.put_all(dict_value)

    def remove(self, key: Key) -> None:
        """Remove a key, if it has a value.

        Example:
            >>> from millstream.datastream import BroadcastProcessFunction
            >>> from millstream.datastream.state import MapStateDescriptor
            >>> from millstream.testing import BroadcastHarness
            >>> rates = MapStateDescriptor("rates")
            >>> class Convert(BroadcastProcessFunction):
            ...     def process_broadcast_element(self, value, ctx):
            ...         state = ctx.get_broadcast_state(rates)
            ...         state.put(*value) if value[1] else state.remove(value[0])
            ...     def process_element(self, value, ctx):
            ...         yield value
            >>> with BroadcastHarness(Convert(), [rates]) as harness:
            ...     harness.process_broadcast_element(("eur", 2))
            ...     harness.process_broadcast_element(("usd", 3))
            ...     harness.process_broadcast_element(("eur", None))
            ...     harness.broadcast_state("rates")
            {'usd': 3}
        """
        self._state.remove(key)

    def clear(self) -> None:
        """Remove all keys.

        Example:
            >>> from millstream.datastream import BroadcastProcessFunction
            >>> from millstream.datastream.state import MapStateDescriptor
            >>> from millstream.testing import BroadcastHarness
            >>> rates = MapStateDescriptor("rates")
            >>> class Convert(BroadcastProcessFunction):
            ...     def process_broadcast_element(self, value, ctx):
            ...         ctx.get_broadcast_state(rates).clear()
            ...         ctx.get_broadcast_state(rates).put(*value)
            ...     def process_element(self, value, ctx):
            ...         yield value
            >>> with BroadcastHarness(Convert(), [rates]) as harness:
            ...     harness.process_broadcast_element(("eur", 2))
            ...     harness.process_broadcast_element(("usd", 3))
            ...     harness.broadcast_state("rates")
            {'usd': 3}
        """
        self._state.clear()

    def __setitem__(self, key: Key, value: Value) -> None:
        self._state.put(key, value)

    def __delitem__(self, key: Key) -> None:
        self._state.remove(key)


class OperatorStateStore:
    """Provides functions with operator state: state of a subtask rather than of a key.

    A CheckpointedFunction gets it from the context of `initialize_state`. PyFlink's store has broadcast state only.

    Example:
        >>> from millstream.datastream import CheckpointedFunction, MapFunction
        >>> from millstream.datastream.state import ListStateDescriptor
        >>> from millstream.testing import OneInputHarness
        >>> class Numbered(MapFunction, CheckpointedFunction):
        ...     def initialize_state(self, context):
        ...         self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("next"))
        ...         self.next = sum(self.state.get())
        ...     def snapshot_state(self, context):
        ...         self.state.update([self.next])
        ...     def map(self, value):
        ...         self.next += 1
        ...         return self.next, value
        >>> with OneInputHarness(Numbered()) as harness:
        ...     harness.process_elements(["a", "b"])
        ...     harness.output(), harness.operator_state("next")
        ([(1, 'a'), (2, 'b')], [2])
    """

    def __init__(self, state: KeyedState) -> None:
        self._state = state
        self._cell = KeyCell(BY_NAME)
        self._cell.key = _ROW

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState:
        """Return the broadcast state of that name: a map, the same in every subtask."""
        return BroadcastState(self._state.handle(state_descriptor, self._cell))

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState:
        """Return list state whose elements are split between the subtasks when it is restored.

        Example:
            >>> from millstream.datastream import CheckpointedFunction, MapFunction
            >>> from millstream.datastream.state import ListStateDescriptor
            >>> from millstream.testing import OneInputHarness
            >>> class Count(MapFunction, CheckpointedFunction):
            ...     def initialize_state(self, context):
            ...         self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("counts"))
            ...         self.count = sum(self.state.get())
            ...     def snapshot_state(self, context):
            ...         self.state.update([self.count])
            ...     def map(self, value):
            ...         self.count += 1
            ...         return self.count
            >>> with OneInputHarness(Count()) as harness:
            ...     harness.process_elements(["a", "b"])
            ...     snapshot = harness.snapshot()
            >>> with OneInputHarness(Count(), snapshot=snapshot) as harness:
            ...     harness.process_element("c")
            ...     harness.output()
            [3]
        """
        state: ListState = self._handle(state_descriptor, "split")
        return state

    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState:
        """Return list state of which each subtask gets all elements when it is restored.

        Example:
            >>> from millstream.datastream import CheckpointedFunction, MapFunction
            >>> from millstream.datastream.state import ListStateDescriptor
            >>> from millstream.testing import OneInputHarness
            >>> class Total(MapFunction, CheckpointedFunction):
            ...     def initialize_state(self, context):
            ...         store = context.get_operator_state_store()
            ...         self.state = store.get_union_list_state(ListStateDescriptor("counts"))
            ...         self.before, self.count = sum(self.state.get()), 0
            ...     def snapshot_state(self, context):
            ...         self.state.update([self.count])
            ...     def map(self, value):
            ...         self.count += 1
            ...         return self.before + self.count
            >>> with OneInputHarness(Total()) as harness:
            ...     harness.process_elements(["a", "b"])
            ...     harness.output(), harness.operator_state("counts")
            ([1, 2], [2])
        """
        state: ListState = self._handle(state_descriptor, "union")
        return state

    def _handle(self, descriptor: StateDescriptor, how: str) -> Value:
        return self._state.handle(renamed(descriptor, f"{how}.{descriptor.name}"), self._cell)

    @property
    def is_empty(self) -> bool:
        """Whether there is no state."""
        return not self._state.has_rows()


class FunctionInitializationContext:
    """The argument of `initialize_state`: operator state, and whether it was restored."""

    def __init__(self, store: OperatorStateStore) -> None:
        self._store = store
        self._restored = not store.is_empty

    def is_restored(self) -> bool:
        """Return whether the state was restored."""
        return self._restored

    def get_operator_state_store(self) -> OperatorStateStore:
        """Return the store of operator state."""
        return self._store


class FunctionSnapshotContext:
    """The argument of `snapshot_state`: the checkpoint's id and time."""

    def __init__(self, checkpoint_id: int, timestamp: int) -> None:
        self._checkpoint_id = checkpoint_id
        self._timestamp = timestamp

    def get_checkpoint_id(self) -> int:
        """Return the number of the epoch, which is the checkpoint's id."""
        return self._checkpoint_id

    def get_checkpoint_timestamp(self) -> int:
        """Return the time of the snapshot in milliseconds."""
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
